"""Programs whose calls of MPI would pass the MPI layer by, in part or all: covered all the same, or ended before any
data. And tools between the program and MPI, which go on working."""

import re
import secrets
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY, error_lines, expect_unseen
from jobs import ended, run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count
from cryptmpi_tools.lab.sealing import ALONE

SOURCES = REPOSITORY / "tests" / "system"
MPICH = "mpich-4.0.2-ucx"
OPEN_MPI = "openmpi-4.1.4"
BOTH = pytest.mark.parametrize("name", [MPICH, OPEN_MPI])
LIBRARIES = {MPICH: "libmpich.so.12", OPEN_MPI: "libmpi.so.40"}
LAYER = BUILD / "lib" / "cryptmpi" / "libcryptmpi-mpi.so"
SHARED = ("-shared", "-fPIC")
COUNTED = ["counting: 1 begun 0 sent 50 received", "counting: 1 begun 50 sent 0 received"]


class Whisper:
    """Jobs that send one canary, plain or sealed; was it on the wire?"""

    def __init__(self, nodes, folder):
        self.nodes, self.folder = nodes, folder
        self.canary = secrets.token_bytes(32)
        self.file = folder / "canary.bin"
        self.file.write_bytes(self.canary)
        self.sealing = sealing_of(folder, nodes, **ALONE)

    def run(self, mpi, program, sealed=True, env=None):
        wire = self.folder / "wire.pcap"
        words = [str(word) for word in (*program, self.file)]
        with self.nodes.capture(wire):
            # What is preloaded is preloaded into the ranks, not into the launcher.
            done = run(mpi, self.nodes, None, [*_env(env), *(self.sealing.exec_line(words) if sealed else words)], env=self.sealing.env(),
                       timeout=30)
        return done, count(wire, [self.canary])[0][self.canary] > 0

    def expect_sealed(self, mpi, program, env=None):
        done, seen = self.run(mpi, program, env=env)
        assert ended(mpi, done, "all as sent") and "all as sent" in done.output, done.output
        expect_unseen(seen, done.output)
        assert not error_lines(done.output), done.output
        return done

    def alone(self, *program, env=None, sealed=True):
        """One process, no launcher."""
        words = [str(word) for word in (*program, self.file)]
        return self.nodes.run(self.sealing.exec_line(words) if sealed else words, env={**self.sealing.env(), **(env or {})}, timeout=30)


def _env(variables):
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []


def expect_refused(done, *words):
    lines = error_lines(done.output)
    assert done.returncode == 125 and len(lines) == 1, (done.returncode, done.output)
    assert all(word in lines[0] for word in words), lines
    assert "all as sent" not in done.output


@pytest.fixture
def whisper(nodes, tmp_path):
    return Whisper(nodes, tmp_path)


def library_of(build, mpi, source, folder, name, *options):
    """A shared library called `name`, in a folder of its own."""
    built = build(mpi, SOURCES / source, *SHARED, *options)
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to(built)
    return folder / name


@BOTH
def test_plain(name, build, whisper):
    """That what follows is sealed would mean nothing if this were not seen."""
    mpi = stacks.stack(name)
    done, seen = whisper.run(mpi, [build(mpi, SOURCES / "whisper.c")], sealed=False)
    assert seen and ended(mpi, done, "all as sent"), done.output


# Tools

@pytest.mark.parametrize("way", ["by PMPI", "by the next"])
@pytest.mark.parametrize("how", ["preloaded", "linked", "in the program"])
@BOTH
def test_tool(name, how, way, build, whisper, tmp_path):
    mpi = stacks.stack(name)
    options = ("-DNEXT",) if way == "by the next" else ()
    env = {}
    if how == "preloaded":
        env = {"LD_PRELOAD": str(library_of(build, mpi, "counting.c", tmp_path / "tool", "libcounting.so", *options))}
        program = build(mpi, SOURCES / "whisper.c")
    elif how == "linked":
        tool = library_of(build, mpi, "counting.c", tmp_path / "tool", "libcounting.so", *options)
        program = build(mpi, SOURCES / "whisper.c", f"-L{tool.parent}", "-Wl,--no-as-needed", f"-Wl,-rpath,{tool.parent}", "-lcounting")
    else:
        program = build(mpi, SOURCES / "whisper.c", str(SOURCES / "counting.c"), "-ldl", *options)
    done = whisper.expect_sealed(mpi, [program], env)
    assert sorted(re.findall("counting: .* received", done.output)) == COUNTED, done.output


# Ways around us that are led back

@pytest.mark.parametrize("how", ["local", "deepbind"])
@BOTH
def test_plugin(name, how, build, whisper, tmp_path):
    mpi = stacks.stack(name)
    plugin = library_of(build, mpi, "whisper.c", tmp_path / "plugin", "libwhisper.so", "-DPLUGIN")
    opened = tmp_path / "opened"
    subprocess.run(["cc", "-o", opened, SOURCES / "opened.c"], check=True)
    whisper.expect_sealed(mpi, [opened, how, plugin])


