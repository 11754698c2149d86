// What every case uses: the transcript, randomness from the seed, descriptors, connected pairs.
//
// A case is a piece of a program that knows nothing of CryptMPI. Whatever it notes must be the same in every plain run,
// so that a sealed run can be compared with it line by line: totals, hashes, errors, events; never how much the kernel
// took at once.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sockets {

using Bytes = std::vector<std::uint8_t>;

/// One line of the transcript (standard output). Cases note from one thread at a time.
void note(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Notes "what = value", or "what = -1 ERRNO"; returns the value and leaves errno alone.
long result(const char* what, long value);

/// Ends the process: the case could not be set up, which is not what it is there to test.
[[noreturn]] void give_up(const char* what);

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next();
    std::size_t between(std::size_t low, std::size_t high) { return low + next() % (high - low + 1); }
    Bytes bytes(std::size_t size);

private:
    std::uint64_t state_;
};

class Hash {
public:
    void add(const void* data, std::size_t size);
    std::string text() const;

private:
    std::uint64_t state_ = 0xcbf29ce484222325;
};
std::string hash_of(std::span<const std::uint8_t> data);

class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor() { close(); }

    operator int() const { return fd_; }
    void close();
    int release() { return std::exchange(fd_, -1); }

private:
    int fd_ = -1;
};

/// Two connected ends, both in this process.
struct Pair {
    Descriptor client;
    Descriptor server;
};

/// Where a case with two roles meets, and the randomness of this run.
struct Context {
    std::uint64_t seed = 1;
    Random random{1};
    sockaddr_storage address{};
    socklen_t address_size = 0;
    int listener = -1;  // the server's, for cases with two roles
    std::string self;   // this program's file, for cases that exec
};

Descriptor listen_on_loopback(sockaddr_in& address, int backlog = 64);
/// Connects and accepts at the same time, and sends a byte each way: after that both ends are surely open, also for
/// what is not plain TCP underneath. Cases about the time before that make their connections themselves.
Pair join_ends(int listener, Descriptor client, const sockaddr_storage& address);
Pair connected_pair();
Pair connected_pair_ipv6();
Descriptor connect_to(const Context& context);
Descriptor accept_from(int listener);

void set_blocking(int fd, bool blocking);
void set_timeout(int fd, int option, int milliseconds);

/// poll() on one descriptor; the events that it reported.
short wait_for(int fd, short events, int milliseconds = 10000);
/// "IN|RDHUP", or "none".
std::string event_names(unsigned events);

/// Sends all of it, or notes the error.
void send_all(int fd, std::span<const std::uint8_t> data);
/// Reads until `size` bytes or the end; fewer than `size` at the end or after an error (errno is that of the last
/// call).
Bytes receive(int fd, std::size_t size);
/// Notes how many bytes came, their hash, and what the call after them returned.
void note_until_end(const char* who, int fd);
std::span<const std::uint8_t> text(const char* characters);

/// How long something that must not happen is waited for.
inline constexpr int kQuiet = 30;  // ms

enum class Kind {
    one_process,  // both ends in one process, on loopback
    two_roles,    // a client and a server, on one node or two
    sealed_only,  // what CryptMPI refuses: there is nothing to compare
    two_nodes,    // sealed only, and needs an address of another node
};

struct Case {
    std::string name;
    Kind kind;
    std::function<void(Context&)> run;     // or the client
    std::function<void(Context&)> server;  // two_roles only
};
std::vector<Case>& cases();

struct Registration {
    explicit Registration(Case entry) { cases().push_back(std::move(entry)); }
};

}  // namespace sockets

#define SOCKETS_CASE_OF_KIND(name, kind)                                                         \
    static void case_##name(sockets::Context& context);                                          \
    static const sockets::Registration registration_##name{{#name, kind, case_##name, nullptr}}; \
    static void case_##name([[maybe_unused]] sockets::Context& context)

#define SOCKETS_CASE(name) SOCKETS_CASE_OF_KIND(name, sockets::Kind::one_process)

/// Two functions follow it: case_NAME_client and case_NAME_server.
#define SOCKETS_CASE_OF_TWO(name)                                \
    static void case_##name##_client(sockets::Context& context); \
    static void case_##name##_server(sockets::Context& context); \
    static const sockets::Registration registration_##name{      \
        {#name, sockets::Kind::two_roles, case_##name##_client, case_##name##_server}};
