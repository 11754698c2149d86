// What cannot be kept sealed is refused at the call. Only a sealed run is looked at: each case notes the refusal, and
// standard error has one line about it.
#include <aio.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "support.hpp"

namespace sockets {
namespace {

#define SOCKETS_REFUSED(name) SOCKETS_CASE_OF_KIND(name, Kind::sealed_only)

SOCKETS_REFUSED(refused_zerocopy) {
    Pair pair = connected_pair();
    const int on = 1;
    result("SO_ZEROCOPY", ::setsockopt(pair.client, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    result("send MSG_ZEROCOPY", ::send(pair.client, "x", 1, MSG_ZEROCOPY));
}

SOCKETS_REFUSED(refused_timestamping) {
    Pair pair = connected_pair();
    const int flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    result("SO_TIMESTAMPING", ::setsockopt(pair.client, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags));
}

SOCKETS_REFUSED(refused_out_of_band) {
    Pair pair = connected_pair();
    result("send MSG_OOB", ::send(pair.client, "x", 1, MSG_OOB));
    char byte;
    result("recv MSG_OOB", ::recv(pair.server, &byte, 1, MSG_OOB));
}

SOCKETS_REFUSED(refused_io_uring) {
    std::array<std::uint8_t, 256> parameters{};
    result("io_uring_setup", ::syscall(SYS_io_uring_setup, 8, parameters.data()));
}

SOCKETS_REFUSED(refused_aio) {
    Pair pair = connected_pair();
    char secret[] = "secret";
    aiocb request{};
    request.aio_fildes = pair.client;
    request.aio_buf = secret;
    request.aio_nbytes = sizeof secret;
    request.aio_lio_opcode = LIO_WRITE;
    aiocb* requests[] = {&request};
    result("aio_write", ::aio_write(&request));
    result("lio_listio", ::lio_listio(LIO_WAIT, requests, 1, nullptr));
    request.aio_fildes = pair.server;
    result("aio_read", ::aio_read(&request));
}

SOCKETS_REFUSED(refused_verbs) {
    constexpr const char* kDevice = "/dev/infiniband/uverbs0";
    result("open", ::open(kDevice, O_RDWR));
    result("creat", ::creat(kDevice, 0600));
    for (std::FILE* stream : {std::fopen(kDevice, "r+"), std::freopen(kDevice, "r+", stdin)})
        result("stream", stream == nullptr ? -1 : 0);
}

SOCKETS_REFUSED(refused_passing_of_a_sealed_socket) {
    Pair pair = connected_pair();
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        give_up("socketpair");
    }
    const Descriptor one(ends[0]), other(ends[1]);
    char byte = 'x';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int passed = pair.client;
    std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
    result("sendmsg SCM_RIGHTS", ::sendmsg(one, &message, 0));
    mmsghdr several{};
    several.msg_hdr = message;
    result("sendmmsg SCM_RIGHTS", ::sendmmsg(one, &several, 1, 0));
}

SOCKETS_CASE_OF_KIND(refused_fast_open, Kind::two_nodes) {
    // Data that goes with the SYN goes before there are keys.
    char byte = 'x';
    iovec part{&byte, 1};
    mmsghdr messages{};
    messages.msg_hdr.msg_name = &context.address;
    messages.msg_hdr.msg_namelen = context.address_size;
    messages.msg_hdr.msg_iov = &part;
    messages.msg_hdr.msg_iovlen = 1;
    const Descriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
    const auto* address = reinterpret_cast<const sockaddr*>(&context.address);
    result("sendto", ::sendto(fd, &byte, 1, MSG_FASTOPEN, address, context.address_size));
    result("sendmsg", ::sendmsg(fd, &messages.msg_hdr, MSG_FASTOPEN));
    result("sendmmsg", ::sendmmsg(fd, &messages, 1, MSG_FASTOPEN));
    const int on = 1;
    result("TCP_FASTOPEN_CONNECT", ::setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on));
}

SOCKETS_CASE_OF_KIND(refused_udp, Kind::two_nodes) {
    const Descriptor fd(::socket(AF_INET, SOCK_DGRAM, 0));
    const auto* address = reinterpret_cast<const sockaddr*>(&context.address);
    result("sendto", ::sendto(fd, "x", 1, 0, address, context.address_size));
    const Descriptor connected(::socket(AF_INET, SOCK_DGRAM, 0));
    if (::connect(connected, address, context.address_size) == 0) {
        result("send", ::send(connected, "x", 1, 0));
        // The kernel takes these forms of an address, too: none, and one of no family.
        sockaddr_storage unnamed{};
        iovec part{const_cast<char*>("x"), 1};
        msghdr message{};
        message.msg_name = &unnamed;
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        result("sendmsg", ::sendmsg(connected, &message, 0));
        unnamed = context.address;
        unnamed.ss_family = AF_UNSPEC;
        const auto* no_family = reinterpret_cast<const sockaddr*>(&unnamed);
        result("sendto without a family", ::sendto(fd, "x", 1, 0, no_family, context.address_size));
    } else {
        result("connect", -1);
    }
}

/// Tells whether what libc writes to the stream goes out.
void note_stream(const char* name, std::FILE* stream) {
    std::fputs("secret", stream);
    errno = 0;
    result(name, std::fflush(stream));
    std::clearerr(stream);
}

// libc's own streams and threads write by inner calls.
SOCKETS_CASE_OF_KIND(refused_udp_by_libc, Kind::two_nodes) {
    const Descriptor connected(::socket(AF_INET, SOCK_DGRAM, 0));
    if (::connect(connected, reinterpret_cast<const sockaddr*>(&context.address), context.address_size) != 0) {
        give_up("connect");
    }
    std::FILE* stream = ::fdopen(::dup(connected), "w");
    note_stream("fdopen", stream);
    std::fclose(stream);
    const Descriptor kept(::dup(STDOUT_FILENO));
    std::fflush(stdout);
    ::dup2(connected, STDOUT_FILENO);
    std::fputs("secret", stdout);
    errno = 0;
    const int flushed = std::fflush(stdout);
    const int error = errno;
    std::clearerr(stdout);
    ::dup2(kept, STDOUT_FILENO);
    errno = error;
    result("stdout", flushed);
    char secret[] = "secret";
    aiocb request{};
    request.aio_fildes = connected;
    request.aio_buf = secret;
    request.aio_nbytes = sizeof secret;
    result("aio_write", ::aio_write(&request));
}

// A datagram inside the node is nobody else's to read, and stays.
SOCKETS_CASE(udp_inside_the_node) {
    const Descriptor receiver(::socket(AF_INET, SOCK_DGRAM, 0)), sender(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    result("bind", ::bind(receiver, reinterpret_cast<sockaddr*>(&address), size));
    ::getsockname(receiver, reinterpret_cast<sockaddr*>(&address), &size);
    result("sendto", ::sendto(sender, "hello", 5, 0, reinterpret_cast<sockaddr*>(&address), sizeof address));
    char buffer[10];
    result("recv", ::recv(receiver, buffer, sizeof buffer, 0));
}

// A pair that does nothing unusual: which sockets are sealed is told by the report.
SOCKETS_CASE_OF_KIND(scope_of_loopback, Kind::sealed_only) {
    Pair pair = connected_pair();
    send_all(pair.client, text("hello"));
    note("received %zu", receive(pair.server, 5).size());
}

}  // namespace
}  // namespace sockets
