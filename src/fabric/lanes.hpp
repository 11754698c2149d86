// The lanes of a flow: where each stands that is in use, and how many messages each other one has had. MPIs give every
// non-blocking collective a tag of its own, so that a long job has millions of lanes of few messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

namespace cryptmpi::fabric {

/// Of lanes at rest: tags in a row that have had as many messages are one entry.
class RestingLanes {
public:
    /// A lane that is not here, and has had messages.
    void put(std::uint64_t tag, std::uint64_t count) {
        for (std::size_t i = 0; i < kFields.size(); ++i) {
            if (join(i, tag, count)) return;
        }
        single_.emplace(tag, count);
    }

    /// It is not at rest from now on. 0: it never was.
    std::uint64_t take(std::uint64_t tag) {
        if (const auto found = single_.find(tag); found != single_.end()) {
            const std::uint64_t count = found->second;
            single_.erase(found);
            return count;
        }
        for (std::size_t i = 0; i < kFields.size(); ++i) {
            if (const std::uint64_t count = take_from(i, tag); count != 0) return count;
        }
        return 0;
    }

    std::size_t entries() const {
        std::size_t all = single_.size();
        for (const auto& rows : rows_) {
            for (const auto& [rest, row] : rows) all += row.size();
        }
        return all;
    }

private:
    /// Where a door's tags have the tag of MPI: counting in it is what lanes in a row do.
    struct Field {
        unsigned shift;
        unsigned bits;
        std::uint64_t most() const { return (std::uint64_t{1} << bits) - 1; }
        std::uint64_t value(std::uint64_t tag) const { return tag >> shift & most(); }
        std::uint64_t rest(std::uint64_t tag) const { return tag & ~(most() << shift); }
    };
    // Of libfabric; of MPICH over UCX; of Open MPI over UCX.
    static constexpr std::array<Field, 3> kFields = {{{0, 32}, {32, 32}, {40, 24}}};

    struct Range {
        std::uint64_t end;  // the first that is not of it
        std::uint64_t count;
    };
    using Row = std::map<std::uint64_t, Range>;  // by the first
    using Rows = std::unordered_map<std::uint64_t, Row>;

    /// Whether it has a neighbour there with as many messages.
    bool join(std::size_t i, std::uint64_t tag, std::uint64_t count) {
        const Field field = kFields[i];
        const std::uint64_t step = std::uint64_t{1} << field.shift;
        const std::uint64_t value = field.value(tag);
        Range range{value + 1, count};
        std::uint64_t begin = value;
        if (const auto rows = rows_[i].find(field.rest(tag)); rows != rows_[i].end()) {
            Row& row = rows->second;
            auto after = row.upper_bound(value);
            if (after != row.end() && after->first == value + 1 && after->second.count == count) {
                range.end = after->second.end;
                after = row.erase(after);
            }
            if (after != row.begin() && std::prev(after)->second.end == value &&
                std::prev(after)->second.count == count) {
                begin = std::prev(after)->first;
                row.erase(std::prev(after));
            }
        }
        if (begin == value && value != 0 && take_single(tag - step, count)) begin = value - 1;
        if (range.end == value + 1 && value != field.most() && take_single(tag + step, count)) range.end = value + 2;
        if (range.end - begin == 1) return false;
        rows_[i][field.rest(tag)].emplace(begin, range);
        return true;
    }

    bool take_single(std::uint64_t tag, std::uint64_t count) {
        const auto found = single_.find(tag);
        if (found == single_.end() || found->second != count) return false;
        single_.erase(found);
        return true;
    }

    std::uint64_t take_from(std::size_t i, std::uint64_t tag) {
        const std::uint64_t value = kFields[i].value(tag);
        const auto rows = rows_[i].find(kFields[i].rest(tag));
        if (rows == rows_[i].end()) return 0;
        Row& row = rows->second;
        const auto after = row.upper_bound(value);
        if (after == row.begin() || std::prev(after)->second.end <= value) return 0;
        const std::uint64_t begin = std::prev(after)->first;
        const Range range = std::prev(after)->second;
        row.erase(std::prev(after));
        if (begin < value) row.emplace(begin, Range{value, range.count});
        if (value + 1 < range.end) row.emplace(value + 1, range);
        if (row.empty()) rows_[i].erase(rows);
        return range.count;
    }

    std::unordered_map<std::uint64_t, std::uint64_t> single_;  // those without a neighbour
    std::array<Rows, kFields.size()> rows_;                    // by the rest of their tags
};

/// `Lane` is made of the number of messages that it has had.
template <class Lane>
class Lanes {
public:
    static constexpr std::size_t kMostAwake = 1024;  // unless more may not rest

    /// HOT PATH. `count(tag, lane)` says how many messages a lane has had, or 0 where it may not rest yet.
    template <class Count>
    std::pair<Lane&, bool> wake(std::uint64_t tag, const Count& count) {
        const auto [awake, fresh] = awake_.try_emplace(tag);
        if (!fresh) [[likely]] {
            return {awake->second, false};
        }
        if (awake_.size() > most_awake_) let_rest(tag, count);
        const std::uint64_t had = resting_.take(tag);
        if (had != 0) awake->second = Lane(had);
        return {awake->second, had == 0};
    }
    /// Null: it has had no messages.
    Lane* find(std::uint64_t tag) {
        if (const auto awake = awake_.find(tag); awake != awake_.end()) return &awake->second;
        const std::uint64_t had = resting_.take(tag);
        return had == 0 ? nullptr : &awake_.emplace(tag, Lane(had)).first->second;
    }

    std::size_t entries() const { return awake_.size() + resting_.entries(); }

private:
    template <class Count>
    void let_rest(std::uint64_t but, const Count& count) {
        std::erase_if(awake_, [&](const auto& one) {
            const auto& [tag, lane] = one;
            const std::uint64_t had = tag == but ? 0 : count(tag, lane);
            if (had != 0) resting_.put(tag, had);
            return had != 0;
        });
        most_awake_ = std::max(kMostAwake, 2 * awake_.size());
    }

    std::unordered_map<std::uint64_t, Lane> awake_;
    std::size_t most_awake_ = kMostAwake;
    RestingLanes resting_;
};

}  // namespace cryptmpi::fabric
