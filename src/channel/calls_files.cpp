// Descriptors: closed, duplicated, opened.
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/network_devices.hpp"
#include "channel/calls.hpp"
#include "channel/epoll.hpp"
#include "channel/real.hpp"

using namespace cryptmpi::channel;

namespace cryptmpi::channel {

void duplicated(int from, int to, bool replaces) {
    if (to < 0 || Process::made() == nullptr || !Process::made()->is_me()) return;
    if (known(from) != nullptr) Process::made()->table().share(from, to);
    if (!arrived(to) || !replaces) return;
    const int error = errno;
    Process::made()->report().tell_of_refused(
        "a stream over a socket",
        "a stream (FILE) whose descriptor has become a socket is refused: libc would write to "
        "it past the sealing; open one for the socket (fdopen)");
    errno = error;
}

void closing(int fd) {
    // A child of vfork closes its own descriptors, not those of the parent whose memory it sees.
    if (known(fd) == nullptr || !Process::made()->is_me()) return;
    Process& process = *Process::made();
    std::unique_lock holders(process.holders_lock());  // a fork finds it in the table and counted, or neither
    Entry* last = process.table().remove(fd);
    if (last == nullptr) return;
    const bool was_sealed = last->kind.load() == Kind::sealed && last->shared != nullptr;
    if (!was_sealed) holders.unlock();
    const bool free = !was_sealed || end(process, *last, std::move(holders));
    if (was_sealed) process.stay_until_the_end();
    forget_registrations(*last);  // first: an instance that watches this one looks into it
    if (last->kind.load() == Kind::epoll) {
        last->epoll->close();
        process.table().lock();  // fork looks at all of them
        Epoll* const gone = std::exchange(last->epoll, nullptr);
        process.table().unlock();
        gone->recycle();
    }
    if (free) process.table().recycle(last);
}

void closed(int fd) {
    Entry* entry = known(fd);
    if (entry == nullptr || entry->kind.load() != Kind::ended || !Process::made()->is_me()) return;
    Process::made()->table().forget(fd);
}

namespace {

bool refuse_device(const std::string& path) {
    Process& process = this_process();
    if (!process.enabled() || process.roads_open()) return false;
    if (process.doors().is_opening()) {
        process.doors().opened(path);
        return false;
    }
    process.report().tell_of_refused(
        "device " + path,
        path +
            " is refused: it carries messages around the sealed streams; set the MPI's transport to tcp "
            "(UCX_TLS=tcp,self,sm, FI_PROVIDER=tcp, --mca btl tcp,self,vader)");
    errno = EACCES;
    return true;
}

}  // namespace

bool device_refused(const char* path) {
    return path != nullptr && path[0] == '/' && is_network_device(path) && refuse_device(path);
}

namespace {

bool is_refused_device(int fd) {
    struct stat information {};
    // Nearly all files end here, those of our own start among them.
    if (fd < 0 || fstat(fd, &information) != 0 || !S_ISCHR(information.st_mode)) return false;
    char path[PATH_MAX] = {};
    const std::string link = fmt::format("/proc/self/fd/{}", fd);
    return readlink(link.c_str(), path, sizeof path - 1) > 0 && is_network_device(path) && refuse_device(path);
}

}  // namespace

int unless_device(int fd) {
    if (!is_refused_device(fd)) return fd;
    real::close(fd);
    errno = EACCES;
    return -1;
}

void shut_device(int fd) {
    if (!is_refused_device(fd)) return;
    const int null = real::open("/dev/null", O_RDWR | O_CLOEXEC, 0);
    const int flags = real::fcntl(fd, F_GETFD, nullptr);
    if (null < 0 || real::dup3(null, fd, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) < 0) real::close(fd);
    if (null >= 0) real::close(null);
}

}  // namespace cryptmpi::channel

namespace {

/// libc opens the files of its streams by inner calls.
FILE* unless_device(FILE* stream) {
    if (stream == nullptr || !is_refused_device(real::fileno(stream))) return stream;
    (void)std::fclose(stream);
    errno = EACCES;
    return nullptr;
}

bool is_own(int fd) {
    Process* process = present();
    const Entry* entry = process == nullptr ? nullptr : process->table().find(fd);
    return entry != nullptr && entry->kind.load() == Kind::own;
}

/// A number that the table has no place for.
int lost() {
    errno = EMFILE;
    return -1;
}

/// A new descriptor for what another one is. -1: nobody would look after it.
int unless_lost(int from, int made) {
    if (is_borrower()) return got_by_borrower(made);
    if (made >= 0 && !Table::holds(made) && known(from) != nullptr) {
        real::close(made);
        return lost();
    }
    duplicated(from, made);
    return made;
}

/// With what the kernel would refuse it, and leave `to` what it is; 0: it may do it. It is not asked: another thread
/// may give it a `from` meanwhile.
int refusal_of(int from, int to, int flags) {
    if ((flags & ~O_CLOEXEC) != 0) return EINVAL;
    rlimit limit{};
    const bool is_too_large = getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(to) >= limit.rlim_cur;
    return is_too_large || real::fcntl(from, F_GETFD, nullptr) < 0 ? EBADF : 0;
}

/// `call` makes `to` another descriptor of what `from` is.
template <class Call>
int duplicate_onto(int from, int to, int flags, const Call& call) {
    if (from != to && is_own(to)) {
        errno = EBUSY;
        return -1;
    }
    if (is_borrower()) return got_by_borrower(call());
    if (from == to || known(from) == known(to)) return call();
    if (!Table::holds(to)) return lost();
    if (const int refusal = refusal_of(from, to, flags); refusal != 0) {
        errno = refusal;
        return -1;
    }
    const bool was_ours = known(to) != nullptr;
    const bool is_ours = known(from) != nullptr;
    closing(to);
    if (is_ours) Process::made()->table().reserve(to);
    const int made = call();
    // Where it failed all the same, what was a sealed connection stays ended: nothing may go out on it in clear. Where
    // the number is ours now, it is given its entry while it still counts as ended.
    if (made < 0 ? !was_ours : !is_ours) closed(to);
    duplicated(from, made, true);
    return made;
}

}  // namespace

