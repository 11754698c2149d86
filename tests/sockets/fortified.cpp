// Compiled with -O2 -D_FORTIFY_SOURCE=2 whatever the build: the checked forms (__read_chk and the like), which the
// compiler puts where it knows the buffer's size but not the length.
#include <poll.h>
#include <sys/select.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "transfer.hpp"

namespace sockets {
namespace {

constexpr std::size_t kBuffer = 8192;

/// At most the buffer's size, which the compiler must not see: it would leave the check out.
[[gnu::noinline]] std::size_t limited(std::size_t size) {
    volatile std::size_t most = kBuffer;
    const std::size_t hidden = most;
    return std::min(size, hidden);
}

ssize_t read_checked(int fd, std::span<std::uint8_t> space, Random&) {
    std::uint8_t buffer[kBuffer];
    const ssize_t got = ::read(fd, buffer, limited(space.size()));
    if (got > 0) {
        std::memcpy(space.data(), buffer, static_cast<std::size_t>(got));
    }
    return got;
}

ssize_t recv_checked(int fd, std::span<std::uint8_t> space, Random&) {
    std::uint8_t buffer[kBuffer];
    const ssize_t got = ::recv(fd, buffer, limited(space.size()), 0);
    if (got > 0) {
        std::memcpy(space.data(), buffer, static_cast<std::size_t>(got));
    }
    return got;
}

ssize_t recvfrom_checked(int fd, std::span<std::uint8_t> space, Random&) {
    std::uint8_t buffer[kBuffer];
    const ssize_t got = ::recvfrom(fd, buffer, limited(space.size()), 0, nullptr, nullptr);
    if (got > 0) {
        std::memcpy(space.data(), buffer, static_cast<std::size_t>(got));
    }
    return got;
}

constexpr Reader kFortified[] = {
    {"read_chk", read_checked},
    {"recv_chk", recv_checked},
    {"recvfrom_chk", recvfrom_checked},
};

SOCKETS_CASE(poll_chk) {
    Pair pair = connected_pair();
    pollfd entries[4] = {
        {pair.server, POLLIN, 0}, {pair.client, POLLIN | POLLOUT, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
    const nfds_t count = limited(context.random.between(2, 4));  // not known when compiling
    result("poll", ::poll(entries, count, kQuiet));
    note("server %s, client %s", event_names(entries[0].revents).c_str(), event_names(entries[1].revents).c_str());
    send_all(pair.client, text("abc"));
    wait_for(pair.server, POLLIN);
    const timespec time{5, 0};
    result("ppoll", ::ppoll(entries, count, &time, nullptr));
    note("server %s, client %s", event_names(entries[0].revents).c_str(), event_names(entries[1].revents).c_str());
    result("recv", static_cast<long>(receive(pair.server, 3).size()));
}

}  // namespace

std::span<const Reader> fortified_readers() {
    return kFortified;
}

}  // namespace sockets
