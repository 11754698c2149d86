"""What a core dump of a rank shows: of the program all, of our secrets nothing."""

import hashlib
import hmac
import re
import secrets
import time
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jobs import sealing_of
from memory import all_memory, dump, found_words, memory_file, random_words, secret_memory
from test_mpi_layer import with_one_different

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.sealing import ALONE

BLOCK = 64  # secret memory is given out in multiples of that
NONCE_SIZES = {"aegis": 32}  # bytes of a nonce's base, where it is not 12


def expand(secret, label):
    return hmac.new(secret, b"cryptmpi 1 " + label + b"\1", hashlib.sha256).digest()


def windows(memory):
    """All that could be a key in it."""
    return (memory[at:at + 32] for at in range(0, len(memory) - 31, 8) if len(set(memory[at:at + 32])) > 16)


def public_key(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


class Dumped:
    """A job of two ranks, and what stood in rank 0's memory when its output had `enough`; `find` finds the process in
    the output."""

    def __init__(self, mpi, nodes, sealing, program, tmp_path, find=r"dumped: rank 0 is process (\d+)", enough="rank 1 is process", shared=False):
        self.marker = secrets.token_bytes(32)
        (tmp_path / "marker").write_bytes(self.marker)
        key_line = (sealing.config / "cryptmpi" / "job.key").read_text()
        self.job_key = bytes.fromhex(key_line.split()[-1])
        self.job_key_in_hex = key_line.split()[-1].encode()
        environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}
        log = tmp_path / "log"
        with open(log, "wb") as out:
            job = nodes.start(mpi.command(nodes, 2, program), env=environment, cwd=tmp_path, stdout=out, stderr=out)
        try:
            end = time.monotonic() + 60
            while not (re.search(find, log.read_text()) and enough in log.read_text()):
                assert job.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            pid = int(re.search(find, log.read_text())[1])
            other = re.search(r"dumped: rank 1 is process (\d+)", log.read_text())
            self.others_secret = secret_memory(int(other[1])) if other else b""
            self.secret = secret_memory(pid)
            self.all = all_memory(pid)
            self.shared = memory_file(pid) if shared else b""
            self.core = dump(pid, tmp_path)
        finally:
            nodes.end_processes()
            job.wait()
        assert self.marker in self.all and self.marker in self.core  # a dump of this very process
        assert self.job_key not in self.core and self.job_key_in_hex not in self.core

    def epochs(self, memory, nonce_size):
        """The secrets in it that rank 0 has a key of (docs/protocol.md): a receiver has that of each epoch which goes
        on, a sender has none."""
        blocks = {memory[at:at + 32] for at in range(0, len(memory), BLOCK)}
        return {block for block in blocks if len(set(block)) > 8 and expand(block, b"nonce")[:nonce_size] in self.all}

    def check_words(self, nonces=b""):
        """Nothing of what stands in secret memory, not even eight bytes of it, is anywhere else; but for these nonces'
        fixed parts."""
        words = random_words(self.secret) - random_words(nonces)
        assert len(words) >= 16 and found_words(words, b"odd" + self.secret) == words
        assert not found_words(words, self.core)


EACH = pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-4.0.2-ucx", "mpich-5.0.2-ofi"])


def program_of(build, name, tmp_path):
    return [str(build(stacks.stack(name), REPOSITORY / "tests" / "system" / "dumped.c")), str(tmp_path / "marker")]


# Of the aegis module's ciphers one with a key as long as AES-256's.
MODULES = pytest.mark.parametrize("module", ["aegis", "ipsec-mb", "openssl"])
CIPHERS = {"aegis": "AEGIS-256", "legacy": "3DES-CBC-HMAC-SHA-256"}
ON_A_HEAP = ("openssl", "cryptopp")  # their contexts are the library's own: docs/threat-model.md


def sealing_with(module, tmp_path, nodes, **settings):
    flags = Path("/proc/cpuinfo").read_text().split()
    built = (BUILD / "lib" / "cryptmpi" / f"cryptmpi-module-{module}.so").exists()
    if not (built and {"aes", "pclmulqdq"} <= set(flags)):
        pytest.skip(f"the module {module} is not built, or not for this CPU")
    legacy = {"allow_legacy_cipher": "on"} if module == "legacy" else {}
    # The channel library below would keep the job key for further connections.
    return sealing_of(tmp_path, nodes, **ALONE, module=module, cipher=CIPHERS.get(module, "AES-256-GCM"), **legacy, **settings)


