#include "fake_kernel.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <span>
#include <string_view>
#include <utility>

#include "channel/calls.hpp"
#include "channel/process.hpp"
#include "channel/real.hpp"
#include "channel/start.hpp"
#include "keys/handshake.hpp"
#include "seal/stream.hpp"

#ifdef __SANITIZE_ADDRESS__
extern "C" void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size);
// Entries live as long as their process, and its table is mapped memory, where the check for leaks does not look.
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
    return "leak:cryptmpi::channel::Table::add\n";
}
#endif

namespace cryptmpi::channel::fake {

namespace {

/// libc's calls, whatever stands in their place for the channel.
namespace libc {
constinit real::Call<ssize_t, int, void*, size_t> read{"read"};
constinit real::Call<ssize_t, int, const void*, size_t> write{"write"};
constinit real::Call<ssize_t, int, const iovec*, int> readv{"readv"};
constinit real::Call<ssize_t, int, const iovec*, int> writev{"writev"};
constinit real::Call<ssize_t, int, void*, size_t, int, sockaddr*, socklen_t*> recvfrom{"recvfrom"};
constinit real::Call<ssize_t, int, const void*, size_t, int, const sockaddr*, socklen_t> sendto{"sendto"};
constinit real::Call<ssize_t, int, msghdr*, int> recvmsg{"recvmsg"};
constinit real::Call<ssize_t, int, const msghdr*, int> sendmsg{"sendmsg"};
constinit real::Call<int, int, int, int> socket{"socket"};
constinit real::Call<int, int, const sockaddr*, socklen_t> connect{"connect"};
constinit real::Call<int, int, sockaddr*, socklen_t*, int> accept4{"accept4"};
constinit real::Call<int, int, int> shutdown{"shutdown"};
constinit real::Call<int, int, sockaddr*, socklen_t*> getsockname{"getsockname"};
constinit real::Call<int, int, sockaddr*, socklen_t*> getpeername{"getpeername"};
constinit real::Call<int, int, int, int, void*, socklen_t*> getsockopt{"getsockopt"};
constinit real::Call<int, int, int, int, const void*, socklen_t> setsockopt{"setsockopt"};
constinit real::Call<int, int> epoll_create1{"epoll_create1"};
constinit real::Call<int, int, int, int, epoll_event*> epoll_ctl{"epoll_ctl"};
constinit real::Call<int, int, epoll_event*, int, int, const sigset_t*> epoll_pwait{"epoll_pwait"};
constinit real::Call<int, int> close{"close"};
constinit real::Call<int, int> dup{"dup"};
constinit real::Call<int, int, int, int> dup3{"dup3"};
constinit real::Call<int, int, int> dup2{"dup2"};
constinit real::Call<int, int, int, void*> fcntl{"fcntl"};
constinit real::Call<int, int, unsigned long, void*> ioctl{"ioctl"};
constinit real::Call<int, pollfd*, nfds_t, int> poll{"poll"};
constinit real::Call<int, pollfd*, nfds_t, const timespec*, const sigset_t*> ppoll{"ppoll"};
constinit real::Call<long, long, long, long, long, long, long, long> syscall{"syscall"};
constinit real::Call<int, clockid_t, timespec*> clock_gettime{"clock_gettime"};
constinit real::Call<int, useconds_t> usleep{"usleep"};
constinit real::Call<std::FILE*, int, const char*> fdopen{"fdopen"};
constinit real::Call<int, std::FILE*> fileno{"fileno"};
constinit real::Call<void, int> _exit{"_exit"};
constinit real::Call<int, pthread_mutex_t*> pthread_mutex_lock{"pthread_mutex_lock"};
constinit real::Call<int, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*> pthread_create{"pthread_create"};
constinit real::Call<int, pthread_t, void**> pthread_join{"pthread_join"};
constinit real::Call<int, int, const sockaddr*, socklen_t> bind{"bind"};
constinit real::Call<int, int, int> listen{"listen"};
}  // namespace libc

constexpr std::array<std::uint8_t, 8> kMarker{'P', 'L', 'A', 'I', 'N', 'T', 'X', 'T'};
constexpr std::size_t kUnfinished = 7;  // bytes that a marker may have begun in
constexpr std::uint64_t kMostSteps = 30'000'000;
constexpr std::int64_t kLongest_ns = 3000 * kSecond;  // that a job may take
constexpr std::int64_t kPatience_ns = 700 * kSecond;  // in which nothing moves
constexpr std::int64_t kAfterwards_ns = 100 * kSecond;
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kStackSize = 2U << 20;
#else
constexpr std::size_t kStackSize = 512U << 10;
#endif
constexpr std::uint16_t kFirstPort = 40000;  // of those that the kernel gives

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;
constexpr std::uint32_t kFlags = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;

/// The folder with the job's key.
class Folder {
public:
    Folder() : path_(std::filesystem::temp_directory_path() / ("cryptmpi-fake-" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(path_);
        write("job.key", '7');
        write("other.key", '3');
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string file(const std::string& name) const { return path_ / name; }

private:
    void write(const std::string& name, char digit) const {
        std::ofstream(file(name)) << "cryptmpi-job-key-1 " << std::string(64, digit) << "\n";
        std::filesystem::permissions(file(name),
                                     std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    }
    std::filesystem::path path_;
};

const Folder& folder() {
    static const Folder one;
    return one;
}

int open_descriptors() {
    DIR* const all = ::opendir("/proc/self/fd");
    int count = 0;
    while (::readdir(all) != nullptr) ++count;
    ::closedir(all);
    return count;
}

/// Processes that no job uses. They are never destroyed: a thread that was left in one may have its locks.
class Pool {
public:
    using Key = std::pair<int, Settings>;
    Process* take(const Key& key, bool renewed) {
        auto& idle = idle_[key];
        if (renewed || idle == nullptr) {
            auto* const process = make_process(config::Environment(key.second));
            all_.push_back(process);
            return process;
        }
        return std::exchange(idle, nullptr);
    }
    void give_back(const Key& key, Process* process) {
        auto& idle = idle_[key];
        if (idle == nullptr) {
            idle = process;
        } else {
            retire(*process);
        }
    }
    /// Its descriptors are given back, and the memory of its connections, unless a lock may still be held that lies
    /// there; what else there is of it stays.
    static void retire(Process& process, bool idle = true) {
        if (idle && process.arena().fd() >= 0) (void)!::ftruncate(process.arena().fd(), 0);
        for (int fd = 0; fd <= process.table().highest(); ++fd) {
            const Entry* entry = process.table().find(fd);
            if (entry != nullptr && entry->kind.load() == Kind::own) process.table().disown(fd);
        }
    }

private:
    std::map<Key, Process*> idle_;
    std::vector<Process*> all_;
};

Pool& pool() {
    static auto* one = new Pool;
    return *one;
}

volatile std::sig_atomic_t pipe_signals = 0;

/// Bytes that are taken from the front.
class Queue {
public:
    std::size_t size() const { return bytes_.size() - at_; }
    bool empty() const { return size() == 0; }
    const std::uint8_t* data() const { return bytes_.data() + at_; }
    void push(const std::uint8_t* from, std::size_t size) { bytes_.insert(bytes_.end(), from, from + size); }
    void pop(std::size_t size) {
        at_ += size;
        if (at_ < bytes_.size() && at_ < 65536) return;
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
        at_ = 0;
    }
    void clear() {
        bytes_.clear();
        at_ = 0;
    }

private:
    Bytes bytes_;
    std::size_t at_ = 0;
};

struct Instance;
struct Pollable;

/// A descriptor in an epoll instance.
struct Item {
    Instance* owner = nullptr;
    Pollable* target = nullptr;  // null: of the real kernel
    int fd = -1;
    epoll_event event{};
    bool linked = false;  // in the instance's list of what may be ready
};

/// An open file description.
struct Pollable {
    virtual ~Pollable() = default;
    virtual std::uint32_t mask() = 0;
    int node = 0;
    int descriptors = 1;
    std::vector<Item*> watchers;
};

struct Instance : Pollable {
    std::list<Item> items;
    std::list<Item*> ready;
    std::uint32_t mask() override;
    Item* find(int fd, const Pollable* target) {
        for (Item& item : items) {
            if (item.fd == fd && item.target == target) return &item;
        }
        return nullptr;
    }
};

/// Asks the real kernel, for what is not a fake's.
std::uint32_t real_mask(int fd, std::uint32_t events) {
    pollfd one{fd, static_cast<short>(events), 0};
    return libc::poll(&one, 1, 0) > 0 ? static_cast<std::uint32_t>(one.revents) : 0;
}

std::uint32_t ready_events(const Item& item) {
    const std::uint32_t asked = item.event.events & ~kFlags;
    if (asked == 0) return 0;  // EPOLLONESHOT has fired: not even errors
    return (item.target != nullptr ? item.target->mask() : real_mask(item.fd, asked)) & (asked | EPOLLERR | EPOLLHUP);
}

std::uint32_t Instance::mask() {
    // Who is not ready after all leaves the list, so that what comes next is news to those that watch this instance.
    while (!ready.empty() && ready_events(*ready.front()) == 0) {
        ready.front()->linked = false;
        ready.pop_front();
    }
    return ready.empty() ? 0 : kReadable;
}

void wake(Pollable& who, std::uint32_t key);

void link(Item& item) {
    if (item.linked) return;
    item.linked = true;
    item.owner->ready.push_back(&item);
    wake(*item.owner, kReadable);
}

/// Something has happened: key 0 is anything.
void wake(Pollable& who, std::uint32_t key) {
    for (Item* item : who.watchers) {
        const std::uint32_t asked = item->event.events & ~kFlags;
        if (asked != 0 && (key == 0 || (key & (asked | EPOLLERR | EPOLLHUP)) != 0)) link(*item);
    }
}

enum class Stage { fresh, listening, connecting, connected };

struct Socket : Pollable {
    World* world = nullptr;
    ino_t inode = 0;
    Stage stage = Stage::fresh;
    bool nonblocking = false;
    sockaddr_in local{};
    sockaddr_in remote{};
    Socket* peer = nullptr;
    int connection = -1;
    bool connects = false;  // or accepted
    bool released = false;  // closed
    bool dead = false;      // reset, or refused
    int error = 0;          // SO_ERROR

    // What it sent and has not arrived.
    Queue flight;
    bool send_shut = false;
    bool fin_due = false;      // behind what is in flight
    bool reset_due = false;    // the same
    bool fin_arrived = false;  // at the peer
    bool severed = false;      // cut on the wire: what it sends goes nowhere
    bool held = false;         // takes no more for a moment
    bool nospace = false;      // somebody wants to know when it does
    std::size_t greeting = 0;  // of these bytes, the first ones that are taken whole
    std::size_t passed = 0;    // bytes that came onto the wire
    Bytes seen;                // the last of them
    Bytes unit;                // of a hello or record that is not whole yet
    std::size_t units = 0;

    // What has come.
    Queue in;
    bool fin_in = false;
    bool recv_shut = false;

    // Listening.
    std::deque<Socket*> backlog;
    // What connect() tells.
    bool connect_pending = false;

    linger lingering{};
    timeval receive_limit{};
    timeval send_limit{};
    int nodelay = 0;

    /// A socket on which next to nothing was sent has room for it: a hello, and the record that ends the handshake.
    bool is_fresh(const std::uint8_t* from, std::size_t size) {
        constexpr std::size_t kPrefix = keys::kPrefixSize;
        if (passed == 0 && size >= kPrefix && std::memcmp(from, "CMPI", 4) == 0)
            greeting = keys::hello_size(from) + seal::kRecordOverhead;
        return passed + unit.size() < greeting;
    }
    std::size_t used() const { return flight.size() + unit.size() + (peer != nullptr ? peer->in.size() : 0); }
    std::size_t room() const;
    bool writable() const;
    int tcp_state() const {
        switch (stage) {
            case Stage::listening:
                return TCP_LISTEN;
            case Stage::connecting:
                return TCP_SYN_SENT;
            case Stage::fresh:
                return TCP_CLOSE;
            case Stage::connected:
                break;
        }
        if (dead || (fin_in && send_shut && fin_arrived)) return TCP_CLOSE;
        if (fin_in) return send_shut ? TCP_LAST_ACK : TCP_CLOSE_WAIT;
        if (send_shut) return fin_arrived ? TCP_FIN_WAIT2 : TCP_FIN_WAIT1;
        return TCP_ESTABLISHED;
    }
    std::uint32_t mask() override {
        if (stage == Stage::listening) return backlog.empty() ? 0 : kReadable;
        std::uint32_t result = 0;
        const bool reads_end = fin_in || recv_shut || dead;
        const bool writes_end = send_shut || dead;
        if (error != 0) result |= EPOLLERR;
        if ((reads_end && writes_end) || tcp_state() == TCP_CLOSE) result |= EPOLLHUP;
        if (reads_end) result |= kReadable | EPOLLRDHUP;
        if (stage == Stage::connecting) return result;
        if (!in.empty()) result |= kReadable;
        if (writes_end || writable()) {
            result |= kWritable;
        } else {
            nospace = true;
        }
        return result;
    }
};

/// Where the channel asks which sockets there are.
struct Netlink : Pollable {
    Bytes answer;
    std::uint32_t mask() override { return answer.empty() ? kWritable : kWritable | kReadable; }
};

struct Fiber {
    World* world = nullptr;
    int node = 0;
    int program = -1;  // a thread of the channel: -1
    std::function<void()> body;
    std::unique_ptr<std::byte[]> stack;
    ucontext_t context{};
    void* fake_stack = nullptr;   // AddressSanitizer's
    std::function<bool()> ready;  // empty: it can go on
    std::int64_t until_ns = -1;
    std::string doing;
    bool started = false;
    bool done = false;
    bool locking = false;  // it waits for a lock, which may be that of a thread that is none of ours
};

thread_local Fiber* here = nullptr;  // the fiber that runs; null: none, or another thread

std::vector<std::string>* outside_notes = nullptr;  // where there are no fibers

std::int64_t clock_ns = 1'000'000 * kSecond;  // goes on from job to job

std::vector<std::unique_ptr<std::byte[]>>& spare_stacks() {
    static auto* all = new std::vector<std::unique_ptr<std::byte[]>>;
    return *all;
}

/// Fibers that were left where they waited: what their objects own is not lost.
std::vector<std::unique_ptr<Fiber>>& left_fibers() {
    static auto* all = new std::vector<std::unique_ptr<Fiber>>;
    return *all;
}

enum class Woken { ready, late, interrupted };

bool on_loopback(const sockaddr_in& address) {
    return (ntohl(address.sin_addr.s_addr) >> 24) == 127;
}

int node_of(const sockaddr_in& address) {
    return static_cast<int>(ntohl(address.sin_addr.s_addr) & 0xff) - 1;
}

std::string text(const sockaddr_in& address) {
    char host[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
}

/// Bytes of the hello or record that begins so; 0: not known yet. What is neither is passed on as it is.
std::size_t unit_size(std::size_t number, const Bytes& beginning) {
    if (number == 0) {
        if (beginning.size() < keys::kPrefixSize) return 0;
        return std::memcmp(beginning.data(), "CMPI", 4) == 0 ? keys::hello_size(beginning.data()) : beginning.size();
    }
    if (beginning.size() < seal::kHeaderSize) return 0;
    const auto header = seal::read_header(beginning.data());
    return header ? header->size + seal::kRecordOverhead : beginning.size();
}

}  // namespace

class World {
public:
    World(Job& of, const Options& with) : job(of), options(with), random(with.seed) {}

    // Turns.

    template <class Body>
    Fiber& spawn(int node, int program, Body body) {
        auto fiber = std::make_unique<Fiber>();
        fiber->world = this;
        fiber->node = node;
        fiber->program = program;
        fiber->body = std::move(body);
        auto& spare = spare_stacks();
        if (spare.empty()) {
            fiber->stack.reset(new std::byte[kStackSize]);
        } else {
            fiber->stack = std::move(spare.back());
            spare.pop_back();
        }
        fibers.push_back(std::move(fiber));
        return *fibers.back();
    }
    static void run_fiber() {
        enter();
        Fiber* const me = here;
        me->body();
        me->done = true;
        me->body = nullptr;
        me->world->leave_for_good();
        std::abort();
    }
    static void enter() {
#ifdef __SANITIZE_ADDRESS__
        World& world = *here->world;
        __sanitizer_finish_switch_fiber(here->fake_stack, &world.main_bottom, &world.main_size);
#endif
    }
    void resume(Fiber& fiber) {
        if (!fiber.started) {
            fiber.started = true;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = kStackSize;
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, run_fiber, 0);
        }
        Process::stand_in(process(fiber.node));
        here = &fiber;
#ifdef __SANITIZE_ADDRESS__
        void* fake_stack = nullptr;
        __sanitizer_start_switch_fiber(&fake_stack, fiber.stack.get(), kStackSize);
#endif
        swapcontext(&main, &fiber.context);
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
        here = nullptr;
        Process::stand_in(nullptr);
    }
    void leave() {
        Fiber& me = *here;
        const int error = errno;
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_start_switch_fiber(&me.fake_stack, main_bottom, main_size);
#endif
        swapcontext(&me.context, &main);
        enter();
        errno = error;
    }
    void leave_for_good() {
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_start_switch_fiber(nullptr, main_bottom, main_size);
#endif
        swapcontext(&here->context, &main);
    }
    void pass() {
        here->ready = nullptr;
        here->until_ns = -1;
        leave();
    }
    /// Waits for it, or until then (-1: for ever).
    Woken wait(std::function<bool()> ready, std::int64_t until_ns, bool interruptible = true) {
        if (interruptible && options.interrupting > 0 && here->program >= 0 && below(options.interrupting) == 0)
            return Woken::interrupted;
        here->ready = ready;
        here->until_ns = until_ns;
        leave();
        here->ready = nullptr;
        return ready() ? Woken::ready : Woken::late;
    }
    std::size_t below(std::size_t end) {
        return end <= 1 ? 0 : random() % end;
    }
    Process* process(int node) {
        const auto found = processes.find(node);
        return found == processes.end() ? nullptr : found->second;
    }

    /// At the beginning of each call: its error, or 0.
    int begin(const char* name, int fd) {
        here->doing = std::string(name) + "(" + std::to_string(fd) + ")";
        clock_ns += 1000;
        if (below(3) == 0) pass();
        trace("program %d of node %d: %s\n", here->program, here->node, here->doing.c_str());
        const Call call{calls++, name, here->node, fd};
        return job.fails ? job.fails(call) : 0;
    }
    /// For who looks for a fault: what happens, in its order (CRYPTMPI_FAKE_TRACE).
    static void trace(const char* format, ...) __attribute__((format(printf, 1, 2))) {
        static const bool wanted = std::getenv("CRYPTMPI_FAKE_TRACE") != nullptr;
        if (!wanted) return;
        va_list arguments;
        va_start(arguments, format);
        std::vfprintf(stderr, format, arguments);
        va_end(arguments);
    }

    static bool can_go_on(const Fiber& fiber) {
        if (fiber.done) return false;
        return !fiber.ready || (fiber.until_ns >= 0 && clock_ns >= fiber.until_ns) || fiber.ready();
    }

    void run() {
        const std::int64_t began_ns = clock_ns;
        progress_ns = clock_ns;
        std::int64_t ended_ns = -1;
        std::vector<Fiber*> able;
        std::vector<Socket*> moving;
        int tries = 0;
        for (std::uint64_t steps = 0;; ++steps) {
            able.clear();
            moving.clear();
            bool programs = false;
            bool others = false;
            for (std::size_t i = 0; i < fibers.size(); ++i) {
                Fiber& fiber = *fibers[i];
                if (fiber.done) continue;
                (fiber.program >= 0 ? programs : others) = true;
                if (can_go_on(fiber)) able.push_back(&fiber);
            }
            for (const auto& socket : sockets) {
                if (is_moving(*socket)) moving.push_back(socket.get());
            }
            if (!programs && ended_ns < 0) ended_ns = clock_ns;
            const bool over = !programs && moving.empty() && (!others || clock_ns > ended_ns + kAfterwards_ns);
            if (over) break;
            const std::size_t choices = able.size() + moving.size();
            if (choices == 0 && waits_for_lock(tries)) continue;
            if (choices == 0 && !skip_time()) return get_stuck("for ever");
            tries = 0;
            if (choices == 0) {
                if (programs && clock_ns > progress_ns + kPatience_ns) return get_stuck("while nothing moves");
                continue;
            }
            if (steps > kMostSteps || clock_ns > began_ns + kLongest_ns) return get_stuck("longer than a job may take");
            const std::size_t choice = below(choices);
            if (choice < able.size()) {
                resume(*able[choice]);
            } else {
                move(*moving[choice - able.size()]);
            }
        }
        ending.took_ns = ended_ns - began_ns;
    }
    /// A worker, who is a thread of its own, gives a lock back at once; a fiber does not while time stands still.
    bool waits_for_lock(int& tries) {
        const bool any =
            std::any_of(fibers.begin(), fibers.end(), [](const auto& one) { return one->locking && !one->done; });
        const bool timed =
            std::any_of(fibers.begin(), fibers.end(), [](const auto& one) { return !one->done && one->until_ns >= 0; });
        if (__libc_single_threaded != 0 || !any || ++tries > (timed ? 3 : 20'000)) return false;
        libc::usleep(100);
        return true;
    }
    /// Goes on to when the first of those that wait has waited long enough. False: nobody waits so.
    bool skip_time() {
        std::int64_t next_ns = -1;
        for (const auto& fiber : fibers) {
            if (fiber->done || fiber->until_ns < 0) continue;
            if (next_ns < 0 || fiber->until_ns < next_ns) next_ns = fiber->until_ns;
        }
        if (next_ns < 0) return false;
        clock_ns = std::max(clock_ns, next_ns);
        return true;
    }
    void get_stuck(const std::string& how) {
        ending.stuck = "waits " + how + ":";
        for (const auto& fiber : fibers) {
            if (!fiber->done)
                ending.stuck += (fiber->program >= 0 ? " program " + std::to_string(fiber->program) : " a thread") +
                                " of node " + std::to_string(fiber->node) + " in " + fiber->doing + ";";
        }
    }

    // The wire.

    bool is_prompt() const {
        return !options.slow && options.most_arriving == kAll;
    }
    std::size_t limit(std::size_t most) {
        return options.random_sizes && most != kAll ? 1 + below(most) : most;
    }

    bool is_moving(const Socket& socket) const {
        if (socket.stage == Stage::connecting || socket.held) return true;
        return socket.peer != nullptr && (!socket.flight.empty() || socket.fin_due || socket.reset_due);
    }
    /// One step of what is on its way from this socket.
    void move(Socket& from) {
        progress_ns = clock_ns;
        if (from.stage == Stage::connecting) return establish(from);
        if (from.held && below(2) == 0) return release_room(from);
        if (from.peer == nullptr) return release_room(from);
        Socket& to = *from.peer;
        if (!from.flight.empty()) {
            const std::size_t size = std::min(from.flight.size(), limit(options.most_arriving));
            if (to.released || to.dead) {
                // Answered by a reset, which comes behind what was sent before it.
                from.flight.clear();
                if (!to.severed) to.reset_due = true;
                arrive_at_once(to);
                return;
            }
            trace("%zu bytes come to port %d\n", size, ntohs(to.local.sin_port));
            to.in.push(from.flight.data(), size);
            from.flight.pop(size);
            wake(to, kReadable);
            return;
        }
        if (from.fin_due) {
            from.fin_due = false;
            from.fin_arrived = true;
            if (to.released || to.dead) return;
            trace("the end comes to port %d\n", ntohs(to.local.sin_port));
            to.fin_in = true;
            wake(to, 0);
            return;
        }
        if (from.reset_due) {
            from.reset_due = false;
            if (!to.released) reset(to);
            return;
        }
        release_room(from);
    }
    void release_room(Socket& socket) {
        socket.held = false;
        if (!socket.nospace || !socket.writable()) return;
        socket.nospace = false;
        wake(socket, kWritable);
    }
    void arrive_at_once(Socket& from) {
        while (is_prompt() && from.peer != nullptr && (!from.flight.empty() || from.fin_due || from.reset_due)) {
            from.held = false;
            move(from);
        }
    }
    /// It gets a reset.
    void reset(Socket& socket) {
        if (socket.dead) return;
        trace("reset of port %d\n", ntohs(socket.local.sin_port));
        socket.error = socket.fin_in ? EPIPE : ECONNRESET;
        socket.dead = true;
        socket.flight.clear();
        socket.unit.clear();
        socket.held = false;
        if (!socket.severed) socket.fin_due = socket.reset_due = false;
        wake(socket, EPOLLERR);
        wake(socket, 0);
    }
    void sever(Socket& socket, bool resets) {
        for (Socket* one : {&socket, socket.peer}) {
            one->severed = true;
            (resets ? one->reset_due : one->fin_due) = true;
        }
    }

    /// What a program's kernel has taken.
    void put(Socket& from, const std::uint8_t* bytes, std::size_t size) {
        progress_ns = clock_ns;
        if (from.severed) {
            // Who cut it off has no socket for this any more.
            if (from.peer != nullptr && !from.dead) from.peer->reset_due = true;
            return;
        }
        look_for_clear(from, bytes, size);
        if (job.on_wire) {
            from.unit.insert(from.unit.end(), bytes, bytes + size);
            for (std::size_t whole; (whole = unit_size(from.units, from.unit)) != 0 && from.unit.size() >= whole;) {
                const auto end = from.unit.begin() + static_cast<std::ptrdiff_t>(whole);
                const Unit unit{from.connection, from.connects, from.units++, Bytes(from.unit.begin(), end)};
                from.unit.erase(from.unit.begin(), end);
                for (const Bytes& one : job.on_wire(unit)) put_on_wire(from, one.data(), one.size());
            }
        } else {
            put_on_wire(from, bytes, size);
        }
        arrive_at_once(from);
    }
    void put_on_wire(Socket& from, const std::uint8_t* bytes, std::size_t size) {
        const auto cut = job.cuts.find(from.connection);
        const bool is_cut = cut != job.cuts.end() && cut->second.there == from.connects;
        if (is_cut && from.passed + size >= cut->second.at && !from.severed) {
            from.flight.push(bytes, cut->second.at - from.passed);
            from.passed = cut->second.at;
            sever(from, cut->second.resets);
            return;
        }
        if (from.severed) return;
        from.flight.push(bytes, size);
        const auto flipped = job.flips[from.connects ? 0 : 1];
        if (from.connection == 0 && flipped && *flipped >= from.passed && *flipped < from.passed + size) {
            Bytes changed(from.flight.data(), from.flight.data() + from.flight.size());
            changed[changed.size() - size + (*flipped - from.passed)] ^= 4;
            from.flight.clear();
            from.flight.push(changed.data(), changed.size());
        }
        from.passed += size;
        ending.moved[from.connects ? 0 : 1] += size;
    }
    void look_for_clear(Socket& from, const std::uint8_t* bytes, std::size_t size) {
        if (!options.sealed || (options.clear_inside && on_loopback(from.remote))) return;
        from.seen.insert(from.seen.end(), bytes, bytes + size);
        if (is_clear(from.seen.data(), from.seen.size()))
            ending.complaints.push_back("clear bytes on the wire from node " + std::to_string(from.node) + " to " +
                                        text(from.remote));
        const std::size_t kept = std::min(from.seen.size(), kUnfinished);
        from.seen.erase(from.seen.begin(), from.seen.end() - static_cast<std::ptrdiff_t>(kept));
    }

    // Sockets.

    Socket& make_socket(int node) {
        auto socket = std::make_unique<Socket>();
        socket->world = this;
        socket->node = node;
        sockets.push_back(std::move(socket));
        return *sockets.back();
    }
    /// A descriptor for it: a real one, of a socket that is nowhere.
    int open(Pollable& what) {
        const int fd = libc::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) return fd;
        set(fd, &what);
        return fd;
    }
    void set(int fd, Pollable* what) {
        if (descriptors.size() <= static_cast<std::size_t>(fd)) descriptors.resize(static_cast<std::size_t>(fd) + 1);
        descriptors[static_cast<std::size_t>(fd)] = what;
    }
    Pollable* find(int fd) const {
        return fd >= 0 && static_cast<std::size_t>(fd) < descriptors.size() ? descriptors[static_cast<std::size_t>(fd)]
                                                                            : nullptr;
    }
    Socket* find_socket(int fd) const {
        return dynamic_cast<Socket*>(find(fd));
    }
    Instance* find_instance(int fd) const {
        return dynamic_cast<Instance*>(find(fd));
    }

    Socket* listener_at(int node, in_port_t port) const {
        for (const auto& socket : sockets) {
            if (socket->stage == Stage::listening && !socket->released && socket->node == node &&
                socket->local.sin_port == port)
                return socket.get();
        }
        return nullptr;
    }
    /// TCP's own handshake is done, or refused.
    void establish(Socket& socket) {
        const int node = on_loopback(socket.remote) ? socket.node : node_of(socket.remote);
        Socket* const listener = listener_at(node, socket.remote.sin_port);
        socket.stage = Stage::connected;
        if (listener == nullptr) {
            socket.error = ECONNREFUSED;
            socket.dead = true;
            wake(socket, EPOLLERR);
            wake(socket, 0);
            return;
        }
        Socket& other = make_socket(listener->node);
        other.stage = Stage::connected;
        other.descriptors = 0;  // until it is accepted
        other.local = socket.remote;
        other.remote = socket.local;
        if (job.translates) other.remote.sin_addr.s_addr = htonl(0xc6120909);
        socket.connects = true;
        socket.connection = other.connection = connections++;
        socket.peer = &other;
        other.peer = &socket;
        listener->backlog.push_back(&other);
        wake(*listener, kReadable);
        wake(socket, 0);
        wake(socket, kWritable);
    }
    /// The last descriptor is closed.
    void release(Pollable& what) {
        for (Item* item : std::exchange(what.watchers, {})) forget(*item);
        if (auto* instance = dynamic_cast<Instance*>(&what)) {
            while (!instance->items.empty()) forget(instance->items.front());
        }
        if (auto* socket = dynamic_cast<Socket*>(&what)) release(*socket);
    }
    void release(Socket& socket) {
        if (socket.released) return;
        socket.released = true;
        for (Socket* queued : std::exchange(socket.backlog, {})) {
            queued->reset_due = true;
            queued->released = true;
            arrive_at_once(*queued);
        }
        if (socket.stage == Stage::connecting) socket.stage = Stage::fresh;
        if (socket.peer == nullptr || socket.dead) return;
        const bool resets = !socket.in.empty() || (socket.lingering.l_onoff != 0 && socket.lingering.l_linger == 0);
        socket.in.clear();
        if (resets) {
            socket.reset_due = true;
        } else if (!socket.send_shut) {
            socket.fin_due = true;
        }
        socket.send_shut = true;
        arrive_at_once(socket);
    }
    /// Something was written to what is a descriptor of the real kernel, such as an eventfd.
    void wake_real(int fd) {
        for (const auto& file : other_files) {
            auto* const instance = dynamic_cast<Instance*>(file.get());
            if (instance == nullptr) continue;
            for (Item& item : instance->items) {
                if (item.target == nullptr && item.fd == fd) link(item);
            }
        }
    }
    void forget(Item& item) {
        Instance& owner = *item.owner;
        if (item.linked) owner.ready.remove(&item);
        if (item.target != nullptr) std::erase(item.target->watchers, &item);
        owner.items.remove_if([&](const Item& one) { return &one == &item; });
    }
    int close(int fd) {
        Pollable* const what = find(fd);
        set(fd, nullptr);
        libc::close(fd);
        if (--what->descriptors == 0) release(*what);
        return 0;
    }
    void share(int from, int to) {
        Pollable* const what = find(from);
        if (to < 0 || what == nullptr) return;
        ++what->descriptors;
        set(to, what);
    }

    /// The process of a node is gone, and the kernel closes what it had.
    void end_process(int node) {
        for (const auto& fiber : fibers) {
            if (fiber->node == node) fiber->done = true;
        }
        gone.push_back(node);
        for (int fd = 0; fd < static_cast<int>(descriptors.size()); ++fd) {
            if (find(fd) != nullptr && find(fd)->node == node) close(fd);
        }
    }

    Job& job;
    const Options& options;
    std::mt19937_64 random;
    Ending ending;
    std::map<int, Process*> processes;
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<std::unique_ptr<Socket>> sockets;
    std::vector<std::unique_ptr<Pollable>> other_files;
    std::vector<Pollable*> descriptors;
    std::vector<int> gone;  // nodes whose process has ended
    std::map<int, std::vector<std::string>> noted;
    std::uint64_t calls = 0;
    int connections = 0;
    std::uint16_t next_port = kFirstPort;
    std::int64_t progress_ns = 0;
    ucontext_t main{};
    const void* main_bottom = nullptr;
    std::size_t main_size = 0;
};

namespace {

std::size_t Socket::room() const {
    const std::size_t capacity = world->options.capacity;
    return held ? 0 : capacity - std::min(capacity, used());
}

bool Socket::writable() const {
    return !held && 3 * room() >= world->options.capacity;
}

World* world() {
    return here != nullptr ? here->world : nullptr;
}

Pollable* known(int fd) {
    return here != nullptr ? here->world->find(fd) : nullptr;
}

Socket* known_socket(int fd) {
    return dynamic_cast<Socket*>(known(fd));
}

ssize_t failed(int error) {
    errno = error;
    return -1;
}

std::int64_t limit_ns(const timeval& limit) {
    if (limit.tv_sec == 0 && limit.tv_usec == 0) return -1;
    return clock_ns + limit.tv_sec * kSecond + limit.tv_usec * 1000;
}

ssize_t broken_pipe(int flags) {
    if ((flags & MSG_NOSIGNAL) == 0) ::raise(SIGPIPE);
    return failed(EPIPE);
}

ssize_t send(Socket& socket, int fd, const std::uint8_t* from, std::size_t size, int flags, const char* name) {
    World& world = *socket.world;
    if (const int error = world.begin(name, fd)) return failed(error);
    const bool waits = !socket.nonblocking && (flags & MSG_DONTWAIT) == 0;
    const std::int64_t until_ns = limit_ns(socket.send_limit);
    std::size_t done = 0;
    for (;;) {
        if (socket.stage == Stage::fresh || socket.stage == Stage::listening) return broken_pipe(flags);
        if (socket.error != 0 || socket.send_shut || socket.dead) {
            if (done > 0) return static_cast<ssize_t>(done);
            return socket.error != 0 ? failed(std::exchange(socket.error, 0)) : broken_pipe(flags);
        }
        const std::size_t most =
            !world.options.cuts_hellos && socket.is_fresh(from, size) ? kAll : world.limit(world.options.most_sent);
        const std::size_t room = socket.stage == Stage::connected ? socket.room() : 0;
        const std::size_t now = std::min({size - done, room, most});
        if (now > 0) world.put(socket, from + done, now);
        done += now;
        if (done == size) return static_cast<ssize_t>(done);
        if (now == most) socket.held = true;
        socket.nospace = true;
        if (!waits) return done > 0 ? static_cast<ssize_t>(done) : failed(EAGAIN);
        const Woken woken = world.wait(
            [&] {
                return socket.error != 0 || socket.send_shut || socket.dead ||
                       (socket.stage != Stage::connecting && socket.room() > 0);
            },
            until_ns);
        if (woken != Woken::ready && done > 0) return static_cast<ssize_t>(done);
        if (woken == Woken::interrupted) return failed(EINTR);
        if (woken == Woken::late) return failed(EAGAIN);
    }
}

ssize_t receive(Socket& socket, int fd, std::uint8_t* to, std::size_t size, int flags, const char* name) {
    World& world = *socket.world;
    if (const int error = world.begin(name, fd)) return failed(error);
    const bool waits = !socket.nonblocking && (flags & MSG_DONTWAIT) == 0;
    const std::int64_t until_ns = limit_ns(socket.receive_limit);
    std::size_t done = 0;
    for (;;) {
        const std::size_t now = std::min(size - done, socket.in.size());
        const bool any = !socket.in.empty();
        if (now > 0) std::memcpy(to + done, socket.in.data(), now);
        if (now > 0 && (flags & MSG_PEEK) == 0) {
            world.progress_ns = clock_ns;
            socket.in.pop(now);
            if (socket.peer != nullptr && !socket.peer->held) world.release_room(*socket.peer);
        }
        done += now;
        const bool enough = (flags & MSG_WAITALL) == 0 || (flags & MSG_PEEK) != 0 || done == size;
        if (any && enough) return static_cast<ssize_t>(done);
        if (socket.error != 0 && done == 0) return failed(std::exchange(socket.error, 0));
        if (socket.error != 0 || socket.fin_in || socket.recv_shut || socket.dead) return static_cast<ssize_t>(done);
        if (socket.stage == Stage::fresh || socket.stage == Stage::listening) return failed(ENOTCONN);
        if (!waits) return done > 0 ? static_cast<ssize_t>(done) : failed(EAGAIN);
        const Woken woken = world.wait(
            [&] { return !socket.in.empty() || socket.error != 0 || socket.fin_in || socket.recv_shut || socket.dead; },
            until_ns);
        if (woken != Woken::ready && done > 0) return static_cast<ssize_t>(done);
        if (woken == Woken::interrupted) return failed(EINTR);
        if (woken == Woken::late) return failed(EAGAIN);
    }
}

Bytes gathered(std::span<const iovec> pieces) {
    Bytes all;
    for (const iovec& piece : pieces) {
        const auto* at = static_cast<const std::uint8_t*>(piece.iov_base);
        all.insert(all.end(), at, at + piece.iov_len);
    }
    return all;
}

template <class Receive>
ssize_t scattered(std::span<const iovec> pieces, const Receive& receive_into) {
    std::size_t size = 0;
    for (const iovec& piece : pieces) size += piece.iov_len;
    Bytes all(size);
    const ssize_t n = receive_into(all);
    std::size_t at = 0;
    for (const iovec& piece : pieces) {
        if (n <= 0 || at >= static_cast<std::size_t>(n)) break;
        const std::size_t now = std::min(piece.iov_len, static_cast<std::size_t>(n) - at);
        std::memcpy(piece.iov_base, all.data() + at, now);
        at += now;
    }
    return n;
}

std::span<const iovec> pieces_of(const msghdr* message) {
    return {message->msg_iov, message->msg_iovlen};
}

/// Who has a socket between these two?
void answer(World& world, Netlink& netlink, const std::uint8_t* request, std::size_t size) {
    inet_diag_req_v2 asked{};
    if (size < NLMSG_HDRLEN + sizeof asked) return;
    std::memcpy(&asked, request + NLMSG_HDRLEN, sizeof asked);
    const auto fits = [&](const Socket& socket) {
        return !socket.released && socket.node == here->node && socket.stage == Stage::connected && !socket.dead &&
               asked.sdiag_family == AF_INET && socket.local.sin_addr.s_addr == asked.id.idiag_src[0] &&
               socket.remote.sin_addr.s_addr == asked.id.idiag_dst[0] &&
               socket.local.sin_port == asked.id.idiag_sport && socket.remote.sin_port == asked.id.idiag_dport &&
               asked.id.idiag_if == 0;
    };
    const auto found =
        std::find_if(world.sockets.begin(), world.sockets.end(), [&](const auto& one) { return fits(*one); });
    nlmsghdr header{};
    Bytes body;
    const auto add = [&](const auto& what) {
        const auto* at = reinterpret_cast<const std::uint8_t*>(&what);
        body.insert(body.end(), at, at + sizeof what);
    };
    if (found == world.sockets.end()) {
        header.nlmsg_type = NLMSG_ERROR;
        nlmsgerr error{};
        error.error = -ENOENT;
        add(error);
    } else {
        header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
        inet_diag_msg message{};
        message.idiag_family = AF_INET;
        message.idiag_state = static_cast<std::uint8_t>((*found)->tcp_state());
        message.idiag_inode = static_cast<std::uint32_t>((*found)->inode);
        message.id = asked.id;
        add(message);
    }
    header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_HDRLEN + body.size());
    netlink.answer.assign(NLMSG_HDRLEN, 0);
    std::memcpy(netlink.answer.data(), &header, sizeof header);
    netlink.answer.insert(netlink.answer.end(), body.begin(), body.end());
}

ssize_t any_send(int fd, const std::uint8_t* from, std::size_t size, int flags, const char* name) {
    if (auto* netlink = dynamic_cast<Netlink*>(known(fd))) {
        answer(*world(), *netlink, from, size);
        return static_cast<ssize_t>(size);
    }
    Socket* const socket = known_socket(fd);
    return socket == nullptr ? failed(ENOTSOCK) : send(*socket, fd, from, size, flags, name);
}

ssize_t any_receive(int fd, std::uint8_t* to, std::size_t size, int flags, const char* name) {
    if (auto* netlink = dynamic_cast<Netlink*>(known(fd))) {
        const std::size_t n = std::min(size, netlink->answer.size());
        std::copy_n(netlink->answer.begin(), n, to);
        netlink->answer.clear();
        return static_cast<ssize_t>(n);
    }
    Socket* const socket = known_socket(fd);
    return socket == nullptr ? failed(ENOTSOCK) : receive(*socket, fd, to, size, flags, name);
}

// Readiness.

int poll_once(World& world, pollfd* fds, nfds_t count) {
    int ready = 0;
    for (nfds_t i = 0; i < count; ++i) {
        pollfd& one = fds[i];
        one.revents = 0;
        if (one.fd < 0) continue;
        Pollable* const what = world.find(one.fd);
        if (what != nullptr) {
            one.revents =
                static_cast<short>(what->mask() & (static_cast<unsigned short>(one.events) | POLLERR | POLLHUP));
        } else {
            libc::poll(&one, 1, 0);
        }
        if (one.revents != 0) ++ready;
    }
    return ready;
}

int poll_until(pollfd* fds, nfds_t count, std::int64_t wait_ns, const char* name) {
    World& world = *here->world;
    if (const int error = world.begin(name, count > 0 ? fds[0].fd : -1)) return static_cast<int>(failed(error));
    if (wait_ns == 0) return poll_once(world, fds, count);
    const std::int64_t until_ns = wait_ns < 0 ? -1 : clock_ns + wait_ns;
    if (const int ready = poll_once(world, fds, count)) return ready;
    int ready = 0;
    const Woken woken = world.wait([&] { return (ready = poll_once(world, fds, count)) != 0; }, until_ns);
    return woken == Woken::interrupted ? static_cast<int>(failed(EINTR)) : ready;
}

std::int64_t wait_of(const timespec* timeout) {
    return timeout == nullptr ? -1 : timeout->tv_sec * kSecond + timeout->tv_nsec;
}

std::int64_t wait_of(int milliseconds) {
    return milliseconds < 0 ? -1 : milliseconds * kMillisecond;
}

int select_until(int count, fd_set* in, fd_set* out, fd_set* exceptional, std::int64_t wait_ns, const char* name) {
    std::vector<pollfd> fds;
    for (int fd = 0; fd < count; ++fd) {
        short events = 0;
        if (in != nullptr && FD_ISSET(fd, in)) events |= POLLIN;
        if (out != nullptr && FD_ISSET(fd, out)) events |= POLLOUT;
        if (exceptional != nullptr && FD_ISSET(fd, exceptional)) events |= POLLPRI;
        if (events != 0) fds.push_back({fd, events, 0});
    }
    // A set that was not asked for is not woken by its ends.
    const auto hits = [](const pollfd& one, short asked, int means) {
        return (one.events & asked) != 0 && (one.revents & means) != 0;
    };
    const int n = poll_until(fds.data(), fds.size(), wait_ns, name);
    if (n < 0) return n;
    int bits = 0;
    for (fd_set* set : {in, out, exceptional}) {
        if (set != nullptr) FD_ZERO(set);
    }
    for (const pollfd& one : fds) {
        if (hits(one, POLLIN, POLLIN | POLLHUP | POLLERR)) FD_SET(one.fd, in), ++bits;
        if (hits(one, POLLOUT, POLLOUT | POLLERR)) FD_SET(one.fd, out), ++bits;
        if (hits(one, POLLPRI, POLLPRI)) FD_SET(one.fd, exceptional), ++bits;
    }
    return bits;
}

int collect(Instance& instance, epoll_event* events, int most) {
    int count = 0;
    std::list<Item*> again;
    while (!instance.ready.empty() && count < most) {
        Item& item = *instance.ready.front();
        instance.ready.pop_front();
        item.linked = false;
        const std::uint32_t ready = ready_events(item);
        if (ready == 0) continue;
        events[count++] = {ready, item.event.data};
        if ((item.event.events & EPOLLONESHOT) != 0) {
            item.event.events &= kFlags;
        } else if ((item.event.events & EPOLLET) == 0) {
            item.linked = true;
            again.push_back(&item);
        }
    }
    instance.ready.splice(instance.ready.end(), again);
    return count;
}

int epoll_until(int fd, epoll_event* events, int most, std::int64_t wait_ns, const char* name) {
    World& world = *here->world;
    if (const int error = world.begin(name, fd)) return static_cast<int>(failed(error));
    Instance* const instance = world.find_instance(fd);
    if (instance == nullptr || most <= 0) return static_cast<int>(failed(EINVAL));
    const std::int64_t until_ns = wait_ns < 0 ? -1 : clock_ns + wait_ns;
    if (const int n = collect(*instance, events, most); n > 0 || wait_ns == 0) return n;
    const Woken woken = world.wait([&] { return instance->mask() != 0; }, until_ns);
    if (woken == Woken::interrupted) return static_cast<int>(failed(EINTR));
    return collect(*instance, events, most);
}

int control(int epfd, int operation, int fd, epoll_event* event) {
    World& world = *here->world;
    if (const int error = world.begin("epoll_ctl", fd)) return static_cast<int>(failed(error));
    Instance* const instance = world.find_instance(epfd);
    Pollable* const target = world.find(fd);
    if (target == nullptr && libc::fcntl(fd, F_GETFD, nullptr) < 0) return -1;
    if (instance == nullptr || instance == target) return static_cast<int>(failed(EINVAL));
    Item* item = instance->find(fd, target);
    if (operation == EPOLL_CTL_ADD ? item != nullptr : item == nullptr)
        return static_cast<int>(failed(operation == EPOLL_CTL_ADD ? EEXIST : ENOENT));
    if (operation == EPOLL_CTL_DEL) {
        world.forget(*item);
        return 0;
    }
    if (item == nullptr) {
        item = &instance->items.emplace_back();
        item->owner = instance;
        item->target = target;
        item->fd = fd;
        if (target != nullptr) target->watchers.push_back(item);
    }
    item->event = *event;
    if (ready_events(*item) != 0) link(*item);
    return 0;
}

int make_instance(int flags) {
    World& world = *here->world;
    if (const int error = world.begin("epoll_create1", flags)) return static_cast<int>(failed(error));
    auto instance = std::make_unique<Instance>();
    instance->node = here->node;
    const int fd = world.open(*instance);
    world.other_files.push_back(std::move(instance));
    return fd;
}

// Sockets.

int make_socket(int family, int type, int protocol) {
    World& world = *here->world;
    if (const int error = world.begin("socket", family)) return static_cast<int>(failed(error));
    if (family == AF_NETLINK) {
        auto netlink = std::make_unique<Netlink>();
        netlink->node = here->node;
        const int fd = world.open(*netlink);
        world.other_files.push_back(std::move(netlink));
        return fd;
    }
    if (family != AF_INET || (type & 0xf) != SOCK_STREAM) return libc::socket(family, type, protocol);
    Socket& socket = world.make_socket(here->node);
    socket.nonblocking = (type & SOCK_NONBLOCK) != 0;
    const int fd = world.open(socket);
    struct stat status {};
    ::fstat(fd, &status);
    socket.inode = status.st_ino;
    return fd;
}

int connect(Socket& socket, int fd, const sockaddr* address, socklen_t size) {
    World& world = *socket.world;
    if (const int error = world.begin("connect", fd)) return static_cast<int>(failed(error));
    if (address->sa_family != AF_INET || size < sizeof(sockaddr_in)) return static_cast<int>(failed(EAFNOSUPPORT));
    const auto fails_with = [](int error) { return static_cast<int>(failed(error)); };
    if (socket.stage == Stage::connecting) return fails_with(EALREADY);
    if (socket.connect_pending) {
        socket.connect_pending = false;
        if (socket.dead) {
            socket.stage = Stage::fresh;
            socket.dead = false;
            return fails_with(socket.error != 0 ? std::exchange(socket.error, 0) : ECONNABORTED);
        }
        return 0;
    }
    if (socket.stage == Stage::connected) return fails_with(EISCONN);
    std::memcpy(&socket.remote, address, sizeof socket.remote);
    if (socket.local.sin_port == 0) {
        const std::uint16_t port = world.next_port++;
        socket.local = on_loopback(socket.remote) ? loopback(port) : fake::address(socket.node, port);
    }
    socket.stage = Stage::connecting;
    socket.connect_pending = true;
    if (world.is_prompt()) world.establish(socket);
    if (socket.nonblocking) return fails_with(EINPROGRESS);
    if (world.wait([&] { return socket.stage != Stage::connecting; }, -1) == Woken::interrupted)
        return fails_with(EINTR);
    socket.connect_pending = false;
    if (!socket.dead) return 0;
    socket.stage = Stage::fresh;
    socket.dead = false;
    return fails_with(std::exchange(socket.error, 0));
}

void tell(const sockaddr_in& from, sockaddr* to, socklen_t* size) {
    if (to == nullptr || size == nullptr) return;
    std::memcpy(to, &from, std::min<std::size_t>(*size, sizeof from));
    *size = sizeof from;
}

int accept(Socket& listener, int fd, sockaddr* address, socklen_t* size, int flags) {
    World& world = *listener.world;
    if (const int error = world.begin("accept4", fd)) return static_cast<int>(failed(error));
    if (listener.stage != Stage::listening) return static_cast<int>(failed(EINVAL));
    while (listener.backlog.empty()) {
        if (listener.nonblocking) return static_cast<int>(failed(EAGAIN));
        const Woken woken = world.wait([&] { return !listener.backlog.empty(); }, limit_ns(listener.receive_limit));
        if (woken == Woken::interrupted) return static_cast<int>(failed(EINTR));
        if (woken == Woken::late) return static_cast<int>(failed(EAGAIN));
    }
    Socket& socket = *listener.backlog.front();
    listener.backlog.pop_front();
    socket.descriptors = 1;
    socket.nonblocking = (flags & SOCK_NONBLOCK) != 0;
    const int made = world.open(socket);
    struct stat status {};
    ::fstat(made, &status);
    socket.inode = status.st_ino;
    tell(socket.remote, address, size);
    return made;
}

int shutdown(Socket& socket, int fd, int how) {
    World& world = *socket.world;
    if (const int error = world.begin("shutdown", fd)) return static_cast<int>(failed(error));
    if (how < SHUT_RD || how > SHUT_RDWR) return static_cast<int>(failed(EINVAL));
    if (socket.stage == Stage::listening && how != SHUT_WR) socket.stage = Stage::fresh;
    const bool connected = socket.stage == Stage::connected && socket.tcp_state() != TCP_CLOSE;
    if (how != SHUT_WR) socket.recv_shut = true;
    if (how != SHUT_RD && connected && !socket.send_shut) {
        socket.send_shut = socket.fin_due = true;
        world.arrive_at_once(socket);
    }
    wake(socket, 0);
    return connected ? 0 : static_cast<int>(failed(ENOTCONN));
}

template <class Value>
int give(const Value& value, void* to, socklen_t* size) {
    std::memcpy(to, &value, std::min<std::size_t>(*size, sizeof value));
    *size = static_cast<socklen_t>(std::min<std::size_t>(*size, sizeof value));
    return 0;
}

int get_option(Socket& socket, int fd, int level, int option, void* value, socklen_t* size) {
    const bool asks_state = level == IPPROTO_TCP && option == TCP_INFO;
    if (const int error = socket.world->begin(asks_state ? "getsockopt(TCP_INFO)" : "getsockopt", fd))
        return static_cast<int>(failed(error));
    if (level == IPPROTO_TCP && option == TCP_NODELAY) return give(socket.nodelay, value, size);
    if (asks_state) {
        tcp_info information{};
        information.tcpi_state = static_cast<std::uint8_t>(socket.tcp_state());
        return give(information, value, size);
    }
    if (level != SOL_SOCKET) return give(0, value, size);
    switch (option) {
        case SO_ERROR:
            return give(std::exchange(socket.error, 0), value, size);
        case SO_TYPE:
            return give(int{SOCK_STREAM}, value, size);
        case SO_DOMAIN:
            return give(int{AF_INET}, value, size);
        case SO_PROTOCOL:
            return give(int{IPPROTO_TCP}, value, size);
        case SO_ACCEPTCONN:
            return give(socket.stage == Stage::listening ? 1 : 0, value, size);
        case SO_LINGER:
            return give(socket.lingering, value, size);
        case SO_RCVTIMEO:
            return give(socket.receive_limit, value, size);
        case SO_SNDTIMEO:
            return give(socket.send_limit, value, size);
        case SO_BINDTODEVICE:
            *size = 0;
            return 0;
        default:
            return give(0, value, size);
    }
}

int set_option(Socket& socket, int fd, int level, int option, const void* value) {
    if (const int error = socket.world->begin("setsockopt", fd)) return static_cast<int>(failed(error));
    if (level == IPPROTO_TCP && option == TCP_NODELAY) std::memcpy(&socket.nodelay, value, sizeof socket.nodelay);
    if (level != SOL_SOCKET) return 0;
    if (option == SO_LINGER) std::memcpy(&socket.lingering, value, sizeof socket.lingering);
    if (option == SO_RCVTIMEO) std::memcpy(&socket.receive_limit, value, sizeof socket.receive_limit);
    if (option == SO_SNDTIMEO) std::memcpy(&socket.send_limit, value, sizeof socket.send_limit);
    return 0;
}

int control_descriptor(int fd, int command, void* argument) {
    World& world = *here->world;
    if (const int error = world.begin("fcntl", fd)) return static_cast<int>(failed(error));
    Socket* const socket = world.find_socket(fd);
    const int flags = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
    if (socket != nullptr && command == F_GETFL) return O_RDWR | (socket->nonblocking ? O_NONBLOCK : 0);
    if (socket != nullptr && command == F_SETFL) {
        socket->nonblocking = (flags & O_NONBLOCK) != 0;
        return 0;
    }
    const int result = libc::fcntl(fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) world.share(fd, result);
    return result;
}

int control_device(Socket& socket, int fd, unsigned long request, void* argument) {
    if (const int error = socket.world->begin("ioctl", fd)) return static_cast<int>(failed(error));
    if (request == FIONREAD) *static_cast<int*>(argument) = static_cast<int>(socket.in.size());
    if (request == FIONBIO) socket.nonblocking = *static_cast<int*>(argument) != 0;
    return request == FIONREAD || request == FIONBIO ? 0 : static_cast<int>(failed(ENOTTY));
}

int duplicate_to(int from, int to, int flags, const char* name) {
    World& world = *here->world;
    if (const int error = world.begin(name, from)) return static_cast<int>(failed(error));
    rlimit limit{};
    if ((flags & ~O_CLOEXEC) != 0) return static_cast<int>(failed(EINVAL));
    if (libc::fcntl(from, F_GETFD, nullptr) < 0) return -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(to) >= limit.rlim_cur)
        return static_cast<int>(failed(EBADF));
    if (world.find(to) != nullptr) {
        Pollable* const before = world.find(to);
        world.set(to, nullptr);
        if (--before->descriptors == 0) world.release(*before);
    }
    const int made = libc::dup3(from, to, flags);
    world.share(from, made);
    return made;
}

int name_of(Socket& socket, int fd, bool peer, sockaddr* address, socklen_t* size) {
    if (const int error = socket.world->begin(peer ? "getpeername" : "getsockname", fd))
        return static_cast<int>(failed(error));
    const int state = socket.tcp_state();
    if (peer && (state == TCP_CLOSE || state == TCP_SYN_SENT || state == TCP_LISTEN))
        return static_cast<int>(failed(ENOTCONN));
    sockaddr_in told = peer ? socket.remote : socket.local;
    told.sin_family = AF_INET;
    tell(told, address, size);
    return 0;
}

// stdio writes past libc's calls: its streams over a fake's descriptors are made of them instead.

std::map<std::FILE*, int>& streams() {
    static auto* all = new std::map<std::FILE*, int>;
    return *all;
}

std::FILE* open_stream(int fd, const char* mode) {
    cookie_io_functions_t functions{};
    functions.read = [](void* cookie, char* to, size_t size) {
        return real::read(static_cast<int>(reinterpret_cast<std::intptr_t>(cookie)), to, size);
    };
    functions.write = [](void* cookie, const char* from, size_t size) {
        const ssize_t n = real::write(static_cast<int>(reinterpret_cast<std::intptr_t>(cookie)), from, size);
        return n < 0 ? 0 : n;
    };
    functions.close = [](void* cookie) {
        return real::close(static_cast<int>(reinterpret_cast<std::intptr_t>(cookie)));
    };
    std::FILE* const stream = ::fopencookie(reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)), mode, functions);
    streams()[stream] = fd;
    return stream;
}

/// What the channel asks for from now on.
void install() {
    static bool installed = false;
    if (std::exchange(installed, true)) return;
    using Byte = std::uint8_t;
    real::read.replace([](int fd, void* to, size_t size) -> ssize_t {
        if (!known(fd)) return libc::read(fd, to, size);
        return size == 0 ? 0 : any_receive(fd, static_cast<Byte*>(to), size, 0, "read");
    });
    real::write.replace([](int fd, const void* from, size_t size) -> ssize_t {
        if (known(fd)) return any_send(fd, static_cast<const Byte*>(from), size, 0, "write");
        const std::string_view text(static_cast<const char*>(from), size);
        const std::string_view line = text.substr(0, text.size() - (text.ends_with('\n') ? 1 : 0));
        if (here != nullptr && fd == STDERR_FILENO && line.starts_with("cryptmpi: ")) {
            here->world->ending.said[here->node].emplace_back(line);
            return static_cast<ssize_t>(size);
        }
        if (here != nullptr && fd == STDOUT_FILENO) {
            note("%.*s", static_cast<int>(line.size()), line.data());
            return static_cast<ssize_t>(size);
        }
        if (here != nullptr) {
            const ssize_t n = libc::write(fd, from, size);
            here->world->wake_real(fd);
            return n;
        }
        return libc::write(fd, from, size);
    });
    real::readv.replace([](int fd, const iovec* pieces, int count) -> ssize_t {
        if (!known(fd) || count < 0 || count > IOV_MAX) return libc::readv(fd, pieces, count);
        return scattered({pieces, static_cast<std::size_t>(count)},
                         [&](Bytes& all) { return any_receive(fd, all.data(), all.size(), 0, "readv"); });
    });
    real::writev.replace([](int fd, const iovec* pieces, int count) -> ssize_t {
        if (!known(fd) || count < 0 || count > IOV_MAX) return libc::writev(fd, pieces, count);
        const Bytes all = gathered({pieces, static_cast<std::size_t>(count)});
        return any_send(fd, all.data(), all.size(), 0, "writev");
    });
    real::recv.replace([](int fd, void* to, size_t size, int flags) -> ssize_t {
        return known(fd) ? any_receive(fd, static_cast<Byte*>(to), size, flags, "recv")
                         : libc::recvfrom(fd, to, size, flags, nullptr, nullptr);
    });
    real::recvfrom.replace([](int fd, void* to, size_t size, int flags, sockaddr* from, socklen_t* length) -> ssize_t {
        if (!known(fd)) return libc::recvfrom(fd, to, size, flags, from, length);
        if (length != nullptr) *length = 0;
        return any_receive(fd, static_cast<Byte*>(to), size, flags, "recvfrom");
    });
    real::recvmsg.replace([](int fd, msghdr* message, int flags) -> ssize_t {
        if (!known(fd)) return libc::recvmsg(fd, message, flags);
        message->msg_namelen = 0;
        message->msg_controllen = 0;
        message->msg_flags = 0;
        return scattered(pieces_of(message),
                         [&](Bytes& all) { return any_receive(fd, all.data(), all.size(), flags, "recvmsg"); });
    });
    real::recvmmsg.replace([](int fd, mmsghdr* messages, unsigned count, int flags, timespec*) -> int {
        unsigned done = 0;
        for (; done < count; ++done) {
            const int how = (flags & ~MSG_WAITFORONE) | (done > 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0);
            const ssize_t n = real::recvmsg(fd, &messages[done].msg_hdr, how);
            if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
            messages[done].msg_len = static_cast<unsigned>(n);
        }
        return static_cast<int>(done);
    });
    real::send.replace([](int fd, const void* from, size_t size, int flags) -> ssize_t {
        return known(fd) ? any_send(fd, static_cast<const Byte*>(from), size, flags, "send")
                         : libc::sendto(fd, from, size, flags, nullptr, 0);
    });
    real::sendto.replace(
        [](int fd, const void* from, size_t size, int flags, const sockaddr* to, socklen_t length) -> ssize_t {
            return known(fd) ? any_send(fd, static_cast<const Byte*>(from), size, flags, "sendto")
                             : libc::sendto(fd, from, size, flags, to, length);
        });
    real::sendmsg.replace([](int fd, const msghdr* message, int flags) -> ssize_t {
        if (!known(fd)) return libc::sendmsg(fd, message, flags);
        const Bytes all = gathered(pieces_of(message));
        return any_send(fd, all.data(), all.size(), flags, "sendmsg");
    });
    real::sendmmsg.replace([](int fd, mmsghdr* messages, unsigned count, int flags) -> int {
        unsigned done = 0;
        for (; done < count; ++done) {
            const ssize_t n = real::sendmsg(fd, &messages[done].msg_hdr, flags);
            if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
            messages[done].msg_len = static_cast<unsigned>(n);
        }
        return static_cast<int>(done);
    });
    real::sendfile.replace([](int to, int from, off_t* offset, size_t size) -> ssize_t {
        Bytes all(size);
        const off_t at = offset != nullptr ? *offset : ::lseek(from, 0, SEEK_CUR);
        const ssize_t n = ::pread(from, all.data(), size, at);
        const ssize_t sent = n <= 0 ? n : real::send(to, all.data(), static_cast<std::size_t>(n), 0);
        if (sent > 0 && offset != nullptr) *offset = at + sent;
        if (sent > 0 && offset == nullptr) ::lseek(from, at + sent, SEEK_SET);
        return sent;
    });
    real::splice.replace([](int from, off64_t*, int to, off64_t*, size_t size, unsigned) -> ssize_t {
        Bytes all(std::min<std::size_t>(size, 65536));
        const ssize_t n = real::read(from, all.data(), all.size());
        return n <= 0 ? n : real::write(to, all.data(), static_cast<std::size_t>(n));
    });
    real::syscall.replace([](long number, long fd, long at, long size, long flags, long a, long b) -> long {
        const auto descriptor = static_cast<int>(fd);
        const auto bytes = static_cast<std::size_t>(size);
        if (number == SYS_sendto && known(descriptor))
            return any_send(descriptor, reinterpret_cast<const Byte*>(at), bytes, static_cast<int>(flags), "sendto");
        if (number == SYS_recvfrom && known(descriptor))
            return any_receive(descriptor, reinterpret_cast<Byte*>(at), bytes, static_cast<int>(flags), "recvfrom");
#ifdef SYS_poll
        if (number == SYS_poll && here != nullptr)
            return poll_until(reinterpret_cast<pollfd*>(fd), static_cast<nfds_t>(at), wait_of(static_cast<int>(size)),
                              "poll");
        if (number == SYS_epoll_wait && known(descriptor))
            return epoll_until(descriptor, reinterpret_cast<epoll_event*>(at), static_cast<int>(size),
                               wait_of(static_cast<int>(flags)), "epoll_wait");
#endif
        return libc::syscall(number, fd, at, size, flags, a, b);
    });
    real::socket.replace([](int family, int type, int protocol) {
        return here != nullptr ? make_socket(family, type, protocol) : libc::socket(family, type, protocol);
    });
    real::connect.replace([](int fd, const sockaddr* address, socklen_t size) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? connect(*socket, fd, address, size) : libc::connect(fd, address, size);
    });
    real::accept4.replace([](int fd, sockaddr* address, socklen_t* size, int flags) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? accept(*socket, fd, address, size, flags) : libc::accept4(fd, address, size, flags);
    });
    real::shutdown.replace([](int fd, int how) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? shutdown(*socket, fd, how) : libc::shutdown(fd, how);
    });
    real::getsockname.replace([](int fd, sockaddr* address, socklen_t* size) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? name_of(*socket, fd, false, address, size) : libc::getsockname(fd, address, size);
    });
    real::getpeername.replace([](int fd, sockaddr* address, socklen_t* size) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? name_of(*socket, fd, true, address, size) : libc::getpeername(fd, address, size);
    });
    real::close.replace([](int fd) {
        if (!known(fd)) return libc::close(fd);
        // It is closed also where the call says that it failed.
        const int error = world()->begin("close", fd);
        if (known(fd)) world()->close(fd);
        return error != 0 ? static_cast<int>(failed(error)) : 0;
    });
    real::close_range.replace([](unsigned first, unsigned last, int flags) {
        if ((static_cast<unsigned>(flags) & ~(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)) != 0)
            return static_cast<int>(failed(EINVAL));
        for (unsigned fd = first; here != nullptr && fd <= last && fd < here->world->descriptors.size(); ++fd) {
            if (known(static_cast<int>(fd))) world()->close(static_cast<int>(fd));
        }
        return 0;
    });
    real::dup.replace([](int fd) {
        if (!known(fd)) return libc::dup(fd);
        if (const int error = world()->begin("dup", fd)) return static_cast<int>(failed(error));
        const int made = libc::dup(fd);
        world()->share(fd, made);
        return made;
    });
    real::dup2.replace([](int from, int to) {
        if (from == to || (!known(from) && !known(to))) return libc::dup2(from, to);
        return duplicate_to(from, to, 0, "dup2");
    });
    real::dup3.replace([](int from, int to, int flags) {
        if (from == to || (!known(from) && !known(to))) return libc::dup3(from, to, flags);
        return duplicate_to(from, to, flags, "dup3");
    });
    real::fcntl.replace([](int fd, int command, void* argument) {
        return known(fd) ? control_descriptor(fd, command, argument) : libc::fcntl(fd, command, argument);
    });
    real::ioctl.replace([](int fd, unsigned long request, void* argument) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? control_device(*socket, fd, request, argument) : libc::ioctl(fd, request, argument);
    });
    real::getsockopt.replace([](int fd, int level, int option, void* value, socklen_t* size) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? get_option(*socket, fd, level, option, value, size)
                                 : libc::getsockopt(fd, level, option, value, size);
    });
    real::setsockopt.replace([](int fd, int level, int option, const void* value, socklen_t size) {
        Socket* const socket = known_socket(fd);
        return socket != nullptr ? set_option(*socket, fd, level, option, value)
                                 : libc::setsockopt(fd, level, option, value, size);
    });
    real::ppoll.replace([](pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
        return here != nullptr ? poll_until(fds, count, wait_of(timeout), "ppoll")
                               : libc::ppoll(fds, count, timeout, mask);
    });
    real::poll.replace([](pollfd* fds, nfds_t count, int timeout) {
        return here != nullptr ? poll_until(fds, count, wait_of(timeout), "poll") : libc::poll(fds, count, timeout);
    });
    real::select.replace([](int count, fd_set* in, fd_set* out, fd_set* exceptional, timeval* timeout) {
        const std::int64_t wait_ns =
            timeout == nullptr ? -1 : timeout->tv_sec * kSecond + timeout->tv_usec * std::int64_t{1000};
        return select_until(count, in, out, exceptional, wait_ns, "select");
    });
    real::pselect.replace(
        [](int count, fd_set* in, fd_set* out, fd_set* exceptional, const timespec* timeout, const sigset_t*) {
            return select_until(count, in, out, exceptional, wait_of(timeout), "pselect");
        });
    real::epoll_create1.replace(
        [](int flags) { return here != nullptr ? make_instance(flags) : libc::epoll_create1(flags); });
    real::epoll_create.replace([](int) { return here != nullptr ? make_instance(0) : libc::epoll_create1(0); });
    real::epoll_ctl.replace([](int epfd, int operation, int fd, epoll_event* event) {
        return here != nullptr ? control(epfd, operation, fd, event) : libc::epoll_ctl(epfd, operation, fd, event);
    });
    real::epoll_pwait.replace([](int epfd, epoll_event* events, int most, int timeout, const sigset_t* mask) {
        return here != nullptr ? epoll_until(epfd, events, most, wait_of(timeout), "epoll_wait")
                               : libc::epoll_pwait(epfd, events, most, timeout, mask);
    });
    real::fdopen.replace(
        [](int fd, const char* mode) { return known(fd) ? open_stream(fd, mode) : libc::fdopen(fd, mode); });
    real::fileno.replace([](std::FILE* stream) {
        const auto found = streams().find(stream);
        return found != streams().end() ? found->second : libc::fileno(stream);
    });
    real::clock_gettime.replace([](clockid_t clock, timespec* time) {
        if (here == nullptr) return libc::clock_gettime(clock, time);
        *time = {clock_ns / kSecond, clock_ns % kSecond};
        return 0;
    });
    real::usleep.replace([](useconds_t microseconds) {
        if (here == nullptr) return libc::usleep(microseconds);
        sleep_ns(std::int64_t{microseconds} * 1000);
        return 0;
    });
    real::own_thread.replace([](void* (*run)(void*), void* argument) {
        if (here == nullptr) return start_own_thread(run, argument);
        here->world->spawn(here->node, -1, [run, argument] { run(argument); });
        return true;
    });
    real::with_stack.replace([](std::size_t bytes, void* (*work)(void*), void* argument) {
        if (here == nullptr) return call_with_stack(bytes, work, argument);
        work(argument);
    });
    real::_exit.replace([](int status) {
        if (here == nullptr) return libc::_exit(status);
        here->world->ending.exits[here->node] = status;
        die();
    });
}

}  // namespace

