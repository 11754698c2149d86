// Random sizes through every writing and every reading call, blocking and not, and what the calls promise besides.
#include "transfer.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace sockets {
namespace {

/// Cuts a buffer into up to four pieces, some of them empty.
template <typename Byte>
std::vector<iovec> pieces(std::span<Byte> data, Random& random) {
    std::vector<iovec> parts;
    for (int left = 3; left > 0; --left) {
        const std::size_t size = random.between(0, data.size());
        parts.push_back({const_cast<std::uint8_t*>(data.data()), size});
        data = data.subspan(size);
    }
    parts.push_back({const_cast<std::uint8_t*>(data.data()), data.size()});
    return parts;
}

ssize_t by_sendmsg(int fd, std::span<const std::uint8_t> data, Random& random) {
    auto parts = pieces(data, random);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

ssize_t total(std::span<const mmsghdr> messages) {
    ssize_t sum = 0;
    for (const mmsghdr& message : messages) {
        sum += message.msg_len;
    }
    return sum;
}

ssize_t by_sendmmsg(int fd, std::span<const std::uint8_t> data, Random& random) {
    auto parts = pieces(data, random);
    std::array<mmsghdr, 4> messages{};
    for (std::size_t at = 0; at < parts.size(); ++at) {
        messages[at].msg_hdr.msg_iov = &parts[at];
        messages[at].msg_hdr.msg_iovlen = 1;
    }
    // A message that went only partly would be followed by the next one, so each is small enough to be taken whole or
    // not at all, and the empty ones show that they cost nothing.
    const int sent = ::sendmmsg(fd, messages.data(), random.between(1, 2) == 1 ? 4 : 1, MSG_NOSIGNAL);
    return sent < 0 ? -1 : total(std::span(messages).first(static_cast<std::size_t>(sent)));
}

ssize_t by_sendfile(int fd, std::span<const std::uint8_t> data, Random& random) {
    const Descriptor file(::memfd_create("sendfile", MFD_CLOEXEC));
    const std::size_t before = random.between(0, 10);
    if (::pwrite(file, data.data(), data.size(), static_cast<off_t>(before)) != static_cast<ssize_t>(data.size())) {
        give_up("memfd");
    }
    if (random.between(0, 1) == 0) {
        off_t offset = static_cast<off_t>(before);
        const ssize_t sent = ::sendfile(fd, file, &offset, data.size());
        if (sent >= 0 && (offset != static_cast<off_t>(before) + sent || ::lseek(file, 0, SEEK_CUR) != 0)) {
            note("sendfile moved the wrong offset");
        }
        return sent;
    }
    ::lseek(file, static_cast<off_t>(before), SEEK_SET);
    const ssize_t sent = ::sendfile(fd, file, nullptr, data.size());
    if (sent >= 0 && ::lseek(file, 0, SEEK_CUR) != static_cast<off_t>(before) + sent) {
        note("sendfile did not move the file's offset");
    }
    return sent;
}

ssize_t by_splice_out(int fd, std::span<const std::uint8_t> data, Random&) {
    int ends[2];
    if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        give_up("pipe");
    }
    const Descriptor from(ends[0]), to(ends[1]);
    const ssize_t filled = ::write(to, data.data(), data.size());
    if (filled <= 0) {
        give_up("fill a pipe");
    }
    return ::splice(from, nullptr, fd, nullptr, static_cast<std::size_t>(filled), 0);
}

constexpr Writer kWriters[] = {
    {"write",
     [](int fd, std::span<const std::uint8_t> data, Random&) { return ::write(fd, data.data(), data.size()); }},
    {"writev",
     [](int fd, std::span<const std::uint8_t> data, Random& random) {
         const auto parts = pieces(data, random);
         return ::writev(fd, parts.data(), static_cast<int>(parts.size()));
     }},
    {"send", [](int fd, std::span<const std::uint8_t> data,
                Random&) { return ::send(fd, data.data(), data.size(), MSG_NOSIGNAL); }},
    {"send_more", [](int fd, std::span<const std::uint8_t> data,
                     Random&) { return ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_MORE); }},
    {"sendto", [](int fd, std::span<const std::uint8_t> data,
                  Random&) { return ::sendto(fd, data.data(), data.size(), MSG_NOSIGNAL, nullptr, 0); }},
    {"sendmsg", by_sendmsg},
    {"sendmmsg", by_sendmmsg},
    {"sendfile", by_sendfile},
    {"splice", by_splice_out},
};

