// What has come in one lane of messages: the receiver's check that each message comes once, to the receive that MPI's
// order gives it to, and that none is left out.
//
// MPI gives the messages of a lane to receives in the order in which these were posted, but the receives may end in any
// order: so a number may come before smaller ones, which receives hold that were posted earlier and have not ended.
// The rule (docs/protocol.md, Order): numbers rise with the places of their receives in the order of posting; between
// any two neighbours there are as many numbers missing as receives in between hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace cryptmpi::seal {

class Arrivals {
public:
    /// A receive that could match the lane and has not ended. `surely`: it can hold nothing but a message of this lane,
    /// and does, once one that was posted after it has got one.
    struct Holder {
        std::uint64_t posted;
        bool surely;
    };
    using Holders = std::vector<Holder>;
    enum class Verdict : std::uint8_t { fits, repeated, out_of_order, lost, after_failure };

    Arrivals() = default;
    /// A lane that was at rest when the first `count` of it had come, and all receives that wait now were posted later
    /// than theirs.
    explicit Arrivals(std::uint64_t count) : next_(count) {}

    /// Has it no gap, and nothing that was cut off? Then it is its count, if no receive waits that was posted before
    /// last_posted().
    bool rests() const { return early_.empty() && cut_off_.empty() && next_ != kFailed; }
    std::uint64_t count() const { return next_; }
    std::uint64_t last_posted() const { return last_posted_; }
    /// How many have come, in whatever order; none where that is not known.
    std::optional<std::uint64_t> come() const {
        if (next_ == kFailed || !cut_off_.empty()) return std::nullopt;
        std::uint64_t sum = next_;
        for (const auto& [first, run] : early_) sum += run.end - run.begin;
        return sum;
    }

    /// HOT PATH. Is it the next number, at a receive posted after all that got the numbers before? Then it fits, if no
    /// Holder was posted before it. Places in the order of posting count from 1.
    bool follows(std::uint64_t number, std::uint64_t posted) const {
        return number == next_ && posted > last_posted_ && early_.empty() && cut_off_.empty();
    }
    void follow(std::uint64_t posted) {
        ++next_;
        last_posted_ = posted;
    }

    /// Accepts a number that came to the receive posted as `posted`, if it fits. `holders`: all receives of that kind.
    /// It takes as long as there are receives and runs of numbers, both looked through once: programs have thousands.
    Verdict take(std::uint64_t number, std::uint64_t posted, Holders holders) {
        // protocol: M27
        if (next_ == kFailed) return Verdict::after_failure;
        // protocol: M21
        if (number < next_) return Verdict::repeated;
        const auto after = early_.upper_bound(number);
        const Run before = after == early_.begin() ? Run{0, next_, 0, last_posted_} : std::prev(after)->second;
        if (number < before.end) return Verdict::repeated;
        // protocol: M22
        if (posted <= before.last_posted) return Verdict::out_of_order;
        if (after != early_.end() && posted >= after->second.first_posted) return Verdict::out_of_order;
        const auto by_place = [](const Holder& a, const Holder& b) { return a.posted < b.posted; };
        if (!std::is_sorted(holders.begin(), holders.end(), by_place))
            std::sort(holders.begin(), holders.end(), by_place);
        Sweep sides(holders);
        Verdict verdict = judge({before.end, number, before.last_posted, posted}, sides);
        if (verdict == Verdict::fits && after != early_.end()) {
            verdict = judge({number + 1, after->first, posted, after->second.first_posted}, sides);
        }
        // Holders of other gaps may have ended with something else.
        if (verdict == Verdict::fits) verdict = judge_gaps_without(before.end, holders);
        if (verdict == Verdict::fits) insert({number, number + 1, posted, posted}, holders);
        return verdict;
    }

    /// What came to a receive of this lane was not the message for it, and the receive is over: each message after it
    /// would be taken by a receive that was posted for another one.
    void fail() { next_ = kFailed; }

