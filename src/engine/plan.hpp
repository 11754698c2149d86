// How a message of a given length travels: whole, or in segments of which sizes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cryptmpi::engine {

struct Plan {
    // Part of the protocol. Between the two, the sender chooses: receivers make room for whole messages up to the
    // second, and take what is longer than the first for one that may come in segments.
    static constexpr std::size_t kAlwaysWhole = std::size_t{64} << 10;    // bytes
    static constexpr std::size_t kLargestWhole = std::size_t{256} << 10;  // bytes
    static constexpr std::size_t kMostSegments = (std::size_t{1} << 16) - 1;

    std::size_t largest_whole = kLargestWhole;     // bytes, from kAlwaysWhole to kLargestWhole
    std::size_t edge = std::size_t{60} << 10;      // bytes of the first segment, and about those of the last
    std::size_t segment = std::size_t{256} << 10;  // bytes, the most that one between them has
    // What a message keeps with MPI at most, and what all of them do in each direction; but each may have one segment.
    std::size_t in_flight = 4;                          // segments
    std::size_t all_in_flight = std::size_t{16} << 20;  // bytes
    // A sender waits so long for a receiver who does not take segments, since he is busy elsewhere: then the send ends,
    // as MPI lets a buffered one, and the segments go on their way from buffers of ours.
    std::chrono::milliseconds patience{50};

    /// May a message of so many bytes come in segments?
    static bool may_be_in_segments(std::size_t length) { return length > kAlwaysWhole; }
    bool in_segments(std::size_t length) const { return length > largest_whole; }

    struct Sizes {
        std::uint32_t first;
        std::uint32_t others;  // all after the first but the last, which has the rest
    };
    /// Sealing of the first segment and opening of the last hide behind nothing: these are short. Those between them
    /// are of one size, as far as there is more than another short one between them.
    Sizes segments_of(std::size_t length) const {
        const std::size_t middle = length >= 3 * edge ? length - 2 * edge : length;
        const std::size_t count = std::min((middle + segment - 1) / segment, kMostSegments - 2);
        const std::size_t others = (middle + count - 1) / count;
        return {static_cast<std::uint32_t>(edge), static_cast<std::uint32_t>((others + 63) / 64 * 64)};
    }
};

/// The plan of each message, by its length.
class Plans {
public:
    struct Row {
        std::size_t up_to;  // bytes of the longest message that the plan is for; of the last row it does not count
        Plan plan;
    };
    /// The default plan for all.
    Plans() : Plans({{SIZE_MAX, Plan()}}) {}
    /// At least one row, ascending.
    explicit Plans(std::vector<Row> rows) : rows_(std::move(rows)) {}

    // HOT PATH
    bool in_segments(std::size_t length) const {
        return Plan::may_be_in_segments(length) && of(length).in_segments(length);
    }
    const Plan& of(std::size_t length) const {
        auto row = rows_.begin();
        while (length > row->up_to && row + 1 != rows_.end()) ++row;
        return row->plan;
    }
    const std::vector<Row>& rows() const { return rows_; }

private:
    std::vector<Row> rows_;
};

}  // namespace cryptmpi::engine