ssize_t by_recvmsg(int fd, std::span<std::uint8_t> space, Random& random) {
    auto parts = pieces(space, random);
    std::array<char, 64> control{};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(fd, &message, 0);
    if (got >= 0 && (message.msg_controllen != 0 || message.msg_flags != 0)) {
        note("recvmsg: control %zu, flags %x", message.msg_controllen, static_cast<unsigned>(message.msg_flags));
    }
    return got;
}

ssize_t by_recvmmsg(int fd, std::span<std::uint8_t> space, Random& random) {
    // The second message must follow the first without a gap, so the first is one byte.
    std::array<iovec, 2> parts{{{space.data(), 1}, {space.data() + 1, space.size() - 1}}};
    std::array<mmsghdr, 2> messages{};
    for (std::size_t at = 0; at < parts.size(); ++at) {
        messages[at].msg_hdr.msg_iov = &parts[at];
        messages[at].msg_hdr.msg_iovlen = 1;
    }
    const unsigned count = space.size() > 1 && random.between(0, 3) > 0 ? 2 : 1;
    const int got = ::recvmmsg(fd, messages.data(), count, MSG_WAITFORONE, nullptr);
    return got < 0 ? -1 : total(std::span(messages).first(static_cast<std::size_t>(got)));
}

ssize_t by_splice_in(int fd, std::span<std::uint8_t> space, Random&) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        give_up("pipe");
    }
    const Descriptor from(ends[0]), to(ends[1]);
    const ssize_t moved = ::splice(fd, nullptr, to, nullptr, std::min<std::size_t>(space.size(), 16384), 0);
    if (moved > 0 && ::read(from, space.data(), static_cast<std::size_t>(moved)) != moved) {
        note("splice put fewer bytes into the pipe than it said");
    }
    return moved;
}

