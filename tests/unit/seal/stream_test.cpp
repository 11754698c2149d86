#include "seal/stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::Direction;
using test::from_hex;
using test::open_record;
using test::Opened;
using test::random_bytes;
using test::seal_control;
using test::seal_data;

constexpr char kDoesNotOpen[] = "does not open: altered, dropped, repeated or moved on the way";

/// The record was refused, nothing of it shows, and nothing opens any more.
void expect_refused(const Opened& opened, StreamOpener& opener, const DirectionState& state, const std::string& line) {
    EXPECT_EQ(opened.code(), EBADMSG);
    EXPECT_NE(opened.line().find(line), std::string::npos) << opened.line();
    EXPECT_TRUE(test::all_zero(opened.plain.data(), opened.plain.size()));
    EXPECT_EQ(state.failed, 1);
    EXPECT_TRUE(test::all_zero(state.secret, sizeof state.secret));
    const Opened next = open_record(opener, Bytes(kRecordOverhead));
    EXPECT_EQ(next.line(), "a record after one that did not open");
}

class EverySuite : public testing::TestWithParam<aead::Suite> {};

TEST_P(EverySuite, OpensWhatWasSealedWhateverTheSizesAndPieces) {
    Direction line(test::crypto(GetParam()));
    std::uint64_t bytes = 0;
    std::vector<std::size_t> sizes = {0, 1, 15, 16, 17, 4095, 65536, kMaxPlaintext - 1, kMaxPlaintext};
    for (int i = 0; i < 200; ++i) {
        sizes.push_back(test::random_below(3000));
    }
    for (const std::size_t size : sizes) {
        Bytes plain = random_bytes(size);
        const auto in = test::random_pieces(plain.data(), size);
        Bytes wire(size + 2 * kRecordOverhead);
        const auto written = line.sealer.seal(in, size, wire.data());
        ASSERT_TRUE(written.has_value()) << written.error().line;
        ASSERT_EQ(*written, size + kRecordOverhead);
        const auto header = parse_header(wire.data());
        ASSERT_TRUE(header.has_value());
        EXPECT_EQ(header->type, RecordType::data);
        EXPECT_EQ(header->size, size);

        Bytes got(size, 0xee);
        const auto out = test::random_pieces(got.data(), size);
        const auto type = line.opener.open(wire.data(), out);
        ASSERT_TRUE(type.has_value()) << type.error().line;
        EXPECT_EQ(*type, RecordType::data);
        EXPECT_EQ(got, plain);
        bytes += size;
    }
    EXPECT_EQ(line.sealer.counters().records, sizes.size());
    EXPECT_EQ(line.sealer.counters().bytes, bytes);
    EXPECT_EQ(line.opener.counters().records, sizes.size());
    EXPECT_EQ(line.opener.counters().bytes, bytes);
    EXPECT_EQ(line.opener.counters().rekeys, 0U);
}

TEST_P(EverySuite, ChangesKeysAndCloses) {
    Direction line({4, 1 << 20}, test::crypto(GetParam()));
    for (int i = 0; i < 10; ++i) {
        const Bytes plain = random_bytes(100);
        for (const Bytes& record : test::records_of(seal_data(line.sealer, plain))) {
            const Opened opened = open_record(line.opener, record);
            ASSERT_TRUE(opened.type.has_value()) << opened.line();
            if (*opened.type == RecordType::data) {
                EXPECT_EQ(opened.plain, plain);
            }
        }
    }
    EXPECT_EQ(line.receiving.epoch, 3U);
    EXPECT_TRUE(open_record(line.opener, seal_control(line.sealer, RecordType::close)).is(RecordType::close));
    EXPECT_TRUE(line.opener.closed());
}

TEST_P(EverySuite, RefusesAChangedByteAnotherPlaceAndAnotherSuite) {
    const seal::Crypto crypto = test::crypto(GetParam());
    Direction line(crypto);
    const Bytes first = seal_data(line.sealer, random_bytes(300));
    const Bytes second = seal_data(line.sealer, random_bytes(300));
    const DirectionState fresh = line.receiving;
    for (const std::size_t at : {kHeaderSize, first.size() / 2, first.size() - 1}) {
        Bytes altered = first;
        altered[at] ^= 0x10;
        DirectionState state = fresh;
        StreamOpener opener(crypto, state);
        expect_refused(open_record(opener, altered), opener, state, kDoesNotOpen);
    }
    DirectionState state = fresh;
    StreamOpener too_early(crypto, state);
    expect_refused(open_record(too_early, second), too_early, state, kDoesNotOpen);
    for (const aead::Suite other : test::suites()) {
        state = fresh;
        StreamOpener opener(test::crypto(other), state);
        EXPECT_EQ(open_record(opener, first).is(RecordType::data), other == GetParam()) << aead::name(other);
    }
}

