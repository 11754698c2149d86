// The limits of a key, lowered so that they are reached.
#include <cerrno>
#include <cstring>

#include "seal/stream.hpp"
#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::Direction;
using test::open_record;
using test::random_bytes;
using test::records_of;
using test::seal_control;
using test::seal_data;

RecordType type_of(const Bytes& record) {
    return parse_header(record.data())->type;
}

// protocol: R5
TEST(Limits, TheDefaultsAreThoseOfTheProtocol) {
    for (const aead::Suite suite : {aead::Suite::aes_128_gcm, aead::Suite::aes_256_gcm}) {
        EXPECT_EQ(limits_of(suite).records, std::uint64_t{1} << 24);
        EXPECT_EQ(limits_of(suite).bytes, std::uint64_t{1} << 36);
    }
    EXPECT_EQ(limits_of(aead::Suite::legacy_3des).records, std::uint64_t{1} << 24);
    EXPECT_EQ(limits_of(aead::Suite::legacy_3des).bytes, std::uint64_t{1} << 36);
    for (const aead::Suite suite : {aead::Suite::aegis_128l, aead::Suite::aegis_128x2, aead::Suite::aegis_128x4,
                                    aead::Suite::aegis_256, aead::Suite::aegis_256x2, aead::Suite::aegis_256x4}) {
        EXPECT_EQ(limits_of(suite).records, std::uint64_t{1} << 32);
        EXPECT_EQ(limits_of(suite).bytes, std::uint64_t{1} << 48);
    }
}

// protocol: R5
TEST(Limits, TheRekeyRecordIsTheLastOfItsEpoch) {
    const std::uint64_t limit = 5;
    Direction line({limit, 1 << 20});
    std::vector<RecordType> types;
    for (int i = 0; i < 11; ++i) {
        const Bytes plain = random_bytes(10);
        for (const Bytes& record : records_of(seal_data(line.sealer, plain))) {
            types.push_back(type_of(record));
            const auto opened = open_record(line.opener, record);
            ASSERT_TRUE(opened.is(type_of(record))) << opened.line();
            if (type_of(record) == RecordType::data) {
                EXPECT_EQ(opened.plain, plain);
            }
        }
    }
    ASSERT_EQ(types.size(), 13U);
    for (std::size_t i = 0; i < types.size(); ++i) {
        EXPECT_EQ(types[i], i % limit == limit - 1 ? RecordType::rekey : RecordType::data) << i;
    }
    EXPECT_EQ(line.sending.epoch, 2U);
    EXPECT_EQ(line.receiving.epoch, 2U);
    EXPECT_EQ(line.sending.counter, 3U);
    EXPECT_EQ(line.sending.bytes, 30U);
    EXPECT_EQ(line.sealer.counters().rekeys, 2U);
    EXPECT_EQ(line.opener.counters().rekeys, 2U);
    EXPECT_EQ(line.sealer.counters().records, 13U);
    EXPECT_EQ(line.sealer.counters().bytes, 110U);
}

// protocol: R5
TEST(Limits, NoKeySealsMoreBytesThanItsLimit) {
    const std::uint64_t limit = 100;
    for (std::size_t last = 9; last <= 11; ++last) {
        Direction line({1000, limit});
        for (int i = 0; i < 9; ++i) {
            EXPECT_TRUE(open_record(line.opener, seal_data(line.sealer, random_bytes(10))).is(RecordType::data));
        }
        const auto records = records_of(seal_data(line.sealer, random_bytes(last)));
        if (last <= 10) {
            ASSERT_EQ(records.size(), 1U);
        } else {
            ASSERT_EQ(records.size(), 2U);
            EXPECT_EQ(type_of(records[0]), RecordType::rekey);
            EXPECT_EQ(line.sending.bytes, last);
        }
        for (const Bytes& record : records) {
            EXPECT_TRUE(open_record(line.opener, record).is(type_of(record)));
        }
    }
}