Bytes clear(std::size_t size, int salt) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
        const bool marks = i % 16 < kMarker.size();
        bytes[i] = marks ? kMarker[i % 16] : static_cast<std::uint8_t>(i / 16 + i * 7 + static_cast<std::size_t>(salt));
    }
    return bytes;
}

bool is_clear(const std::uint8_t* bytes, std::size_t size) {
    return memmem(bytes, size, kMarker.data(), kMarker.size()) != nullptr;
}

int Ending::lines_with(const std::string& wanted, int node) const {
    std::ptrdiff_t count = 0;
    for (const auto& [of, lines] : said) {
        if (node >= 0 && of != node) continue;
        count += std::count_if(lines.begin(), lines.end(),
                               [&](const std::string& line) { return line.find(wanted) != std::string::npos; });
    }
    return static_cast<int>(count);
}

std::string Ending::told() const {
    std::string all = stuck.empty() ? "" : stuck + "\n";
    for (const auto* lines : {&complaints, &left, &noted}) {
        for (const std::string& line : *lines) all += line + "\n";
    }
    for (const auto& [node, lines] : said) {
        for (const std::string& line : lines) all += "node " + std::to_string(node) + " said: " + line + "\n";
    }
    for (const auto& [node, status] : exits)
        all += "node " + std::to_string(node) + " ended itself with " + std::to_string(status) + "\n";
    return all;
}

