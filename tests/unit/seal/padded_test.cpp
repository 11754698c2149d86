// Padded records of a stream. What a peer may send that no sealer of ours makes, tests/interop sends.
#include <cerrno>
#include <cstring>

#include "seal/stream.hpp"
#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::Direction;
using test::random_bytes;

struct Sealed {
    Bytes wire;
    Result<std::size_t> written;
};

Sealed seal_padded(StreamSealer& sealer, Bytes plain, std::size_t room) {
    const auto in = test::random_pieces(plain.data(), plain.size());
    Bytes wire(room + kLengthSize + 2 * kRecordOverhead);
    const auto written = sealer.seal_padded(in, plain.size(), room, wire.data());
    if (written) wire.resize(*written);
    return {std::move(wire), written};
}

// protocol: R17
TEST(Padded, TheWireShowsTheRoomAndTheReceiverGetsTheData) {
    Direction line;
    std::uint64_t padding = 0;
    for (const std::size_t room : {std::size_t{1}, std::size_t{64}, std::size_t{65}, kMaxPlaintext - kLengthSize}) {
        for (std::size_t size = 1; size <= std::min<std::size_t>(room, 70); ++size) {
            const Bytes plain = random_bytes(size);
            const Sealed sealed = seal_padded(line.sealer, plain, room);
            ASSERT_TRUE(sealed.written.has_value()) << sealed.written.error().line;
            ASSERT_EQ(sealed.wire.size(), room + kLengthSize + kRecordOverhead);
            const auto header = parse_header(sealed.wire.data());
            ASSERT_TRUE(header.has_value());
            EXPECT_EQ(header->type, RecordType::padded);
            EXPECT_EQ(header->size, room + kLengthSize);
            Bytes got(header->size, 0xee);
            const auto data = line.opener.open_padded(sealed.wire.data(), got);
            ASSERT_TRUE(data.has_value()) << data.error().line;
            ASSERT_EQ(*data, size);
            EXPECT_EQ(std::memcmp(got.data(), plain.data(), size), 0);
            padding += room + kLengthSize - size;
        }
    }
    EXPECT_EQ(line.sealer.counters().padding, padding);
    EXPECT_EQ(line.opener.counters().padding, padding);
    EXPECT_EQ(line.opener.counters().bytes, line.sealer.counters().bytes);
}

TEST(Padded, WhatCannotBeIsNotSealed) {
    Direction line;
    for (const auto& [size, room] :
         {std::pair<std::size_t, std::size_t>{0, 64}, {65, 64}, {1, kMaxPlaintext - kLengthSize + 1}}) {
        EXPECT_EQ(seal_padded(line.sealer, random_bytes(size), room).written.error().code, EINVAL);
    }
    EXPECT_EQ(line.sealer.counters().records, 0U);
}

// protocol: R5, R6
TEST(Padded, PaddingCountsAmongTheBytesOfAKey) {
    Direction line({1 << 20, 1000}, test::crypto());
    for (int i = 0; i < 9; ++i) {
        const Sealed sealed = seal_padded(line.sealer, random_bytes(1), 400 - kLengthSize);
        for (const Bytes& record : test::records_of(sealed.wire)) {
            Bytes got(parse_header(record.data())->size);
            if (got.empty()) {
                ASSERT_TRUE(line.opener.open(record.data(), {}).has_value());
            } else {
                ASSERT_TRUE(line.opener.open_padded(record.data(), got).has_value());
            }
        }
    }
    EXPECT_EQ(line.sealer.counters().rekeys, 4U);
    EXPECT_EQ(line.opener.counters().rekeys, 4U);
}

TEST(Padded, AnAlteredOneShowsNothing) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{3}, kHeaderSize, kHeaderSize + 50, kHeaderSize + 66}) {
        Direction line;
        Sealed sealed = seal_padded(line.sealer, random_bytes(20), 64);
        sealed.wire[at] ^= 1;
        Bytes got(64 + kLengthSize, 0xee);
        const auto data = line.opener.open_padded(sealed.wire.data(), got);
        ASSERT_FALSE(data.has_value()) << at;
        EXPECT_EQ(data.error().code, EBADMSG);
        EXPECT_TRUE(test::all_zero(got.data(), got.size()));
        EXPECT_EQ(line.receiving.failed, 1);
    }
}

TEST(Padded, ADataRecordIsNone) {
    Direction line;
    const Bytes wire = test::seal_data(line.sealer, Bytes(68, 1));
    Bytes got(68, 0xee);
    EXPECT_FALSE(line.opener.open_padded(wire.data(), got).has_value());
    EXPECT_TRUE(test::all_zero(got.data(), got.size()));
}

}  // namespace
}  // namespace cryptmpi::seal