// protocol: R13
TEST(Limits, ABoundaryOfRecordsIsKeptByTheOpenerToo) {
    const std::uint64_t limit = 6;
    // This sender does not care for the limit.
    Direction line({1000, 1 << 20});
    StreamOpener opener(test::crypto(), line.receiving, {limit, 1 << 20});
    for (std::uint64_t i = 0; i < limit - 1; ++i) {
        EXPECT_TRUE(open_record(opener, seal_data(line.sealer, random_bytes(10))).is(RecordType::data)) << i;
    }
    const auto opened = open_record(opener, seal_data(line.sealer, random_bytes(10)));
    EXPECT_EQ(opened.line(), "a record past the limit of its key: the peer should have changed keys");
    EXPECT_EQ(opened.code(), EBADMSG);
    EXPECT_TRUE(test::all_zero(opened.plain.data(), opened.plain.size()));
}

// protocol: R6
TEST(Limits, OnlyARekeyMayTakeTheLastPlace) {
    for (const std::uint64_t senders : {5U, 6U, 7U}) {
        Direction line({senders, 1 << 20});
        StreamOpener opener(test::crypto(), line.receiving, {6, 1 << 20});
        bool refused = false;
        for (int i = 0; i < 8 && !refused; ++i) {
            for (const Bytes& record : records_of(seal_data(line.sealer, random_bytes(10)))) {
                refused = refused || !open_record(opener, record).type.has_value();
            }
        }
        EXPECT_EQ(refused, senders > 6) << senders;
    }
}

// protocol: R6, R13
TEST(Limits, ABoundaryOfBytesIsKeptByTheOpenerToo) {
    const std::uint64_t limit = 100;
    for (std::size_t last = 8; last <= 11; ++last) {
        Direction line({1000, 1 << 20});
        StreamOpener opener(test::crypto(), line.receiving, {1000, limit});
        EXPECT_TRUE(open_record(opener, seal_data(line.sealer, random_bytes(90))).is(RecordType::data));
        EXPECT_EQ(open_record(opener, seal_data(line.sealer, random_bytes(last))).type.has_value(), last <= 10) << last;
    }
}

/// A clock that a test turns.
std::int64_t clock_ns = 0;
Crypto aged(std::chrono::nanoseconds most) {
    Crypto with = test::crypto();
    with.age = {most, [] { return clock_ns; }};
    return with;
}

TEST(KeyAge, AStreamsKeySealsNoLongerThanItMay) {
    clock_ns = 1'000'000;
    Direction line(aged(std::chrono::nanoseconds(100)));
    std::vector<RecordType> types;
    const auto send = [&](std::int64_t at) {
        clock_ns = at;
        for (const Bytes& record : records_of(seal_data(line.sealer, random_bytes(10)))) {
            const auto opened = open_record(line.opener, record);
            ASSERT_TRUE(opened.is(type_of(record))) << opened.line();
            types.push_back(type_of(record));
        }
    };
    using enum RecordType;
    // Its age counts from its first record on, not from when the connection or the epoch began.
    for (const std::int64_t at : {2'000'000, 2'000'099, 2'000'100, 2'000'101, 2'000'199, 3'000'000, 3'000'001})
        send(at);
    EXPECT_EQ(types, (std::vector{data, data, rekey, data, data, data, rekey, data, data}));
    EXPECT_EQ(line.sending.epoch, 2U);
    // The end of a direction is told under a young key, too.
    clock_ns = 4'000'000;
    const auto last = records_of(seal_control(line.sealer, close));
    ASSERT_EQ(last.size(), 2U);
    EXPECT_EQ(type_of(last[0]), rekey);
}

TEST(KeyAge, ZeroIsForEverAndAsksNoClock) {
    Crypto with = test::crypto();
    with.age.now_ns = []() -> std::int64_t { std::abort(); };
    Direction line(with);
    for (int i = 0; i < 5; ++i) seal_data(line.sealer, random_bytes(1));
    EXPECT_EQ(line.sending.epoch, 0U);
}

