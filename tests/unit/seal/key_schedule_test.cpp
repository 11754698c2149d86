#include "seal/key_schedule.hpp"

#include <cerrno>
#include <cstring>
#include <numeric>

#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::from_hex;

/// 00 01 02 ... 1f. Never sealed with, because the ledger of nonces would refuse a second run in the same process.
Bytes counting_secret() {
    Bytes secret(kSecretSize);
    std::iota(secret.begin(), secret.end(), std::uint8_t{0});
    return secret;
}

Bytes expanded(std::string_view label, std::size_t size) {
    Bytes out(size);
    const auto done = expand(*test::crypto().kex, counting_secret().data(), label, out.data(), size);
    EXPECT_TRUE(done.has_value());
    return out;
}

// protocol: S1
// The expected values come from a Python implementation of RFC 5869 that was checked against the RFC's test case 1.
TEST(KeySchedule, ExpandsToTheKnownAnswers) {
    EXPECT_EQ(expanded("key", 32), from_hex("cf79eaae56e6cb35e8a5a6759fc5af9ae757dbd4b11911c7ed976f6194e0fa63"));
    EXPECT_EQ(expanded("nonce", 12), from_hex("0d8092245749667d979157fb"));
    EXPECT_EQ(expanded("next", 32), from_hex("73e0e8836478dbe699507aad1db18641ea410f6951b00a11c87eb3100dedae05"));
    EXPECT_EQ(expanded("long", 64), from_hex("12b80667c97fe4d182ff738e28caa7c5f4f13ee1ec403c109ce7c84856a2dc48"
                                             "443a7116853f7d573192f16a33b63f340d637e13fd9a1f79ecd5538841e001c8"));
}

TEST(KeySchedule, AShortExpansionIsTheBeginningOfALongOne) {
    const Bytes whole = expanded("long", 64);
    for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{33}, std::size_t{63}}) {
        EXPECT_EQ(expanded("long", size), Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    }
}

TEST(KeySchedule, RefusesToExpandPastTwoBlocks) {
    std::uint8_t out[65];
    const auto done = expand(*test::crypto().kex, counting_secret().data(), "long", out, sizeof out);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, EINVAL);
}

// protocol: S1
TEST(KeySchedule, RatchetsToTheKnownAnswer) {
    Bytes secret = counting_secret();
    ASSERT_TRUE(ratchet(*test::crypto().kex, secret.data()).has_value());
    EXPECT_EQ(secret, expanded("next", 32));
}

// protocol: S2
TEST(KeySchedule, NonceIsTheBaseXorTheBigEndianCounter) {
    const auto key = RecordKey::derive(test::crypto(), counting_secret().data());
    ASSERT_TRUE(key.has_value());
    std::uint8_t nonce[kNonceRoom];
    key->nonce(0, nonce);
    EXPECT_EQ(Bytes(nonce, nonce + 12), from_hex("0d8092245749667d979157fb"));
    key->nonce(1, nonce);
    EXPECT_EQ(Bytes(nonce, nonce + 12), from_hex("0d8092245749667d979157fa"));
    key->nonce(0x0123456789abcdefULL, nonce);
    EXPECT_EQ(Bytes(nonce, nonce + 12), from_hex("0d809224566a231a1e3a9a14"));
}

// protocol: S2
TEST(KeySchedule, LongerNoncesCountInTheirLastBytes) {
    const std::pair<aead::Suite, const char*> known[] = {
        {aead::Suite::aegis_128x4, "0d8092245d426a7096b2129c441f193d"},
        {aead::Suite::aegis_256, "0d8092245749667d979157fbcdb4d4d24b010582f9782daebdc8b19ea759c8cf"},
    };
    for (const auto& [suite, expected] : known) {
        const auto key = RecordKey::derive(test::crypto(suite), counting_secret().data());
        ASSERT_TRUE(key.has_value());
        std::uint8_t nonce[kNonceRoom];
        key->nonce(0x0a0b0c0d, 0x0123456789abcdefULL, nonce);
        Bytes padded = from_hex(expected);
        padded.resize(kNonceRoom);
        EXPECT_EQ(Bytes(nonce, nonce + kNonceRoom), padded);
    }
}

TEST(KeySchedule, AMovedKeyKeepsItsNoncesAndEmptiesTheOther) {
    auto made = RecordKey::derive(test::crypto(), counting_secret().data());
    ASSERT_TRUE(made.has_value());
    RecordKey key(std::move(*made));
    EXPECT_TRUE(key);
    EXPECT_FALSE(*made);
    RecordKey other;
    other = std::move(key);
    std::uint8_t nonce[kNonceRoom];
    other.nonce(0, nonce);
    EXPECT_EQ(Bytes(nonce, nonce + 12), from_hex("0d8092245749667d979157fb"));
}

TEST(KeySchedule, SaysWhenTheModuleFails) {
    cryptmpi_aead no_context = *test::crypto().aead;
    no_context.create = [](int, const std::uint8_t*) -> void* { return nullptr; };
    Crypto broken = test::crypto();
    broken.aead = &no_context;
    const auto key = RecordKey::derive(broken, counting_secret().data());
    ASSERT_FALSE(key.has_value());
    EXPECT_EQ(key.error().line, "key schedule: the crypto module could not start AES-256-GCM");

    cryptmpi_kex no_hmac = *test::crypto().kex;
    no_hmac.hmac_sha256 = [](std::uint8_t*, const std::uint8_t*, std::size_t, const iovec*, std::size_t) -> int {
        return CRYPTMPI_FAILED;
    };
    broken = test::crypto();
    broken.kex = &no_hmac;
    EXPECT_FALSE(RecordKey::derive(broken, counting_secret().data()).has_value());
    Bytes secret = counting_secret();
    EXPECT_FALSE(ratchet(no_hmac, secret.data()).has_value());
    EXPECT_EQ(secret, counting_secret());
}

}  // namespace
}  // namespace cryptmpi::seal
