// From a TCP connection to an open stream: keys/handshake.hpp says what is exchanged, this file moves the bytes.
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "channel/clock.hpp"
#include "channel/connection.hpp"
#include "channel/epoll.hpp"
#include "channel/inside.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr std::int64_t kPatience_ns = 10'000'000'000;  // then one line says whom we are waiting for
// A rank that computes may be slow to answer, but whoever connects speaks first, and at once: connect() itself, or the
// courier, sends the hello. Who does not is kept no longer than this, and no more than so many at a time.
constexpr std::int64_t kSilence_ns = 20'000'000'000;
constexpr int kMostSilent = 256;

std::int64_t timeout_ns(const Process& process) {
    return std::chrono::nanoseconds(process.settings().handshake_timeout).count();
}

bool silent(const Shared& shared) {
    return shared.role == keys::Role::responder && shared.state.load() == State::await_hello;
}

/// A socket has room for a hello: nothing was sent on it before. Less than all of it is an error.
bool send_whole(const Entry& entry, const std::uint8_t* bytes, std::size_t size) {
    return real::send(entry.descriptor(), bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

/// An MPI that is refused tries again with another port, some a hundred times a second: each reason is said once a
/// node.
void say_refused(Process& process, const Shared& shared, const std::string& line) {
    process.report().count_refused_handshake();
    const bool initiator = shared.role == keys::Role::initiator;
    const std::string direction = initiator ? "connection to " : "connection from ";
    const std::string peer = shared.peer;
    process.report().complain_once(direction + peer.substr(0, peer.rfind(':')) + line,
                                   direction + peer + " refused: " + line);
}

/// The program has closed the connection before there was anything to lose on it.
bool left_alone(const Shared& shared) {
    return shared.lingering.load() && shared.early_size == 0;
}

void fail_handshake(Process& process, Entry& entry, const Error& error) {
    const Shared& shared = *entry.shared;
    const bool alone = left_alone(shared);
    if (!alone) say_refused(process, shared, error.line);
    end_connection(process, entry, error.code, shared.role == keys::Role::initiator && !alone);
}

Result<void> send_hello(Process& process, Entry& entry) {
    const auto local = process.local();
    if (!local) return fail(local.error().code, local.error().line);
    Shared& shared = *entry.shared.load();
    std::array<std::uint8_t, keys::kLargestHelloSize> room;
    const auto hello = std::span(room).first((*local)->hello_size(shared.role));
    if (auto written = keys::write_hello(**local, shared.handshake, hello); !written) return written;
    errno = 0;
    if (send_whole(entry, hello.data(), hello.size())) return {};
    // The connection is lost. A program that is told EAGAIN or EINTR would ask again for ever.
    const bool passing = errno == 0 || errno == EAGAIN || errno == EINTR;
    return fail(passing ? EPROTO : errno, std::string("cannot send the handshake: ") + std::strerror(errno));
}

Result<void> start_initiator(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    const auto local = process.local();
    if (!local) return fail(local.error().code, local.error().line);
    keys::Identity self{};
    process.self(self);
    const auto here = Address::local_of(entry.descriptor());
    const auto there = Address::peer_of(entry.descriptor());
    if (!here || !there) return fail(ENOTCONN, "the connection went away before the handshake");
    std::memcpy(self.local.address, here->bytes, 16);
    std::memcpy(self.remote.address, there->bytes, 16);
    self.local.port[0] = static_cast<std::uint8_t>(here->port >> 8);
    self.local.port[1] = static_cast<std::uint8_t>(here->port);
    self.remote.port[0] = static_cast<std::uint8_t>(there->port >> 8);
    self.remote.port[1] = static_cast<std::uint8_t>(there->port);
    return keys::start(**local, shared.role, self, shared.handshake);
}

/// Contexts belong to the process; what they count with, to the connection.
void make_contexts(Process& process, const keys::Local& local, Entry& entry, Shared& shared) {
    // Not under the connection's locks: another process may wait in a read with one of them.
    const std::lock_guard guard(entry.registrations_lock);
    if (entry.contexts.load() || entry.shared.load() != &shared) return;
    process.report().go_live();
    entry.sealer.emplace(local.crypto, shared.sending);
    entry.opener.emplace(local.crypto, shared.receiving);
    entry.contexts.store(true);
    process.background().opened();
}

Result<void> open_stream(Process& process, Entry& entry) {
    const auto local = process.local();
    if (!local) return fail(local.error().code, local.error().line);
    Shared& shared = *entry.shared;
    if (auto done = keys::finish(**local, shared.handshake, shared.sending, shared.receiving); !done) return done;
    make_contexts(process, **local, entry, shared);
    process.report().count_sealed(shared.handshake.peer_member);
    return {};
}

// protocol: H12
/// TCP is connected: the initiator speaks first.
Result<void> connected(Process& process, Entry& entry) {
    if (auto started = start_initiator(process, entry); !started) return started;
    if (entry.shared.load()->role == keys::Role::initiator) {
        if (auto sent = send_hello(process, entry); !sent) return sent;
    }
    entry.shared.load()->state.store(State::await_hello);
    return {};
}

Result<void> hello_arrived(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    const auto local = process.local();
    if (!local) return fail(local.error().code, local.error().line);
    auto read = keys::read_hello(**local, shared.handshake, std::span(shared.hello).first(shared.hello_size));
    if (!read) return read;
    if (shared.role == keys::Role::responder) {
        shared.deadline_ns.store(now_ns() + timeout_ns(process));
        if (auto sent = send_hello(process, entry); !sent) return sent;
        if (auto opened = open_stream(process, entry); !opened) return opened;
        shared.state.store(State::await_confirm);
        return {};
    }
    if (auto opened = open_stream(process, entry); !opened) return opened;
    std::uint8_t confirm[2 * seal::kRecordOverhead];
    const auto size = entry.sealer->seal_control(seal::RecordType::confirm, confirm);
    if (!size) return fail(size.error().code, size.error().line);
    if (!send_whole(entry, confirm, *size)) return fail(EPROTO, "cannot send the end of the handshake");
    shared.state.store(State::open);
    send_early(process, entry);
    return {};
}

// protocol: H18, H20
/// Is there enough of the peer's hello? Where only one side requires members, or uses ML-KEM, the shorter one's size
/// shows it.
bool hello_suffices(const Shared& shared, std::size_t ours) {
    return shared.hello_size >= keys::kHelloSize && shared.hello_size >= std::min(ours, keys::hello_size(shared.hello));
}

/// Reads what there is of the peer's hello. True when the state moved.
bool read_hello_bytes(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    const config::Settings& settings = process.settings();
    const std::size_t due = keys::hello_size(keys::other(shared.role), settings.require_members, settings.hybrid());
    if (hello_suffices(shared, due)) {
        fail_handshake(
            process, entry,
            Error{"a process that shared the connection was killed in the middle of the handshake", ECONNRESET});
        return true;
    }
    const ssize_t n =
        real::recv(entry.descriptor(), shared.hello + shared.hello_size, due - shared.hello_size, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        cut_off(entry, n == 0 ? EPROTO : errno);
        // What was written is lost for certain.
        if (shared.early_size > 0) tell_of_cut(process, shared);
        return true;
    }
    shared.hello_size += static_cast<std::uint32_t>(n);
    // Hellos of other versions have other lengths: none is waited for to its end.
    constexpr std::uint8_t kOurs[] = {'C', 'M', 'P', 'I', keys::kProtocolVersion};
    const bool ours = std::memcmp(shared.hello, kOurs, std::min<std::size_t>(sizeof kOurs, shared.hello_size)) == 0;
    if (ours && !hello_suffices(shared, due)) return false;
    // What is no hello of ours is refused by its beginning.
    shared.hello_size = std::max<std::uint32_t>(shared.hello_size, keys::kHelloSize);
    if (auto done = hello_arrived(process, entry); !done) fail_handshake(process, entry, done.error());
    return true;
}

void look_at_the_clock(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    const std::int64_t now = now_ns();
    const std::int64_t waited_ns = now - shared.started_ns;
    const std::int64_t left = shared.deadline_ns.load() - now;
    if (left <= 0) {
        fail_handshake(process, entry,
                       Error{fmt::format("no handshake within {} s; is it under cryptmpi? plaintext_peers allows a "
                                         "peer that is not, handshake_timeout_s sets the time",
                                         waited_ns / 1'000'000'000),
                             ETIMEDOUT});
    } else if (waited_ns > kPatience_ns && !left_alone(shared) && !silent(shared)) {
        // Nothing has gone wrong yet: who answers later has a good job, and who never does is refused with a line.
        process.report().note_once(shared.peer, std::string("still waiting for the handshake of ") + shared.peer +
                                                    ": it may be busy, or not be under cryptmpi");
    }
}

/// What is known of a connection before its first byte.
void fill(const Process& process, Shared& shared, int fd, keys::Role role, const Address& peer, Tcp tcp) {
    struct stat information {};
    if (fstat(fd, &information) == 0) shared.inode = information.st_ino;
    shared.role = role;
    std::strncpy(shared.peer, peer.text().c_str(), sizeof shared.peer - 1);
    shared.started_ns = now_ns();
    const std::int64_t all_ns = timeout_ns(process);
    const std::int64_t left_ns = role == keys::Role::responder ? std::min(all_ns, kSilence_ns) : all_ns;
    shared.deadline_ns.store(shared.started_ns + left_ns);
    shared.state.store(State::tcp_connecting);
    shared.connect_reported.store(tcp == Tcp::connected);
    shared.undecided.store(tcp == Tcp::undecided);
    shared.stayed_inside.store(false);
}

/// The first record follows the handshake's last message at once: with Nagle's algorithm it would wait for a delayed
/// acknowledgement.
void send_at_once(int fd, Shared& shared) {
    int nodelay = 0;
    socklen_t size = sizeof nodelay;
    real::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &size);
    shared.nodelay_is_ours.store(nodelay == 0);
    nodelay = 1;
    real::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay);
}

/// From now on calls on the entry's descriptors find this connection.
void belong(Entry& entry, Shared& shared) {
    entry.contexts.store(false);
    entry.errors_told.store(0);
    entry.generation.store(shared.holders.generation());
    entry.shared.store(&shared);
    entry.kind.store(Kind::sealed);
}

}  // namespace