@MODULES
@EACH
def test_core_of_a_rank(name, module, build, nodes, tmp_path):
    check_core_of_a_rank(name, module, build, nodes, tmp_path)


@pytest.mark.parametrize("module", ["boringssl", "cryptopp", "legacy", "libsodium", "mbedtls"])
def test_core_of_a_rank_with_another_module(module, build, nodes, tmp_path):
    check_core_of_a_rank("openmpi-4.1.4", module, build, nodes, tmp_path)


# A key whose other contexts are not made yet is kept; where contexts are on a heap, so is that key.
@pytest.mark.parametrize("module", ["aegis", "ipsec-mb"])
def test_core_of_a_rank_with_workers(module, build, nodes, tmp_path):
    check_core_of_a_rank("openmpi-4.1.4", module, build, nodes, tmp_path, threads=4)


def check_core_of_a_rank(name, module, build, nodes, tmp_path, **settings):
    sealing = sealing_with(module, tmp_path, nodes, **settings)
    dumped = Dumped(stacks.stack(name), nodes, sealing, sealing.exec_line(program_of(build, name, tmp_path)), tmp_path)
    nonce_size = NONCE_SIZES.get(module, 12)
    received = dumped.epochs(dumped.secret, nonce_size)
    sent = dumped.epochs(dumped.others_secret, nonce_size)
    assert len(received) == 2  # messages and blocks of collective operations from rank 1
    assert len(sent) == 3  # the same to rank 1, and what goes to all
    # In AEGIS-256's nonces of 32 bytes the counter and the lane leave 20 as they are.
    dumped.check_words(b"".join(expand(epoch, b"nonce") for epoch in received | sent) if module == "aegis" else b"")
    assert dumped.job_key not in dumped.all  # it was for the agreement only
    for epoch in received | sent:
        assert epoch not in dumped.core
        assert (epoch in dumped.secret) == (epoch in received)
        key = expand(epoch, b"key")
        if module == "legacy":  # has hashed it
            assert key not in dumped.all
        else:
            assert key in dumped.all  # as the first round's keys
            assert module in ON_A_HEAP or (key in dumped.secret and key not in dumped.core)


@MODULES
def test_core_of_a_rank_that_waits_for_another(module, build, nodes, tmp_path):
    """In the agreement every rank has the job key, and its ephemeral keys."""
    mpi = stacks.stack("openmpi-4.1.4")
    program = program_of(build, mpi.name, tmp_path)
    sealing = sealing_with(module, tmp_path, nodes, agreement_timeout_s=60)
    ranks = with_one_different(sealing, 1, f"exec {' '.join(program)}", program)
    dumped = Dumped(mpi, nodes, sealing, ranks, tmp_path, r"dumped: rank 0 starts as process (\d+)", "rank 1 has not come to the key agreement yet")
    assert dumped.job_key in dumped.secret
    private = [key for key in windows(dumped.secret) if public_key(key) in dumped.secret]
    assert private and not any(key in dumped.core for key in private)


# A connection keeps its keys for the contexts that other threads make.
@pytest.mark.parametrize("settings", [{}, {"threads": 4}], ids=["alone", "with_workers"])
@EACH
def test_core_of_a_rank_under_the_channel_layer(name, settings, build, nodes, tmp_path):
    sealing = sealing_with("ipsec-mb", tmp_path, nodes, layer="channel", **settings)
    dumped = Dumped(stacks.stack(name), nodes, sealing, sealing.exec_line(program_of(build, name, tmp_path)), tmp_path, shared=True)
    dumped.check_words()
    assert dumped.job_key in dumped.secret
    directions = [secret for secret in windows(dumped.shared) if expand(secret, b"key") in dumped.secret]
    assert len(directions) >= 2
    assert not any(hidden in dumped.core for secret in directions for hidden in (secret, expand(secret, b"key")))
