"""Several pairs that send many messages at once, as OSU's Multiple Pair Bandwidth Test. N20 6.2."""

IN_FLIGHT = 64  # messages of a round (N20 5, C20 V)


def plain(size, pairs, network):
    """Seconds in which each of `pairs` senders of a node gets a message of `size` bytes to its receiver: they share the
    bandwidth (N20 6.2).

    `network` is fitted from multiple-pair measurements (N20 table XI), not from a ping-pong.
    """
    line = network.line(size)
    return line.alpha + line.beta * size * pairs


def encrypted(size, pairs, network, cipher, in_flight=IN_FLIGHT, decrypts_meanwhile=False):
    """Seconds a message, of `in_flight` encrypted messages of `size` bytes between each of several pairs (N20 6.2).

    The first message is encrypted; while one travels, the next is encrypted; the last one travels. The receiver waits
    for all of them and then decrypts them, or, with `decrypts_meanwhile`, has decrypted all but the last one by then.
    `cipher` (Levels of one direction) has one thread in each pair.
    """
    one = cipher.time(size * pairs, pairs)
    travel = plain(size, pairs, network)
    decrypting = one if decrypts_meanwhile else in_flight * one
    return (one + (in_flight - 1) * max(one, travel) + travel + decrypting) / in_flight


def large_overhead(plain_rate, cipher_rate, pairs, rest_rate=None):
    """Added time over plain time of large messages where the network is slower than encryption (N20 6.3).

    `plain_rate` of all pairs together, `cipher_rate` of one thread that encrypts and decrypts, `rest_rate` of each
    further one (None: as fast): bytes a second. Encrypting hides behind the network, decrypting does not.
    """
    further = cipher_rate if rest_rate is None else rest_rate
    return plain_rate / (2 * (cipher_rate + further * (pairs - 1)))