CRYPTMPI_CALL int close(int fd) {
    if (is_own(fd)) return 0;  // it was not the program that opened it
    const int error = errno;
    closing(fd);
    const int status = real::close(fd);
    closed(fd);
    if (status == 0) errno = error;
    return status;
}

CRYPTMPI_CALL int close_range(unsigned first, unsigned last, int flags) {
    Process* process = present();
    if (process == nullptr) return real::close_range(first, last, flags);
    if ((static_cast<unsigned>(flags) & ~(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)) != 0) {
        errno = EINVAL;  // a newer kernel may know what it would do to our descriptors
        return -1;
    }
    const bool unshares = (flags & CLOSE_RANGE_UNSHARE) != 0;
    if (unshares && process->enabled() && allow_unsharing("close_range with CLOSE_RANGE_UNSHARE") != 0) return -1;
    const bool closes = (flags & CLOSE_RANGE_CLOEXEC) == 0;
    const unsigned end = std::min<unsigned>(last, static_cast<unsigned>(process->table().highest()));
    for (unsigned fd = first; closes && process->table().highest() >= 0 && fd <= end; ++fd) {
        if (!is_own(static_cast<int>(fd))) closing(static_cast<int>(fd));
    }
    // Around the library's own.
    int status = 0;
    unsigned from = first;
    for (unsigned fd = first; process->table().highest() >= 0 && fd <= end && status == 0; ++fd) {
        if (!is_own(static_cast<int>(fd))) continue;
        if (from < fd) status = real::close_range(from, fd - 1, flags);
        from = fd + 1;
    }
    if (status == 0 && (from <= last || first > last)) status = real::close_range(from, last, flags);
    // What it left open stays ended.
    for (unsigned fd = first; closes && status == 0 && process->table().highest() >= 0 && fd <= end; ++fd)
        closed(static_cast<int>(fd));
    return status;
}

CRYPTMPI_CALL void closefrom(int first) {
    (void)close_range(static_cast<unsigned>(std::max(first, 0)), UINT_MAX, 0);
}

CRYPTMPI_CALL int dup(int fd) {
    return unless_lost(fd, real::dup(fd));
}

CRYPTMPI_CALL int dup2(int from, int to) {
    return duplicate_onto(from, to, 0, [&] { return real::dup2(from, to); });
}

CRYPTMPI_CALL int dup3(int from, int to, int flags) {
    return duplicate_onto(from, to, flags, [&] { return real::dup3(from, to, flags); });
}

CRYPTMPI_CALL int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    const int result = real::fcntl(fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? unless_lost(fd, result) : result;
}

CRYPTMPI_CALL int fcntl64(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    return fcntl(fd, command, argument);
}

CRYPTMPI_CALL int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const auto mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return device_refused(path) ? -1 : unless_device(real::open(path, flags, mode));
}

CRYPTMPI_CALL int open64(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const auto mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return device_refused(path) ? -1 : unless_device(real::open(path, flags | O_LARGEFILE, mode));
}

CRYPTMPI_CALL int openat(int folder, const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const auto mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return device_refused(path) ? -1 : unless_device(real::openat(folder, path, flags, mode));
}

CRYPTMPI_CALL int openat64(int folder, const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const auto mode = va_arg(arguments, mode_t);
    va_end(arguments);
    return device_refused(path) ? -1 : unless_device(real::openat(folder, path, flags | O_LARGEFILE, mode));
}

CRYPTMPI_CALL int __open_2(const char* path, int flags) {
    return device_refused(path) ? -1 : unless_device(real::open(path, flags, 0));
}

CRYPTMPI_CALL int __open64_2(const char* path, int flags) {
    return device_refused(path) ? -1 : unless_device(real::open(path, flags | O_LARGEFILE, 0));
}

CRYPTMPI_CALL int __openat_2(int folder, const char* path, int flags) {
    return device_refused(path) ? -1 : unless_device(real::openat(folder, path, flags, 0));
}

CRYPTMPI_CALL int __openat64_2(int folder, const char* path, int flags) {
    return device_refused(path) ? -1 : unless_device(real::openat(folder, path, flags | O_LARGEFILE, 0));
}

CRYPTMPI_CALL int creat(const char* path, mode_t mode) {
    return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

CRYPTMPI_CALL int creat64(const char* path, mode_t mode) {
    return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

CRYPTMPI_CALL int open_by_handle_at(int mount, file_handle* handle, int flags) {
    return unless_device(real::open_by_handle_at(mount, handle, flags));
}

CRYPTMPI_CALL FILE* fopen(const char* path, const char* mode) {
    return device_refused(path) ? nullptr : unless_device(real::fopen(path, mode));
}

CRYPTMPI_CALL FILE* fopen64(const char* path, const char* mode) {
    return device_refused(path) ? nullptr : unless_device(real::fopen64(path, mode));
}

CRYPTMPI_CALL FILE* freopen(const char* path, const char* mode, FILE* stream) {
    return device_refused(path) ? nullptr : unless_device(real::freopen(path, mode, to_reopen(path, stream)));
}

CRYPTMPI_CALL FILE* freopen64(const char* path, const char* mode, FILE* stream) {
    return device_refused(path) ? nullptr : unless_device(real::freopen64(path, mode, to_reopen(path, stream)));
}
