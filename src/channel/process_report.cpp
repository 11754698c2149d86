#include "channel/process_report.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "aead/registry.hpp"
#include "base/say_line.hpp"
#include "channel/address.hpp"
#include "channel/borrowing.hpp"
#include "channel/real.hpp"
#include "channel/table.hpp"
#include "programs/mpi_witness.hpp"
#include "programs/program_digest.hpp"
#include "report/own_part.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::channel {

namespace {

int open_to_read(const char* file) {
    return real::open(file, O_RDONLY | O_CLOEXEC, 0);
}

int close_file(int file) {
    return real::close(file);
}

bool mpi_says(std::string_view what) {
    return programs::mpi_says(what, open_to_read, close_file);
}

/// No handler of the program's runs in this thread meanwhile: it may fork, or end the process, and would wait for ever
/// for a lock that this thread has. What a limit on files (ulimit -f) sends for a part that is too long is no signal to
/// the program either.
class WithoutSignals {
public:
    WithoutSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
        was_too_long_ = is_too_long();
    }
    ~WithoutSignals() {
        const int saved = errno;
        sigset_t too_long;
        sigemptyset(&too_long);
        sigaddset(&too_long, SIGXFSZ);
        const timespec at_once{};
        if (!was_too_long_ && is_too_long()) sigtimedwait(&too_long, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = saved;
    }
    WithoutSignals(const WithoutSignals&) = delete;
    WithoutSignals& operator=(const WithoutSignals&) = delete;

private:
    static bool is_too_long() {
        sigset_t pending;
        return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    }

    sigset_t before_{};
    bool was_too_long_ = false;
};

/// In a child of vfork. The thread that has the lock may have ended with the parent, whose memory it is: who waits for
/// it without an end would never come to it.
bool lock_in_time(std::unique_lock<std::mutex>& lock) {
    constexpr auto kPatience = std::chrono::seconds(10);
    constexpr timespec kPause{0, 1'000'000};
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!lock.try_lock()) {
        if (std::chrono::steady_clock::now() > until) return false;
        real::ppoll(nullptr, 0, &kPause, nullptr);
    }
    return true;
}

}  // namespace

ProcessReport::ProcessReport(std::string name, const config::Settings& settings, const Table& table,
                             const std::atomic<bool>& finishing, Key key)
    : name_(std::move(name)), settings_(settings), table_(table), finishing_(finishing), key_(std::move(key)) {}

void ProcessReport::begin(const config::Environment& environment, const config::Process& process,
                          const std::string& host) {
    const config::Layer layer = settings_.layer;
    part_.layer = config::name_of(layer == config::Layer::automatic ? config::Layer::channel : layer);
    part_.library = "channel";
    report::tell_process(part_, environment, settings_, process, host);
    report::tell_rank(part_, process);
    part_.padding = settings_.padding.name();
    part_.scope = settings_.loopback_sealed() ? "all" : "between-nodes";
    part_.ended = false;
    has_rank_ = process.rank.has_value();
    begun_ = true;
}

void ProcessReport::remove_leftovers() const {
    if (settings_.live) report::Live::remove_leftovers(report::own_live_folders());
}

void ProcessReport::tell_of_keys(const ModuleNames& by, const std::string& member) {
    const std::lock_guard guard(lock_);
    part_.module = by.cipher;
    part_.handshake_module = by.handshakes;
    part_.kem_module = by.kem;
    part_.member = member;
    live_.describe(part_);
}

void ProcessReport::complain(const std::string& line) {
    {
        const std::lock_guard guard(lock_);
        part_.errors.push_back(line);
        show(Show::if_they_see);
    }
    say(line);
}

void ProcessReport::complain_once(const std::string& topic, const std::string& line) {
    {
        const std::lock_guard guard(lock_);
        if (!said_.emplace(topic, true).second) return;
    }
    complain(line);
}

void ProcessReport::note_once(const std::string& topic, const std::string& line) {
    {
        const std::lock_guard guard(lock_);
        if (!said_.emplace(topic, true).second) return;
    }
    say("note: " + line);
}

void ProcessReport::tell_of_refused(const std::string& road, const std::string& line) {
    {
        const std::lock_guard guard(lock_);
        if (!said_.emplace(road, true).second) return;
        part_.refused_roads.push_back(road);
        show(Show::if_they_see);
    }
    say(line);
}

