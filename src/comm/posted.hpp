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
    Posted(Posted&& other) noexcept : Link(), source(other.source), tag(other.tag), order(other.order) {
        take_place(other);
    }
    Posted& operator=(Posted&& other) noexcept {
        if (this == &other) return *this;
        withdraw();
        source = other.source;
        tag = other.tag;
        order = other.order;
        take_place(other);
        return *this;
    }
    ~Posted() { withdraw(); }

    int source = 0;
    int tag = 0;
    std::uint64_t order = 0;

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

/// Of one communicator. Stays where it is.
class PostedList {
public:
    PostedList() { ends_.before = ends_.after = &ends_; }
    PostedList(const PostedList&) = delete;
    PostedList& operator=(const PostedList&) = delete;
    ~PostedList() {
        while (ends_.after != &ends_) static_cast<Posted*>(ends_.after)->withdraw();
    }

    void add(int source, int tag, Posted& posted) {
        posted.withdraw();
        posted.source = source;
        posted.tag = tag;
        posted.order = posts_++;
        posted.before = ends_.before;
        posted.after = &ends_;
        ends_.before->after = &posted;
        ends_.before = &posted;
    }

    /// Calls `look(posted)` for those that were posted before `posted` was, the first one first.
    template <class Look>
    void each_before(const Posted& posted, Look look) const {
        for (const detail::Link* at = ends_.after; at != &ends_; at = at->after) {
            const auto& one = static_cast<const Posted&>(*at);
            if (one.order >= posted.order) return;
            look(one);
        }
    }

private:
    detail::Link ends_;
    std::uint64_t posts_ = 0;
};

}  // namespace cryptmpi::comm
