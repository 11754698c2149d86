"""Members as docs/protocol.md has them: what one adds to its hello, and what is asked of another's."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

LABEL = b"cryptmpi member handshake\n"
IN_PREFIX = 0x80
INITIATOR, RESPONDER = 1, 2


class Unlisted(Exception):
    pass


class Member:
    def __init__(self, name):
        self.name, self.key = name, Ed25519PrivateKey.generate()
        self.public = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def line(self):
        return f"{self.name} ed25519 {self.public.hex()}\n"

    def write_key(self, file):
        private = self.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        file.write_text(f"cryptmpi-member-key-1 {private.hex()}\n")
        file.chmod(0o600)
        return file


def prove(connection, role, own, listed, signer=None):
    """Lets a Noise connection end its payloads with the proof that it is `own`, and take the peer's if it is one of
    `listed`. `signer`: who signs instead."""
    symmetric = connection.noise_protocol.handshake_state.symmetric_state
    seal, unseal = symmetric.encrypt_and_hash, symmetric.decrypt_and_hash
    number = INITIATOR if role == "initiator" else RESPONDER

    def encrypt_and_hash(identity):
        signed = LABEL + bytes([number]) + symmetric.h + identity + own.public
        return seal(identity + own.public + (signer or own).key.sign(signed))

    def decrypt_and_hash(sealed):
        hash_before = symmetric.h
        plain = unseal(sealed)
        identity, public, signature = plain[:136], plain[136:168], plain[168:]
        if public not in [member.public for member in listed]:
            raise Unlisted(public.hex())
        other = INITIATOR + RESPONDER - number
        Ed25519PublicKey.from_public_bytes(public).verify(signature, LABEL + bytes([other]) + hash_before + identity + public)
        return identity

    symmetric.encrypt_and_hash, symmetric.decrypt_and_hash = encrypt_and_hash, decrypt_and_hash
    return connection
