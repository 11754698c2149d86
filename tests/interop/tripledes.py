"""The suite 3DES-CBC-HMAC-SHA-256 as docs/protocol.md has it; of its ciphers only single blocks of 3DES are
cryptography's.

Run as a program it prints the vectors of tests/data/legacy, which are its own.
"""

import hashlib
import hmac
import json

from cryptography.hazmat.primitives.ciphers import Cipher, modes

try:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
except ImportError:  # before version 43
    from cryptography.hazmat.primitives.ciphers.algorithms import TripleDES

BLOCK, SECTION, TAG = 8, 4096, 16


class InvalidTag(Exception):
    pass


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


class TripleDesCbcHmac:
    """The interface of cryptography's AEADs. `key`: 32 bytes; nonces: 12 bytes."""

    def __init__(self, key):
        self.key = key

    def _prf(self, label, nonce, number, rest=b""):
        return hmac.new(self.key, label + nonce + number.to_bytes(8, "big") + rest, hashlib.sha256).digest()

    def _tag(self, nonce, associated, text):
        return self._prf(b"tag", nonce, len(associated), associated + text)[:TAG]

    def _section(self, nonce, number):
        """What encrypts one block, what decrypts one, and the IV."""
        made = self._prf(b"key", nonce, number)
        cipher = Cipher(TripleDES(made[:24]), modes.ECB())
        return cipher.encryptor().update, cipher.decryptor().update, made[24:]

    @staticmethod
    def _encrypt(plain, section):
        encrypt, _, before = section
        if len(plain) < BLOCK:
            return xor(plain, encrypt(before))
        blocks = []
        for at in range(0, len(plain), BLOCK):
            before = encrypt(xor(plain[at:at + BLOCK].ljust(BLOCK, b"\0"), before))
            blocks.append(before)
        if len(plain) % BLOCK:
            blocks[-2] = blocks[-2][:len(plain) % BLOCK]
        return b"".join(blocks)

    @staticmethod
    def _decrypt(text, section):
        encrypt, decrypt, before = section
        if len(text) < BLOCK:
            return xor(text, encrypt(before))
        partial = len(text) % BLOCK
        if partial:
            stolen = decrypt(text[-BLOCK:])[partial:]
            text = text[:-BLOCK] + stolen + text[-BLOCK:]
        plain = b""
        for at in range(0, len(text), BLOCK):
            block = text[at:at + BLOCK]
            plain += xor(decrypt(block), before)
            before = block
        return plain[:-(BLOCK - partial)] if partial else plain

    def encrypt(self, nonce, plain, associated):
        text = b"".join(self._encrypt(plain[at:at + SECTION], self._section(nonce, at // SECTION)) for at in range(0, len(plain), SECTION))
        return text + self._tag(nonce, associated, text)

    def decrypt(self, nonce, sealed, associated):
        text, tag = sealed[:-TAG], sealed[-TAG:]
        if not hmac.compare_digest(tag, self._tag(nonce, associated, text)):
            raise InvalidTag
        return b"".join(self._decrypt(text[at:at + SECTION], self._section(nonce, at // SECTION)) for at in range(0, len(text), SECTION))


# Around blocks and sections: nothing, less than one, one, one and a bit, and so on.
SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 100, 4095, 4097, 8200)


def some_bytes(name, size):
    return hashlib.shake_256(name.encode()).digest(size)


def vectors():
    made = []
    for size in SIZES:
        for associated_size in (0, 4, 21) if size < 20 else (8,):
            name = f"{size} bytes, {associated_size} associated"
            key, nonce, plain, associated = (some_bytes(f"{part} of {name}", length) for part, length in
                                             (("key", 32), ("nonce", 12), ("message", size), ("associated data", associated_size)))
            sealed = TripleDesCbcHmac(key).encrypt(nonce, plain, associated)
            made.append({"name": name, "key": key.hex(), "nonce": nonce.hex(), "ad": associated.hex(), "msg": plain.hex(),
                         "ct": sealed[:-TAG].hex(), "tag": sealed[-TAG:].hex()})
    return made


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1))
