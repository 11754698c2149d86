// Secrets that are given once: each leaf is its own, in any order, and what is kept gives no leaf again.
#include "seal/puncturable.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "seal/key_schedule.hpp"
#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::crypto;
using test::random_bytes;

Path leaf(std::uint64_t number, unsigned length) {
    return {number << (64 - length), length};
}

/// As docs/protocol.md has it: HKDF-Expand gives both children, the bit chooses one.
Bytes naive(Bytes secret, const Path& path) {
    for (unsigned depth = 0; depth < path.length; ++depth) {
        Bytes both(64);
        EXPECT_TRUE(expand(*crypto().kex, secret.data(), "mpi branch", both.data(), both.size()));
        const bool right = (path.bits >> (63 - depth) & 1) != 0;
        secret.assign(both.begin() + (right ? 32 : 0), both.begin() + (right ? 64 : 32));
    }
    return secret;
}

Bytes taken(Puncturable& from, const Path& path) {
    Secret<kSecretSize> out;
    const auto done = from.derive(path, out);
    EXPECT_TRUE(done) << done.error().line;
    return Bytes(out.bytes, out.bytes + out.size());
}

int refusal(Puncturable& from, const Path& path) {
    Secret<kSecretSize> out;
    const auto done = from.derive(path, out);
    EXPECT_TRUE(test::all_zero(out.data(), out.size()));
    return done ? 0 : done.error().code;
}

// protocol: M7
TEST(Puncturable, GivesWhatTheDescriptionSaysInAnyOrder) {
    const Bytes root = random_bytes(kSecretSize);
    std::mt19937_64 random(7);
    for (const unsigned length : {1U, 3U, 15U, 24U, 63U, 64U}) {
        std::set<std::uint64_t> numbers;
        const std::uint64_t most = ~std::uint64_t{0} >> (64 - length);
        while (numbers.size() < std::min<std::uint64_t>(most, 40)) numbers.insert(random() & most);
        std::vector<std::uint64_t> order(numbers.begin(), numbers.end());
        std::shuffle(order.begin(), order.end(), random);
        Puncturable secrets(*crypto().kex, root.data());
        for (const std::uint64_t number : order) {
            EXPECT_EQ(taken(secrets, leaf(number, length)), naive(root, leaf(number, length)));
        }
    }
}

// protocol: M7
TEST(Puncturable, GivesNoLeafTwice) {
    const Bytes root = random_bytes(kSecretSize);
    Puncturable secrets(*crypto().kex, root.data());
    for (const std::uint64_t number : {5, 4, 0, 7}) taken(secrets, leaf(number, 3));
    for (const std::uint64_t number : {5, 4, 0, 7}) EXPECT_EQ(refusal(secrets, leaf(number, 3)), EEXIST) << number;
    Secret<kSecretSize> out;
    EXPECT_FALSE(secrets.peek(leaf(5, 3), out));
    for (const std::uint64_t number : {6, 1, 2, 3}) {
        EXPECT_EQ(taken(secrets, leaf(number, 3)), naive(root, leaf(number, 3))) << number;
    }
    EXPECT_EQ(secrets.nodes(), 0U);  // nothing is left when all were given
}

TEST(Puncturable, LeavesOfSeveralDepthsDoNotMeet) {
    const Bytes root = random_bytes(kSecretSize);
    Puncturable secrets(*crypto().kex, root.data());
    EXPECT_EQ(taken(secrets, {0, 1}), naive(root, {0, 1}));
    const Path deep{std::uint64_t{1} << 63 | 5, 64};
    EXPECT_EQ(taken(secrets, deep), naive(root, deep));
    EXPECT_EQ(refusal(secrets, {0, 1}), EEXIST);
    EXPECT_EQ(refusal(secrets, {1, 64}), EEXIST);  // below one that was given
}

TEST(Puncturable, PeekingChangesNothing) {
    const Bytes root = random_bytes(kSecretSize);
    Puncturable secrets(*crypto().kex, root.data());
    taken(secrets, leaf(1, 8));
    const std::size_t nodes = secrets.nodes();
    Secret<kSecretSize> out;
    ASSERT_TRUE(secrets.peek(leaf(200, 8), out));
    EXPECT_EQ(Bytes(out.bytes, out.bytes + out.size()), naive(root, leaf(200, 8)));
    EXPECT_EQ(secrets.nodes(), nodes);
    EXPECT_EQ(taken(secrets, leaf(200, 8)), naive(root, leaf(200, 8)));
}

TEST(Puncturable, WhatWasLeftBehindIsGone) {
    const Bytes root = random_bytes(kSecretSize);
    Puncturable secrets(*crypto().kex, root.data());
    taken(secrets, leaf(100, 8));
    secrets.leave_behind_before(leaf(100, 8));
    for (std::uint64_t number = 0; number <= 100; ++number) EXPECT_EQ(refusal(secrets, leaf(number, 8)), EEXIST);
    for (std::uint64_t number = 101; number < 256; ++number) {
        EXPECT_EQ(taken(secrets, leaf(number, 8)), naive(root, leaf(number, 8)));
    }
}

TEST(Puncturable, NeighboursShareTheirWay) {
    const Bytes root = random_bytes(kSecretSize);
    Puncturable secrets(*crypto().kex, root.data());
    for (std::uint64_t number = 0; number < 1000; ++number) {
        taken(secrets, leaf(number, 32));
        EXPECT_LE(secrets.nodes(), 32U);
    }
}

// protocol: M15
TEST(Puncturable, KeepsNoMoreThanItMay) {
    const Bytes root = random_bytes(kSecretSize);
    Puncturable secrets(*crypto().kex, root.data(), 100);
    std::mt19937_64 random(11);
    for (int i = 0; i < 50; ++i) {
        const Path path{random(), 64};
        EXPECT_EQ(taken(secrets, path), naive(root, path));
        EXPECT_LE(secrets.nodes(), 100U);
    }
}

TEST(Puncturable, AFailingModuleChangesNothing) {
    const Bytes root = random_bytes(kSecretSize);
    cryptmpi_kex failing = *crypto().kex;
    static int calls_left;
    failing.hmac_sha256 = [](std::uint8_t* out, const std::uint8_t* key, std::size_t size, const iovec* in,
                             std::size_t count) -> int {
        return calls_left-- > 0 ? crypto().kex->hmac_sha256(out, key, size, in, count) : CRYPTMPI_FAILED;
    };
    Puncturable secrets(failing, root.data());
    for (const int calls : {0, 1, 5, 15}) {
        calls_left = calls;
        EXPECT_EQ(refusal(secrets, leaf(9, 8)), EIO);
    }
    calls_left = 16;
    EXPECT_EQ(taken(secrets, leaf(9, 8)), naive(root, leaf(9, 8)));
}

}  // namespace
}  // namespace cryptmpi::seal
