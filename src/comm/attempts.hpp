// How a rank waits by asking again and again.
#pragma once

#include <sched.h>

namespace cryptmpi::comm {

/// Counts the attempts of a call that waits, and now and then leaves the core to others: with more ranks than cores,
/// the one that it waits for may need it. MPICH does so in its own waits, but not in the Test that we ask; Linux 6.18
/// gives a rank that yields next to nothing beside one that never does.
class Attempts {
public:
    /// `every`: attempts before the core is left to others.
    explicit Attempts(unsigned every = kEvery) : every_(every) {}
    /// One was in vain.
    void failed() {
        if (++count_ % every_ == 0) sched_yield();
    }

    /// Some tens of microseconds, so that a rank which shares its core with one that never yields still has a share.
    static constexpr unsigned kEvery = 64;

private:
    unsigned every_;
    unsigned count_ = 0;
};

}  // namespace cryptmpi::comm