def test_our_own_modules_are_bound_deeply(build, whisper, tmp_path):
    """The program has functions of the same names as the crypto library's."""
    mpi = stacks.stack(OPEN_MPI)
    (tmp_path / "clash.c").write_text("#include <stdlib.h>\nvoid EVP_CIPHER_CTX_new(void) { abort(); } void EVP_EncryptUpdate(void) { abort(); }")
    program = build(mpi, SOURCES / "whisper.c", str(tmp_path / "clash.c"), "-rdynamic")
    whisper.expect_sealed(mpi, [program], {"CRYPTMPI_MODULE": "openssl"})


@pytest.mark.parametrize("options", [("-Wl,-z,now",), ("-Wl,-z,lazy",), ("-no-pie", "-fno-pic")], ids=" ".join)
@BOTH
def test_ways_of_linking(name, options, build, whisper):
    mpi = stacks.stack(name)
    whisper.expect_sealed(mpi, [build(mpi, SOURCES / "whisper.c", *options)])


@BOTH
def test_mpi_that_the_user_preloads(name, build, whisper):
    """As users of Python do; by `cryptmpi exec` ours comes before it."""
    mpi = stacks.stack(name)
    whisper.expect_sealed(mpi, [build(mpi, SOURCES / "whisper.c")], {"LD_PRELOAD": LIBRARIES[name]})


# Ways around us that end the process

@BOTH
def test_mpi_before_us(name, build, whisper):
    mpi = stacks.stack(name)
    program = build(mpi, SOURCES / "whisper.c")
    done = whisper.alone(program, env={"LD_PRELOAD": f"{LIBRARIES[name]} {LAYER}"}, sealed=False)
    expect_refused(done, LIBRARIES[name], "is found before", "LD_PRELOAD")


def test_plugin_in_a_namespace(build, whisper, tmp_path):
    plugin = library_of(build, stacks.stack(OPEN_MPI), "whisper.c", tmp_path / "plugin", "libwhisper.so", "-DPLUGIN")
    opened = tmp_path / "opened"
    subprocess.run(["cc", "-o", opened, SOURCES / "opened.c"], check=True)
    expect_refused(whisper.alone(opened, "namespace", plugin), "libmpi.so.40", "namespace of its own", str(plugin), "dlopen")


def test_two_mpis(build, whisper):
    done = whisper.alone(build(stacks.stack(MPICH), SOURCES / "whisper.c"), env={"LD_PRELOAD": LIBRARIES[OPEN_MPI]})
    expect_refused(done, "two MPI libraries", *LIBRARIES.values())


# So little of an MPI that MPICH's static library, which is not for shared ones, is not needed.
LITTLE_MPI = """
int PMPI_Init(int* n, char*** v) { return 0; }
#pragma weak MPI_Init = PMPI_Init
int PMPI_Send(const void* at, int count, int type, int to, int tag, int comm) { return 0; }
int little(void) { return MPI_Init(0, 0) + PMPI_Send(0, 0, 0, 0, 0, 0); }
"""


@pytest.fixture
def program_with_mpi(request, tmp_path):
    """The line that starts it, and the file that has MPI inside."""
    program = tmp_path / "inside"
    if "library" in request.param:
        library = tmp_path / "liblittle.so"
        (tmp_path / "little.c").write_text(f"int MPI_Init(int*, char***);{LITTLE_MPI}")
        hidden = ["-fvisibility=hidden", "-Dlittle=__attribute__((visibility(\"default\")))little"] if "hides" in request.param else []
        subprocess.run(["cc", *SHARED, "-w", *hidden, "-Wl,-Bsymbolic", "-o", library, tmp_path / "little.c"], check=True)
        (tmp_path / "main.c").write_text("int little(void); int main(void) { return little(); }")
        subprocess.run(["cc", "-o", program, tmp_path / "main.c", library, f"-Wl,-rpath,{tmp_path}"], check=True)
        return [program], library
    static = Path("/usr/lib/x86_64-linux-gnu/libmpich.a")
    if not static.exists():
        pytest.skip(f"not installed: {static} (Debian's libmpich-dev)")
    subprocess.run(["cc", "-I/usr/include/x86_64-linux-gnu/mpich", "-o", program, SOURCES / "whisper.c", static, "-lpthread", "-lhwloc",
                    "-lucp", "-lucs", "-lm", *(["-s"] if "stripped" in request.param else [])], check=True)
    return ["sh", "-c", f'{program} "$0"; exit $?'] if "script" in request.param else [program], program


@pytest.mark.parametrize("program_with_mpi", ["program", "stripped program", "program that a script starts", "library",
                                              "library that hides it"], indirect=True)
def test_mpi_inside(program_with_mpi, whisper):
    line, inside = program_with_mpi
    assert whisper.alone(*line, sealed=False).ok
    expect_refused(whisper.alone(*line), str(inside), "MPI library inside", "link it with MPI's shared library")
