"""The roads between nodes under the fabric layer: its doors are open for what it seals, and everything else is closed
or sealed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD
from jobs import SealingUnderTest
from cryptmpi_tools.lab import stacks

COMMAND = BUILD / "bin" / "cryptmpi"
HERE = Path(__file__).parent
TALK = HERE / "fabric.c"
CANARY = b"fabric canary 7c1e"
UCX = stacks.stack("mpich-5.0.2-ucx")
LIBFABRIC = stacks.stack("mpich-5.0.2-ofi")
ROADS = pytest.mark.parametrize("mpi", [UCX, LIBFABRIC, stacks.UDP], ids=lambda mpi: mpi.name)


def sealing_of(tmp_path, nodes, **settings):
    return SealingUnderTest(tmp_path / "config", nodes, COMMAND, {"layer": "fabric", "handshake_timeout_s": 20, **settings})


def run_job(mpi, nodes, sealing, program, report):
    line = sealing.run_line(mpi, nodes, 2, program, report)
    return nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=60)


@ROADS
def test_a_job_is_sealed_and_nothing_of_it_an_exception(mpi, nodes, tmp_path, build):
    sealing, report, wire = sealing_of(tmp_path, nodes), tmp_path / "report.json", tmp_path / "wire.pcap"
    program = build(mpi, TALK)
    with nodes.capture(wire):
        done = run_job(mpi, nodes, sealing, [program, "talk"], report)
    assert done.ok and "cryptmpi: SEALED: " in done.output, done.output
    assert wire.stat().st_size > 1_000_000 and CANARY not in wire.read_bytes()
    assert json.loads(report.read_text())["layer"] == "fabric"


def sealed_bytes(mpi, nodes, tmp_path, build, **settings):
    """Of messages, and of sockets below them."""
    report = tmp_path / f"{len(settings)}.json"
    done = run_job(mpi, nodes, sealing_of(tmp_path, nodes, **settings), [build(mpi, TALK), "talk"], report)
    assert done.ok and "cryptmpi: SEALED: " in done.output, done.output
    told = json.loads(report.read_text())
    return told["totals"]["sealed_bytes_sent"], told["sockets"]["sealed_bytes_sent"]


def test_what_is_sealed_is_not_sealed_again(nodes, tmp_path, build):
    """Unless it is asked for: where TCP alone is open, the sockets of libfabric are streams like all others."""
    messages, sockets = sealed_bytes(LIBFABRIC, nodes, tmp_path, build)
    assert sockets < messages / 100  # what the launcher and MPI's start say
    messages, sockets = sealed_bytes(LIBFABRIC, nodes, tmp_path, build, network="tcp")
    assert sockets > messages


def test_what_ucx_sends_over_tcp_is_sealed_again(nodes, tmp_path, build):
    messages, sockets = sealed_bytes(UCX, nodes, tmp_path, build)
    assert sockets > messages


STRANGER = """
import pathlib, socket, struct, sys, time
folder, address = pathlib.Path(sys.argv[1]), sys.argv[2]
while not (folder / "told").exists():
    time.sleep(0.02)
at, *ports = (folder / "told").read_text().split()
text = b"written by a stranger"
for port in ports:
    try:
        one = socket.create_connection((address, int(port)), 2)
        one.sendall(struct.pack("<Q", 0xcafebabe12345678))  # of UCX's transport tcp
        time.sleep(0.3)
        one.sendall(struct.pack("<BIQQI", 33, 20, int(at, 16), len(text), 1) + text)  # its "put": address, length, number
        time.sleep(0.3)
    except OSError:
        pass
(folder / "said").touch()
"""


def test_a_stranger_at_ucxs_port_writes_no_memory(nodes, tmp_path, build):
    """UCX's transport tcp writes wherever a packet says, whoever has connected to it."""
    program = [build(UCX, HERE / "fabric_port.c"), tmp_path]
    stranger = nodes.start([sys.executable, "-c", STRANGER, tmp_path, nodes.nodes[1].address])
    try:
        done = run_job(UCX, nodes, sealing_of(tmp_path, nodes), program, tmp_path / "report.json")
    finally:
        stranger.kill()
    assert "memory: as it was\n" in done.output and (tmp_path / "said").exists(), done.output


@pytest.fixture(scope="module")
def past_the_doors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors")
    gcc = ["gcc", "-O1", "-Wall", "-Werror", "-D_GNU_SOURCE"]
    subprocess.run([*gcc, "-o", folder / "doors", HERE / "fabric_doors.c", "-lfabric", "-luct", "-lucs", "-ldl"], check=True)
    return folder


def lines_of(nodes, folder, sealing):
    program = [folder / "doors", nodes.nodes[1].address]
    done = nodes.run(sealing.exec_line(program) if sealing else program, env=sealing.env() if sealing else {}, timeout=30)
    assert done.ok, done.output
    # UCX's own lines begin with a bracket.
    return {line for line in done.output.splitlines() if not line.startswith(("cryptmpi:", "["))}, done.output


NOT_THERE, REFUSED = "No such file or directory", "Permission denied"
THROUGH = f"device of libfabric: {NOT_THERE}"