    /// A message of the lane was cut off at the receive posted as `posted`: it cannot be told which.
    void cut_off(std::uint64_t posted) { cut_off_.push_back(posted); }

private:
    /// Consecutive numbers that have come, without `end`, and where the receives of the first and the last were posted.
    struct Run {
        std::uint64_t begin;
        std::uint64_t end;
        std::uint64_t first_posted;
        std::uint64_t last_posted;
    };
    /// Numbers that have not come, from `begin` on without `end`, and the receives of their neighbours.
    struct Gap {
        std::uint64_t begin;
        std::uint64_t end;
        std::uint64_t after;
        std::uint64_t before;
        bool has(std::uint64_t posted) const { return posted > after && posted < before; }
    };

    /// The holders in one gap after the other, in the order of posting, which is also that of the gaps.
    class Sweep {
    public:
        explicit Sweep(std::span<const Holder> holders) : left_(holders) {}
        std::span<const Holder> in(const Gap& gap) {
            const auto of_gap = std::find_if(left_.begin(), left_.end(),
                                             [&](const Holder& holder) { return holder.posted > gap.after; });
            const auto rest =
                std::find_if(of_gap, left_.end(), [&](const Holder& holder) { return holder.posted >= gap.before; });
            left_ = {rest, left_.end()};
            return {of_gap, rest};
        }

    private:
        std::span<const Holder> left_;
    };

    std::uint64_t cut_off_in(const Gap& gap) const {
        return static_cast<std::uint64_t>(
            std::count_if(cut_off_.begin(), cut_off_.end(), [&](std::uint64_t posted) { return gap.has(posted); }));
    }

    /// Are its numbers with receives, and have the receives that must hold one a number?
    Verdict judge(const Gap& gap, Sweep& sweep) const {
        const std::span<const Holder> holders = sweep.in(gap);
        const std::uint64_t most = cut_off_in(gap) + holders.size();
        const auto least = static_cast<std::uint64_t>(
            std::count_if(holders.begin(), holders.end(), [](const Holder& holder) { return holder.surely; }));
        // protocol: M23
        if (gap.end - gap.begin > most) return Verdict::lost;
        // protocol: M24
        return gap.end - gap.begin < least ? Verdict::out_of_order : Verdict::fits;
    }

    template <class Look>
    void each_gap(Look look) const {
        std::uint64_t begin = next_;
        std::uint64_t after = last_posted_;
        for (const auto& [first, run] : early_) {
            look(Gap{begin, first, after, run.first_posted});
            begin = run.end;
            after = run.last_posted;
        }
    }

    Verdict judge_gaps_without(std::uint64_t begin, std::span<const Holder> holders) const {
        Verdict verdict = Verdict::fits;
        Sweep sweep(holders);
        each_gap([&](const Gap& gap) {
            if (gap.begin != begin && verdict == Verdict::fits) verdict = judge(gap, sweep);
        });
        return verdict;
    }

    void insert(Run run, std::span<const Holder> holders) {
        early_.emplace(run.begin, run);
        close_gaps(holders);
        merge();
        std::erase_if(cut_off_, [&](std::uint64_t posted) { return posted < last_posted_; });
    }

    /// What only messages that were cut off can be in is not waited for.
    void close_gaps(std::span<const Holder> holders) {
        std::vector<Gap> closed;
        Sweep sweep(holders);
        each_gap([&](const Gap& gap) {
            const bool held = !sweep.in(gap).empty();
            if (!held && gap.end != gap.begin) closed.push_back(gap);
        });
        for (const Gap& gap : closed) {
            early_.emplace(gap.begin, Run{gap.begin, gap.end, gap.after + 1, gap.before - 1});
        }
    }

    void merge() {
        for (auto at = early_.begin(); at != early_.end();) {
            if (at->first == next_) {
                next_ = at->second.end;
                last_posted_ = at->second.last_posted;
                at = early_.erase(at);
                continue;
            }
            const auto following = std::next(at);
            if (following == early_.end() || following->first != at->second.end) {
                at = following;
                continue;
            }
            at->second.end = following->second.end;
            at->second.last_posted = following->second.last_posted;
            early_.erase(following);
        }
    }

    static constexpr std::uint64_t kFailed = ~std::uint64_t{0};  // no message has this number

    std::uint64_t next_ = 0;              // all smaller ones have come
    std::uint64_t last_posted_ = 0;       // of their receives, the last
    std::map<std::uint64_t, Run> early_;  // runs after a gap, by their first numbers
    std::vector<std::uint64_t> cut_off_;  // receives that were too small
};

}  // namespace cryptmpi::seal
