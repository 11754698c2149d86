"""The AEGIS ciphers as draft-irtf-cfrg-aegis-aead describes them, with tags of 128 bits. Slow, and not in constant
time: a second opinion."""

import hmac


class InvalidTag(Exception):
    pass


def _tables():
    """AES' round as four tables of 32-bit columns: SubBytes, ShiftRows and MixColumns in one."""
    inverse, power = [0] * 256, 1
    powers = []
    for _ in range(255):  # of 3, which generates the field
        powers.append(power)
        power ^= power << 1 ^ (0x11B if power & 0x80 else 0)
    for i, value in enumerate(powers):
        inverse[value] = powers[-i % 255]
    tables = [[], [], [], []]
    for value in range(256):
        b = inverse[value]
        s = 0x63
        for shift in range(5):
            s ^= (b << shift | b >> (8 - shift)) & 0xFF
        double = s << 1 ^ (0x11B if s & 0x80 else 0)
        column = bytes([double, s, s, double ^ s])
        for row in range(4):
            tables[row].append(int.from_bytes(column[-row:] + column[:-row] if row else column, "little"))
    return tables


T0, T1, T2, T3 = _tables()
C0 = bytes.fromhex("000101020305080d1522375990e97962")
C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")


def aes_round(block, key):
    """Both are integers of 128 bits, the first byte the lowest."""
    b = block.to_bytes(16, "little")
    return key ^ (
        T0[b[0]] ^ T1[b[5]] ^ T2[b[10]] ^ T3[b[15]]
        | (T0[b[4]] ^ T1[b[9]] ^ T2[b[14]] ^ T3[b[3]]) << 32
        | (T0[b[8]] ^ T1[b[13]] ^ T2[b[2]] ^ T3[b[7]]) << 64
        | (T0[b[12]] ^ T1[b[1]] ^ T2[b[6]] ^ T3[b[11]]) << 96
    )


def _number(block):
    return int.from_bytes(block, "little")


class _State128:
    """One lane of AEGIS-128L or AEGIS-128X."""

    blocks = 2  # of 16 bytes, taken in at once

    def __init__(self, key, nonce, context):
        k, n, c0, c1 = map(_number, (key, nonce, C0, C1))
        self.s = [k ^ n, c1, c0, c1, k ^ n, k ^ c0, k ^ c1, k ^ c0]
        for _ in range(10):
            self.s[3] ^= context
            self.s[7] ^= context
            self.update(n, k)

    def update(self, m0, m1):
        s = self.s
        s = [aes_round(s[i - 1], s[i]) for i in range(8)]
        s[0] ^= m0
        s[4] ^= m1
        self.s = s

    def stream(self):
        s = self.s
        return s[6] ^ s[1] ^ (s[2] & s[3]), s[2] ^ s[5] ^ (s[6] & s[7])

    def tag(self, sizes):
        t = self.s[2] ^ sizes
        for _ in range(7):
            self.update(t, t)
        s = self.s
        return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6]


class _State256:
    """One lane of AEGIS-256 or AEGIS-256X."""

    blocks = 1

    def __init__(self, key, nonce, context):
        k0, k1, n0, n1, c0, c1 = map(_number, (key[:16], key[16:], nonce[:16], nonce[16:], C0, C1))
        self.s = [k0 ^ n0, k1 ^ n1, c1, c0, k0 ^ c0, k1 ^ c1]
        for m in (k0, k1, k0 ^ n0, k1 ^ n1) * 4:
            self.s[3] ^= context
            self.s[5] ^= context
            self.update(m)

    def update(self, m):
        s = self.s
        s = [aes_round(s[i - 1], s[i]) for i in range(6)]
        s[0] ^= m
        self.s = s

    def stream(self):
        s = self.s
        return (s[1] ^ s[4] ^ s[5] ^ (s[2] & s[3]),)

    def tag(self, sizes):
        t = self.s[3] ^ sizes
        for _ in range(7):
            self.update(t)
        s = self.s
        return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5]


class Aegis:
    """The interface of cryptography's AEADs. `lanes`: 1, 2 or 4."""

    def __init__(self, key, lanes):
        self.key, self.lanes = key, lanes
        self.state = {16: _State128, 32: _State256}[len(key)]
        self.rate = 16 * self.state.blocks * lanes

    def _run(self, nonce, data, associated, encrypt):
        contexts = [i | self.lanes - 1 << 8 if self.lanes > 1 else 0 for i in range(self.lanes)]
        states = [self.state(self.key, nonce, context) for context in contexts]
        # Blocks go to the lanes first: block 0 of every lane, then block 1 of every lane.
        order = [(lane, block) for block in range(self.state.blocks) for lane in range(self.lanes)]

        def absorb(chunk):
            for lane, state in enumerate(states):
                state.update(*(_number(chunk[16 * (block * self.lanes + lane) :][:16]) for block in range(self.state.blocks)))

        for at in range(0, len(associated), self.rate):
            absorb(associated[at : at + self.rate].ljust(self.rate, b"\0"))
        out = bytearray()
        for at in range(0, len(data), self.rate):
            chunk = data[at : at + self.rate]
            streams = [state.stream() for state in states]
            key_stream = b"".join(streams[lane][block].to_bytes(16, "little") for lane, block in order)
            result = bytes(a ^ b for a, b in zip(chunk, key_stream))
            absorb((chunk if encrypt else result).ljust(self.rate, b"\0"))
            out += result
        tag = 0
        for state in states:
            tag ^= state.tag(8 * len(associated) | 8 * len(data) << 64)
        return bytes(out), tag.to_bytes(16, "little")

    def encrypt(self, nonce, plain, associated):
        text, tag = self._run(nonce, plain, associated, True)
        return text + tag

    def decrypt(self, nonce, sealed, associated):
        plain, tag = self._run(nonce, sealed[:-16], associated, False)
        if not hmac.compare_digest(tag, sealed[-16:]):
            raise InvalidTag
        return plain
