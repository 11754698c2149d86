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
    // While fewer large messages are on their way than few_sends, what is less of the two.
    std::size_t segment_of_few = SIZE_MAX;
    std::size_t few_sends = 8;
    // Else what is more of the two, where one thread works: the messages hide each other's sealing and opening, and MPI
    // takes longer for more segments.
    std::size_t segment_of_many = std::size_t{512} << 10;
    // Several threads work on a segment each of so many bytes together, as in the (k,t)-chopping of CryptMPI 2020: k
    // chunks of about 512 KB, each in t segments. A segment of less would take MPI longer than the cipher.
    std::size_t chunk = std::size_t{512} << 10;
    std::size_t least_of_chunk = std::size_t{64} << 10;
    // With more large messages on their way than that, those that follow have as few segments as they may: the network
    // is busy with the others.
    std::size_t many_sends = 64;
    // What a message keeps with MPI at most, and what all of them do in each direction; but each may have one segment.
    std::size_t in_flight = 4;                          // segments, or more where they are small
    std::size_t most_in_flight = 16;                    // segments
    std::size_t all_in_flight = std::size_t{16} << 20;  // bytes
    // A sender waits so long for a receiver who does not take segments, since he is busy elsewhere: then the send ends,
    // as MPI lets a buffered one, and the segments go on their way from buffers of ours.
    std::chrono::milliseconds patience{50};

    /// For an MPI that sends up to 64 KB at once, without asking the receiver first, as Open MPI does over TCP. Such
    /// segments keep a slow network busy, and are no dearer on a fast one, unless many messages are on their way: then
    /// the receiver's MPI has to keep them aside.
    static Plan of_short_segments() {
        Plan plan;
        plan.segment_of_few = plan.edge;
        return plan;
    }

    /// May a message of so many bytes come in segments?
    static bool may_be_in_segments(std::size_t length) { return length > kAlwaysWhole; }
    bool in_segments(std::size_t length) const { return length > largest_whole; }

    struct Sizes {
        std::uint32_t first;
        std::uint32_t others;  // all after the first but the last, which has the rest
    };
    /// Of a message that `threads` seal while `sends` others are on their way. Sealing of the first segment and opening
    /// of the last hide behind nothing: these are short. Those between them are of one size, as far as there is more
    /// than another short one between them.
    Sizes segments_of(std::size_t length, std::size_t threads = 1, std::size_t sends = 0) const {
        const std::size_t of_one =
            sends < few_sends ? std::min(segment, segment_of_few) : std::max(segment, segment_of_many);
        if (sends > many_sends) {
            const std::uint32_t equal = part_of(length, of_one);
            return {equal, equal};
        }
        const std::size_t most = threads == 1 ? of_one : std::min(std::max(chunk / threads, least_of_chunk), segment);
        // Where none is longer than the first, the last one is as the others.
        const std::size_t ends = length < 3 * edge ? 0 : most <= edge ? edge : 2 * edge;
        return {static_cast<std::uint32_t>(edge), part_of(length - ends, most)};
    }
    /// Segments of one message that MPI may have at a time, where those between the ends have `size` bytes.
    std::size_t in_flight_of(std::size_t size) const {
        return std::clamp(in_flight * segment / size, in_flight, most_in_flight);
    }

private:
    /// Bytes of each equal part of a message, the least number of parts that have `most` bytes at most.
    static std::uint32_t part_of(std::size_t length, std::size_t most) {
        const std::size_t count = std::min((length + most - 1) / most, kMostSegments - 2);
        const std::size_t part = (length + count - 1) / count;
        return static_cast<std::uint32_t>((part + 63) / 64 * 64);
    }
};

/// The plan of each message, by its length.
class Plans {
public:
    struct Row {
        std::size_t up_to;  // bytes of the longest message that the plan is for; of the last row it does not count
        Plan plan;
    };
    Plans() : Plans(Plan()) {}
    /// One for all.
    explicit Plans(const Plan& plan) : Plans({{SIZE_MAX, plan}}) {}
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
