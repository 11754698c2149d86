// The one layer of this process, which MPI's callers lead to. Only the entries and this room ask for it; comm/ is given
// its layer.
#pragma once

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

/// HOT PATH. Made by the first call that needs it, never destroyed: MPI may be called by other libraries' destructors.
inline comm::Layer& layer() {
    static auto& one = *new comm::Layer(this_host());
    return one;
}

}  // namespace cryptmpi::interpose
