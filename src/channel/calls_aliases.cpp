// libc's other names for some of its calls.
#include <fcntl.h>
#include <poll.h>
#include <sys/select.h>
#include <unistd.h>

#include <cstdio>

#include "channel/calls.hpp"

CRYPTMPI_CALL ssize_t __read(int fd, void* to, size_t size) {
    return read(fd, to, size);
}

CRYPTMPI_CALL ssize_t __write(int fd, const void* from, size_t size) {
    return write(fd, from, size);
}

CRYPTMPI_CALL ssize_t __send(int fd, const void* from, size_t size, int flags) {
    return send(fd, from, size, flags);
}

CRYPTMPI_CALL int __connect(int fd, const sockaddr* address, socklen_t size) {
    return connect(fd, address, size);
}

CRYPTMPI_CALL int __close(int fd) {
    return close(fd);
}

CRYPTMPI_CALL int __dup2(int from, int to) {
    return dup2(from, to);
}

CRYPTMPI_CALL int __poll(pollfd* fds, nfds_t count, int timeout) {
    return poll(fds, count, timeout);
}

CRYPTMPI_CALL int __select(int count, fd_set* in, fd_set* out, fd_set* exceptional, timeval* timeout) {
    return select(count, in, out, exceptional, timeout);
}

// Of the days when libc's streams were libstdc++'s.

CRYPTMPI_CALL FILE* _IO_fopen(const char* path, const char* mode) {
    return fopen(path, mode);
}

CRYPTMPI_CALL FILE* _IO_fdopen(int fd, const char* mode) {
    return fdopen(fd, mode);
}

CRYPTMPI_CALL FILE* _IO_popen(const char* command, const char* how) {
    return popen(command, how);
}

CRYPTMPI_CALL pid_t __fork() {
    return fork();
}

// What follows in these three may be an argument or not, and is passed on as if it were.

CRYPTMPI_CALL int __fcntl(int fd, int command, void* argument) {
    return fcntl(fd, command, argument);
}

CRYPTMPI_CALL int __open(const char* path, int flags, mode_t mode) {
    return open(path, flags, mode);
}

CRYPTMPI_CALL int __open64(const char* path, int flags, mode_t mode) {
    return open64(path, flags, mode);
}