Job::Job(Options options) : options_(std::move(options)), world_(std::make_unique<World>(*this, options_)) {
    install();
}

Job::~Job() = default;

void Job::program(int node, std::function<void()> body) {
    programs_.emplace_back(node, std::move(body));
}

Process* Job::process(int node) {
    return world_->process(node);
}

namespace {

Settings settings_of(const Options& options, int node) {
    Settings all{{"CRYPTMPI_KEY_FILE", folder().file("job.key")},
                 {"CRYPTMPI_MODULE_FOLDER", CRYPTMPI_MODULES},
                 {"CRYPTMPI_JOB_ID", "fake"},
                 {"CRYPTMPI_SCOPE", "all"},
                 {"CRYPTMPI_LIVE", "false"},
                 {"CRYPTMPI_HANDSHAKE_TIMEOUT_S", "30"},
                 {"XDG_CONFIG_HOME", folder().file("none")}};
    for (const char* name : {"CRYPTMPI_PADDING", "CRYPTMPI_THREADS", "CRYPTMPI_INTERNAL_KEY_LIMITS"}) {
        if (const char* value = std::getenv(name)) all[name] = value;
    }
    for (const auto& [name, value] : options.settings) all[name] = value;
    if (const auto found = options.of_node.find(node); found != options.of_node.end()) {
        for (const auto& [name, value] : found->second) all[name] = value;
    }
    if (const auto found = all.find("CRYPTMPI_KEY_FILE"); found->second.find('/') == std::string::npos)
        found->second = folder().file(found->second);
    if (!options.sealed) all["CRYPTMPI_ENABLED"] = "false";
    return all;
}

/// The descriptors of the real kernel that a process has for itself.
int own_descriptors(Process& process) {
    int count = 0;
    for (int fd = 0; fd <= process.table().highest(); ++fd) {
        const Entry* entry = process.table().find(fd);
        if (entry != nullptr && entry->kind.load() == Kind::own) ++count;
    }
    return count;
}

/// What of a node's process is there that should not be, when its programs have ended.
void look_for_leftovers(Process& process, int node, std::vector<std::string>& left) {
    const std::string whose = " of node " + std::to_string(node) + " is left";
    for (int fd = 0; fd <= process.table().highest(); ++fd) {
        const Entry* entry = process.table().find(fd);
        if (entry != nullptr && entry->kind.load() != Kind::own)
            left.push_back("the entry of descriptor " + std::to_string(fd) + whose);
    }
    // The arena's, and the courier's bell, which is made when the first connection is closed.
    constexpr int kKept = 2;
    if (const int own = own_descriptors(process); own > kKept)
        left.push_back(std::to_string(own - kKept) + " descriptors of the library's own" + whose);
    constexpr std::size_t kLooks = 64;
    for (std::size_t i = 0; i < kLooks; ++i) {
        if (process.arena().slot(i) != nullptr) left.push_back("slot " + std::to_string(i) + whose);
    }
    if (process.handshakes() != 0) left.push_back("a handshake" + whose);
}

}  // namespace

