"""What of CryptMPI's format on the wire is in clear (docs/protocol.md), for those who take streams apart or forge
them."""

VERSION = 2
KEY_ID = 8
PREFIX = 8 + KEY_ID  # magic, version, message number, suite, reserved, the job key's id
SHARE, IDENTITY, TAG = 32, 136, 16
HELLO = PREFIX + SHARE + IDENTITY + TAG
MEMBERS, HYBRID = 0x80, 0x40  # in byte 7 of a prefix: the hello has a proof behind the identity, something of ML-KEM behind the share
PROOF, KEM_KEY, KEM_CIPHERTEXT = 96, 1184, 1088
HEADER = 4  # of a record
MOST = 128 * 1024  # bytes of plaintext in one
RECORD_KINDS = {1: "data", 2: "confirm", 3: "rekey", 4: "close", 5: "reset", 6: "padded data"}


def kem_part(start):
    """Bytes of ML-KEM in the hello that begins so."""
    return (KEM_KEY if start[5] == 1 else KEM_CIPHERTEXT) + TAG if start[7] & HYBRID else 0


def hello_size(start):
    """Of the hello that begins so, by its own words; 8 bytes do."""
    return HELLO + (PROOF if start[7] & MEMBERS else 0) + kem_part(start)
