"""Each kind of cipher under both layers: a whole job across two nodes, nothing of its data on the wire, and a report that names the cipher."""

import secrets
import subprocess

import pytest
from conftest import BUILD, REPOSITORY, error_lines
from jobs import build, run, sealing_of  # noqa: F401

from lab import stacks
from lab.capture import count

# Of each kind of nonce and key one: 12 and 16 bytes, 16 and 16, 32 and 32. What all others test is AES-256-GCM.
CIPHERS = {"AES-128-GCM": ("ipsec-mb", "openssl"), "AEGIS-128L": ("aegis",), "AEGIS-128X4": ("aegis",), "AEGIS-256": ("aegis",)}


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_sealed_job(layer, cipher, build, nodes, tmp_path):
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "demo" / "canary.c")
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    sealing = sealing_of(tmp_path, nodes, layer=layer, cipher=cipher.lower())
    line = sealing.run_line(mpi, nodes, 2, [str(program), str(tmp_path / "canary.bin"), "messages"], tmp_path / "report.json")
    with nodes.capture(tmp_path / "sealed.pcap"):
        done = nodes.run(line, env={**mpi.env(nodes), **sealing.env()}, timeout=180, cwd=tmp_path)
    assert done.ok and "all as sent" in done.output, done.output
    assert count(tmp_path / "sealed.pcap", [canary])[0][canary] == 0
    facts = sealing.report(tmp_path / "report.json")
    assert facts["complete"] and not facts["errors"], facts
    assert facts["suites"] == [cipher]
    assert all(module.startswith(CIPHERS[cipher]) for module in facts["modules"]), facts["modules"]
    assert facts["totals"]["sealed_bytes_sent"] > 1_000_000 and facts["totals"]["failed_opens"] == 0
    shown = subprocess.run([sealing.command, "report", tmp_path / "report.json"], capture_output=True, text=True, check=True).stdout
    assert cipher in shown, shown


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
        assert [line.split()[-1] for line in shown.splitlines()] == ["cryptmpi_module"], shown