Ending Job::run() {
    World& world = *world_;
    std::map<int, Settings> settings;
    for (const auto& [node, body] : programs_) {
        if (world.processes.contains(node)) continue;
        settings[node] = settings_of(options_, node);
        world.processes[node] = pool().take({node, settings[node]}, options_.renewed);
    }
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) { pipe_signals = pipe_signals + 1; };
    ::sigaction(SIGPIPE, &action, &before);
    pipe_signals = 0;
    const auto open_of_nobody = [&] {
        int count = open_descriptors();
        for (const auto& [node, process] : world.processes) count -= own_descriptors(*process);
        return count;
    };
    const int open_before = open_of_nobody();
    int number = 0;
    for (auto& [node, body] : programs_) world.spawn(node, number++, std::move(body));
    world.run();
    ::sigaction(SIGPIPE, &before, nullptr);
    Ending& ending = world.ending;
    const bool stuck = !ending.stuck.empty();
    // A thread that never ends (the pulse) keeps its process.
    std::vector<int> kept;
    for (const auto& fiber : world.fibers) {
        if (!fiber->done && fiber->program < 0) kept.push_back(fiber->node);
    }
    for (const auto& [node, process] : world.processes) {
        const auto among = [&, one = node](const std::vector<int>& nodes) {
            return std::find(nodes.begin(), nodes.end(), one) != nodes.end();
        };
        if (!among(world.gone) && !stuck) look_for_leftovers(*process, node, ending.left);
        if (among(world.gone) || among(kept) || stuck || !ending.left.empty() || options_.renewed) {
            Pool::retire(*process, !among(world.gone) && !among(kept) && !stuck);
        } else {
            pool().give_back({node, settings[node]}, process);
        }
    }
    for (int fd = 0; fd < static_cast<int>(world.descriptors.size()); ++fd) {
        if (world.find(fd) == nullptr) continue;
        if (!stuck) ending.left.push_back("descriptor " + std::to_string(fd) + " is left open");
        world.close(fd);
    }
    if (const int now = open_of_nobody(); now > open_before && !stuck && world.gone.empty())
        ending.left.push_back(std::to_string(now - open_before) + " descriptors of the real kernel are left open");
    for (auto& fiber : world.fibers) {
        if (fiber->started && fiber->body != nullptr) {
            left_fibers().push_back(std::move(fiber));
        } else {
            spare_stacks().push_back(std::move(fiber->stack));
        }
    }
    for (const auto& [program, lines] : world.noted)
        ending.noted.insert(ending.noted.end(), lines.begin(), lines.end());
    ending.calls = world.calls;
    for (const auto& socket : world.sockets) {
        if (socket->connection >= 0) ending.units[socket->connects ? 0 : 1] += socket->units;
    }
    return ending;
}

