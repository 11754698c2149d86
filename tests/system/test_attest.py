"""`cryptmpi attest`: signed on one node, verified on another one by the signer's public key alone; no field of it can
be changed."""

import copy
import json
import stat

import pytest
from conftest import BUILD
from jobs import sealing_of
from test_canary import OF_ROOT

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import REPOSITORY

COMMAND = BUILD / "bin" / "cryptmpi"
MPI = stacks.stack("openmpi-4.1.4")
NOT_SEALED = 123


class Signer:
    """Who runs jobs and attests them, on the first node; and somebody elsewhere, who has but a list of members."""

    def __init__(self, nodes, folder):
        self.nodes, self.folder = nodes, folder
        self.sealing = sealing_of(folder, nodes)
        self.elsewhere = folder / "elsewhere"
        (self.elsewhere / "cryptmpi").mkdir(parents=True)

    def ran(self, *words, node=0, **environment):
        line = [str(word) for word in (COMMAND, *words)]
        return self.nodes.run(line, node=node, env={**OF_ROOT, **MPI.env(self.nodes), **self.sealing.env(), **environment}, timeout=250)

    def listed(self, *lines):
        members = self.elsewhere / "cryptmpi" / "members"
        members.write_text("".join(f"{line}\n" for line in lines))
        members.chmod(0o644)

    def verify(self, file, *more):
        return self.ran("attest", "--verify", file, *more, node=1, XDG_CONFIG_HOME=self.elsewhere)

    def member(self, name="signer"):
        """Makes its key; returns the line for lists."""
        made = self.ran("keygen", "--member", name)
        assert made.ok, made.output
        return made.output.splitlines()[-1]


@pytest.fixture
def signer(two_nodes, tmp_path):
    if not MPI.present() or not MPI.mpicc.exists():
        pytest.skip(f"{MPI.title} is not installed")
    return Signer(two_nodes, tmp_path)


def job(signer, build, *more, **environment):
    """The report of a small sealed job."""
    program = build(MPI, REPOSITORY / "tests" / "system" / "subsets.c")
    report = signer.folder / "report.json"
    done = signer.ran("run", "-n", "2", "--hosts", ",".join(f"{host}:1" for host in signer.nodes.hosts()[:2]), "--mpi", MPI.mpiexec,
                      "--rsh", signer.nodes.rsh, "--report", report, *more, program, **environment)
    assert done.ok, done.output
    return report


def test_an_exception_passes_where_the_reader_lets_it(signer, build):
    """Whose settings allow it is the signer's choice."""
    line = signer.member()
    report = job(signer, build, "--layer", "mpi", CRYPTMPI_SEAL_SOCKETS="false")
    checked = signer.ran("report", report, "--check")
    assert checked.returncode == NOT_SEALED and checked.output.startswith("SEALED WITH EXCEPTIONS"), checked.output
    made = signer.ran("attest", report, "--no-canary")
    file = signer.folder / "report.json.attestation"
    assert made.returncode == NOT_SEALED and file.exists(), made.output
    signer.listed(line)
    assert signer.verify(file).returncode == NOT_SEALED
    assert signer.verify(file, "--allow-exceptions").ok


def leaves(value, path=()):
    if isinstance(value, (dict, list)) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def changed(value):
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, (int, float)) else f"{value}x" if isinstance(value, str) else ["x"]


def test_with_a_canary_it_holds_elsewhere_and_no_field_can_be_changed(signer, build):
    line = signer.member()
    report = job(signer, build)
    words = ["--canary-option=--mpi", f"--canary-option={MPI.mpiexec}", "--canary-option=--rsh", f"--canary-option={signer.nodes.rsh}",
             "--canary-option=--folder", f"--canary-option={signer.folder}"]
    made = signer.ran("attest", report, "--hosts", ",".join(signer.nodes.hosts()[:2]), *words)
    assert made.ok and "SEALED: all traffic" in made.output and "0 canaries in the" in made.output, made.output

    file = signer.folder / "report.json.attestation"
    signer.listed(line)
    good = signer.verify(file)
    assert good.ok and "signed by         signer\n" in good.output and "SEALED: all traffic" in good.output, good.output
    page = signer.verify(file, "--html")
    assert page.ok and "Signed by signer." in page.output and "<h1>CryptMPI: attestation of a job</h1>" in page.output

    whole = json.loads(file.read_text())
    places = list(leaves(whole))
    assert len(places) > 60
    for path in places:
        edited = copy.deepcopy(whole)
        inner = edited
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = changed(inner[path[-1]])
        file.write_text(json.dumps(edited))
        done = signer.verify(file)
        assert done.returncode == NOT_SEALED, (path, done.output)

    forged = copy.deepcopy(whole)
    forged["signatures"][0] |= {"member": "\x1b[2J\x1b[H\nSEALED: all traffic", "signature": "0" * 128}
    file.write_text(json.dumps(forged))
    done = signer.verify(file)
    assert done.returncode == NOT_SEALED and "\x1b" not in done.output and "\nSEALED" not in done.output, done.output


