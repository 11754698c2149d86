// Blocks of collective operations: of another root, another operation or another call they are none of this one's.
#include "comm/lanes.hpp"

#include <set>

#include "seal/message.hpp"
#include "seal/support.hpp"

namespace cryptmpi::comm {
namespace {

using test::Bytes;
using test::crypto;

constexpr int kMostRoot = (1 << 24) - 1;

// protocol: M3
TEST(Lanes, AreWhatTheDescriptionSays) {
    EXPECT_EQ(lane_of(CollectiveKind::bcast, 0), 0x01000000U);
    EXPECT_EQ(lane_of(CollectiveKind::gather, 5), 0x02000005U);
    EXPECT_EQ(lane_of(CollectiveKind::construction, 0), 0x0b000000U);
    EXPECT_EQ(lane_of(CollectiveKind::reduce_scatter, kMostRoot), 0x0affffffU);
}

// protocol: M3
TEST(Lanes, ABlockOfAnotherRootOrOperationDoesNotOpen) {
    const Bytes secret = test::random_bytes(seal::kSecretSize);
    seal::MessageSealer sealer(crypto(), secret.data());
    seal::MessageOpener opener(crypto(), secret.data(), seal::Opening::in_order);
    const Bytes plain = test::random_bytes(40);
    Bytes wire(plain.size() + seal::kMessageOverhead);
    const iovec in{const_cast<std::uint8_t*>(plain.data()), plain.size()};
    ASSERT_TRUE(sealer.seal(lane_of(CollectiveKind::reduce, 2), 9, {&in, 1}, plain.size(), wire.data()));

    Bytes opened(plain.size());
    const iovec out{opened.data(), opened.size()};
    for (const std::uint32_t lane :
         {lane_of(CollectiveKind::reduce, 0), lane_of(CollectiveKind::reduce, 3),
          lane_of(CollectiveKind::reduce, kMostRoot), lane_of(CollectiveKind::gather, 2), 2U}) {
        EXPECT_FALSE(opener.open(lane, wire.data(), wire.size(), {&out, 1}));
        EXPECT_TRUE(test::all_zero(opened.data(), opened.size()));
    }
    EXPECT_TRUE(opener.open(lane_of(CollectiveKind::reduce, 2), wire.data(), wire.size(), {&out, 1}));
    EXPECT_EQ(opened, plain);
}

}  // namespace
}  // namespace cryptmpi::comm