sockaddr_in address(int node, std::uint16_t port) {
    sockaddr_in result{};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    result.sin_addr.s_addr = htonl(0xc6120001U + static_cast<std::uint32_t>(node));  // 198.18.0.1
    return result;
}

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in result = address(0, port);
    result.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return result;
}

bool listen_on(int fd, std::uint16_t port) {
    if (here == nullptr) {
        const sockaddr_in at = loopback(0);
        return ::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && ::listen(fd, 8) == 0;
    }
    Socket* const socket = known_socket(fd);
    if (socket == nullptr) return false;
    socket->local = address(socket->node, port);
    socket->stage = Stage::listening;
    return true;
}

bool await_listener(const sockaddr_in& at) {
    World& world = *here->world;
    const int node = on_loopback(at) ? here->node : node_of(at);
    const auto listens = [&] { return world.listener_at(node, at.sin_port) != nullptr; };
    here->doing = "await_listener()";
    return world.wait(listens, clock_ns + kSecond, false) == Woken::ready;
}

void pass() {
    here->world->pass();
}

void sleep_ns(std::int64_t nanoseconds) {
    if (here == nullptr) {
        libc::usleep(static_cast<useconds_t>(nanoseconds / 1000));
        return;
    }
    here->doing = "sleep";
    (void)here->world->wait([] { return false; }, clock_ns + nanoseconds, false);
}