// protocol: R9
void cut_off(Entry& entry, int code) {
    Shared& shared = *entry.shared;
    keys::abandon(shared.handshake);
    // A connection that comes and goes without a byte is a port scan or a health check, not a peer: no line, ever.
    const bool stranger = shared.role == keys::Role::responder && shared.hello_size == 0;
    const bool scan = stranger && shared.early_size == 0;
    shared.cut_off.store(scan ? 0 : code);
    shared.error.store(shared.role == keys::Role::responder ? ECONNRESET : code);
    shared.pending_error.store(shared.error.load());
    shared.readable.store(true);
    shared.state.store(State::failed);
}

void tell_of_cut(Process& process, Shared& shared) {
    const int code = shared.cut_off.exchange(0);
    if (code == 0) return;
    say_refused(process, shared,
                code == EPROTO ? "it closed the connection during the handshake; is it under cryptmpi, with this key, "
                                 "cipher and job? (its own output says; plaintext_peers allows a peer that is not)"
                               : std::string("lost during the handshake: ") + std::strerror(code));
    if (shared.role == keys::Role::initiator) process.expect_the_end();
}

Tcp tcp_of(int fd) {
    pollfd poll{fd, POLLOUT, 0};
    const timespec now{0, 0};
    if (real::ppoll(&poll, 1, &now, nullptr) <= 0) return Tcp::on_its_way;
    tcp_info information{};
    socklen_t size = sizeof information;
    if (real::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &information, &size) != 0) {
        // A connection that was taken for refused could be written to in clear.
        return (poll.revents & (POLLERR | POLLHUP)) != 0 ? Tcp::refused : Tcp::connected;
    }
    if (information.tcpi_state == TCP_SYN_SENT) return Tcp::on_its_way;
    return information.tcpi_state == TCP_CLOSE ? Tcp::refused : Tcp::connected;
}