INSTANTIATE_TEST_SUITE_P(Stream, EverySuite, testing::ValuesIn(test::suites()), test::test_name);

// protocol: R1
// The records were made with Python's hmac and cryptography, from the secret 00 01 ... 1f.
TEST(Stream, OpensTheKnownRecords) {
    const std::pair<aead::Suite, const char*> known[] = {
        {aead::Suite::aes_256_gcm, "050000016573f3e98b8bb2a1392e90ecc98a8bda4040672de8"},
        {aead::Suite::aes_128_gcm, "050000013786ac3833841cb90537ad1cc0e88b456c345186fa"},
    };
    for (const auto& [suite, record] : known) {
        DirectionState state{};
        std::iota(state.secret, state.secret + kSecretSize, std::uint8_t{0});
        StreamOpener opener(test::crypto(suite), state);
        const Opened opened = open_record(opener, from_hex(record));
        ASSERT_TRUE(opened.is(RecordType::data)) << opened.line();
        EXPECT_EQ(std::string(opened.plain.begin(), opened.plain.end()), "hello");
    }
}

TEST(Stream, OpensTheKnownCloseRecordOfTheSecondEpoch) {
    DirectionState state{};
    std::iota(state.secret, state.secret + kSecretSize, std::uint8_t{0});
    ASSERT_TRUE(ratchet(*test::crypto().kex, state.secret).has_value());
    state.epoch = 1;
    state.counter = 1;
    StreamOpener opener(test::crypto(), state);
    EXPECT_TRUE(open_record(opener, from_hex("000000040fdf9c3ff83b1199d85e77fc04a67a0b")).is(RecordType::close));
    EXPECT_TRUE(opener.closed());
}

// protocol: R2, R10, V1
TEST(Header, KnownTypesAndSizesOnly) {
    const auto parse = [](std::uint32_t size, unsigned type) {
        const std::uint8_t header[kHeaderSize] = {static_cast<std::uint8_t>(size), static_cast<std::uint8_t>(size >> 8),
                                                  static_cast<std::uint8_t>(size >> 16),
                                                  static_cast<std::uint8_t>(type)};
        return parse_header(header);
    };
    for (unsigned type = 0; type < 256; ++type) {
        const auto header = parse(0, type);
        EXPECT_EQ(header.has_value(), type >= 1 && type <= 5) << type;
        if (!header) {
            EXPECT_EQ(header.error().code, EBADMSG);
        }
        if (type == 0 || type > 6) {
            EXPECT_EQ(header.error().line, "a record's header has the unknown type " + std::to_string(type));
        }
    }
    // A padded record has a byte of data and its length at least.
    EXPECT_FALSE(parse(kLengthSize, 6).has_value());
    EXPECT_TRUE(parse(kLengthSize + 1, 6).has_value());
    EXPECT_TRUE(parse(kMaxPlaintext, 6).has_value());
    EXPECT_EQ(parse(kMaxPlaintext + 1, 6).error().line,
              "a padded record's header says 131073 bytes: no room for data, or more than a record holds");
    EXPECT_TRUE(parse(kMaxPlaintext, 1).has_value());
    EXPECT_EQ(parse(kMaxPlaintext + 1, 1).error().line,
              "a record's header says 131073 bytes, more than a record holds");
    EXPECT_FALSE(parse(0xffffff, 1).has_value());
    for (unsigned type = 2; type <= 5; ++type) {
        EXPECT_EQ(parse(1, type).error().line, "a control record's header says that it carries bytes");
        EXPECT_FALSE(parse(0x10000, type).has_value());
    }
}