constexpr Reader kReaders[] = {
    {"read", [](int fd, std::span<std::uint8_t> space, Random&) { return ::read(fd, space.data(), space.size()); }},
    {"readv",
     [](int fd, std::span<std::uint8_t> space, Random& random) {
         const auto parts = pieces(space, random);
         return ::readv(fd, parts.data(), static_cast<int>(parts.size()));
     }},
    {"recv", [](int fd, std::span<std::uint8_t> space, Random&) { return ::recv(fd, space.data(), space.size(), 0); }},
    {"recv_waitall", [](int fd, std::span<std::uint8_t> space,
                        Random&) { return ::recv(fd, space.data(), space.size(), MSG_WAITALL); }},
    {"recv_after_peek",
     [](int fd, std::span<std::uint8_t> space, Random&) {
         Bytes seen(space.size());
         const ssize_t peeked = ::recv(fd, seen.data(), seen.size(), MSG_PEEK);
         if (peeked <= 0) {
             return peeked;
         }
         const ssize_t got = ::recv(fd, space.data(), static_cast<std::size_t>(peeked), 0);
         if (got <= 0 || std::memcmp(seen.data(), space.data(), static_cast<std::size_t>(got)) != 0) {
             note("MSG_PEEK showed other bytes than recv gave");
         }
         return got;
     }},
    {"recvfrom",
     [](int fd, std::span<std::uint8_t> space, Random&) {
         sockaddr_storage from{};
         socklen_t size = sizeof from;
         const ssize_t got = ::recvfrom(fd, space.data(), space.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
         if (got >= 0 && size != 0) {
             note("recvfrom gave an address on a stream");
         }
         return got;
     }},
    {"recvmsg", by_recvmsg},
    {"recvmmsg", by_recvmmsg},
    {"splice", by_splice_in},
};

struct Sent {
    std::size_t total = 0;
    Hash hash;
};

/// Writes random chunks, `total` bytes in all, by writers that `pick` gives.
template <typename Pick>
Sent write_randomly(int fd, std::size_t total_size, Random& random, Pick&& pick) {
    Sent sent;
    Random choices(random.next());  // apart from the bytes: how many calls are made depends on the kernel
    while (sent.total < total_size) {
        const std::size_t most = random.between(0, 3) == 0 ? 300000 : 3000;
        const Bytes chunk = random.bytes(random.between(1, std::min(most, total_size - sent.total)));
        std::size_t done = 0;
        while (done < chunk.size()) {
            const ssize_t count = pick(choices).write(fd, std::span(chunk).subspan(done), choices);
            if (count < 0 && errno == EAGAIN) {
                if (wait_for(fd, POLLOUT) == 0) {
                    give_up("never writable again");
                }
            } else if (count < 0) {
                result("write", -1);
                return sent;
            } else {
                sent.hash.add(chunk.data() + done, static_cast<std::size_t>(count));
                done += static_cast<std::size_t>(count);
            }
        }
        sent.total += done;
    }
    return sent;
}

template <typename Pick>
void read_randomly(int fd, Random& random, Pick&& pick) {
    Hash hash;
    std::size_t total_read = 0;
    std::size_t lies = 0;  // poll said readable, and then nothing was
    bool told = false;
    Bytes space(300000);
    for (;;) {
        const std::size_t most = random.between(0, 2) == 0 ? space.size() : 2000;
        const ssize_t count = pick(random).read(fd, std::span(space).first(random.between(1, most)), random);
        if (count < 0 && errno == EAGAIN) {
            lies += told ? 1 : 0;
            told = wait_for(fd, POLLIN) != 0;
            if (!told) {
                give_up("never readable again");
            }
            continue;
        }
        told = false;
        if (count <= 0) {
            note("received %zu bytes, hash %s, readable but empty %zu times", total_read, hash.text().c_str(), lies);
            result("read at the end", count);
            return;
        }
        hash.add(space.data(), static_cast<std::size_t>(count));
        total_read += static_cast<std::size_t>(count);
    }
}

template <typename PickWriter, typename PickReader>
void transfer(Context& context, std::size_t size, bool blocking, PickWriter&& writer, PickReader&& reader) {
    Pair pair = connected_pair();
    set_blocking(pair.client, blocking);
    set_blocking(pair.server, blocking);
    Random write_random(context.random.next()), read_random(context.random.next());
    Sent sent;
    std::thread writing([&] {
        sent = write_randomly(pair.client, size, write_random, writer);
        ::shutdown(pair.client, SHUT_WR);
    });
    read_randomly(pair.server, read_random, reader);
    writing.join();
    note("sent %zu bytes, hash %s", sent.total, sent.hash.text().c_str());
}

void transfer_all_sizes(Context& context, auto&& writer, auto&& reader) {
    for (const std::size_t size :
         {std::size_t{1}, context.random.between(2, 5000), context.random.between(5001, 1 << 20)}) {
        transfer(context, size, true, writer, reader);
        transfer(context, size, false, writer, reader);
    }
}

// One case a call: every writer against read(), write() against every reader.
const bool kRegistered = [] {
    for (const Writer& writer : kWriters) {
        cases().push_back({std::string("transfer_writer_") + writer.name, Kind::one_process,
                           [&writer](Context& context) {
                               transfer_all_sizes(
                                   context, [&](Random&) -> const Writer& { return writer; },
                                   [](Random&) -> const Reader& { return kReaders[0]; });
                           },
                           nullptr});
    }
    const auto add_reader = [](const Reader& reader) {
        cases().push_back({std::string("transfer_reader_") + reader.name, Kind::one_process,
                           [&reader](Context& context) {
                               transfer_all_sizes(
                                   context, [](Random&) -> const Writer& { return kWriters[0]; },
                                   [&](Random&) -> const Reader& { return reader; });
                           },
                           nullptr});
    };
    std::ranges::for_each(kReaders, add_reader);
    std::ranges::for_each(fortified_readers(), add_reader);
    return true;
}();

const Writer& any_writer(Random& random) {
    return kWriters[random.between(0, std::size(kWriters) - 1)];
}
const Reader& any_reader(Random& random) {
    return kReaders[random.between(0, std::size(kReaders) - 1)];
}

SOCKETS_CASE(transfer_every_call_mixed) {
    transfer(context, context.random.between(1, 8 << 20), true, any_writer, any_reader);
    transfer(context, context.random.between(1, 8 << 20), false, any_writer, any_reader);
}

SOCKETS_CASE(transfer_8_mb) {
    transfer(context, 8 << 20, true, any_writer, [](Random&) -> const Reader& { return kReaders[0]; });
}

SOCKETS_CASE_OF_TWO(two_mixed_transfer)

void case_two_mixed_transfer_client(Context& context) {
    const Descriptor fd = connect_to(context);
    const Sent sent = write_randomly(fd, context.random.between(1, 4 << 20), context.random, any_writer);
    note("sent %zu bytes, hash %s", sent.total, sent.hash.text().c_str());
    result("shutdown", ::shutdown(fd, SHUT_WR));
    read_randomly(fd, context.random, any_reader);
}

void case_two_mixed_transfer_server(Context& context) {
    const Descriptor fd = accept_from(context.listener);
    set_blocking(fd, false);
    Random read_random(context.seed);
    read_randomly(fd, read_random, any_reader);
    const Sent sent = write_randomly(fd, context.random.between(1, 1 << 20), context.random, any_writer);
    note("sent %zu bytes, hash %s", sent.total, sent.hash.text().c_str());
}

SOCKETS_CASE(transfer_ipv6) {
    Pair pair = connected_pair_ipv6();
    send_all(pair.client, context.random.bytes(5000));
    pair.client.close();
    note_until_end("server", pair.server);
}

SOCKETS_CASE(zero_length) {
    Pair pair = connected_pair();
    std::uint8_t byte = 0;
    iovec nothing{&byte, 0};
    result("write of 0", ::write(pair.client, &byte, 0));
    result("send of 0", ::send(pair.client, &byte, 0, 0));
    result("writev of none", ::writev(pair.client, &nothing, 0));
    result("writev of 0", ::writev(pair.client, &nothing, 1));
    result("read of 0", ::read(pair.server, &byte, 0));
    result("recv of 0, none there", ::recv(pair.server, &byte, 0, MSG_DONTWAIT));
    note("readable: %s", event_names(wait_for(pair.server, POLLIN, kQuiet)).c_str());
    send_all(pair.client, text("x"));
    wait_for(pair.server, POLLIN);
    result("read of 0", ::read(pair.server, &byte, 0));
    result("recv of 0", ::recv(pair.server, &byte, 0, 0));
    result("recv of 1", ::recv(pair.server, &byte, 1, 0));
    result("recv of 1", ::recv(pair.server, &byte, 1, MSG_DONTWAIT));
}

// A bad pointer is not among them: it ends a sealed program, where the kernel would say EFAULT (docs/layers.md).
SOCKETS_CASE(bad_arguments) {
    Pair pair = connected_pair();
    std::uint8_t byte = 0;
    volatile int negative = -1;  // the compiler refuses one that it can see
    iovec part{&byte, 1};
    result("writev of -1 parts", ::writev(pair.client, &part, negative));
    result("readv of -1 parts", ::readv(pair.server, &part, negative));
    result("writev of 1025 parts", ::writev(pair.client, std::vector<iovec>(1025, part).data(), 1025));
    result("recv of a closed descriptor", ::recv(1 << 20, &byte, 1, 0));
    result("pread of a socket", ::pread(pair.server, &byte, 1, 0));
    result("lseek of a socket", ::lseek(pair.server, 0, SEEK_SET));
}

SOCKETS_CASE(peek) {
    Pair pair = connected_pair();
    char buffer[64] = {};
    send_all(pair.client, text("hello world"));
    wait_for(pair.server, POLLIN);
    note("peek 5 = %zd", ::recv(pair.server, buffer, 5, MSG_PEEK));
    note("it is %.5s", buffer);
    note("peek 64 = %zd", ::recv(pair.server, buffer, sizeof buffer, MSG_PEEK));
    note("it is %.11s", buffer);
    note("recv 3 = %zd", ::recv(pair.server, buffer, 3, 0));
    note("peek = %zd", ::recv(pair.server, buffer, sizeof buffer, MSG_PEEK));
    note("it is %.8s", buffer);
    iovec part{buffer, sizeof buffer};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    note("recvmsg peek = %zd", ::recvmsg(pair.server, &message, MSG_PEEK));
    note("readable: %s", event_names(wait_for(pair.server, POLLIN, kQuiet)).c_str());
    note("recv = %zd", ::recv(pair.server, buffer, sizeof buffer, 0));
    result("peek of none", ::recv(pair.server, buffer, sizeof buffer, MSG_PEEK | MSG_DONTWAIT));
    send_all(pair.client, text("x"));
    ::shutdown(pair.client, SHUT_WR);
    note("peek = %zd", ::recv(pair.server, buffer, sizeof buffer, MSG_PEEK));
    note("recv = %zd", ::recv(pair.server, buffer, sizeof buffer, 0));
    note("peek at the end = %zd", ::recv(pair.server, buffer, sizeof buffer, MSG_PEEK));
    note("recv at the end = %zd", ::recv(pair.server, buffer, sizeof buffer, 0));
}

SOCKETS_CASE(peek_over_several_writes) {
    Pair pair = connected_pair();
    char buffer[64] = {};
    for (const char* words : {"one ", "two ", "three"}) {
        send_all(pair.client, text(words));
    }
    // A program that waits for a whole header peeks until enough is there.
    ssize_t seen = 0;
    for (int tries = 0; seen < 13 && tries < 200; ++tries) {
        seen = ::recv(pair.server, buffer, sizeof buffer, MSG_PEEK);
        if (seen < 13) {
            ::poll(nullptr, 0, 10);
        }
    }
    note("peek = %zd: %.13s", seen, buffer);
    note("peek for all = %zd", ::recv(pair.server, buffer, 13, MSG_PEEK | MSG_WAITALL));
    note("recv = %zu", receive(pair.server, 13).size());
}

SOCKETS_CASE(waitall) {
    Pair pair = connected_pair();
    const Bytes data = context.random.bytes(200000);
    std::thread writing([&] {
        for (std::size_t at = 0; at < data.size(); at += 50000) {
            ::poll(nullptr, 0, 20);
            send_all(pair.client, std::span(data).subspan(at, 50000));
        }
        ::shutdown(pair.client, SHUT_WR);
    });
    Bytes got(150000);
    note("recv all = %zd", ::recv(pair.server, got.data(), got.size(), MSG_WAITALL));
    note("right: %d", std::equal(got.begin(), got.end(), data.begin()));
    note("recv of more than there is = %zd", ::recv(pair.server, got.data(), got.size(), MSG_WAITALL));
    note("recv at the end = %zd", ::recv(pair.server, got.data(), got.size(), MSG_WAITALL));
    writing.join();
}

SOCKETS_CASE(dontwait_and_eagain) {
    Pair pair = connected_pair();
    char buffer[16];
    result("recv, nothing there", ::recv(pair.server, buffer, sizeof buffer, MSG_DONTWAIT));
    set_blocking(pair.server, false);
    result("read, nothing there", ::read(pair.server, buffer, sizeof buffer));
    iovec part{buffer, sizeof buffer};
    result("readv, nothing there", ::readv(pair.server, &part, 1));
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    result("recvmsg, nothing there", ::recvmsg(pair.server, &message, 0));
    result("recv all, nothing there", ::recv(pair.server, buffer, sizeof buffer, MSG_WAITALL));
    send_all(pair.client, text("abc"));
    wait_for(pair.server, POLLIN);
    result("recv all, three of 16 there", ::recv(pair.server, buffer, sizeof buffer, MSG_WAITALL));
    result("recv", ::recv(pair.server, buffer, sizeof buffer, 0));
    int on = 1;
    set_blocking(pair.server, true);
    result("ioctl FIONBIO", ::ioctl(pair.server, FIONBIO, &on));
    result("recv", ::recv(pair.server, buffer, sizeof buffer, 0));
}

/// The value of FIONREAD, once it is `expected` or two seconds have passed.
int bytes_readable(int fd, int expected) {
    int count = -1;
    for (int tries = 0; tries < 200 && count != expected; ++tries) {
        if (tries > 0) {
            ::poll(nullptr, 0, 10);
        }
        ::ioctl(fd, FIONREAD, &count);
    }
    return count;
}

SOCKETS_CASE(fionread) {
    Pair pair = connected_pair();
    note("none: %d", bytes_readable(pair.server, 0));
    send_all(pair.client, text("0123456789"));
    note("ten: %d", bytes_readable(pair.server, 10));
    note("received %zu", receive(pair.server, 4).size());
    note("six: %d", bytes_readable(pair.server, 6));
    note("received %zu", receive(pair.server, 6).size());
    note("none: %d", bytes_readable(pair.server, 0));
    ::shutdown(pair.client, SHUT_WR);
    wait_for(pair.server, POLLIN);
    note("at the end: %d", bytes_readable(pair.server, 0));
}

SOCKETS_CASE(fionread_never_too_much_and_zero_only_when_empty) {
    // Over several writes the count may be of the first only, but a program that reads what it was told gets
    // everything.
    Pair pair = connected_pair();
    const Bytes data = context.random.bytes(30000);
    for (std::size_t at = 0; at < data.size(); at += 3000) {
        send_all(pair.client, std::span(data).subspan(at, 3000));
    }
    Bytes got;
    while (got.size() < data.size() && wait_for(pair.server, POLLIN) != 0) {
        int count = 0;
        ::ioctl(pair.server, FIONREAD, &count);
        Bytes part(static_cast<std::size_t>(count));
        const ssize_t size = ::recv(pair.server, part.data(), part.size(), MSG_DONTWAIT);
        if (count <= 0 || size != count) {
            note("FIONREAD said %d, recv gave %zd", count, size);
            break;
        }
        got.insert(got.end(), part.begin(), part.end());
    }
    note("received all: %d", got == data);
}

/// Fills the way to a peer that does not read; the bytes that were taken.
Bytes fill(int fd, Random& random, const char* what) {
    Bytes taken;
    for (;;) {
        const Bytes chunk = random.bytes(random.between(1, 100000));
        const ssize_t sent = ::send(fd, chunk.data(), chunk.size(), MSG_NOSIGNAL);
        if (sent < 0) {
            result(what, sent);
            return taken;
        }
        taken.insert(taken.end(), chunk.begin(), chunk.begin() + sent);
    }
}

SOCKETS_CASE(full_send_buffer) {
    Pair pair = connected_pair();
    set_blocking(pair.client, false);
    Bytes taken = fill(pair.client, context.random, "send to a full socket");
    note("writable: %s", event_names(wait_for(pair.client, POLLOUT, kQuiet)).c_str());
    std::thread reading([&] {
        const Bytes got = receive(pair.server, taken.size());
        note("received what was taken: %d", got == taken);
    });
    reading.join();
    note("writable: %s", event_names(wait_for(pair.client, POLLOUT)).c_str());
    send_all(pair.client, text("after"));
    note("received %zu", receive(pair.server, 5).size());
}

SOCKETS_CASE(partial_write_then_other_bytes) {
    // After a short write or EAGAIN a program may send something else than the rest, or the rest from elsewhere.
    Pair pair = connected_pair();
    set_blocking(pair.client, false);
    Bytes taken = fill(pair.client, context.random, "send to a full socket");
    std::thread reading([&] {
        const Bytes got = receive(pair.server, taken.size() + 1000);
        const bool as_counted =
            std::equal(taken.begin(), taken.end(), got.begin(), got.begin() + static_cast<long>(taken.size()));
        note("received what was taken: %d, then %zu bytes", as_counted, got.size() - taken.size());
        note("they are the others: %d", std::count(got.end() - 1000, got.end(), 'z') == 1000);
    });
    wait_for(pair.client, POLLOUT);
    send_all(pair.client, Bytes(1000, 'z'));
    reading.join();
}

SOCKETS_CASE(partial_write_then_shutdown) {
    Pair pair = connected_pair();
    set_blocking(pair.client, false);
    const Bytes taken = fill(pair.client, context.random, "send to a full socket");
    result("shutdown", ::shutdown(pair.client, SHUT_WR));
    const Bytes got = receive(pair.server, taken.size() + 100);
    note("received what was taken and no more: %d", got == taken);
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
}

SOCKETS_CASE(partial_write_then_close) {
    Pair pair = connected_pair();
    set_blocking(pair.client, false);
    const Bytes taken = fill(pair.client, context.random, "send to a full socket");
    pair.client.close();
    const Bytes got = receive(pair.server, taken.size() + 100);
    note("received what was taken and no more: %d", got == taken);
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
}

SOCKETS_CASE(send_timeout) {
    Pair pair = connected_pair();
    set_timeout(pair.client, SO_SNDTIMEO, 100);
    const Bytes taken = fill(pair.client, context.random, "send to a full socket, with a timeout");
    ::shutdown(pair.client, SHUT_WR);
    note("received what was taken: %d", receive(pair.server, taken.size() + 1) == taken);
}

SOCKETS_CASE(receive_timeout) {
    Pair pair = connected_pair();
    char buffer[16];
    set_timeout(pair.server, SO_RCVTIMEO, 50);
    result("recv, with a timeout", ::recv(pair.server, buffer, sizeof buffer, 0));
    result("read, with a timeout", ::read(pair.server, buffer, sizeof buffer));
    send_all(pair.client, text("abc"));
    result("recv all, with a timeout", ::recv(pair.server, buffer, sizeof buffer, MSG_WAITALL));
    set_timeout(pair.server, SO_RCVTIMEO, 0);
    send_all(pair.client, text("def"));
    result("recv", ::recv(pair.server, buffer, sizeof buffer, 0));
}

}  // namespace

std::span<const Writer> writers() {
    return kWriters;
}
std::span<const Reader> readers() {
    return kReaders;
}

}  // namespace sockets
