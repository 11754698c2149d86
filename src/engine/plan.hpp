// How a message of a given length travels: whole, or in segments of which size.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cryptmpi::engine {

struct Plan {
    // Part of the protocol: receivers make room for whole messages up to this size, and for announcements of all
    // others.
    static constexpr std::size_t kLargestWhole = std::size_t{64} << 10;  // bytes
    static constexpr std::size_t kMostSegments = (std::size_t{1} << 16) - 1;

    std::size_t segment = std::size_t{256} << 10;  // bytes
    std::size_t in_flight = 4;                     // segments that a blocking send and a receive keep with MPI
    // A sender waits so long for a receiver who does not take segments, since he is busy elsewhere: then the send ends,
    // as MPI lets a buffered one, and the segments go on their way from buffers of ours.
    std::chrono::milliseconds patience{50};

    static bool in_segments(std::size_t length) { return length > kLargestWhole; }
    std::uint32_t segment_of(std::size_t length) const {
        return static_cast<std::uint32_t>(std::max(segment, length / kMostSegments + 1));
    }
};

}  // namespace cryptmpi::engine
