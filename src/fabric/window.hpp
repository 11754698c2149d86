// Which numbers of a flow have come, where the network may let messages overtake each other: each comes once, and a
// missing one is noticed when too many have overtaken it, or at the end.
#pragma once

#include <cstdint>
#include <set>

namespace cryptmpi::fabric {

class Window {
public:
    enum class Verdict : std::uint8_t { fits, repeated, lost };

    explicit Window(std::uint64_t most_early) : most_early_(most_early) {}

    // protocol: F14
    /// `of_anybody`: so many of this or another window's were cut off, and are not missed; those of its own go first.
    Verdict take(std::uint64_t number, std::uint64_t& of_anybody) {
        if (number == next_ && early_.empty()) [[likely]] {
            ++next_;
            return Verdict::fits;
        }
        if (number < next_) return Verdict::repeated;
        while (number - next_ > most_early_ && may_pass(of_anybody)) pass();
        if (number - next_ > most_early_) return Verdict::lost;
        if (!early_.insert(number).second) return Verdict::repeated;
        pass_those_that_came();
        return Verdict::fits;
    }

    Verdict take(std::uint64_t number) {
        std::uint64_t none = 0;
        return take(number, none);
    }

    /// One of those that do not come was cut off, and is not missed; which one, nobody knows.
    void excuse() { ++excused_; }

    /// So many have not come, though later ones have, and are not excused.
    std::uint64_t missing() const {
        const std::uint64_t gaps = early_.empty() ? 0 : *early_.rbegin() + 1 - next_ - early_.size();
        return gaps > excused_ ? gaps - excused_ : 0;
    }

private:
    bool may_pass(std::uint64_t& of_anybody) {
        std::uint64_t& excuses = excused_ != 0 ? excused_ : of_anybody;
        if (excuses == 0) return false;
        --excuses;
        return true;
    }
    void pass_those_that_came() {
        while (!early_.empty() && *early_.begin() == next_) {
            early_.erase(early_.begin());
            ++next_;
        }
    }
    void pass() {
        ++next_;
        pass_those_that_came();
    }

    std::uint64_t most_early_;
    std::uint64_t excused_ = 0;
    std::uint64_t next_ = 0;  // all smaller ones have come
    std::set<std::uint64_t> early_;
};

}  // namespace cryptmpi::fabric
