// Calls of MPI in which a process may wait for others, while nothing of ours goes on in it: what others need from us
// has to be done before.
#pragma once

#include <atomic>

namespace cryptmpi::comm {

class Layer;

/// Hands to MPI what is left of the large messages that this rank sends.
void send_rest(Layer& layer);

/// What is to be done before the next such call of one rank. A process has one; tests have one for each of their ranks.
class DueBeforeWait {
public:
    constexpr DueBeforeWait() = default;
    DueBeforeWait(const DueBeforeWait&) = delete;
    DueBeforeWait& operator=(const DueBeforeWait&) = delete;

    /// The layer has segments that MPI has not got yet.
    void set(Layer& layer) { rest_of_.store(&layer, std::memory_order_relaxed); }
    void clear() { rest_of_.store(nullptr, std::memory_order_relaxed); }
    // HOT PATH
    void act() {
        if (Layer* const layer = rest_of_.load(std::memory_order_relaxed)) [[unlikely]] {
            send_rest(*layer);
        }
    }

private:
    std::atomic<Layer*> rest_of_{nullptr};  // null, as mostly: nothing is due
};

}  // namespace cryptmpi::comm