// protocol: R1, R11, R15
TEST(Stream, EveryFlippedBitIsRefused) {
    for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{40}}) {
        Direction line;
        const Bytes record = seal_data(line.sealer, random_bytes(size));
        for (std::size_t at = 0; at < record.size(); ++at) {
            for (int bit = 0; bit < 8; ++bit) {
                Bytes altered = record;
                altered[at] ^= static_cast<std::uint8_t>(1 << bit);
                DirectionState state = line.receiving;
                StreamOpener opener(test::crypto(), state);
                // Room for whatever the altered header says, as a reader that waits for the whole record has.
                const auto header = parse_header(altered.data());
                Bytes plain(header ? header->size : size, 0xee);
                altered.resize(std::max(altered.size(), plain.size() + kRecordOverhead));
                const iovec out = {plain.data(), plain.size()};
                const auto type = opener.open(altered.data(), {&out, 1});
                ASSERT_FALSE(type.has_value()) << "byte " << at << " bit " << bit;
                EXPECT_EQ(type.error().code, EBADMSG);
                EXPECT_TRUE(test::all_zero(plain.data(), plain.size()));
                EXPECT_EQ(state.failed, 1);
            }
        }
        EXPECT_TRUE(open_record(line.opener, record).is(RecordType::data));
    }
}

TEST(Stream, ADroppedRecordIsSeen) {
    Direction line;
    seal_data(line.sealer, random_bytes(100));
    const Bytes second = seal_data(line.sealer, random_bytes(100));
    expect_refused(open_record(line.opener, second), line.opener, line.receiving, kDoesNotOpen);
}

TEST(Stream, ADuplicatedRecordIsSeen) {
    Direction line;
    const Bytes first = seal_data(line.sealer, random_bytes(100));
    EXPECT_TRUE(open_record(line.opener, first).is(RecordType::data));
    expect_refused(open_record(line.opener, first), line.opener, line.receiving, kDoesNotOpen);
}

TEST(Stream, SwappedRecordsAreSeen) {
    Direction line;
    const Bytes first = seal_data(line.sealer, random_bytes(100));
    const Bytes second = seal_data(line.sealer, random_bytes(100));
    const Bytes third = seal_data(line.sealer, random_bytes(100));
    EXPECT_TRUE(open_record(line.opener, first).is(RecordType::data));
    expect_refused(open_record(line.opener, third), line.opener, line.receiving, kDoesNotOpen);
    EXPECT_FALSE(open_record(line.opener, second).type.has_value());
}

TEST(Stream, ARecordOfTheOtherDirectionOrConnectionIsSeen) {
    Direction there;
    Direction back;
    const Bytes record = seal_data(there.sealer, random_bytes(100));
    expect_refused(open_record(back.opener, record), back.opener, back.receiving, kDoesNotOpen);
}

TEST(Stream, ARecordOfAnotherEpochIsSeen) {
    for (const bool later : {false, true}) {
        Direction line;
        DirectionState& behind = later ? line.sending : line.receiving;
        ASSERT_TRUE(ratchet(*test::crypto().kex, behind.secret).has_value());
        behind.epoch = 1;
        const Bytes record = seal_data(line.sealer, random_bytes(100));
        expect_refused(open_record(line.opener, record), line.opener, line.receiving, kDoesNotOpen);
    }
}

TEST(Stream, ARecordOfAnotherSuiteIsSeen) {
    Direction line(test::crypto(aead::Suite::aes_128_gcm));
    StreamOpener opener(test::crypto(aead::Suite::aes_256_gcm), line.receiving);
    const Bytes record = seal_data(line.sealer, random_bytes(100));
    expect_refused(open_record(opener, record), opener, line.receiving, kDoesNotOpen);
}

TEST(Stream, SplicedRecordsAreSeen) {
    Direction line;
    const Bytes first = seal_data(line.sealer, random_bytes(64));
    const Bytes second = seal_data(line.sealer, random_bytes(64));
    Bytes spliced = first;
    std::copy(second.begin() + 36, second.end(), spliced.begin() + 36);
    expect_refused(open_record(line.opener, spliced), line.opener, line.receiving, kDoesNotOpen);
}

// protocol: R8
TEST(Stream, AnEndWithoutCloseIsNotClosed) {
    Direction line;
    EXPECT_TRUE(open_record(line.opener, seal_data(line.sealer, random_bytes(10))).is(RecordType::data));
    EXPECT_FALSE(line.opener.closed());
    EXPECT_TRUE(open_record(line.opener, seal_control(line.sealer, RecordType::close)).is(RecordType::close));
    EXPECT_TRUE(line.opener.closed());
}

TEST(Stream, AResetIsAnEndOfItsOwnKind) {
    Direction line, other;
    EXPECT_TRUE(open_record(line.opener, seal_control(line.sealer, RecordType::reset)).is(RecordType::reset));
    EXPECT_TRUE(line.opener.closed());
    EXPECT_TRUE(line.opener.reset());
    open_record(other.opener, seal_control(other.sealer, RecordType::close));
    EXPECT_FALSE(other.opener.reset());
}