int begin(Process& process, Entry& entry, keys::Role role, const Address& peer, Tcp tcp) {
    auto slot = process.arena().take(process.name());
    if (!slot) {
        process.report().complain("connection with " + peer.text() + " refused: " + slot.error().line);
        errno = slot.error().code;
        return -1;
    }
    Shared& shared = **slot;
    fill(process, shared, entry.descriptor(), role, peer, tcp);
    send_at_once(entry.descriptor(), shared);
    {
        // The courier may still hold a parcel of an earlier connection with this very descriptor, entry and slot.
        const std::lock_guard receive_guard(shared.receive_lock);
        const std::lock_guard send_guard(shared.send_lock);
        {
            const std::lock_guard holders(process.holders_lock());
            belong(entry, shared);
        }
        process.handshake_started(entry);
        if (tcp != Tcp::undecided) process.check_roads();
        if (tcp == Tcp::connected) {
            auto done = connected(process, entry);
            if (!done && done.error().code == ENOTCONN && role == keys::Role::responder) {
                // It came and went before anybody accepted it, as port scans do: no line. What it sent is not read.
                end_connection(process, entry, ECONNRESET, false);
                process.handshake_settled(entry);
                return 0;
            }
            if (!done) {
                fail_handshake(process, entry, done.error());
                process.handshake_settled(entry);
                errno = done.error().code;
                return -1;
            }
        }
    }
    rearm(entry);
    process.background().carry(entry);
    return 0;
}

