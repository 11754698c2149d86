#include "channel/process.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/exit_status.hpp"
#include "base/last_words.hpp"
#include "base/network_devices.hpp"
#include "base/own_names.hpp"
#include "channel/clock.hpp"
#include "channel/datagrams.hpp"
#include "channel/descriptors.hpp"
#include "channel/epoll.hpp"
#include "channel/go_libraries.hpp"
#include "channel/real.hpp"
#include "config/checkpoint.hpp"
#include "config/other_process.hpp"
#include "engine/node_ranks.hpp"
#include "engine/rank_threads.hpp"

namespace cryptmpi::channel {

namespace {

// Of a rank, the caller among them. Two records are sealed while the kernel takes two; more threads would wait for it.
constexpr std::size_t kMostThreads = 4;

/// Finding and loading modules, reading keys: measured, half of this.
constexpr std::size_t kStackToStart = 64 << 10;

/// The end that nobody may miss: the launcher has had its time to end the job.
void* wait_for_the_end(void* of) {
    auto& process = *static_cast<Process*>(of);
    const auto left = process.settings().abort_after.count();
    const timespec wait{left / 1000, left % 1000 * 1'000'000};
    real::ppoll(nullptr, 0, &wait, nullptr);  // all signals are blocked
    process.report().complain("ending this rank: a connection broke (abort_after_s sets how long it waits)");
    process.finish(Process::Ending::after_failure, nullptr);
    let_be_read(STDERR_FILENO);
    // Hydra lets the other ranks of one that exits wait for it for ever; not of one that a signal ends. This one leaves
    // no core file.
    if (getenv("PMI_FD") != nullptr) kill(getpid(), SIGKILL);
    real::_exit(kExitRefused);
    return nullptr;
}

}  // namespace

std::atomic<Process*> Process::made_{nullptr};

Process::Process(const config::Environment& environment, const MakeBackground& make_background)
    : background_(make_background(*this)),
      pid_(getpid()),
      name_(name_of_this_process()),
      host_(host_name()),
      identity_(config::identify(environment)),
      openmp_threads_(config::openmp_threads(environment)),
      report_(identity_.name_on(host_), settings_, table_, finished_, [this] { return report_key(); }) {
    auto loaded = config::load_unless_checkpointed(environment);
    if (!loaded) {
        report_.complain(loaded.error().line);
        real::_exit(kExitRefused);
    }
    settings_ = std::move(*loaded);
    if (enabled() && settings_.layer == config::Layer::automatic && settings_.passive_only()) {
        report_.complain(
            settings_.key_distribution_where + ": " + std::string(config::name_of(settings_.key_distribution)) +
            " is for the MPI layer only, and this process runs under the channel layer: set layer = \"mpi\"");
        real::_exit(kExitRefused);
    }
    seals_plainly_below_ = settings_.padding.is_on() ? 0 : kWorthSharing;
    roads_open_ = settings_.roads_open() && !config::is_of_launcher(environment);
    policy_ = std::make_unique<Policy>(settings_, environment);
    covering_ = std::make_unique<Covering>(settings_, environment);
    // Ranks that MPI_Comm_spawn asks for are started by the launcher's processes, with their environment.
    const bool is_launcher = config::is_of_launcher(environment) && !identity_.rank;
    doors_ = std::make_unique<Doors>(settings_.doors_open() && !is_launcher);
    report_.begin(environment, identity_, host_);
}

Result<const keys::Local*> Process::local() {
    if (local_ready_.load(std::memory_order_acquire)) return &local_;
    const std::lock_guard guard(local_lock_);
    if (local_ready_.load()) return &local_;
    struct {
        Process& process;
        Result<void> done;
    } call{*this, {}};
    // A thread of the program may have as little as PTHREAD_STACK_MIN.
    const auto make = [](void* of) -> void* {
        auto& that = *static_cast<decltype(call)*>(of);
        that.done = that.process.make_local();
        return nullptr;
    };
    real::with_stack(kStackToStart, make, &call);
    if (!call.done) return fail(call.done.error().code, call.done.error().line);
    local_ready_.store(true, std::memory_order_release);
    return &local_;
}

Result<void> Process::make_local() {
    auto module = aead::choose(settings_.module_folder, settings_.module, settings_.suite);
    if (!module) return fail(ENOPKG, module.error().line);
    auto kex = aead::load_kex(settings_.module_folder, settings_.module);
    if (!kex) return fail(ENOPKG, kex.error().line);
    ModuleNames by = {module->full_name(), kex->full_name(), {}};
    auto ring = keys::KeyRing::read(*kex->api->kex, settings_.key_file, settings_.key_readers(), settings_.key_id);
    if (!ring) return fail(ENOKEY, ring.error().line);
    ring_ = std::move(*ring);
    if (settings_.require_members) {
        auto members = keys::Membership::read(*kex->api->kex, settings_.member_key_file, settings_.member_list);
        if (!members) return fail(ENOKEY, members.error().line);
        members_ = std::move(*members);
        local_.members = members_.get();
    }
    if (settings_.hybrid()) {
        auto kem = aead::load_kem(settings_.module_folder);
        if (!kem) return fail(ENOPKG, settings_.key_exchange_where + ": " + kem.error().line);
        local_.kem = kem->kem;
        by.kem = kem->full_name();
    }
    workers_ = engine::Workers(workers());
    local_.crypto = {module->api->aead, kex->api->kex, settings_.suite, workers_.threads()};
    local_.crypto.lowered = {settings_.key_records, settings_.key_bytes};
    local_.crypto.age.most = settings_.rekey_after;
    local_.crypto.watched = report_.counter();
    local_.hello_aead = kex->api->aead;
    local_.job_key = &ring_->own();
    local_.ring = ring_.get();
    local_.check_addresses = settings_.check_addresses;
    const iovec id{settings_.job_id.data(), settings_.job_id.size()};
    if (kex->api->kex->sha256(job_hash_, &id, 1) != CRYPTMPI_OK) return fail(EIO, "SHA-256 failed");
    report_.tell_of_keys(by, members_ ? members_->own_name() : "");
    return {};
}

engine::Workers::Settings Process::workers() const {
    // A layer above has workers of its own, or seals by the thread that sends, for the same bytes.
    if (settings_.seals_above_sockets()) return {};
    const int node_ranks = identity_.node_ranks.value_or(identity_.ranks.value_or(0));
    auto made = engine::workers_without_mpi(settings_.threads, engine::program_threads(openmp_threads_, false),
                                            node_ranks, engine::HardwareThreads::of_thread(pid_), config::may_be_rank);
    made.threads = std::min(made.threads, kMostThreads);
    return made;
}

void Process::self(keys::Identity& identity) const {
    std::memcpy(identity.job, job_hash_, sizeof identity.job);
    std::strncpy(identity.node, host_.c_str(), sizeof identity.node - 1);
    const auto pid = static_cast<std::uint32_t>(pid_);
    for (int i = 0; i < 4; ++i) identity.process[i] = static_cast<std::uint8_t>(pid >> (8 * i));
}

bool Process::is_me() const {
    return getpid() == pid_;
}

bool Process::guard_datagrams(int fd) {
    if (roads_open_ || keep_strangers_out(fd, settings_.plaintext_peers)) return true;
    report_.tell_of_refused("datagrams",
                            std::string("datagram sockets are refused: this system cannot keep out of them what others "
                                        "send (SO_ATTACH_FILTER, SO_LOCK_FILTER: ") +
                                std::strerror(errno) + "); set the MPI's transport to tcp");
    return false;
}

std::optional<Kind> Process::kind_of_foreign(int fd) {
    const int family = option_of(fd, SO_DOMAIN);
    if (family < 0) return std::nullopt;
    const int type = option_of(fd, SO_TYPE);
    if (!roads_open_ && Policy::refuse_socket(family, type, option_of(fd, SO_PROTOCOL))) return Kind::foreign;
    if ((family != AF_INET && family != AF_INET6) || type == SOCK_STREAM) return std::nullopt;
    return guard_datagrams(fd) ? Kind::datagram : Kind::foreign;
}

void Process::handshake_started(Entry& entry) {
    if (!entry.handshaking.exchange(true)) handshakes_.fetch_add(1);
}

bool Process::carry_on(Entry& entry, const Shared& shared) {
    const bool shaking = channel::handshaking(entry);
    if (shaking) handshake_started(entry);
    const bool closing = shared.write_closed.load() && shared.sending.closed == 0;
    if (shared.owing.load() || closing) background_->carry(entry);
    return shaking;
}

void Process::handshake_settled(Entry& entry) {
    if (entry.handshaking.exchange(false)) handshakes_.fetch_sub(1);
}

void Process::expect_the_end() {
    if (!is_rank() || settings_.abort_after.count() <= 0 || finished_.load() || ending_.exchange(true)) return;
    if (!real::own_thread(wait_for_the_end, this)) {
        report_.complain("cannot start the thread that ends a rank whose connection broke");
        real::_exit(kExitRefused);
    }
}

void Process::reads_in_vain() {
    if (identity_.role != "launcher") return;
    report_.complain(
        "a process of the launcher reads on and on from a connection that has failed: it is ended, and the job with "
        "it");
    real::_exit(kExitRefused);
}

void Process::stay_until_the_end() const {
    const timespec second{1, 0};
    while (hides_.load(std::memory_order_relaxed) && !finished_.load()) real::ppoll(nullptr, 0, &second, nullptr);
}

void Process::check_roads() {
    if (roads_open_ || roads_checked_.exchange(true)) return;
    std::string device;
    each_descriptor([&](int fd) {
        char path[PATH_MAX] = {};
        const std::string link = fmt::format("/proc/self/fd/{}", fd);
        const ssize_t n = readlink(link.c_str(), path, sizeof path - 1);
        if (n <= 0) return;
        const std::string file(path, static_cast<std::size_t>(n));
        if (is_network_device(file) && !doors_->has_opened(file)) device = file;
        // Of a liburing that the program has inside, which no call of ours could refuse.
        if (file == "anon_inode:[io_uring]") device = "io_uring";
    });
    if (device.empty()) return;
    report_.complain(
        "the program or its MPI uses " + device +
        ", around the sealed streams; the job is stopped. Set UCX_TLS=tcp,self,sm, FI_PROVIDER=tcp, --mca btl "
        "tcp,self,vader, or switch io_uring off");
    finish(Ending::after_failure, nullptr);
    real::_exit(kExitRefused);
}

void Process::hold_key() {
    // What is wrong with it is said where it is needed.
    if (settings_.enabled && identity_.rank && !settings_.key_id.empty()) (void)local();
}

pid_t Process::fork(const std::function<pid_t()>& call) {
    const bool mpi = report_.mpi_was_there();
    const auto pause = background_->pause();
    local_lock_.lock();  // under which local() tells the report something
    report_.lock();
    doors_->lock();
    if (ring_) ring_->lock();
    arena_.lock();
    const pid_t pid = [&call] {
        const NoLook locked;
        return call();
    }();
    arena_.unlock();
    if (ring_) ring_->unlock();
    doors_->unlock();
    report_.unlock();
    local_lock_.unlock();
    if (pid == 0) become_child(mpi);
    return pid;
}

void Process::become_child(bool mpi) {
    pid_ = getpid();
    name_ = name_of_this_process();
    handshakes_.store(0);
    ending_.store(false);    // the thread that does it stays with the parent
    finished_.store(false);  // which may fork in a destructor, after its end
    hides_.store(false);
    background_->after_fork_in_child();
    workers_ = engine::Workers();  // the threads stay with the parent
    report_.after_fork_in_child(mpi);
    // Contexts are made anew, with counters at zero, if the child uses them.
    for (int fd = 0; fd <= table_.highest(); ++fd) {
        // What it guards changes under the locks of instances only, which were held.
        if (Entry* any = table_.find(fd); any != nullptr) new (&any->registrations_lock) std::mutex;
        Entry* entry = table_.find_sealed(fd);
        if (entry == nullptr) continue;
        entry->users.store(0);
        entry->contexts.store(false);
        entry->errors_told.store(0);
        entry->sealer.reset();
        entry->opener.reset();
        entry->handshaking.store(false);
    }
    // Then once for each connection, of which a descriptor may be the second: it would be counted again.
    for (int fd = 0; fd <= table_.highest(); ++fd) {
        Entry* entry = table_.find_sealed(fd);
        if (entry == nullptr || entry->descriptor() != fd) continue;
        // The parent brings a handshake to its end, or the child when it writes: a courier of a child that is about to
        // exec would take its count of the connection with it.
        if (const Shared* const shared = entry->shared.load(); shared != nullptr) (void)carry_on(*entry, *shared);
    }
}

void Process::finish(Ending how, End end) {
    if (!is_me() || finished_.exchange(true)) return;
    finishing_since_ns_ = now_ns();
    if (how != Ending::at_once) (void)std::fflush(nullptr);  // libc would only do it after us
    const auto pause = background_->pause();
    for (int fd = 0; fd <= table_.highest(); ++fd) {
        // Other libraries' destructors run after this: what they still write must not go out in clear.
        Entry* entry = table_.find_sealed(fd);
        if (entry == nullptr) continue;
        if (end != nullptr) {
            (void)end(*this, *entry);
        } else {
            if (entry->sealer && entry->opener) report_.add(entry->sealer->counters(), entry->opener->counters());
            entry->kind.store(Kind::ended);
        }
    }
    if (enabled()) look_for_go(report_, *covering_);
    report_.finish();
}

Result<keys::ReportKey> Process::report_key() const {
    const NoLook locked;
    if (local_ready_.load(std::memory_order_acquire)) return keys::ReportKey::derive(*local_.crypto.kex, ring_->own());
    // It never came to a handshake.
    auto kex = aead::load_kex(settings_.module_folder, settings_.module);
    if (!kex) return tl::unexpected<Error>(kex.error());
    auto ring = keys::KeyRing::read(*kex->api->kex, settings_.key_file, settings_.key_readers(), settings_.key_id);
    if (!ring) return tl::unexpected<Error>(ring.error());
    return keys::ReportKey::derive(*kex->api->kex, (*ring)->own());
}

}  // namespace cryptmpi::channel
