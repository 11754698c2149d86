"""The models: limits in which they must be each other, and fits that find what made the points."""

import math

import numpy
import pytest

from cryptmpi_tools.model import agreement, caches, chopping, collectives, enhanced, hockney, least_squares, max_rate, pairs
from cryptmpi_tools.model.hockney import Hockney, Network
from cryptmpi_tools.model.max_rate import Levels, MaxRate

KB, MB = 1 << 10, 1 << 20
NETWORK = Network(Hockney(5e-6, 2e-10), Hockney(20e-6, 2.5e-10), 64 * KB)
CIPHER = Levels((("small", 32 * KB, MaxRate(1e-7, 5e9, 1e9)), ("moderate", MB, MaxRate(2e-7, 6e9, 4e9)),
                 ("large", math.inf, MaxRate(3e-7, 6e9, 5e9))))
SIZES = [1, 256, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB]


def approx(value, rel=1e-9):
    return pytest.approx(value, rel=rel)


# Least squares


def test_line_and_its_intervals_are_those_of_a_textbook():
    """Anscombe's first data set, whose regression every statistics program gives: 3.0001 + 0.5001 x, standard errors
    1.1247 and 0.1179."""
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    fit = least_squares.line(x, y)
    assert fit.values == (approx(3.00009, 1e-5), approx(0.50009, 1e-4)) and fit.n == 11
    for (low, high), error in zip(fit.intervals, (1.1247, 0.1179)):
        assert high - low == approx(2 * 2.26216 * error, 1e-3)


@pytest.mark.parametrize("relative", [False, True])
def test_curve_finds_a_line_with_the_same_intervals(relative):
    sizes, times = [1, 100, 1000, 5000, 20000], [1.0, 1.3, 2.1, 6.2, 21.0]
    line = least_squares.line(sizes, times, relative)
    curve = least_squares.curve(lambda values, points: values[0] + values[1] * points, (1.0, 0.001), numpy.array(sizes, float), times, relative)
    for of_line, of_curve in zip((*line.values, *sum(line.intervals, ())), (*curve.values, *sum(curve.intervals, ()))):
        assert of_curve == approx(of_line, 1e-5)


def test_two_points_have_no_interval():
    fit = least_squares.line([1, 1000], [5.0, 6.0])
    assert fit.intervals == (None, None) and fit.rms_s == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError):
        least_squares.line([1], [5.0])


# Hockney


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("switch", [None, 64 * KB])
def test_fit_finds_both_protocols(relative, switch):
    network, eager, rendezvous = hockney.fit_network([(size, NETWORK.time(size)) for size in reversed(SIZES)], switch, relative)
    assert network.switch == 64 * KB
    for found, made in ((network.eager, NETWORK.eager), (network.rendezvous, NETWORK.rendezvous)):
        assert (found.alpha, found.beta) == (approx(made.alpha, 1e-6), approx(made.beta, 1e-6))
    assert eager.n + rendezvous.n == len(SIZES)


def test_negative_alpha_becomes_the_time_of_one_byte():
    line, fit = hockney.fit([(1000, 1.0), (2000, 4.0), (4000, 9.0)], one_byte=0.5)
    assert line.alpha == 0.5 and fit.intervals[0] is None and fit.intervals[1] is not None
    assert line.beta == approx(sum(s * (t - 0.5) for s, t in ((1000, 1), (2000, 4), (4000, 9))) / (1000 ** 2 + 2000 ** 2 + 4000 ** 2))
    assert hockney.fit([(1000, 1.0), (2000, 4.0), (4000, 9.0)])[0].alpha == 1.0


def test_a_switch_needs_points_on_both_sides():
    with pytest.raises(ValueError, match="switch"):
        hockney.fit_network([(size, NETWORK.time(size)) for size in SIZES], 4 * MB)


# Max-rate


def test_max_rate_of_threads():
    rate = MaxRate(1e-6, 5e9, 1e9)
    assert rate.time(5000) == approx(2e-6) and rate.time(8000, 4) == approx(2e-6)
    points = [(size, threads, CIPHER.time(size, threads)) for size in (256, KB, 8 * KB, 32 * KB, 128 * KB, 512 * KB, MB, 2 * MB, 4 * MB)
              for threads in (1, 2, 4, 8)]
    levels, fits = max_rate.fit_levels(points, caches.limits(32 * KB, MB))
    assert [name for name, _, _ in levels.levels] == ["small", "moderate", "large"] and [fit.n for fit in fits] == [12, 12, 12]
    for size in (512, 100 * KB, 3 * MB):
        for threads in (1, 3, 16):
            assert levels.time(size, threads) == approx(CIPHER.time(size, threads), 1e-3)


