// How collective operations go between nodes: in pieces of which size, and which algorithm adds up vectors the soonest,
// by what its messages cost (Thakur, Rabenseifner and Gropp 2005). Who computes it decides for himself which messages
// to send and to expect, so all ranks of a job have to come to the same: whole numbers, and the same costs everywhere
// (keys::Terms).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cryptmpi::engine {

/// Of a sealed message between two nodes that goes in one piece, and of what is made of it.
struct ReductionCosts {
    static constexpr std::uint32_t kMostOfMessage = 100'000'000;  // a network that takes longer is none
    static constexpr std::uint32_t kMostOfKib = 1'000'000;

    std::uint32_t message_ns = 8000;    // beside its bytes
    std::uint32_t kib_ns = 500;         // 1,024 bytes: sealed, sent, opened
    std::uint32_t combine_kib_ns = 50;  // 1,024 bytes of the result of an operation on two vectors

    bool operator==(const ReductionCosts&) const = default;
};

/// What all ranks of a job have to go by: which messages Bcast and reductions are made of.
struct CollectivePlan {
    static constexpr std::uint32_t kLeastPiece = 16U << 10;
    static constexpr std::uint32_t kMostPiece = 1U << 20;

    ReductionCosts costs;
    // Bytes. What is longer than two goes in pieces, so that one is sealed or opened while another travels.
    std::uint32_t piece = 128U << 10;

    bool operator==(const CollectivePlan&) const = default;
};

/// Can a profile have said so? A plan that came from another rank is not used before.
inline bool is_sound(const CollectivePlan& plan) {
    return plan.costs.message_ns <= ReductionCosts::kMostOfMessage && plan.costs.kib_ns <= ReductionCosts::kMostOfKib &&
           plan.costs.combine_kib_ns <= ReductionCosts::kMostOfKib && plan.piece >= CollectivePlan::kLeastPiece &&
           plan.piece <= CollectivePlan::kMostPiece;
}

/// How Allreduce goes among nodes, by one rank of each.
enum class AllreduceWay : std::uint8_t {
    doubling,  // everything is exchanged with one after the other, at doubling distances
    halves,    // halves of what is left are exchanged, then the sums of the parts: reduce-scatter and allgather
    parts,     // each sums up one part from what all others send it, and sends it to all: as many messages as nodes
};

namespace reductions {

/// What the busiest does one after the other.
struct Work {
    std::uint64_t messages;
    std::uint64_t sent;      // bytes
    std::uint64_t combined;  // bytes

    Work operator+(const Work& other) const {
        return {messages + other.messages, sent + other.sent, combined + other.combined};
    }
    /// In 1/1,024 ns: less than 2^64 for 2^24 nodes and 2^36 bytes of each.
    std::uint64_t time(const ReductionCosts& costs) const {
        return 1024 * messages * costs.message_ns + sent * costs.kib_ns + combined * costs.combine_kib_ns;
    }
};

inline std::uint64_t bounded(std::uint64_t bytes) {
    return std::min(bytes, std::uint64_t{1} << 36);  // what is longer goes as this does
}

}  // namespace reductions

/// For vectors of so many bytes that can be cut.
inline AllreduceWay allreduce_way(const ReductionCosts& costs, std::uint64_t bytes, std::uint32_t nodes) {
    using reductions::Work;
    const std::uint64_t all = reductions::bounded(bytes);
    const std::uint64_t power = std::bit_floor(nodes);
    const std::uint64_t steps = std::bit_width(power) - 1;
    const std::uint64_t but_one = all - all / power;
    const std::uint64_t but_part = all - all / nodes;
    // What is no power of two comes in pairs first, one of whom hands in its vector and gets the result.
    const Work pairs = power == nodes ? Work{0, 0, 0} : Work{2, 2 * all, all};
    const std::uint64_t by_doubling = (pairs + Work{steps, steps * all, steps * all}).time(costs);
    const std::uint64_t by_halves = (pairs + Work{2 * steps, 2 * but_one, but_one}).time(costs);
    const std::uint64_t by_parts = Work{2 * (std::uint64_t{nodes} - 1), 2 * but_part, but_part}.time(costs);
    if (by_doubling <= by_halves && by_doubling <= by_parts) return AllreduceWay::doubling;
    return by_halves <= by_parts ? AllreduceWay::halves : AllreduceWay::parts;
}

/// Does Reduce_scatter pay by parts, each node's of which it gets from all others, or by a tree to one rank and another
/// one back? `bytes`: of the whole vector.
inline bool reduce_scatter_by_parts(const ReductionCosts& costs, std::uint64_t bytes, std::uint32_t nodes) {
    using reductions::Work;
    const std::uint64_t all = reductions::bounded(bytes);
    const std::uint64_t steps = std::bit_width(std::uint64_t{nodes} - 1);
    const std::uint64_t but_part = all - all / nodes;
    const Work by_trees = Work{steps, steps * all, steps * all} + Work{steps, but_part, 0};
    const Work by_parts{std::uint64_t{nodes} - 1, but_part, but_part};
    return by_parts.time(costs) <= by_trees.time(costs);
}

}  // namespace cryptmpi::engine
