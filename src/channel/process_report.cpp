#include "channel/process_report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "aead/registry.hpp"
#include "base/say_line.hpp"
#include "channel/real.hpp"
#include "channel/table.hpp"
#include "programs/mpi_witness.hpp"
#include "programs/program_digest.hpp"
#include "report/own_part.hpp"

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

void ProcessReport::count_unsealed(const std::string& why, bool allowed) {
    bool first = false;
    {
        const std::lock_guard guard(lock_);
        auto& unsealed = unsealed_[why];
        first = unsealed.connections == 0;
        unsealed.reason = why;
        unsealed.allowed = allowed;
        ++unsealed.connections;
        show(Show::from_now_on);
    }
    if (first) report_early();
}

void ProcessReport::count(Verdict verdict, const std::string& why) {
    if (verdict == Verdict::native) count_native();
    if (verdict == Verdict::plaintext) count_unsealed(why, true);
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
    part_.began = report::seconds_now();
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
    write_part(true);
}

void ProcessReport::say(const std::string& line) {
    const int saved = errno;
    // Where that is a socket which leads out, the line would go there in clear, into a sealed stream at that.
    const Entry* const entry = table_.find(STDERR_FILENO);
    if (entry == nullptr || entry->kind.load() == Kind::native) say_line(real::write, STDERR_FILENO, name_, line);
    report_early();
    errno = saved;
}

void ProcessReport::report_early() {
    // In a child of vfork it is the parent's part. Before the settings are read there is none.
    if (begun_ && !finishing_.load()) write_part(false);
}

void ProcessReport::write_part(bool ended) {
    if (settings_.report_file.empty()) return;
    // One at a time, and the last one stays. What goes wrong with an early one would come back here.
    std::unique_lock writing(writing_lock_, std::defer_lock);
    if (ended) {
        writing.lock();
    } else if (!writing.try_lock()) {
        return;
    }
    const bool mpi = ended && settings_.enabled && has_rank_ && !mpi_before_fork_ && mpi_says("Initialized");
    const bool finalized = !mpi || mpi_says("Finalized");
    report::Part part;
    {
        const std::lock_guard guard(lock_);
        if (is_idle(mpi)) return;
        part = part_;
        part.mpi_initialized = mpi;
        part.mpi_finalized = finalized;
        part.ended = ended;
        part.records_by_workers = records_by_workers_.load();
        for (const auto& [reason, unsealed] : unsealed_) part.not_sealed.push_back(unsealed);
    }
    // A layer above tells which program its rank ran.
    if (mpi && !settings_.seals_above_sockets()) part.program_sha256 = program_digest();
    auto key = key_();
    Result<void> written;
    if (key) {
        written = report::write_part(settings_.report_file, part, [&](auto text) { return key->sign(text); });
    } else {
        written = fail(key.error().code, "no part of the report: " + key.error().line);
    }
    if (!written && ended) complain(written.error().line);
}

bool ProcessReport::is_idle(bool mpi) const {
    // The shells and tools of a job that never spoke to anybody are not worth a page each, also not those that a
    // launcher started in a rank's place.
    const bool spoke = part_.sealed_connections + part_.native_connections + part_.refused_handshakes > 0;
    // The ranks that a process has spawned are missed by what it says of them alone.
    const bool spawned = part_.spawned > 0;
    const bool idle = part_.role == "process" || (part_.role == "rank" && !mpi && !part_.mpi_aborted);
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
    for (const auto& [why, one] : unsealed_) unsealed += one.connections;
    live_.tell(part_, unsealed);
}

}  // namespace cryptmpi::channel