def test_one_number_of_threads_leaves_b_untold():
    levels, (fit,) = max_rate.fit_levels([(size, 1, 1e-7 + size / 4e9) for size in (1, KB, 8 * KB, MB)], [("all", math.inf)])
    rate = levels.levels[0][2]
    assert (rate.alpha, rate.a, rate.b) == (approx(1e-7, 1e-5), approx(4e9, 1e-6), rate.a)
    assert fit.intervals[2] is None


def test_ranges_with_few_points_are_joined():
    points = [(size, 1, 1e-7 + size / 4e9) for size in (1, KB, 8 * KB, 16 * KB, MB, 2 * MB)]
    levels, fits = max_rate.fit_levels(points, caches.limits(32 * KB, MB))
    assert [(name, below) for name, below, _ in levels.levels] == [("small, large", math.inf)]
    assert sum(fit.n for fit in fits) == len(points)
    assert levels.time(4 * MB) == approx(1e-7 + 4 * MB / 4e9, 1e-4)


def test_caches_are_read_as_linux_tells_them(tmp_path):
    for index, (level, kind, size) in enumerate((("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "32M"))):
        (tmp_path / f"index{index}").mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (tmp_path / f"index{index}" / name).write_text(text + "\n")
    assert caches.sizes(tmp_path) == (48 * KB, 2 * MB)
    assert caches.sizes(tmp_path / "none") == caches.C20_SIZES


# Encrypted messages


@pytest.mark.parametrize("size", SIZES)
def test_one_chunk_of_one_thread_is_the_enhanced_hockney_model(size):
    direct = enhanced.time(size, NETWORK, CIPHER)
    assert direct == approx(NETWORK.time(size) + 2 * CIPHER.time(size))
    assert chopping.time(size, 1, 1, NETWORK, CIPHER) == approx(direct)
    line = Hockney(2e-7, 1e-9)
    both = enhanced.combined(NETWORK.line(size), line)
    assert both.time(size) == approx(NETWORK.time(size) + line.time(size))


def test_chopping_of_a_slow_network_leaves_one_chunk_to_be_encrypted():
    """C20 IV: T_comm(m) + 2 T_enc(s, t) where the network is slower; (k + 1) T_enc(s, t) + T_comm(s) where encryption
    is."""
    size, k, t = 4 * MB, 8, 2
    slow, fast = hockney.one_line(5e-6, 1e-8), hockney.one_line(5e-6, 1e-12)
    one = CIPHER.time(size / k, t)
    assert chopping.time(size, k, t, slow, CIPHER) == approx(slow.time(size) + 2 * one)
    assert chopping.time(size, k, t, fast, CIPHER) == approx((k + 1) * one + fast.time(size / k))


@pytest.mark.parametrize("size", SIZES)
def test_the_best_plan_is_no_worse_than_any(size):
    best = chopping.best(size, NETWORK, CIPHER, 4)
    assert best.seconds == approx(chopping.time(size, best.k, best.t, NETWORK, CIPHER)) and 1 <= best.t <= 4
    assert best.k == 1 or size / best.k >= chopping.LEAST_CHUNK
    assert all(best.seconds <= chopping.time(size, 1, t, NETWORK, CIPHER) for t in (1, 2, 3, 4))
    assert best.seconds <= chopping.best(size, NETWORK, CIPHER, 1).seconds <= enhanced.time(size, NETWORK, CIPHER)


@pytest.mark.parametrize("available, t", [(32, 8), (10, 8), (9, 7), (4, 2), (3, 1), (2, 1), (1, 1)])
def test_threads_are_at_most_those_left(available, t):
    assert chopping.chosen_threads(4 * MB, chopping.NOLELAND, available) == t


@pytest.mark.parametrize("size, k, t", [(64 * KB - 1, 1, 1), (64 * KB, 1, 2), (128 * KB, 1, 4), (512 * KB, 1, 8), (MB - 1, 1, 8), (MB, 2, 8),
                                        (4 * MB, 8, 8)])
def test_rule_of_noleland(size, k, t):
    assert chopping.chosen(size, chopping.NOLELAND, 32) == (k, t)
    assert chopping.chosen(size, chopping.NOLELAND, 32, outstanding=64) == (1, t)
    assert chopping.chosen(size, chopping.NOLELAND, 32, outstanding=63) == (k, t)


def test_pairs():
    network = hockney.one_line(1e-6, 1e-10)
    cipher = max_rate.constant(4e9)
    assert pairs.plain(MB, 4, network) == approx(1e-6 + 4e-10 * MB)
    one, travel = MB / 4e9, pairs.plain(MB, 1, network)
    assert pairs.encrypted(MB, 1, network, cipher) == approx((one + 63 * max(one, travel) + travel + 64 * one) / 64)
    assert pairs.encrypted(MB, 1, network, cipher, decrypts_meanwhile=True) == approx((2 * one + 63 * max(one, travel) + travel) / 64)
    assert pairs.encrypted(KB, 8, network, max_rate.constant(1e30)) == approx(pairs.plain(KB, 8, network))
    # Large messages over a slow network: T_comm + T_enc on average (N20 6.3).
    slow = hockney.one_line(0, 1e-9)
    exact = pairs.encrypted(4 * MB, 2, slow, cipher, in_flight=10 ** 6) / pairs.plain(4 * MB, 2, slow) - 1
    assert exact == approx(pairs.large_overhead(1e9, 2e9, 2), 1e-4)


# Many ranks


@pytest.mark.parametrize("ranks", [2, 3, 7, 64, 1000])
def test_steps_move_what_has_to_be_moved(ranks):
    def moved(steps):
        return sum(times * size for times, size in steps)

    for steps in collectives.allgather(100, ranks).values():
        assert moved(steps) == 100 * (ranks - 1)
    assert moved(collectives.alltoall(100, ranks)["pairwise"]) == 100 * (ranks - 1)
    assert collectives.bcast(100, ranks)["binomial tree"] == [(math.ceil(math.log2(ranks)), 100)]
    if ranks in (2, 64):
        assert moved(collectives.bcast(6400, ranks)["scatter, ring"]) == approx(2 * 6400 * (ranks - 1) / ranks)
        assert moved(collectives.allreduce(6400, ranks)["reduce-scatter, allgather"]) == approx(2 * 6400 * (ranks - 1) / ranks)


@pytest.mark.parametrize("operation", collectives.OPERATIONS)
def test_collectives_cost_more_encrypted_and_nothing_with_a_free_cipher(operation):
    of = collectives.OPERATIONS[operation]
    found = of(16 * KB, 64, NETWORK, CIPHER)
    assert found.plain < found.each_hop and found.plain < found.end_to_end
    free = of(16 * KB, 64, NETWORK, max_rate.constant(1e30))
    assert free.each_hop == approx(free.plain)


def test_bcast_sealed_once_grows_by_the_plain_steps_only():
    few, many = (collectives.of_bcast(8, ranks, NETWORK, CIPHER) for ranks in (64, 4096))
    assert many.each_hop - few.each_hop == approx(6 * (NETWORK.time(8) + 2 * CIPHER.time(8)))
    assert many.end_to_end - few.end_to_end == approx(6 * NETWORK.time(8 + collectives.EXPANSION))


@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 8, 13, 64, 1000])
def test_the_agreements_tree_has_every_rank_once(ranks):
    def count(size):
        return 1 + sum(count(child) for child in agreement.children(size))
    assert count(ranks) == ranks


def test_agreement_of_two_is_its_messages():
    """Without computing and with an alpha alone: the two hellos, the child's table, the secret and the table, a
    confirmation, go."""
    alpha = 1e-6
    found = agreement.tree(2, hockney.one_line(alpha, 0.0), max_rate.constant(1e30), agreement.Costs(x25519=0.0))
    assert [found.join, found.gather, found.spread, found.confirm, found.go] == [approx(n * alpha) for n in (2, 1, 2, 1, 1)]
    assert found.table_bytes == 136 and found.root_sends_bytes == 200 + 68 + 156 + 20
    assert agreement.on_wire(0) == 20 and agreement.on_wire(131072) == 131092 and agreement.on_wire(131073) == 131073 + 40


def test_rounds_of_the_agreement_grow_with_the_logarithm():
    line = hockney.one_line(1e-6, 0.0)
    times = [agreement.tree(1 << power, line, max_rate.constant(1e30), agreement.Costs(x25519=0.0)).seconds for power in (4, 8, 16, 20)]
    assert [time * 1e6 for time in times] == [approx(1 + 6 * power) for power in (4, 8, 16, 20)]


def test_rsa_is_the_roots_work():
    line, costs = hockney.one_line(1e-6, 0.0), agreement.Costs()
    assert agreement.rsa(1025, line, costs) - agreement.rsa(2, line, costs) == approx(1023 * costs.rsa_encrypt + 2 * 10 * 1e-6)