std::int64_t time_ns() {
    return clock_ns;
}

std::vector<std::string> on_linux(const std::function<void()>& body) {
    static auto* const off = make_process(
        config::Environment(Settings{{"CRYPTMPI_ENABLED", "false"}, {"XDG_CONFIG_HOME", folder().file("none")}}));
    install();
    std::vector<std::string> notes;
    outside_notes = &notes;
    Process::stand_in(off);
    body();
    Process::stand_in(nullptr);
    outside_notes = nullptr;
    return notes;
}

void note(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char line[512];
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (outside_notes != nullptr) {
        outside_notes->emplace_back(line);
    } else {
        here->world->noted[here->program].push_back("program " + std::to_string(here->program) + ": " + line);
    }
}

std::size_t below(std::size_t end) {
    return here->world->below(end);
}

std::size_t arrived(int fd) {
    const Socket* const socket = known_socket(fd);
    return socket == nullptr ? 0 : socket->in.size();
}

void deliver(int from, const Bytes& bytes) {
    Socket& to = *known_socket(from)->peer;
    to.in.push(bytes.data(), bytes.size());
    wake(to, kReadable);
}

std::size_t on_the_wire_to(int fd) {
    const Socket* const socket = known_socket(fd);
    return socket == nullptr || socket->peer == nullptr ? 0 : socket->peer->flight.size() + socket->peer->unit.size();
}

