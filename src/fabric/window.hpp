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
    Verdict take(std::uint64_t number) {
        if (number == next_ && early_.empty()) [[likely]] {
            ++next_;
            return Verdict::fits;
        }
        if (number < next_) return Verdict::repeated;
        for (; number - next_ > most_early_ && excused_ != 0; --excused_) pass();
        if (number - next_ > most_early_) return Verdict::lost;
        if (!early_.insert(number).second) return Verdict::repeated;
        pass_those_that_came();
        return Verdict::fits;
    }

    /// So many of those that do not come were cut off, and are not missed; which ones, nobody knows.
    void excuse(std::uint64_t count = 1) { excused_ += count; }

    /// Have later ones come, and this one not?
    bool misses_one() const { return !early_.empty() && *early_.rbegin() + 1 - next_ - early_.size() > excused_; }

private:
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
