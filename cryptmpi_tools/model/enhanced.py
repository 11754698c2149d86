"""The enhanced Hockney model of an encrypted ping-pong: encrypt, send, decrypt, one after the other. N20 6.1, equation
(1)."""

from cryptmpi_tools.model.hockney import Hockney


def combined(line, cipher):
    """Hockney of an encrypted message, from that of the plain one and of encrypting and decrypting (N20 6.1: both
    parameters add up)."""
    return Hockney(line.alpha + cipher.alpha, line.beta + cipher.beta)


def time(size, network, cipher, expansion=0):
    """Seconds of an encrypted message of `size` bytes whose encryption and decryption take as `cipher` (Levels of one
    direction) says.

    N20 leaves out the bytes that encryption adds (28 there); `expansion` counts them.
    """
    return network.line(size).time(size + expansion) + 2 * cipher.time(size)


def overhead(plain_rate, cipher_rate):
    """Added time over plain time of large messages, from the rates (bytes a second) of the plain ping-pong and of
    encrypting and decrypting (N20 6.3; C20 V uses the same to explain its figures)."""
    return plain_rate / cipher_rate
