// Calls in which libc itself reads, writes or connects, by inner calls of its own that do not come to us; and those of
// liburing and libaio, which ask the kernel for rings and transfers by instructions of their own.
#include <aio.h>
#include <execinfo.h>
#include <linux/aio_abi.h>
#include <netdb.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "channel/calls.hpp"
#include "channel/real.hpp"

using namespace cryptmpi::channel;

namespace {

int refuse(const std::string& call, const char* mend) {
    this_process().report().tell_of_refused(call, call + " is refused: it would go past the sealing; " + mend);
    errno = ENOSYS;
    return -1;
}

int refuse_on_socket(const char* call) {
    return refuse(std::string(call) + " on a socket", "switch the program's asynchronous input and output off");
}

/// Is there nothing that libc's inner calls on it must not do?
bool is_plain(int fd) {
    return is_borrower() ? !is_internet_socket(fd) : known(fd) == nullptr;
}

/// What libc's threads read and write.
template <class Request>
bool is_of_socket(const Request* request) {
    return request != nullptr && !is_plain(request->aio_fildes);
}

template <class Request>
bool has_socket(Request* const* requests, int count) {
    for (int i = 0; requests != nullptr && i < count; ++i) {
        if (is_of_socket(requests[i])) return true;
    }
    return false;
}

/// They connect to another node by themselves, and hand out a socket that we know nothing of.
int refuse_remote_shell(const char* call) {
    return refuse(call, "start the command by ssh");
}

bool enabled() {
    return this_process().enabled();
}

/// What liburing gives back for an error.
int refuse_ring() {
    (void)refuse("io_uring", "switch the program's use of it off (FI_TCP_IO_URING=0)");
    return -ENOSYS;
}

}  // namespace

static_assert(sizeof(aiocb) == sizeof(aiocb64) && sizeof(off_t) == sizeof(off64_t));

CRYPTMPI_CALL int aio_read(aiocb* request) {
    return is_of_socket(request) ? refuse_on_socket("aio_read") : real::aio_read(request);
}

CRYPTMPI_CALL int aio_read64(aiocb64* request) {
    return aio_read(reinterpret_cast<aiocb*>(request));
}

CRYPTMPI_CALL int aio_write(aiocb* request) {
    return is_of_socket(request) ? refuse_on_socket("aio_write") : real::aio_write(request);
}

CRYPTMPI_CALL int aio_write64(aiocb64* request) {
    return aio_write(reinterpret_cast<aiocb*>(request));
}

CRYPTMPI_CALL int lio_listio(int how, aiocb* const* requests, int count, sigevent* event) {
    return has_socket(requests, count) ? refuse_on_socket("lio_listio") : real::lio_listio(how, requests, count, event);
}

CRYPTMPI_CALL int lio_listio64(int how, aiocb64* const* requests, int count, sigevent* event) {
    return lio_listio(how, reinterpret_cast<aiocb* const*>(requests), count, event);
}

/// libaio's, which asks the kernel by instructions of its own and returns its errors as they are.
CRYPTMPI_CALL int io_submit(void* context, long count, iocb** requests) {
    const long submitted = syscall(SYS_io_submit, context, count, requests);
    return submitted < 0 ? -errno : static_cast<int>(submitted);
}

CRYPTMPI_CALL void backtrace_symbols_fd(void* const* addresses, int count, int fd) {
    if (is_plain(fd)) return real::backtrace_symbols_fd(addresses, count, fd);
    char** const lines = backtrace_symbols(addresses, count);
    for (int i = 0; lines != nullptr && i < count; ++i) dprintf(fd, "%s\n", lines[i]);
    std::free(lines);
}

CRYPTMPI_CALL void __backtrace_symbols_fd(void* const* addresses, int count, int fd) {
    backtrace_symbols_fd(addresses, count, fd);
}

CRYPTMPI_CALL void herror(const char* text) {
    if (is_plain(STDERR_FILENO)) return real::herror(text);
    const bool named = text != nullptr && *text != '\0';
    std::fprintf(stderr, "%s%s%s\n", named ? text : "", named ? ": " : "", hstrerror(h_errno));
}

/// A socket that libc makes, and we have not seen.
CRYPTMPI_CALL int rresvport_af(int* port, sa_family_t family) {
    if (is_borrower()) return refuse_borrower("rresvport");
    const int fd = real::rresvport_af(port, family);
    taken_over(fd);
    return fd;
}

CRYPTMPI_CALL int rresvport(int* port) {
    return rresvport_af(port, AF_INET);
}

CRYPTMPI_CALL int rcmd_af(char** host, unsigned short port, const char* here, const char* there, const char* command,
                          int* errors, sa_family_t family) {
    return enabled() ? refuse_remote_shell("rcmd") : real::rcmd_af(host, port, here, there, command, errors, family);
}

CRYPTMPI_CALL int rcmd(char** host, unsigned short port, const char* here, const char* there, const char* command,
                       int* errors) {
    return rcmd_af(host, port, here, there, command, errors, AF_INET);
}

CRYPTMPI_CALL int rexec_af(char** host, int port, const char* name, const char* password, const char* command,
                           int* errors, sa_family_t family) {
    return enabled() ? refuse_remote_shell("rexec")
                     : real::rexec_af(host, port, name, password, command, errors, family);
}

CRYPTMPI_CALL int rexec(char** host, int port, const char* name, const char* password, const char* command,
                        int* errors) {
    return rexec_af(host, port, name, password, command, errors, AF_INET);
}

CRYPTMPI_CALL int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
    return enabled() ? refuse_ring() : real::io_uring_queue_init(entries, ring, flags);
}

CRYPTMPI_CALL int io_uring_queue_init_params(unsigned entries, io_uring* ring, io_uring_params* parameters) {
    return enabled() ? refuse_ring() : real::io_uring_queue_init_params(entries, ring, parameters);
}

CRYPTMPI_CALL int io_uring_queue_init_mem(unsigned entries, io_uring* ring, io_uring_params* parameters, void* memory,
                                          size_t size) {
    return enabled() ? refuse_ring() : real::io_uring_queue_init_mem(entries, ring, parameters, memory, size);
}

CRYPTMPI_CALL int io_uring_setup(unsigned entries, io_uring_params* parameters) {
    return enabled() ? refuse_ring() : real::io_uring_setup(entries, parameters);
}
