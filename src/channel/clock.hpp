// The time, and how long a wait is while handshakes are on their way.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "channel/real.hpp"

namespace cryptmpi::channel {

/// CLOCK_MONOTONIC in nanoseconds.
inline std::int64_t now_ns() {
    timespec now{};
    real::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

/// While handshakes are on their way waits are cut into ticks, because another thread may have brought one to its end
/// and taken the bytes that the kernel would wake us for. The first are short, as handshakes are.
class Ticks {
public:
    std::int64_t next_ns() { return std::exchange(ns_, std::min(2 * ns_, kLongest_ns)); }
    timespec next() { return {0, static_cast<long>(next_ns())}; }
    static constexpr std::int64_t kLongest_ns = 5'000'000;

private:
    std::int64_t ns_ = 50'000;
};

}  // namespace cryptmpi::channel
