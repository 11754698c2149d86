// What the exported calls have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "channel/borrowing.hpp"
#include "channel/connection.hpp"
#include "channel/process.hpp"
#include "channel/start.hpp"

#define CRYPTMPI_CALL extern "C" __attribute__((visibility("default")))

namespace cryptmpi::channel {

/// The process of a program that has inherited connections of ours; null where there are none.
Process* made_where_inherited();

/// The process, if it was made or has connections of the program before this one: libraries' constructors, which run
/// before ours, may write to them.
inline Process* present() {
    Process* process = Process::made();
    return process == nullptr ? made_where_inherited() : process;
}

/// The sealed connection behind a descriptor, or nullptr. HOT PATH: a few loads for a descriptor that is none of ours.
inline Entry* sealed(int fd) {
    Process* process = present();
    return process == nullptr || is_borrower() ? nullptr : process->table().find_sealed(fd);
}

inline Entry* known(int fd) {
    Process* process = present();
    return process == nullptr || is_borrower() ? nullptr : process->table().find(fd);
}

/// A call that moves bytes on a descriptor that is not sealed.
struct Move {
    enum class Where { out, in } where;
    int flags = 0;  // as send() and recv() have them
    const sockaddr* to = nullptr;
    socklen_t to_size = 0;
    const msghdr* message = nullptr;  // of sendmsg
};
/// What the call returns without the kernel, with errno, and a line where a road is closed. Nothing: the kernel may
/// have the bytes.
std::optional<ssize_t> kept_from_kernel(int fd, const Entry& entry, const Move& move);

/// A device that carries messages around the streams may not be opened: true, with errno and a line.
bool device_refused(const char* path);
/// The same of what was opened, by whatever name: libibverbs finds its devices by /dev/char, too. -1: it is closed.
int unless_device(int fd);
/// The same of what another process has passed: it is /dev/null from now on.
void shut_device(int fd);

/// A descriptor that came from another process. If it is a connection that has to be sealed, it is refused when used.
void taken_over(int fd);

/// fork(), by whatever call makes the child; `elsewhere`: in a PID namespace of its own.
pid_t fork_by(const std::function<pid_t()>& call, bool elsewhere = false);

/// What clone() with these flags makes: a thread, which uses what we keep; a child as of vfork, which borrows it; a
/// child as of fork, which has a copy; or a process with memory of its own and our descriptors, or the other way round,
/// whose sockets nobody could tell any more.
enum class Cloned { sharing, borrowing, copy, mixed };
Cloned cloned(std::uint64_t flags);
/// -1 with errno and a line.
int refuse_clone();
/// May a thread leave the descriptors that it has in common with others of this process, ours among them? What it then
/// closes would be taken for closed by them all, and its numbers for theirs. 0, or -1 with errno and a line.
int allow_unsharing(const char* call);

/// stdin, stdout and stderr go through our calls while their descriptors are sockets: after exec, and when a descriptor
/// has become another one.
void take_over_standard_streams();
void follow_standard_stream(int fd);
/// The stream for a freopen of `path` where the program says `stream`: libc's, closed, where ours stood in its place.
FILE* to_reopen(const char* path, FILE* stream);

/// Around the call of the kernel that makes a child which borrows our memory; the second one in the parent only, with
/// what the first one returned.
long lend_memory();
void take_memory_back(long before);

/// Nobody's while it is held, around fork: what there is to know of streams over sockets.
std::unique_lock<std::mutex> hold_streams();

/// A new descriptor. libc's own streams over that number, which would write to a socket past us, get an error. True:
/// there was one. (It may be one that somebody has forgotten, whose descriptor was closed long ago.)
bool arrived(int fd);

/// dup'ed: the new descriptor is the same to us. `replaces`: the number was asked for, as dup2 does.
void duplicated(int from, int to, bool replaces = false);
/// About to be closed (or replaced); what was ours ends in order.
void closing(int fd);
/// The kernel has closed it.
void closed(int fd);

}  // namespace cryptmpi::channel
