// What a process seals and opens, counted where somebody else may look at it meanwhile (report/live.hpp).
#pragma once

#include <atomic>
#include <cstdint>

namespace cryptmpi {

/// In memory that other processes may read, each number by itself. Numbers of one thread are written as they are, which
/// is one instruction; no other thread of this process reads them.
struct alignas(64) Traffic {
    std::uint64_t sealed_records = 0;
    std::uint64_t sealed_bytes = 0;  // of plaintext, as all bytes here
    std::uint64_t opened_records = 0;
    std::uint64_t opened_bytes = 0;
    std::uint64_t connections = 0;  // sealed ones so far; of messages: their flows
    std::uint64_t rekeys = 0;
};

/// Who counts there.
class TrafficCounter {
public:
    enum class Threads : std::uint8_t {
        several,
        one  // at a time, of all that count in this place
    };

    TrafficCounter() = default;  // nobody looks
    TrafficCounter(Traffic& traffic, Threads threads) : traffic_(&traffic), alone_(threads == Threads::one) {}

    bool counts_in(const Traffic& traffic) const { return traffic_ == &traffic; }

    // HOT PATH
    void sealed(std::uint64_t records, std::uint64_t bytes) const {
        add(traffic_->sealed_records, records);
        add(traffic_->sealed_bytes, bytes);
    }
    void opened(std::uint64_t records, std::uint64_t bytes) const {
        add(traffic_->opened_records, records);
        add(traffic_->opened_bytes, bytes);
    }

    // These may come from any thread.
    void connection() const { add_from_any(traffic_->connections, 1); }
    void rekey() const { add_from_any(traffic_->rekeys, 1); }

private:
    // No other thread can disturb it, which takes a processor far longer than another addition.
    static void add_from_any(std::uint64_t& count, std::uint64_t more) {
        std::atomic_ref(count).fetch_add(more, std::memory_order_relaxed);
    }
    void add(std::uint64_t& count, std::uint64_t more) const {
        if (alone_) {
            count += more;
        } else {
            add_from_any(count, more);
        }
    }

    inline static Traffic unwatched_;

    Traffic* traffic_ = &unwatched_;
    bool alone_ = false;
};

}  // namespace cryptmpi