Result<void> resume(Process& process, Entry& entry, Shared& shared) {
    {
        const std::lock_guard holders(process.holders_lock());
        belong(entry, shared);
        shared.holders.sign(entry.generation.load(), process.name());
    }
    if (process.carry_on(entry, shared)) process.background().carry(entry);
    return take_up(process, entry, shared);
}

Result<void> take_up(Process& process, Entry& entry, Shared& shared) {
    if (entry.contexts.load()) return {};
    const State state = shared.state.load();
    if (state != State::open && state != State::await_confirm) return {};
    const auto local = process.local();
    if (!local) return fail(local.error().code, local.error().line);
    make_contexts(process, **local, entry, shared);
    return {};
}

namespace {

/// What came of a connect: no connection at all, one that turned out to stay inside the node, or one that is sealed (or
/// still on its way).
enum class Made { nothing, native, sealed };

Made made_of(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    const Tcp tcp = tcp_of(entry.descriptor());
    if (tcp == Tcp::on_its_way) return Made::sealed;
    if (tcp == Tcp::refused) return Made::nothing;
    if (shared.undecided.load()) {
        std::string why;
        const auto peer = Address::peer_of(entry.descriptor());
        const Verdict verdict = peer ? process.policy().decide(entry.descriptor(), *peer, why) : Verdict::seal;
        if (!process.report().count(verdict, why)) {
            end_connection(process, entry, EPERM, false);
            return Made::sealed;
        }
        if (verdict == Verdict::native) keep_owner_known(entry.descriptor());
        if (verdict != Verdict::seal) return Made::native;
    }
    process.check_roads();
    if (auto done = connected(process, entry); !done) fail_handshake(process, entry, done.error());
    return Made::sealed;
}

/// There is nothing to seal. Without a connection the kernel tells the caller why, and a later connect() begins anew.
/// Under the locks of `shared`, so that no other thread comes to the same result once more. True: this process was the
/// last one that held it; another one finds out by itself.
bool let_go(Process& process, Entry& entry, Shared& shared, Kind kind) {
    if (kind == Kind::native && shared.nodelay_is_ours.load()) {
        const int off = 0;
        real::setsockopt(entry.descriptor(), IPPROTO_TCP, TCP_NODELAY, &off, sizeof off);
    }
    const std::lock_guard holders(process.holders_lock());
    const bool last = shared.holders.leave(entry.generation.load(), process.name()) == 0;
    if (kind == Kind::native) shared.stayed_inside.store(true);
    if (shared.stayed_inside.load()) entry.was_connected.store(true);
    entry.shared.store(nullptr);
    entry.kind.store(kind);
    return last;
}

/// Takes the next step, if what it needs has come. `made`: what came of the connect, if it has come to its end. Returns
/// whether another step may follow.
bool advance(Process& process, Entry& entry, Shared& shared, Made& made) {
    switch (shared.state.load()) {
        case State::tcp_connecting:
            made = made_of(process, entry);
            return made == Made::sealed && shared.state.load() != State::tcp_connecting;
        case State::await_hello:
            return read_hello_bytes(process, entry);
        // protocol: H1
        case State::await_confirm: {
            // Another process of ours may have come this far.
            if (auto resumed = take_up(process, entry, shared); !resumed) {
                fail_handshake(process, entry, resumed.error());
                return false;
            }
            return confirm(process, entry);
        }
        case State::open:
        case State::failed:
            return false;
    }
    return false;
}

/// Another process, which shares the socket, has brought the handshake to its end.
void see_settled(Process& process, Entry& entry) {
    if (!entry.handshaking.load()) return;
    process.handshake_settled(entry);
    rearm(entry);
}

}  // namespace

