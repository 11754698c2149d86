// What the exported calls have in common.
#pragma once

#include "channel/connection.hpp"
#include "channel/process.hpp"

#define CRYPTMPI_CALL extern "C" __attribute__((visibility("default")))

namespace cryptmpi::channel {

/// The sealed connection behind a descriptor, or nullptr. HOT PATH: two loads for a descriptor that is none of ours.
inline Entry* sealed(int fd) {
    Process* process = Process::made();
    return process == nullptr ? nullptr : process->table().find_sealed(fd);
}

inline Entry* known(int fd) {
    Process* process = Process::made();
    return process == nullptr ? nullptr : process->table().find(fd);
}

/// Whether bytes may go out on this descriptor at all; -1 with errno and a line for the roads that are closed.
int check_road(int fd, const Entry& entry, const sockaddr* to, socklen_t size);

/// dup'ed: the new descriptor is the same to us.
void duplicated(int from, int to);
/// About to be closed (or replaced); what was ours ends in order.
void closing(int fd);
/// The kernel has closed it.
void closed(int fd);

}  // namespace cryptmpi::channel
