// The one layer of this process, which MPI's callers lead to. Only the entries and this room ask for it; comm/ is given
// its layer.
#pragma once

#include <atomic>

#include "comm/layer.hpp"
#include "comm/waiting.hpp"

namespace cryptmpi::interpose {

inline constinit comm::DueBeforeWait due_before_wait;

// HOT PATH
inline void act_before_wait() {
    due_before_wait.act();
}

/// What the layer finds around it here.
comm::Host this_host();

namespace detail {
inline constinit std::atomic<comm::Layer*> known_layer{nullptr};
/// Makes it, unless another thread has. Not part of layer(), whose callers would save registers for it.
[[gnu::cold, gnu::noinline]] comm::Layer& first_layer();
}  // namespace detail

/// HOT PATH. Made by the first call that needs it, never destroyed: MPI may be called by other libraries' destructors.
inline comm::Layer& layer() {
    auto* const known = detail::known_layer.load(std::memory_order_acquire);
    if (known == nullptr) [[unlikely]] {
        return detail::first_layer();
    }
    return *known;
}

}  // namespace cryptmpi::interpose