State drive(Process& process, Entry& entry) {
    const Use use(entry);
    if (use.shared() == nullptr) return State::failed;
    Shared& shared = *use.shared();
    State state = shared.state.load(std::memory_order_acquire);
    if (state == State::failed || (state == State::open && entry.contexts.load())) {
        see_settled(process, entry);
        return state;
    }
    if (state == State::open) {
        const auto resumed = take_up(process, entry, shared);
        if (resumed) {
            see_settled(process, entry);
            return state;
        }
        const std::lock_guard send_guard(shared.send_lock);
        if (use.is_current()) fail_handshake(process, entry, resumed.error());
        return State::failed;
    }
    // Whoever holds a lock is doing this work, or has seen the stream open and waits in a blocking read: the courier
    // must not wait with it.
    std::unique_lock receive_guard(shared.receive_lock, std::try_to_lock);
    if (!receive_guard) return state;
    std::unique_lock send_guard(shared.send_lock, std::try_to_lock);
    if (!send_guard) return state;
    if (!use.is_current()) return State::failed;
    const State before = shared.state.load();
    auto made = Made::sealed;
    while (advance(process, entry, shared, made)) {
    }
    if (made != Made::sealed) {
        const bool last = let_go(process, entry, shared, made == Made::native ? Kind::native : Kind::fresh);
        send_guard.unlock();
        receive_guard.unlock();
        process.handshake_settled(entry);
        if (last) process.arena().give_back(&shared);
        rearm(entry);
        return State::failed;
    }
    state = shared.state.load();
    if (state != State::open && state != State::failed) {
        look_at_the_clock(process, entry);
        state = shared.state.load();
    }
    if (state == State::open || state == State::failed) process.handshake_settled(entry);
    // The kernel may have ended our reading before the peer's hello was read: not earlier.
    if (state == State::open && state != before && shared.read_shut.load()) real::shutdown(entry.descriptor(), SHUT_RD);
    if (state != before) rearm(entry);
    return state;
}

