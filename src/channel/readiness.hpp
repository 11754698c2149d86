// poll and select over sealed sockets: one engine for both, and for their p forms.
#pragma once

#include <poll.h>
#include <signal.h>
#include <time.h>

#include "channel/connection.hpp"

namespace cryptmpi::channel {

/// Whether the engine is needed: a sealed socket, or an epoll instance that may have something, is among them.
bool concerns_us(Process& process, const pollfd* fds, nfds_t count);

/// ppoll. `timeout` nullptr waits for ever.
int wait_ready(Process& process, pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

}  // namespace cryptmpi::channel
