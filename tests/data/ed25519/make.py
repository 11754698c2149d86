#!/usr/bin/python3
"""Writes edges.json: Ed25519 keys and signatures at the edges of RFC 8032, of which libraries think differently
("Taming the many EdDSAs", Chalkias, Garillot, Nikolaenko, 2020, section 5), over texts as CryptMPI signs them.

    tests/data/ed25519/make.py >tests/data/ed25519/edges.json
"""

import hashlib
import json

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
IDENTITY = (0, 1)
PREFIX = b"cryptmpi member attestation\n"
SIGN = 1 << 255


def x_of(y):
    """The even x of the point with this y; None: there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P:
        return None
    return x if x % 2 == 0 else P - x


def add(a, b):
    both = D * a[0] * b[0] * a[1] * b[1] % P
    return ((a[0] * b[1] + b[0] * a[1]) * pow(1 + both, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - both, -1, P) % P)


def times(number, point):
    total = IDENTITY
    while number:
        if number & 1:
            total = add(total, point)
        point, number = add(point, point), number >> 1
    return total


def encoded(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def order_eight():
    """A point of order 8: what is left of a point of the curve when it is multiplied by the order of the large
    group."""
    y = 2
    while True:
        if x_of(y) is not None:
            point = times(L, (x_of(y), y))
            if times(4, point) != IDENTITY:
                return point
        y += 1


def hashed(r, key, text):
    return int.from_bytes(hashlib.sha512(r + key + PREFIX + text.encode()).digest(), "little") % L


def text_where(r, key, fits):
    """The first text whose hash fits, as a signer who is free to choose one would seek it."""
    return next(text for text in (f"text {number}" for number in range(10000)) if fits(hashed(r, key, text)))


def always(_):
    return True


BASE = (x_of(4 * pow(5, -1, P) % P), 4 * pow(5, -1, P) % P)
A, R = 0x1234567890abcdef % L * 2**180 % L, 0xfedcba0987654321 * 2**170 % L  # secrets that are none
KEY, COMMITTED = times(A, BASE), times(R, BASE)
EIGHT = order_eight()


def vectors():
    def vector(what, valid, key, r, s, fits=always):
        """`s`: of the hash."""
        text = text_where(r, key, fits)
        return {"what": what, "valid": valid, "key": key.hex(), "text": text, "signature": (r + s(hashed(r, key, text)).to_bytes(32, "little")).hex()}

    key, r = encoded(KEY), encoded(COMMITTED)
    mixed = encoded(add(KEY, EIGHT))
    plain = [vector("an honest signature", True, key, r, lambda h: (R + h * A) % L),
             vector("the same with the order of the group added to S", False, key, r, lambda h: (R + h * A) % L + L),
             vector("S is 0, key and R are the identity", False, encoded(IDENTITY), encoded(IDENTITY), lambda h: 0)]
    small = [vector(f"the key is of small order: {number} times a point of order 8", False, encoded(times(number, EIGHT)), r, lambda h: R,
                    lambda h: h % 8 == 0) for number in range(8)]
    spelt = [vector(f"the key is of small order and spelt otherwise: {what}", False, number.to_bytes(32, "little"), r, lambda h: R,
                    lambda h: h % 8 == 0)
             for what, number in (("y is p", P), ("y is p, x negative", P | SIGN), ("y is p + 1", P + 1), ("y is p + 1, x negative", P + 1 | SIGN),
                                  ("y is 1, x is minus zero", 1 | SIGN), ("y is p - 1, x is minus zero", P - 1 | SIGN))]
    commits = [vector("R is the identity", False, key, encoded(IDENTITY), lambda h: h * A % L),
               vector("R is the identity, y is p + 1", False, key, (P + 1).to_bytes(32, "little"), lambda h: h * A % L),
               vector("R is the identity, x is minus zero", False, key, (1 | SIGN).to_bytes(32, "little"), lambda h: h * A % L)]
    commits += [vector(f"R is of small order, and the key of mixed order: {number} times a point of order 8", False, mixed,
                       encoded(times(number, EIGHT)), lambda h: h * A % L, lambda h, number=number: (h + number) % 8 == 0) for number in range(1, 8)]
    orders = [vector("the key is of mixed order, and the hash hides it", True, mixed, r, lambda h: (R + h * A) % L, lambda h: h % 8 == 0),
              vector("the key is of mixed order", False, mixed, r, lambda h: (R + h * A) % L, lambda h: h % 8 != 0),
              vector("R is of mixed order", False, key, encoded(add(COMMITTED, EIGHT)), lambda h: (R + h * A) % L)]
    return plain + small + spelt + commits + orders


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1))
