// Calls of MPI in which a process may wait for others, while nothing of ours goes on in it: what others need from us
// has to be done before.
#pragma once

#include <atomic>

namespace cryptmpi::comm {

/// What is to be done before the next such call; null, as mostly: nothing.
inline constinit std::atomic<void (*)()> due_before_wait{nullptr};

// HOT PATH
inline void before_wait() {
    if (auto* const act = due_before_wait.load(std::memory_order_relaxed)) [[unlikely]] {
        act();
    }
}

}  // namespace cryptmpi::comm