void ProcessReport::tell_of_abort() {
    {
        const std::lock_guard guard(lock_);
        if (part_.role != "rank" || std::exchange(part_.mpi_aborted, true)) return;
    }
    report_early();
}

void ProcessReport::tell_of_spawned(int ranks) {
    const std::lock_guard guard(lock_);
    part_.spawned += ranks;
}

void ProcessReport::count_native() {
    const std::lock_guard guard(lock_);
    ++part_.native_connections;
    show(Show::from_now_on);
}

bool ProcessReport::count_unsealed(const std::string& why, bool allowed) {
    {
        const std::lock_guard guard(lock_);
        auto& [entry, told] = unsealed_[why];
        entry.reason = why;
        entry.allowed = allowed;
        ++entry.connections;
        show(Show::from_now_on);
        if (told) return true;
    }
    const auto written = report_before_it_happens();
    {
        const std::lock_guard guard(lock_);
        auto& [entry, told] = unsealed_[why];
        told = told || written;
        if (written) return true;
        if (--entry.connections == 0) unsealed_.erase(why);
    }
    tell_of_refused("in clear, without a report: " + why,
                    fmt::format("{}: refused, because the job's report has to name it and cannot: {}. Let this process "
                                "write there (its user, root and limits), or set report_file to another place",
                                why, written.error().line));
    return false;
}

bool ProcessReport::count(Verdict verdict, const std::string& why) {
    if (verdict == Verdict::native) count_native();
    return verdict != Verdict::plaintext || count_unsealed(why, true);
}

void ProcessReport::count_sealed(const char* member) {
    const std::lock_guard guard(lock_);
    ++part_.sealed_connections;
    if (*member != '\0') part_.peer_members.insert(member);
    traffic_.connection();
}

void ProcessReport::count_refused_handshake() {
    const std::lock_guard guard(lock_);
    ++part_.refused_handshakes;
    show(Show::from_now_on);
}

void ProcessReport::count_failed_open() {
    {
        const std::lock_guard guard(lock_);
        ++part_.failed_opens;
        show(Show::from_now_on);
    }
    report_early();
}

void ProcessReport::add(const seal::StreamCounters& sent, const seal::StreamCounters& received) {
    const std::lock_guard guard(lock_);
    part_.sealed_bytes_sent += sent.bytes;
    part_.sealed_records_sent += sent.records;
    part_.sealed_bytes_received += received.bytes;
    part_.sealed_records_received += received.records;
    part_.padding_bytes_sent += sent.padding;
    part_.padding_bytes_received += received.padding;
    part_.rekeys += sent.rekeys + received.rekeys;
}

void ProcessReport::go_live() {
    const std::lock_guard guard(lock_);
    show(Show::from_now_on);
}

bool ProcessReport::mpi_was_there() const {
    return mpi_before_fork_ || (has_rank_ && mpi_says("Initialized"));
}

void ProcessReport::lock() {
    writing_lock_.lock();
    lock_.lock();
}

void ProcessReport::unlock() {
    lock_.unlock();
    writing_lock_.unlock();
}

void ProcessReport::after_fork_in_child(bool mpi) {
    mpi_before_fork_ = mpi;
    live_.after_fork_in_child();
    const std::lock_guard guard(lock_);
    part_.pid = getpid();
    part_.pid_namespace = report::own_pid_namespace();
    part_.image = report::new_image();
    part_.began = report::seconds_now();
    part_.ended = part_.mpi_initialized = false;  // the parent may fork in a destructor, after its end
    part_.mpi_finalized = true;
    part_.program_sha256.clear();
    part_.sealed_connections = part_.native_connections = 0;
    part_.sealed_bytes_sent = part_.sealed_bytes_received = 0;
    part_.sealed_records_sent = part_.sealed_records_received = 0;
    part_.rekeys = part_.failed_opens = part_.refused_handshakes = 0;
    part_.spawned = 0;
    records_by_workers_.store(0);
    part_.errors.clear();
    part_.refused_roads.clear();
    unsealed_.clear();
}

void ProcessReport::finish() {
    live_.withdraw();
    if (settings_.report_file.empty()) return;
    // Asked here alone: the part may be written again when MPI's own library has ended.
    const bool mpi = settings_.enabled && has_rank_ && !mpi_before_fork_ && mpi_says("Initialized");
    const bool finalized = !mpi || mpi_says("Finalized");
    // A layer above tells which program its rank ran.
    const std::string digest = mpi && !settings_.seals_above_sockets() ? program_digest() : "";
    {
        const std::lock_guard guard(lock_);
        part_.mpi_initialized = mpi;
        part_.mpi_finalized = finalized;
        part_.program_sha256 = digest;
        part_.ended = true;
    }
    if (const auto written = write_part(Wait::yes); !written) complain(written.error().line);
}