void limit_the_silent(Process& process, Entry& entry) {
    const Shared* own = entry.shared.load();
    if (own == nullptr || !silent(*own)) return;
    int count = 0;
    Entry* oldest = &entry;
    std::int64_t since_ns = own->started_ns;
    for (int fd = 0; fd <= process.table().highest(); ++fd) {
        Entry* other = process.table().find_sealed(fd);
        const Shared* shared = other == nullptr ? nullptr : other->shared.load();
        if (shared == nullptr || !silent(*shared)) continue;
        ++count;
        if (shared->started_ns >= since_ns) continue;
        since_ns = shared->started_ns;
        oldest = other;
    }
    if (count <= kMostSilent) return;
    const Use use(*oldest);
    if (use.shared() == nullptr) return;
    const std::lock_guard receive_guard(use.shared()->receive_lock);
    const std::lock_guard send_guard(use.shared()->send_lock);
    if (use.is_current() && silent(*use.shared())) end_connection(process, *oldest, ECONNRESET, false);
}

namespace {

/// Why TCP did not connect, as recv() or send() would say it.
int kernel_error(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    if (real::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return EBADF;
    return error != 0 ? error : EPIPE;
}

/// Where a signal interrupts a wait, the kernel's own recv or send would go on. Which signal it was is not known: all
/// that the program has a handler for must say so. Before the wait, too: a handler may be for one signal only
/// (SA_RESETHAND), or put another one in its place.
bool handlers_restart() {
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction action {};
        // Where there is none of this number, or the C library keeps it for itself, nobody has a handler for it.
        if (sigaction(number, nullptr, &action) != 0) continue;
        const bool handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
        if (handled && (action.sa_flags & SA_RESTART) == 0) return false;
    }
    return true;
}

}  // namespace

int await_open(Process& process, Entry& entry, int flags, int timeout_option) {
    const bool waits =
        (flags & MSG_DONTWAIT) == 0 && (real::fcntl(entry.descriptor(), F_GETFL, nullptr) & O_NONBLOCK) == 0;
    timeval limit{};
    socklen_t size = sizeof limit;
    if (waits) real::getsockopt(entry.descriptor(), SOL_SOCKET, timeout_option, &limit, &size);
    const bool limited = limit.tv_sec != 0 || limit.tv_usec != 0;
    const std::int64_t until =
        now_ns() + limit.tv_sec * std::int64_t{1'000'000'000} + limit.tv_usec * std::int64_t{1000};
    Ticks ticks;
    std::optional<bool> restart;  // as it was before the wait
    for (;;) {
        const State state = drive(process, entry);
        if (state == State::open) return 0;
        if (state == State::failed) {
            Shared* shared = entry.shared.load();
            if (shared != nullptr) tell_of_cut(process, *shared);
            errno = shared == nullptr ? kernel_error(entry.descriptor()) : shared->error.load();
            return -1;
        }
        if (!waits || (limited && now_ns() >= until)) {
            errno = EAGAIN;
            return -1;
        }
        pollfd poll{entry.descriptor(), handshake_events(entry), 0};
        const timespec tick = ticks.next();
        // With a time limit the kernel does not go on, either.
        if (!restart) restart = !limited && handlers_restart();
        if (real::ppoll(&poll, 1, &tick, nullptr) >= 0) continue;
        if (errno != EINTR) return -1;
        if (!*restart || !handlers_restart()) {
            errno = EINTR;
            return -1;
        }
    }
}

// protocol: H13, R16
void end_connection(Process& process, Entry& entry, int code, bool established) {
    Shared& shared = *entry.shared;
    keys::abandon(shared.handshake);
    shared.error.store(code);
    shared.pending_error.store(code);
    shared.readable.store(true);
    shared.state.store(State::failed);
    real::shutdown(entry.descriptor(), SHUT_RDWR);
    if (established) process.expect_the_end();
}

void break_connection(Process& process, Entry& entry, int code, const std::string& line, bool established) {
    process.report().complain(line);
    end_connection(process, entry, code, established);
    if (established) process.hide_what_broke();
}

}  // namespace cryptmpi::channel
