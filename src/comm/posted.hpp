// Receives that wait for sealed messages, in the order of their posting.
#pragma once

#include <cstdint>
#include <utility>

namespace cryptmpi::comm {

namespace detail {
/// A place in a ring.
struct Link {
    Link* before = nullptr;
    Link* after = nullptr;
};
}  // namespace detail

/// A posted receive; `source` and `tag` may be wildcards. It is in its communicator's list from its posting until MPI
/// has given it a message, or as long as it lives; nothing is allocated for that.
class Posted : private detail::Link {
public:
    Posted() = default;
    Posted(Posted&& other) noexcept
        : Link(), source(other.source), tag(other.tag), order(other.order), may_be_cancelled(other.may_be_cancelled) {
        take_place(other);
    }
    Posted& operator=(Posted&& other) noexcept {
        if (this == &other) return *this;
        withdraw();
        source = other.source;
        tag = other.tag;
        order = other.order;
        may_be_cancelled = other.may_be_cancelled;
        take_place(other);
        return *this;
    }
    ~Posted() { withdraw(); }

    int source = 0;
    int tag = 0;
    std::uint64_t order = 0;        // its place among all receives of its communicator, from 1
    bool may_be_cancelled = false;  // MPI may have given it up without a message

    bool waits() const { return after != nullptr; }
    void withdraw() {
        if (!waits()) return;
        before->after = after;
        after->before = before;
        before = after = nullptr;
    }

private:
    friend class PostedList;
    void take_place(Posted& other) {
        before = std::exchange(other.before, nullptr);
        after = std::exchange(other.after, nullptr);
        if (!waits()) return;
        before->after = this;
        after->before = this;
    }
};

/// Of one communicator, from one source or from any. Stays where it is.
class PostedList {
public:
    PostedList() { ends_.before = ends_.after = &ends_; }
    PostedList(const PostedList&) = delete;
    PostedList& operator=(const PostedList&) = delete;
    ~PostedList() {
        while (ends_.after != &ends_) static_cast<Posted*>(ends_.after)->withdraw();
    }

    /// `order`: larger than that of all before.
    void add(int source, int tag, std::uint64_t order, Posted& posted) {
        posted.withdraw();
        posted.source = source;
        posted.tag = tag;
        posted.order = order;
        posted.may_be_cancelled = false;
        posted.before = ends_.before;
        posted.after = &ends_;
        ends_.before->after = &posted;
        ends_.before = &posted;
    }

    /// HOT PATH. Was one of them posted before this one?
    bool has_before(std::uint64_t order) const {
        return ends_.after != &ends_ && static_cast<const Posted*>(ends_.after)->order < order;
    }

    /// Calls `look(posted)` for each, the first one first.
    template <class Look>
    void each(Look look) const {
        for (const detail::Link* at = ends_.after; at != &ends_; at = at->after) look(static_cast<const Posted&>(*at));
    }

private:
    detail::Link ends_;
};

}  // namespace cryptmpi::comm
