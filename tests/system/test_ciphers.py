"""Each kind of cipher under both layers, and each module: a job across two nodes, nothing of its data on the wire, a
report that names them."""

import json
import os
import secrets
import shutil
import subprocess

import pytest
from conftest import BUILD, REPOSITORY, error_lines, expect_unseen
from jobs import run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count
from cryptmpi_tools.lab.programs import CANARY
from cryptmpi_tools.lab.sealing import ALONE

# Of each kind of nonce and key one: 12 and 16 bytes, 16 and 16, 32 and 32. What all others test is AES-256-GCM.
CIPHERS = {"AES-128-GCM": ("ipsec-mb", "openssl"), "AEGIS-128L": ("aegis",), "AEGIS-128X4": ("aegis",), "AEGIS-256": ("aegis",)}


LEGACY = "3DES-CBC-HMAC-SHA-256"


def installed():
    return {path.name.removeprefix("cryptmpi-module-").removesuffix(".so") for path in (BUILD / "lib" / "cryptmpi").glob("cryptmpi-module-*.so")}


def skip_without(module):
    if module not in installed():
        pytest.skip(f"the module {module} is not built: its library is missing")


def check_job(build, nodes, tmp_path, cipher, modules, **settings):
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, CANARY)
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    sealing = sealing_of(tmp_path, nodes, cipher=cipher.lower(), **ALONE, **settings)
    line = sealing.run_line(mpi, nodes, 2, [str(program), str(tmp_path / "canary.bin"), "messages"], tmp_path / "report.json")
    with nodes.capture(tmp_path / "sealed.pcap"):
        done = nodes.run(line, env={**mpi.env(nodes), **sealing.env()}, timeout=180, cwd=tmp_path)
    assert done.ok and "all as sent" in done.output, done.output
    expect_unseen(count(tmp_path / "sealed.pcap", [canary])[0][canary])
    facts = sealing.report(tmp_path / "report.json")
    assert facts["complete"] and not facts["errors"], facts
    assert facts["suites"] == [cipher]
    assert all(module.startswith(modules) for module in facts["modules"]), facts["modules"]
    assert facts["totals"]["sealed_bytes_sent"] > 1_000_000 and facts["totals"]["failed_opens"] == 0
    shown = subprocess.run([sealing.command, "report", tmp_path / "report.json"], env={**os.environ, **sealing.env()}, capture_output=True,
                           text=True, check=True).stdout
    assert cipher in shown, shown


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_sealed_job(layer, cipher, build, nodes, tmp_path):
    check_job(build, nodes, tmp_path, cipher, CIPHERS[cipher], layer=layer)


# What all others test is ipsec-mb or openssl; a module knows nothing of layers.
@pytest.mark.parametrize(("module", "layer"), [("boringssl", "channel"), ("cryptopp", "mpi"), ("libsodium", "channel"), ("mbedtls", "mpi")])
def test_sealed_job_by_module(module, layer, build, nodes, tmp_path):
    skip_without(module)
    check_job(build, nodes, tmp_path, "AES-256-GCM", (module,), layer=layer, module=module)


@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_legacy_job_warns_once(layer, build, nodes, tmp_path):
    """Of few bytes: the cipher is slow."""
    skip_without("legacy")
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    cases = ["tags_out_of_order", "vectors", "split", "ordered_reduction"]
    sealing = sealing_of(tmp_path, nodes, layer=layer, cipher=LEGACY, allow_legacy_cipher="on")
    line = sealing.run_line(mpi, nodes, 4, [str(program), *cases], tmp_path / "report.json")
    done = nodes.run(line, env={**mpi.env(nodes), **sealing.env()}, timeout=60, cwd=tmp_path)
    assert done.ok and f"messages: {len(cases)} cases right" in done.output, done.output
    facts = sealing.report(tmp_path / "report.json")
    assert facts["complete"] and facts["suites"] == [LEGACY] and facts["totals"]["failed_opens"] == 0, facts
    assert all(module.startswith("legacy") for module in facts["modules"]) and facts["totals"]["sealed_bytes_sent"] > 1000, facts
    lines = [line for line in error_lines(done.output) if "warning" in line]
    assert len(lines) == 1 and f"the legacy cipher {LEGACY}" in lines[0], done.output