class NothingAfter : public testing::TestWithParam<RecordType> {};
INSTANTIATE_TEST_SUITE_P(Stream, NothingAfter, testing::Values(RecordType::close, RecordType::reset));

// protocol: R7
TEST_P(NothingAfter, IsSealed) {
    Direction line;
    seal_control(line.sealer, GetParam());
    EXPECT_NE(line.sending.closed, 0);
    EXPECT_TRUE(test::all_zero(line.sending.secret, kSecretSize));
    Bytes wire(100);
    std::uint8_t byte = 7;
    const iovec in = {&byte, 1};
    const auto written = line.sealer.seal({&in, 1}, 1, wire.data());
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code, EPIPE);
    const auto again = line.sealer.seal_control(RecordType::close, wire.data());
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().code, EPIPE);
    EXPECT_TRUE(test::all_zero(wire.data(), wire.size()));
}

// protocol: R12
TEST_P(NothingAfter, IsOpened) {
    Direction line;
    EXPECT_TRUE(open_record(line.opener, seal_control(line.sealer, GetParam())).is(GetParam()));
    EXPECT_TRUE(test::all_zero(line.receiving.secret, kSecretSize));
    expect_refused(open_record(line.opener, Bytes(kRecordOverhead + 5, 1)), line.opener, line.receiving,
                   "a record after the close record");
}

// protocol: R14
TEST(Stream, ConfirmIsTheFirstRecordOrNone) {
    Direction line;
    EXPECT_TRUE(open_record(line.opener, seal_control(line.sealer, RecordType::confirm)).is(RecordType::confirm));
    std::uint8_t wire[2 * kRecordOverhead];
    const auto again = line.sealer.seal_control(RecordType::confirm, wire);
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().code, EINVAL);
    // A sender that does it all the same is refused before its key is asked.
    const Bytes confirm = {0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    expect_refused(open_record(line.opener, confirm), line.opener, line.receiving,
                   "a confirm record that is not the first record");
}

TEST(Stream, OnlyConfirmAndCloseAreSealedOnRequest) {
    Direction line;
    std::uint8_t wire[2 * kRecordOverhead] = {};
    for (const RecordType type : {RecordType::data, RecordType::rekey, static_cast<RecordType>(9)}) {
        const auto written = line.sealer.seal_control(type, wire);
        ASSERT_FALSE(written.has_value());
        EXPECT_EQ(written.error().code, EINVAL);
    }
    EXPECT_EQ(line.sending.counter, 0U);
}

TEST(Stream, RefusesSizesThatDoNotFit) {
    Direction line;
    Bytes plain(kMaxPlaintext + 1);
    Bytes wire(kMaxRecord + 100);
    const iovec in = {plain.data(), plain.size()};
    EXPECT_EQ(line.sealer.seal({&in, 1}, plain.size(), wire.data()).error().code, EINVAL);
    EXPECT_EQ(line.sealer.seal({&in, 1}, 5, wire.data()).error().code, EINVAL);
    EXPECT_EQ(line.sending.counter, 0U);

    const Bytes record = seal_data(line.sealer, Bytes(5));
    Bytes room(6, 0xee);
    const iovec out = {room.data(), room.size()};
    const auto type = line.opener.open(record.data(), {&out, 1});
    ASSERT_FALSE(type.has_value());
    EXPECT_EQ(type.error().code, EBADMSG);
    EXPECT_TRUE(test::all_zero(room.data(), room.size()));
}

TEST(Stream, AFailingModuleEndsTheDirectionAndItsCounterIsSpent) {
    cryptmpi_aead broken = *test::crypto().aead;
    broken.seal = [](void*, const std::uint8_t*, const std::uint8_t*, std::size_t, const iovec*, std::size_t,
                     std::uint8_t*, std::uint8_t*) -> int { return CRYPTMPI_FAILED; };
    Crypto with = test::crypto();
    with.aead = &broken;
    Direction line(with);
    Bytes wire(100);
    std::uint8_t byte = 7;
    const iovec in = {&byte, 1};
    for (int i = 0; i < 2; ++i) {
        const auto written = line.sealer.seal({&in, 1}, 1, wire.data());
        ASSERT_FALSE(written.has_value());
        EXPECT_EQ(written.error().code, EIO);
        EXPECT_EQ(line.sending.counter, 1U);
        EXPECT_EQ(line.sending.failed, 1);
        EXPECT_TRUE(test::all_zero(line.sending.secret, kSecretSize));
    }
}

}  // namespace
}  // namespace cryptmpi::seal