def test_plain_everything_is_open(nodes, past_the_doors):
    lines, _ = lines_of(nodes, past_the_doors, None)
    assert lines == {f"device: {NOT_THERE}", THROUGH, "datagram: done", "transport: Success", "hidden ucp: done",
                     "datagram of UCX: done"}


def test_past_the_doors_everything_is_closed(nodes, tmp_path, past_the_doors):
    lines, output = lines_of(nodes, past_the_doors, sealing_of(tmp_path, nodes))
    assert lines == {f"device: {REFUSED}", THROUGH, "datagram: Operation not permitted", "transport: Unsupported operation",
                     "hidden ucp: no network", "datagram of UCX: Operation not permitted"}
    assert "/dev/infiniband/uverbs77 is refused" in output and "uct_md_open is refused" in output, output


@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_other_layers_have_no_doors(nodes, tmp_path, past_the_doors, layer):
    lines, output = lines_of(nodes, past_the_doors, sealing_of(tmp_path, nodes, layer=layer, network="tcp"))
    assert f"device of libfabric: {REFUSED}" in lines and "datagram: Operation not permitted" in lines, output


# Another user of libfabric in the process, in a library that stands behind the fabric layer's in the loader's order.
BEHIND = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static void say(const char* what, void* found) {
    Dl_info in = {0};
    dladdr(found, &in);
    printf("%s: %s\\n", what, in.dli_fname == NULL ? "nowhere" : strrchr(in.dli_fname, '/') + 1);
}
void look(void) {
    say("next", dlsym(RTLD_NEXT, "fi_fabric"));
    say("next of a version", dlvsym(RTLD_NEXT, "fi_getinfo", "FABRIC_1.3"));
}
"""
USER = "void look(void); int main(void) { look(); return 0; }"


def compiled(folder, name, text, *options):
    (folder / f"{name}.c").write_text(text)
    gcc = ["gcc", "-O1", "-fPIC", "-D_GNU_SOURCE", "-Wl,-z,now", "-Wl,--no-as-needed", f"-L{folder}", f"-Wl,-rpath,{folder}"]
    subprocess.run([*gcc, "-o", folder / name, folder / f"{name}.c", *options], check=True)
    return folder / name


def test_who_stands_behind_the_door_finds_it_as_the_next_one(nodes, tmp_path):
    compiled(tmp_path, "libbehind.so", BEHIND, "-shared", "-lfabric", "-ldl")
    user = compiled(tmp_path, "user", USER, "-lbehind")
    sealing = sealing_of(tmp_path, nodes)
    done = nodes.run(sealing.exec_line([user]), env=sealing.env(), timeout=30)
    lines = {f"{way}: libcryptmpi-fabric.so" for way in ["next", "next of a version"]}
    assert done.ok and lines <= set(done.output.splitlines()), done.output


# A libfabric with a function of a version that the door does not have.
NEWER = """
#include <stddef.h>
int fi_getinfo(void) { return -61; }
void* fi_dupinfo(void* info) { return info; }
void fi_freeinfo(void* info) { (void)info; }
int fi_param_define(void) { return 0; }
int fi_fabric(void) { return 0; }
"""
VERSIONS = {
    "one": "FABRIC_1.9 { global: fi_getinfo; fi_dupinfo; fi_freeinfo; fi_param_define; local: *; };\nFABRIC_9.9 { global: fi_fabric; } FABRIC_1.9;\n",
    "all": "FABRIC_9.9 { global: fi_getinfo; fi_dupinfo; fi_freeinfo; fi_param_define; fi_fabric; local: *; };\n",
}
NEWER_USER = """
#include <stddef.h>
#include <stdio.h>
int fi_getinfo(unsigned, const char*, const char*, unsigned long, const void*, void**);
int fi_fabric(void*, void**, void*);
int main(void) {
    void* found = NULL;
    printf("getinfo: %d\\n", fi_getinfo(0x1000e, NULL, NULL, 0, NULL, &found));
    fflush(stdout);
    printf("fabric: %d\\n", fi_fabric(NULL, NULL, NULL));
    return 0;
}
"""


@pytest.mark.parametrize("bound", ["now", "lazy"])
@pytest.mark.parametrize("newer", VERSIONS)
def test_a_version_that_the_door_does_not_have_is_not_called_past_it(nodes, tmp_path, newer, bound):
    (tmp_path / "versions").write_text(VERSIONS[newer])
    library = compiled(tmp_path, "libfabric.so.1", NEWER, "-shared", "-Wl,-soname,libfabric.so.1",
                       f"-Wl,--version-script={tmp_path / 'versions'}")
    user = compiled(tmp_path, "user", NEWER_USER, library, f"-Wl,-z,{bound}")
    assert "fabric: 0\n" in nodes.run([user], env={}, timeout=30).output
    sealing = sealing_of(tmp_path, nodes)
    done = nodes.run(sealing.exec_line([user]), env=sealing.env(), timeout=30)
    assert ("getinfo: -61\n" in done.output) == (newer == "one"), done.output
    assert "fabric: " not in done.output.replace("cryptmpi-fabric: ", ""), done.output
    assert not done.ok and "install a newer CryptMPI" in done.output, done.output