@pytest.mark.parametrize(("settings", "words"), [
    ({"cipher": LEGACY}, ["CRYPTMPI_CIPHER", "is a legacy cipher", "allow_legacy_cipher = true"]),
    ({"cipher": LEGACY, "allow_legacy_cipher": "on", "module": "openssl"}, ["module 'openssl' does not offer 3DES", "only AES-128-GCM, AES-256-GCM"]),
    ({"cipher": "AES-128-GCM", "module": "libsodium"}, ["module 'libsodium' does not offer AES-128-GCM here, only AES-256-GCM"]),
    ({"module": "legacy"}, ["module 'legacy' does not offer AES-256-GCM here, only 3DES"]),
], ids=["not-allowed", "other-module", "libsodium", "other-cipher"])
def test_what_a_job_cannot_have_is_said_at_start(settings, words, nodes, tmp_path):
    skip_without(settings.get("module", "legacy"))
    sealing = sealing_of(tmp_path, nodes)
    environment = {**sealing.env(), **{f"CRYPTMPI_{name.upper()}": value for name, value in settings.items()}}
    done = nodes.run(sealing.exec_line(["/bin/echo", "started"]), env=environment, timeout=60, cwd=tmp_path)
    lines = error_lines(done.output)
    assert not done.ok and "started" not in done.output and len(lines) == 1, done.output
    assert all(word in lines[0] for word in words), lines


@pytest.mark.parametrize("cipher", [name for name in CIPHERS if name.startswith("AEGIS")])
def test_messages_of_every_form(cipher, build, nodes, tmp_path):
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    cases = ["many_requests", "tags_out_of_order", "wildcards", "vectors", "split", "ordered_reduction", "large", "large_to_all", "large_many"]
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, cipher=cipher), [str(program), *cases], 4)
    assert done.ok and f"messages: {len(cases)} cases right" in done.output, done.output
    assert not error_lines(done.output)


def test_modules_export_nothing_but_themselves():
    """What is linked into them must not meet what the program has of it."""
    modules = sorted((BUILD / "lib" / "cryptmpi").glob("cryptmpi-module-*.so"))
    assert "cryptmpi-module-aegis.so" in [module.name for module in modules]
    for module in modules:
        shown = subprocess.run(["nm", "-D", "--defined-only", module], capture_output=True, text=True, check=True).stdout
        # What include/cryptmpi/module.h names, the second where the library has RSA.
        names = {line.split()[-1] for line in shown.splitlines()}
        assert "cryptmpi_module" in names and names <= {"cryptmpi_module", "cryptmpi_rsa", "cryptmpi_kem"}, shown


def test_a_cipher_without_a_module_is_said_at_start(nodes, tmp_path):
    modules = tmp_path / "modules"
    modules.mkdir()
    shutil.copy(BUILD / "lib" / "cryptmpi" / "cryptmpi-module-openssl.so", modules)
    sealing = sealing_of(tmp_path, nodes)
    for cipher in ("AEGIS-128L", LEGACY):
        environment = {**sealing.env(), "CRYPTMPI_MODULE_FOLDER": str(modules), "CRYPTMPI_CIPHER": cipher, "CRYPTMPI_ALLOW_LEGACY_CIPHER": "on"}
        done = nodes.run(sealing.exec_line(["/bin/echo", "started"]), env=environment, timeout=60, cwd=tmp_path)
        assert not done.ok and "started" not in done.output and f"no usable module in '{modules}' offers {cipher}" in done.output, done.output


def test_module_outside_the_tree(tmp_path):
    """The example, copied, against an installed CryptMPI: it builds, gives the vectors, and is used by its name."""
    def call(*line, **variables):
        done = subprocess.run(list(map(str, line)), env={**os.environ, **variables}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    prefix = tmp_path / "installed"
    call("cmake", "--install", BUILD, "--prefix", prefix)
    shutil.copytree(REPOSITORY / "examples" / "module", tmp_path / "module")
    modules = next(prefix.glob("lib*/**/cryptmpi-module-openssl.so")).parent
    call("cmake", "-S", tmp_path / "module", "-B", tmp_path / "built", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCRYPTMPI_MODULE_FOLDER={modules}")
    call("cmake", "--build", tmp_path / "built")
    tested = call(BUILD / "bin" / "aead_test", "--gtest_filter=CrossModule.*:*EveryModule*", CRYPTMPI_TEST_MODULES=str(tmp_path / "built"))
    assert "GivesTheVectors/libgcrypt" in tested and "PASSED" in tested
    call("cmake", "--install", tmp_path / "built")
    settings = {"XDG_CONFIG_HOME": str(tmp_path), "CRYPTMPI_MODULE": "libgcrypt"}
    call(prefix / "bin" / "cryptmpi", "keygen", **settings)
    doctor = subprocess.run([prefix / "bin" / "cryptmpi", "doctor", "--json"], env={**os.environ, **settings}, capture_output=True, text=True)
    found = {module["name"]: module for module in json.loads(doctor.stdout)["modules"]}
    assert found.keys() == installed() | {"libgcrypt"}
    # The others are installed with what they need, too.
    assert all(module["usable"] or "CPU" in module["reason"] for module in found.values()), found
    assert "started" in call(prefix / "bin" / "cryptmpi", "exec", "--", "/bin/echo", "started", **settings)
