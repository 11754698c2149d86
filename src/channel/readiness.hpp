// poll and select over sealed sockets: one engine for both, and for their p forms.
//
// Readable is a socket with a whole record, or with bytes that we hold. UCX 1.13 dereferences a null pointer when a
// readable socket says EAGAIN, so what is not yet a whole record is hidden.
#pragma once

#include <poll.h>
#include <signal.h>
#include <time.h>

#include "channel/connection.hpp"

namespace cryptmpi::channel {

/// What is among the descriptors.
enum class Among {
    foreign,  // nothing that is ours: the kernel's call is all there is to do
    quiet,    // ours, and all that the kernel does not know of them is nothing
    busy,     // one has bytes in our buffers, a handshake on its way, or something that waits for room
};
Among look_among(Process& process, const pollfd* fds, nfds_t count);

/// poll() that does not wait, where `look_among` has found all quiet.
int poll_quiet(Process& process, pollfd* fds, nfds_t count);

/// ppoll. `timeout` nullptr waits for ever.
int wait_ready(Process& process, pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

}  // namespace cryptmpi::channel
