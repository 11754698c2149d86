#include "channel/borrowing.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "channel/address.hpp"
#include "channel/libcs_streams.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

constinit thread_local bool may_borrow = false;

namespace {

/// A stream of the parent's that stands still, and the number that it is given back.
struct Stilled {
    FILE* stream;
    int fd;
};

/// Such children may have some of their own, whose streams are behind `own_from`. Nothing here is on the heap, whose
/// lock a child that is killed would keep.
struct Borrowed {
    std::array<Stilled, 32> stilled;
    std::size_t count;
    std::size_t own_from;
    const char* refused;
    pid_t lender;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Borrowed borrowed{};

/// False: there is no room for it.
bool still(int fd) {
    bool room = true;
    each_libcs_stream([&](FILE* stream) {
        if (stream->_fileno != fd) return;
        room = room && borrowed.count < borrowed.stilled.size();
        if (!room) return;
        borrowed.stilled[borrowed.count++] = {stream, fd};
        stream->_fileno = -1;
    });
    return room;
}

void give_back(Stilled& one) {
    if (one.stream == nullptr) return;
    // The child may have closed it.
    each_libcs_stream([&](FILE* stream) {
        if (stream == one.stream && stream->_fileno == -1) stream->_fileno = one.fd;
    });
    one.stream = nullptr;
}

void give_back(int fd) {
    for (std::size_t i = borrowed.own_from; i < borrowed.count; ++i) {
        if (borrowed.stilled[i].fd == fd) give_back(borrowed.stilled[i]);
    }
}

}  // namespace

bool borrows() {
    // A handler of signals may run in the parent before it has taken the mark back.
    return getpid() != borrowed.lender;
}

long begin_borrowing() {
    const long before = static_cast<long>(borrowed.own_from << 1U) | (may_borrow ? 1 : 0);
    borrowed.own_from = borrowed.count;
    if (!may_borrow) borrowed.lender = getpid();
    may_borrow = true;
    return before;
}

const char* end_borrowing(long before) {
    while (borrowed.count > borrowed.own_from) give_back(borrowed.stilled[--borrowed.count]);
    borrowed.own_from = static_cast<std::size_t>(before) >> 1U;
    may_borrow = (before & 1) != 0;
    return may_borrow ? nullptr : std::exchange(borrowed.refused, nullptr);
}

int refuse_borrower(const char* call) {
    borrowed.refused = call;
    errno = EOPNOTSUPP;
    return -1;
}

bool refuses_borrower(int fd, const char* call) {
    const int error = errno;
    if (is_internet_socket(fd)) {
        (void)refuse_borrower(call);
        return true;
    }
    errno = error;
    return false;
}

int got_by_borrower(int fd) {
    if (fd < 0) return fd;
    const int error = errno;
    if (!is_internet_socket(fd)) {
        give_back(fd);
    } else if (!still(fd)) {
        real::close(fd);
        errno = EMFILE;
        return -1;
    }
    errno = error;
    return fd;
}

}  // namespace cryptmpi::channel
