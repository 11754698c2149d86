// A kernel in one process, for tests: programs on several nodes, and TCP between them. The programs call libc by its
// names, which are the channel's; what the channel then asks the kernel comes here, by the table of real.hpp. One
// program runs at a time, and a seed decides who goes on and what comes off the wire next, so a test that fails once
// fails each time.
//
//   1. Each program is a fiber, and so is each thread that the channel starts (courier, pulse). A call that has to wait
//      lets others go on; time is the kernel's own, and passes where nobody can.
//   2. What a socket takes is on the wire until the kernel lets it arrive, in pieces as large as the test likes. Only
//      then is the other end readable, and has an edge-triggered waiter an edge.
//   3. A test may look at each hello and record on the wire, change it, drop it, send it again, or send others; it may
//      cut a connection at any byte, and let any call fail.
//   4. A node has its own Process of the channel, with its own settings. Without one, its programs run plain: what they
//      note then is what they have to note under us.
//   5. At the end nothing may be left: no descriptor, no slot of the arena, no handshake.
//
// The fake finds what a real kernel would not say: bytes of Clear on the wire, programs that wait for ever, and what is
// left at the end. How sockets behave is what Linux does; fake_kernel_test.cpp compares the two.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cryptmpi::channel {
class Process;
}

namespace cryptmpi::channel::fake {

using Bytes = std::vector<std::uint8_t>;
using Settings = std::map<std::string, std::string, std::less<>>;  // "CRYPTMPI_..."

inline constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
inline constexpr std::int64_t kMillisecond = 1'000'000;
inline constexpr std::int64_t kSecond = 1'000'000'000;

/// Data of programs that must not be seen on the wire: bytes that tell their place, and that they are clear.
Bytes clear(std::size_t size, int salt = 0);
bool is_clear(const std::uint8_t* bytes, std::size_t size);

struct Options {
    std::uint64_t seed = 1;
    bool sealed = true;  // or plain: the channel is off
    Settings settings = {};
    std::map<int, Settings> of_node = {};  // over `settings`
    bool renewed = false;                  // Processes that no other job has had: they say everything anew
    /// Bytes that one call takes, that arrive at once, and that one direction holds. Random ones are from 1 to that.
    std::size_t most_sent = kAll;
    std::size_t most_arriving = kAll;
    bool random_sizes = false;
    bool cuts_hellos = false;  // most_sent goes for hellos, too: Linux takes them whole
    std::size_t capacity = 256 * 1024;
    bool clear_inside = false;  // what goes over a node's 127.0.0.1 may be seen
    bool slow = false;          // what is sent arrives when the seed says, not at once
    int interrupting = 0;       // one in so many calls that would wait is interrupted; 0: none
};

/// A hello (number 0) or record (from 1 on) on the wire; `there` is from who connected to who accepted.
struct Unit {
    int connection;  // in the order in which they were made
    bool there;
    std::size_t number;
    Bytes bytes;
};

/// A call of the channel or, where it passes the channel, of a program.
struct Call {
    std::uint64_t number;
    const char* name;
    int node;
    int fd;
};

/// Where a connection ends although nobody ends it: after so many bytes in one direction. Both ends see it.
struct Cut {
    bool there = true;
    std::size_t at = kAll;
    bool resets = false;
};

/// How a job ended.
struct Ending {
    std::string stuck;                             // who waits for ever; empty: nobody
    std::vector<std::string> complaints;           // of the fake: bytes in clear
    std::vector<std::string> left;                 // what was there at the end that should not
    std::map<int, std::vector<std::string>> said;  // by the channel, of each node
    std::vector<std::string> noted;                // by the programs
    std::map<int, int> exits;                      // nodes whose process ended itself, and with what
    std::uint64_t calls = 0;
    std::size_t moved[2] = {0, 0};  // bytes on the wire: there, back
    std::size_t units[2] = {0, 0};
    std::int64_t took_ns = 0;

    bool went_well() const { return stuck.empty() && complaints.empty() && left.empty(); }
    /// Lines of this node, or of all (-1), that have this in them.
    int lines_with(const std::string& text, int node = -1) const;
    std::string told() const;
};

class World;

class Job {
public:
    explicit Job(Options options = {});
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// A program on a node; run() starts it.
    void program(int node, std::function<void()> body);
    Ending run();

    /// What goes on in the place of this; asked of each hello and record.
    std::function<std::vector<Bytes>(const Unit& unit)> on_wire;
    /// With which error this call fails; 0: it does not.
    std::function<int(const Call& call)> fails;
    std::map<int, Cut> cuts;  // by connection
    /// The bit that is changed in this byte of the first connection.
    std::optional<std::size_t> flips[2];  // there, back
    /// The address that a node has instead of its own, where it is seen by others: address translation.
    bool translates = false;

    /// The channel's Process of a node; null: it is plain.
    Process* process(int node);

private:
    friend class World;
    Options options_;
    std::vector<std::pair<int, std::function<void()>>> programs_;
    std::unique_ptr<World> world_;
};

// What programs call beside libc.

/// The address of a node's port. Each node has 127.0.0.1, too.
sockaddr_in address(int node, std::uint16_t port);
sockaddr_in loopback(std::uint16_t port);
/// bind() and listen(), which the channel leaves alone.
bool listen_on(int fd, std::uint16_t port);
/// Waits until somebody listens there. False: nobody does for a second.
bool await_listener(const sockaddr_in& at);
/// Lets others go on.
void pass();
void sleep_ns(std::int64_t nanoseconds);
std::int64_t time_ns();
/// A line of the transcript.
void note(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Runs a program over the real kernel, alone and plain: what it notes there. It may listen on loopback, at any port.
std::vector<std::string> on_linux(const std::function<void()>& body);
/// A random number below this, from the seed; for programs.
std::size_t below(std::size_t end);
/// How many bytes the other end's kernel has for this socket, read or not, and how many are on the wire to it.
std::size_t arrived(int fd);
std::size_t on_the_wire_to(int fd);
/// These bytes arrive at the other end of this socket.
void deliver(int from, const Bytes& bytes);
/// The process of this node ends: as exit() does, or killed, when the kernel closes what it has. Does not return.
[[noreturn]] void exit_process();
[[noreturn]] void die();
/// The signals of SIGPIPE since the job began.
int broken_pipes();

}  // namespace cryptmpi::channel::fake