TEST(KeyAge, RecordsThatAreSealedTogetherWaitForTheRekey) {
    clock_ns = 0;
    Direction line(aged(std::chrono::nanoseconds(100)));
    Bytes plain(1000);
    Bytes wire(plain.size() + kRecordOverhead);
    const iovec in{plain.data(), plain.size()};
    const ToSeal record{{&in, 1}, plain.size(), wire.data()};
    const auto share = [](std::size_t count, const auto& work) {
        for (std::size_t i = 0; i < count; ++i) work(i, 0);
    };
    EXPECT_EQ(*line.sealer.seal_several({&record, 1}, share), 1U);
    clock_ns = 100;
    EXPECT_EQ(*line.sealer.seal_several({&record, 1}, share), 0U);
    EXPECT_EQ(records_of(seal_data(line.sealer, plain)).size(), 2U);
    EXPECT_EQ(*line.sealer.seal_several({&record, 1}, share), 1U);
}

TEST(Limits, CloseFindsItsPlaceBehindARekey) {
    Direction line({3, 1 << 20});
    seal_data(line.sealer, random_bytes(1));
    seal_data(line.sealer, random_bytes(1));
    const auto records = records_of(seal_control(line.sealer, RecordType::close));
    ASSERT_EQ(records.size(), 2U);
    EXPECT_EQ(type_of(records[0]), RecordType::rekey);
    EXPECT_EQ(type_of(records[1]), RecordType::close);
}

TEST(Limits, ARecordThatNoEpochCouldTakeIsRefusedAtOnce) {
    Direction line({1000, 10});
    Bytes plain(11);
    Bytes wire(100);
    const iovec in = {plain.data(), plain.size()};
    const auto written = line.sealer.seal({&in, 1}, plain.size(), wire.data());
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code, EINVAL);
    EXPECT_EQ(line.sending.counter, 0U);
    EXPECT_EQ(line.sending.epoch, 0U);
}

// protocol: R4
TEST(Limits, BothDirectionsRekeyOnTheirOwn) {
    Direction there({4, 1 << 20});
    Direction back({7, 1 << 20});
    for (int i = 0; i < 40; ++i) {
        for (Direction* line : {&there, &back}) {
            for (const Bytes& record : records_of(seal_data(line->sealer, random_bytes(3)))) {
                ASSERT_TRUE(open_record(line->opener, record).is(type_of(record)));
            }
        }
    }
    EXPECT_EQ(there.receiving.epoch, 13U);
    EXPECT_EQ(back.receiving.epoch, 6U);
}

// protocol: R4
TEST(Limits, AnOldEpochsSecretOpensNothingNewAndTheNewOneNothingOld) {
    Direction line({3, 1 << 20});
    const DirectionState old = line.receiving;
    const Bytes first = seal_data(line.sealer, random_bytes(8));
    seal_data(line.sealer, random_bytes(8));
    const auto records = records_of(seal_data(line.sealer, random_bytes(8)));
    ASSERT_EQ(records.size(), 2U);
    EXPECT_NE(std::memcmp(old.secret, line.sending.secret, kSecretSize), 0);

    DirectionState state = old;
    StreamOpener with_old(test::crypto(), state);
    EXPECT_FALSE(open_record(with_old, records[1]).type.has_value());

    state = line.sending;
    state.counter = 0;
    StreamOpener with_new(test::crypto(), state);
    EXPECT_FALSE(open_record(with_new, first).type.has_value());
}

TEST(Limits, ADroppedOrRepeatedRekeyIsSeen) {
    for (const bool dropped : {true, false}) {
        Direction line({2, 1 << 20});
        EXPECT_TRUE(open_record(line.opener, seal_data(line.sealer, random_bytes(8))).is(RecordType::data));
        const auto records = records_of(seal_data(line.sealer, random_bytes(8)));
        ASSERT_EQ(records.size(), 2U);
        if (!dropped) {
            EXPECT_TRUE(open_record(line.opener, records[0]).is(RecordType::rekey));
        }
        EXPECT_FALSE(open_record(line.opener, records[dropped ? 1 : 0]).type.has_value());
    }
}

}  // namespace
}  // namespace cryptmpi::seal
