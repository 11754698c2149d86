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
        if (number - next_ > most_early_) return Verdict::lost;
        if (!early_.insert(number).second) return Verdict::repeated;
        while (!early_.empty() && *early_.begin() == next_) {
            early_.erase(early_.begin());
            ++next_;
        }
        return Verdict::fits;
    }

    /// Have later ones come, and this one not?
    bool misses_one() const { return !early_.empty(); }

private:
    std::uint64_t most_early_;
    std::uint64_t next_ = 0;  // all smaller ones have come
    std::set<std::uint64_t> early_;
};

}  // namespace cryptmpi::fabric