void exit_process() {
    if (Process* process = Process::made()) process->finish(Process::Ending::by_exit, end);
    die();
}

void die() {
    World& world = *here->world;
    world.end_process(here->node);
    world.leave_for_good();
    std::abort();
}

int broken_pipes() {
    return pipe_signals;
}

}  // namespace cryptmpi::channel::fake

/// A fiber that waits for a lock of another one lets it go on.
extern "C" __attribute__((visibility("default"), no_sanitize("address"))) int pthread_mutex_lock(
    pthread_mutex_t* mutex) {
    namespace fake = cryptmpi::channel::fake;
    if (fake::here == nullptr) return fake::libc::pthread_mutex_lock(mutex);
    int status = pthread_mutex_trylock(mutex);
    if (status != EBUSY) return status;
    fake::here->doing = "pthread_mutex_lock()";
    fake::here->locking = true;
    const auto gets_it = [&] {
        if (status == EBUSY) status = pthread_mutex_trylock(mutex);
        return status != EBUSY;
    };
    (void)fake::here->world->wait(gets_it, -1, false);
    fake::here->locking = false;
    return status;
}

/// Threads of the programs are fibers; those of the channel's workers, which ask for more than the default, are not.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                             void* (*run)(void*), void* argument) noexcept {
    namespace fake = cryptmpi::channel::fake;
    if (fake::here == nullptr || attributes != nullptr)
        return fake::libc::pthread_create(thread, attributes, run, argument);
    fake::Fiber& made =
        fake::here->world->spawn(fake::here->node, fake::here->program, [run, argument] { run(argument); });
    *thread = reinterpret_cast<pthread_t>(&made);
    return 0;
}
extern "C" [[gnu::visibility("default")]] int pthread_join(pthread_t thread, void** result) {
    namespace fake = cryptmpi::channel::fake;
    if (fake::here == nullptr) return fake::libc::pthread_join(thread, result);
    const auto* const fiber = reinterpret_cast<const fake::Fiber*>(thread);
    fake::here->doing = "pthread_join()";
    (void)fake::here->world->wait([fiber] { return fiber->done; }, -1, false);
    return 0;
}
extern "C" [[gnu::visibility("default")]] void _Exit(int status) noexcept {
    cryptmpi::channel::real::_exit(status);
    std::abort();
}