def test_whom_nobody_lists_is_not_believed(signer, build):
    signer.member()
    report = job(signer, build)
    file = signer.folder / "report.json.attestation"
    precious = signer.folder / "precious"
    precious.write_text("precious")
    file.symlink_to(precious)  # as others leave it, where a group may write
    made = signer.ran("attest", report, "--no-canary")
    assert made.ok and "canary            not tried" in made.output, made.output
    assert precious.read_text() == "precious"
    no_list = signer.verify(file)
    assert no_list.returncode == NOT_SEALED and "members cannot be read" in no_list.output and no_list.output.count("\n") == 1
    signer.listed("somebody ed25519 " + "a" * 64)
    unknown = signer.verify(file)
    assert unknown.returncode == NOT_SEALED and unknown.output.startswith("NOT VERIFIED, nobody who is known to you has signed this")


def test_without_the_jobs_key_or_a_member_key_nothing_is_attested(signer, build):
    report = job(signer, build)
    without = signer.ran("attest", report, "--no-canary")
    assert not without.ok and "member key file" in without.output and "cryptmpi keygen --member" in without.output
    assert not (signer.folder / "report.json.attestation").exists()
    signer.member()
    forged = json.loads(report.read_text())
    forged["totals"]["failed_opens"] = 0
    forged["totals"]["sealed_bytes_sent"] += 1
    report.write_text(json.dumps(forged))
    done = signer.ran("attest", report)  # no canary goes where a report says that nobody has signed
    assert done.returncode == NOT_SEALED and done.output.startswith("cryptmpi: attest: nothing is attested: FAILED: "), done.output
    assert done.output.count("\n") == 1 and not (signer.folder / "report.json.attestation").exists()
    line = signer.ran("keygen", "--member", "signer")
    assert not line.ok and "exists: " in line.output
    assert stat.S_IMODE((signer.folder / "config" / "cryptmpi" / "member.key").stat().st_mode) == 0o600


def with_node_key(text, mode=0o600):
    """A command line's beginning: in a mount namespace of its own, whose /etc/cryptmpi/member.key has this text."""
    script = ("mount -t tmpfs none /mnt && cp -a /etc /mnt/etc && mount --bind /mnt/etc /etc && mkdir -p /etc/cryptmpi && "
              f"printf '%s\\n' '{text}' > /etc/cryptmpi/member.key && chmod {mode:o} /etc/cryptmpi/member.key && exec \"$@\"")
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def attested_with(signer, text, report, **how):
    line = [str(word) for word in (*with_node_key(text, **how), COMMAND, "attest", report, "--no-canary")]
    return signer.nodes.run(line, env={**OF_ROOT, **MPI.env(signer.nodes), **signer.sealing.env()}, timeout=100)


def test_the_node_signs_too(signer, build):
    user = signer.member()
    key = signer.folder / "node.key"
    made = signer.ran("keygen", "--member", "node", CRYPTMPI_MEMBER_KEY_FILE=key)
    assert made.ok, made.output
    node = made.output.splitlines()[-1]
    report = job(signer, build)
    file = signer.folder / "report.json.attestation"
    done = attested_with(signer, key.read_text().strip(), report)
    assert done.ok and len(json.loads(file.read_text())["signatures"]) == 2, done.output

    # Whom the reader knows vouches: the node alone, the user alone, both.
    for lines, names in (([node], "node"), ([user], "signer"), ([user, node], "signer, node")):
        signer.listed(*lines)
        shown = signer.verify(file)
        assert shown.ok and f"signed by         {names}\n" in shown.output, shown.output
    whole = json.loads(file.read_text())
    digits = whole["signatures"][1]["signature"]
    whole["signatures"][1]["signature"] = digits[:-1] + ("0" if digits[-1] != "0" else "1")
    file.write_text(json.dumps(whole))
    altered = signer.verify(file)
    assert altered.returncode == NOT_SEALED and "does not belong to what it says: it was altered" in altered.output


def test_a_node_key_that_is_none_signs_nothing(signer, build):
    """Whoever says that the node has signed must not be left with the user's signature alone."""
    signer.member()
    report = job(signer, build)
    good = "cryptmpi-member-key-1 " + "5" * 64
    for text, mode in (("cryptmpi-member-key-1 short", 0o600), (good, 0o644)):
        done = attested_with(signer, text, report, mode=mode)
        assert done.returncode == 1 and "member key file /etc/cryptmpi/member.key" in done.output and done.output.count("\n") == 1, done.output
        assert not (signer.folder / "report.json.attestation").exists()


@pytest.mark.parametrize("name", ["", "a b", "#a", "a/b", "a" * 65])
def test_a_name_that_no_list_can_have_makes_no_key(name, signer):
    done = signer.ran("keygen", "--member", name)
    assert done.returncode == 1 and "keygen: the member has a name of other characters" in done.output and done.output.count("\n") == 1
    assert not (signer.folder / "config" / "cryptmpi" / "member.key").exists()


def test_a_canary_that_leaves_in_clear_spoils_it(signer, build):
    signer.member()
    report = job(signer, build, "--layer", "channel")
    (signer.folder / "config" / "cryptmpi" / "config.toml").write_text(
        f"plaintext_peers = {json.dumps([node.address for node in signer.nodes.nodes])}\n")
    made = signer.ran("attest", report, "--hosts", ",".join(signer.nodes.hosts()[:2]), f"--canary-option=--mpi={MPI.mpiexec}",
                      f"--canary-option=--rsh={signer.nodes.rsh}", f"--canary-option=--folder={signer.folder}")
    assert made.returncode == NOT_SEALED and "FAILED: the canary test did not hold: " in made.output and "IN CLEAR" in made.output, made.output