void ProcessReport::say(const std::string& line) {
    const int saved = errno;
    // Where that is a socket which leads out, the line would go there in clear, into a sealed stream at that.
    const Entry* const entry = table_.find(STDERR_FILENO);
    const bool stays = entry == nullptr || entry->kind.load() == Kind::native;
    if (is_borrower() ? !is_internet_socket(STDERR_FILENO) : stays) say_line(real::write, STDERR_FILENO, name_, line);
    report_early();
    errno = saved;
}

void ProcessReport::report_early() {
    if (!begun_) return;  // before the settings are read there is no part
    bool ended = false;
    {
        const std::lock_guard guard(lock_);
        ended = part_.ended;
    }
    // What is told before the end is written at the end. After it, nothing else would write it.
    if (ended || !finishing_.load()) (void)write_part(ended ? Wait::yes : Wait::no);
}

Result<void> ProcessReport::report_before_it_happens() {
    if (!begun_ || settings_.report_file.empty()) return {};
    // In another root, or behind another mount, there may be a place with this name that the job's report never reads.
    const report::KnownFolder known = report::known_folder(part_);
    if (auto read = report::check_place(settings_.report_file, known); !read) return read;
    if (auto written = write_part(Wait::yes); !written) return written;
    return report::check_place(settings_.report_file, known);
}

Result<void> ProcessReport::write_part(Wait wait) {
    if (settings_.report_file.empty()) return {};
    const WithoutSignals quiet;
    // One at a time, and the last one stays.
    std::unique_lock writing(writing_lock_, std::defer_lock);
    if (wait == Wait::no) {
        // Who has an error to tell may hold locks of a connection, and what goes wrong here would come back.
        if (!writing.try_lock()) return {};
    } else if (getpid() == part_.pid) {
        writing.lock();
    } else if (!lock_in_time(writing)) {
        return fail(ETIMEDOUT, "no part of the report: another thread of the parent's is still writing it");
    }
    const auto part = whole_part();
    if (!part) return {};
    const auto key = key_();
    if (!key) return fail(key.error().code, "no part of the report: " + key.error().line);
    return report::write_part(settings_.report_file, *part, [&](auto text) { return key->sign(text); });
}

std::optional<report::Part> ProcessReport::whole_part() {
    const std::lock_guard guard(lock_);
    if (is_idle()) return std::nullopt;
    report::Part part = part_;
    part.records_by_workers = records_by_workers_.load();
    for (const auto& [reason, unsealed] : unsealed_) part.not_sealed.push_back(unsealed.entry);
    return part;
}

bool ProcessReport::is_idle() const {
    // The shells and tools of a job that never spoke to anybody are not worth a page each, also not those that a
    // launcher started in a rank's place.
    const bool spoke = part_.sealed_connections + part_.native_connections + part_.refused_handshakes > 0;
    // The ranks that a process has spawned are missed by what it says of them alone.
    const bool spawned = part_.spawned > 0;
    const bool idle = part_.role == "process" || (part_.role == "rank" && !part_.mpi_initialized && !part_.mpi_aborted);
    return idle && !spoke && !spawned && unsealed_.empty() && part_.errors.empty() && part_.refused_roads.empty();
}

std::string ProcessReport::program_digest() const {
    const auto kex = aead::load_sha256(settings_.module_folder);
    return kex ? programs::program_digest(*kex->api->kex, open_to_read, close_file) : "";
}

void ProcessReport::show(Show when) {
    // Before the settings are read there is nothing to show, and a child of vfork is not us.
    if (!begun_ || !settings_.enabled || !settings_.live || finishing_.load() || getpid() != part_.pid) return;
    // Whether somebody can look at it is nothing that a job depends on.
    if (when == Show::from_now_on) (void)live_.publish(report::own_live_folders(), part_);
    std::uint64_t unsealed = 0;
    for (const auto& [why, one] : unsealed_) unsealed += one.entry.connections;
    live_.tell(part_, unsealed);
}

}  // namespace cryptmpi::channel
