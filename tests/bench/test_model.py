"""The algebra of the bound: where it must be plain, where it must be the sum of its parts, and what it may never do."""

import pytest

from cryptmpi_tools.bench import model
from cryptmpi_tools.bench.model import NO_CIPHER, TAG, Cipher, Hockney, Machine, Network

MB = 1 << 20
LINE = Hockney(5.0, 0.0002)  # 5 us, 5 GB/s
NETWORK = Network(LINE, Hockney(20.0, 0.00025), 64 << 10)
FREE = Machine(16)                       # the network copies by itself
BUSY = Machine(2, 0.00025, 0.00025)      # its copying takes both cores
CIPHER = Cipher((1, 1024, MB), (0.02, 0.12, 100.02), (0.03, 0.13, 100.03))
SIZES = [1, 300, 16 << 10, 64 << 10, MB, 4 * MB]


def approx(value):
    return pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("machine", [FREE, BUSY])
def test_infinitely_fast_cipher_gives_plain(size, machine):
    best = model.best(size, NETWORK, NO_CIPHER, machine)
    assert best.k == 1
    assert best.us == approx(NETWORK.time(size) + NETWORK.protocol(size).beta_us * TAG)


@pytest.mark.parametrize("size", SIZES)
def test_one_segment_hides_nothing(size):
    whole = model.pipeline(size, 1, 1, NETWORK, CIPHER, BUSY)
    assert whole == approx(NETWORK.time(size) + NETWORK.protocol(size).beta_us * TAG + CIPHER.seal(size) + CIPHER.open(size))


def test_threads_share_a_segment():
    one, four = (model.pipeline(MB, 1, t, NETWORK, CIPHER, FREE) for t in (1, 4))
    assert one - four == approx(CIPHER.both(MB) - CIPHER.both(MB / 4))


def test_periods_are_the_slowest_stage_of_the_pipeline():
    slow_network = Network(Hockney(5, 0.01), Hockney(5, 0.01), 0)
    assert model.pipeline(MB, 8, 1, slow_network, CIPHER, FREE) == approx(5 + CIPHER.both(MB / 8) + 8 * 0.01 * (MB / 8 + TAG))
    slow_cipher = Cipher((1, MB), (0.001, 10000.0), (0.001, 5000.0))
    expected = 5 + 0.0002 * (MB / 8 + TAG) + 8 * slow_cipher.seal(MB / 8) + slow_cipher.open(MB / 8)
    assert model.pipeline(MB, 8, 1, Network(LINE, LINE, 0), slow_cipher, FREE) == approx(expected)


def test_slow_network_hides_all_but_the_ends():
    slow = Network(Hockney(5, 0.01), Hockney(5, 0.01), 0)
    best = model.best(4 * MB, slow, CIPHER, FREE)
    assert best.us - slow.time(4 * MB) < 0.01 * CIPHER.both(4 * MB)


def test_where_copying_takes_all_cores_sealing_and_opening_share_them():
    best = model.best(4 * MB, NETWORK, CIPHER, BUSY)
    added = best.us - NETWORK.time(4 * MB)
    assert CIPHER.both(4 * MB) / 2 < added < 1.05 * CIPHER.both(4 * MB) / 2


def test_copying_that_leaves_a_core_idle_hides_sealing_in_it():
    half = model.best(4 * MB, NETWORK, CIPHER, Machine(2, 0.0001, 0.0001)).us
    assert model.best(4 * MB, NETWORK, CIPHER, FREE).us <= half < model.best(4 * MB, NETWORK, CIPHER, BUSY).us


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("machine", [FREE, BUSY])
def test_never_faster_than_plain_nor_slower_than_in_one_piece(size, machine):
    best = model.best(size, NETWORK, CIPHER, machine)
    assert NETWORK.time(size) < best.us <= model.pipeline(size, 1, 1, NETWORK, CIPHER, machine)
    assert 1 <= best.t <= machine.cores and 1 <= best.k <= max(1, size // 1024)


def test_more_cores_and_faster_ciphers_never_hurt():
    faster = Cipher(CIPHER.sizes, tuple(t / 2 for t in CIPHER.seal_us), tuple(t / 2 for t in CIPHER.open_us))
    for size in SIZES:
        times = [model.best(size, NETWORK, CIPHER, Machine(cores, 0.00025, 0.00025)).us for cores in (2, 4, 8)]
        assert times == sorted(times, reverse=True)
        assert model.best(size, NETWORK, faster, BUSY).us < model.best(size, NETWORK, CIPHER, BUSY).us


def test_cipher_between_and_beyond_its_sizes():
    assert CIPHER.seal(0) == CIPHER.seal(1) == 0.02
    assert CIPHER.seal(1024) == approx(0.12)
    assert CIPHER.open((1024 + MB) / 2) == approx((0.13 + 100.03) / 2)
    assert CIPHER.seal(4 * MB) == approx(4 * 100.02)


def test_messages_in_flight():
    assert model.least_window(500, MB, 1, 0, NO_CIPHER, FREE) == 500
    assert model.least_window(500, MB, 1, 0, CIPHER, FREE) == 500                          # many cores with nothing else to do
    assert model.least_window(500, MB, 1, 1000, CIPHER, BUSY) == approx(500 + CIPHER.both(MB) / 2)  # none
    assert model.least_window(500, MB, 1, 800, CIPHER, BUSY) == approx(400 + CIPHER.both(MB) / 2)   # a part of one
    assert model.least_window(500, MB, 2, 500, CIPHER, BUSY) == approx(500 + CIPHER.both(MB))
    assert model.least_window(500, MB, 1, 9999, NO_CIPHER, BUSY) == 500                    # what was measured had time for all of it


def test_what_crosses_in_collectives():
    assert model.crossing("bcast", 100, 2) == (1, 100)
    assert model.crossing("allreduce", 100, 2) == (2, 100)
    assert model.crossing("allgather", 100, 2) == (4, 100)
    assert model.crossing("alltoall", 100, 2) == (8, 100)
    assert model.crossing("alltoall", 100, 1) == model.crossing("allgather", 100, 1) == (2, 100)
    assert model.least_work("alltoall", MB, 2, CIPHER) == approx(8 * CIPHER.both(MB))


def test_fit_finds_what_made_the_points():
    eager, rendezvous = Hockney(5.0, 0.001), Hockney(60.0, 0.0002)
    sizes = [1, 256, 4096, 1 << 14, 1 << 16, 1 << 17, 1 << 18, MB, 4 * MB]
    points = [(size, (eager if size < 128 << 10 else rendezvous).time(size)) for size in sizes]
    fit = model.fit_network(points[::-1])
    assert fit.switch == 128 << 10
    for found, made in ((fit.eager, eager), (fit.rendezvous, rendezvous)):
        assert (found.alpha_us, found.beta_us) == (approx(made.alpha_us), approx(made.beta_us))


def test_fit_of_few_points_is_one_line():
    fit = model.fit_network([(1, 5.0002), (MB, 5 + 0.0002 * MB)])
    assert fit.eager == fit.rendezvous
    assert fit.time(MB // 2) == approx(5 + 0.0001 * MB)


def test_fit_has_no_negative_parameters():
    steep = model.fit_network([(1000, 1.0), (2000, 4.0), (4000, 9.0)]).eager
    assert steep.alpha_us == 1.0 and steep.beta_us > 0
    falling = model.fit_network([(1, 6.0), (16, 5.0), (256, 4.0)]).eager
    assert falling.beta_us == 0 and 4 < falling.alpha_us < 6
