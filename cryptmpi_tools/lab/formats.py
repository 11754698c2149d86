"""What of CryptMPI's format on the wire is in clear (docs/protocol.md), for those who take streams apart or forge them."""

VERSION = 2
KEY_ID = 8
PREFIX = 8 + KEY_ID  # magic, version, message number, suite, reserved, the job key's id
SHARE, IDENTITY, TAG = 32, 136, 16
HELLO = PREFIX + SHARE + IDENTITY + TAG
HEADER = 4  # of a record
MOST = 128 * 1024  # bytes of plaintext in one
RECORD_KINDS = {1: "data", 2: "confirm", 3: "rekey", 4: "close", 5: "reset", 6: "padded data"}
