// Tagged receives that wait for a message, in the order of their posting.
#pragma once

#include <cstdint>

namespace cryptmpi::fabric {

class Peer;

/// Which messages a receive takes.
struct Wanted {
    std::uint64_t tag = 0;
    std::uint64_t mask = ~std::uint64_t{0};  // the bits of the tag that count
    const Peer* from = nullptr;              // null: from anybody
    /// It can hold nothing but a message of one lane. The door says so: where the tag alone names the sender, as MPI's
    /// over UCX does, a full mask is enough.
    bool names_lane = false;

    bool takes(const Peer* sender, std::uint64_t its_tag) const {
        return (from == nullptr || from == sender) && ((tag ^ its_tag) & mask) == 0;
    }
};

/// A receive's place among those of its party. Stays where it is; nothing is allocated for it.
class Posted {
public:
    Posted() = default;
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;
    ~Posted() { withdraw(); }

    const Wanted& wanted() const { return wanted_; }
    std::uint64_t place() const { return place_; }  // from 1
    /// From now on it may end without a message.
    void ask_to_cancel() { may_be_cancelled_ = true; }
    bool may_be_cancelled() const { return may_be_cancelled_; }
    bool waits() const { return after_ != nullptr; }
    void withdraw() {
        if (!waits()) return;
        before_->after_ = after_;
        after_->before_ = before_;
        before_ = after_ = nullptr;
    }

private:
    friend class PostedList;
    Posted* before_ = nullptr;
    Posted* after_ = nullptr;
    Wanted wanted_;
    std::uint64_t place_ = 0;
    bool may_be_cancelled_ = false;
};

class PostedList {
public:
    PostedList() { ends_.before_ = ends_.after_ = &ends_; }
    PostedList(const PostedList&) = delete;
    PostedList& operator=(const PostedList&) = delete;
    ~PostedList() {
        while (ends_.after_ != &ends_) ends_.after_->withdraw();
        ends_.before_ = ends_.after_ = nullptr;
    }

    void add(Posted& posted, const Wanted& wanted) {
        posted.withdraw();
        posted.wanted_ = wanted;
        posted.place_ = ++places_;
        posted.may_be_cancelled_ = false;
        posted.before_ = ends_.before_;
        posted.after_ = &ends_;
        ends_.before_->after_ = &posted;
        ends_.before_ = &posted;
    }

    /// HOT PATH. Was one of them posted before this one?
    bool has_before(const Posted& posted) const {
        return ends_.after_ != &ends_ && ends_.after_->place_ < posted.place_;
    }

    /// The place of the first that waits, or one after all.
    std::uint64_t first_place() const { return ends_.after_ != &ends_ ? ends_.after_->place_ : places_ + 1; }

    /// Calls `look(posted)` for each, the first one first.
    template <class Look>
    void each(Look look) const {
        for (const Posted* at = ends_.after_; at != &ends_; at = at->after_) look(*at);
    }

private:
    Posted ends_;
    std::uint64_t places_ = 0;
};

}  // namespace cryptmpi::fabric
