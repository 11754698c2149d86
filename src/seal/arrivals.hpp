// What has come in one lane of messages: the receiver's check that each message comes once and none is left out.
//
// MPI lets the receives of one lane complete in any order, so a number may come before smaller ones that an earlier
// receive holds: the caller, who knows its pending receives, decides whether that many can be missing.
#pragma once

#include <cstdint>
#include <set>

namespace cryptmpi::seal {

class Arrivals {
public:
    bool has(std::uint64_t number) const { return number < next_ || early_.contains(number); }

    /// How many smaller numbers have not come. Not for a number that has().
    std::uint64_t missing_before(std::uint64_t number) const {
        if (number == next_) [[likely]] {
            return 0;
        }
        std::uint64_t missing = number - next_;
        for (auto it = early_.begin(); it != early_.end() && *it < number; ++it) --missing;
        return missing;
    }

    /// Those before `number` that have not come are not expected any more.
    void skip_to(std::uint64_t number) {
        early_.erase(early_.begin(), early_.lower_bound(number));
        next_ = number;
    }

    void accept(std::uint64_t number) {
        if (number != next_) {
            early_.insert(number);
            return;
        }
        ++next_;
        while (!early_.empty() && *early_.begin() == next_) {
            early_.erase(early_.begin());
            ++next_;
        }
    }

private:
    std::uint64_t next_ = 0;         // all smaller ones have come
    std::set<std::uint64_t> early_;  // came before a smaller one
};

}  // namespace cryptmpi::seal