// The channel leaves these to libc.
extern "C" [[gnu::visibility("default")]] int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
    return cryptmpi::channel::real::getsockname(fd, address, size);
}
extern "C" [[gnu::visibility("default")]] int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
    namespace fake = cryptmpi::channel::fake;
    fake::Socket* const socket = fake::known_socket(fd);
    if (socket == nullptr) return fake::libc::bind(fd, address, size);
    std::memcpy(&socket->local, address, sizeof socket->local);
    if (socket->local.sin_port == 0) socket->local.sin_port = htons(socket->world->next_port++);
    return 0;
}
extern "C" [[gnu::visibility("default")]] int listen(int fd, int backlog) noexcept {
    namespace fake = cryptmpi::channel::fake;
    fake::Socket* const socket = fake::known_socket(fd);
    if (socket == nullptr) return fake::libc::listen(fd, backlog);
    socket->stage = fake::Stage::listening;
    return 0;
}
extern "C" [[gnu::visibility("default")]] int getpeername(int fd, sockaddr* address, socklen_t* size) noexcept {
    return cryptmpi::channel::real::getpeername(fd, address, size);
}

// No program here starts another one.
namespace cryptmpi::channel {

pid_t fork_by(const std::function<pid_t()>& call, bool) {
    return call();
}
Cloned cloned(std::uint64_t) {
    return Cloned::sharing;
}
int refuse_clone() {
    std::abort();
}
long lend_memory() {
    std::abort();
}
void take_memory_back(long) {
    std::abort();
}
int allow_unsharing(const char*) {
    std::abort();
}

}  // namespace cryptmpi::channel
