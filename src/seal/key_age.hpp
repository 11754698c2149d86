// How old a key may become before its sender goes to the next one, whatever it has sealed: who takes a key from a
// process's memory reads no more of what was recorded than that key has sealed.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace cryptmpi::seal {

/// Of the system, to some milliseconds: it costs a small message next to nothing.
inline std::int64_t coarse_now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

struct KeyAge {
    std::chrono::nanoseconds most{0};          // 0: any
    std::int64_t (*now_ns)() = coarse_now_ns;  // the same clock in all processes that share a direction

    bool counts() const { return most.count() != 0; }
    /// Has a key whose first record or message was sealed at `began_ns` become too old?
    bool is_past(std::int64_t began_ns) const { return counts() && now_ns() - began_ns >= most.count(); }
};

}  // namespace cryptmpi::seal
