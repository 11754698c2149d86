#include "fabric/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "aead/registry.hpp"
#include "base/confined.hpp"
#include "base/exit_status.hpp"
#include "base/last_words.hpp"
#include "base/network_devices.hpp"
#include "base/own_names.hpp"
#include "base/say_line.hpp"
#include "base/secret_memory.hpp"
#include "config/checkpoint.hpp"
#include "config/other_process.hpp"
#include "engine/rank_threads.hpp"
#include "programs/mpi_witness.hpp"
#include "programs/program_digest.hpp"
#include "report/own_part.hpp"
#include "report/verdict.hpp"

namespace cryptmpi::fabric {
namespace {

bool mpi_says(std::string_view what) {
    return programs::mpi_says(
        what, [](const char* file) { return open(file, O_RDONLY | O_CLOEXEC); }, close);
}

std::string program_digest(const config::Settings& settings) {
    const auto kex = aead::load_sha256(settings.module_folder);
    if (!kex) return {};
    return programs::program_digest(
        *kex->api->kex, [](const char* file) { return open(file, O_RDONLY | O_CLOEXEC); }, close);
}

/// May a network card write into this process's memory? Its device is here, if so.
bool has_network_device() {
    std::error_code failed;
    for (const auto& one : std::filesystem::directory_iterator("/dev", failed)) {
        if (is_network_device(one.path().string()) || is_network_device(one.path().string() + "/")) return true;
    }
    return static_cast<bool>(failed);
}

[[gnu::destructor]] void at_the_end() {
    Process::get().finish();
}

}  // namespace

Process& Process::get() {
    static auto* one = new Process;
    return *one;
}

Process::Process() {
    const auto environment = config::process_environment();
    identity_ = config::identify(environment);
    is_rank_ = identity_.rank.has_value();
    name_ = identity_.name_on(host_name());
    auto loaded = config::load_unless_checkpointed(environment);
    if (!loaded) {
        complain(loaded.error().line);
        _exit(kExitRefused);
    }
    settings_ = std::move(*loaded);
    openmp_threads_ = config::openmp_threads(environment);
    if (settings_.enabled && settings_.require_members) {
        complain(
            "the fabric layer has no handshake that could prove which member a rank is, and require_members is on: "
            "choose another layer (cryptmpi run --layer mpi), or turn it off");
        _exit(kExitRefused);
    }
    config::Settings of_this_layer = settings_;
    of_this_layer.layer = config::Layer::fabric;
    if (auto checked = config::check_key_exchange(of_this_layer); settings_.enabled && !checked) {
        complain(checked.error().line);
        _exit(kExitRefused);
    }
    part_.layer = part_.library = "fabric";
    report::tell_process(part_, environment, settings_, identity_, host_name());
    report::tell_rank(part_, identity_);
    part_.scope = "all";
}

Result<void> Process::load_keys() {
    auto module = aead::choose(settings_.module_folder, settings_.module, settings_.suite);
    if (!module) return tl::unexpected(module.error());
    auto kex = aead::load_kex(settings_.module_folder, settings_.module);
    if (!kex) return tl::unexpected(kex.error());
    auto ring = keys::KeyRing::read(*kex->api->kex, settings_.key_file, settings_.key_readers(), settings_.key_id);
    if (!ring) return tl::unexpected(ring.error());
    wipe_secret_memory_in_children();
    workers_ = engine::Workers(workers());
    seal::Crypto crypto{module->api->aead, kex->api->kex, settings_.suite, workers_.threads()};
    crypto.lowered = {settings_.key_records, settings_.key_bytes};
    auto joined = Job::join(crypto, **ring, settings_.job_id, has_network_device());
    if (!joined) return tl::unexpected(joined.error());
    auto report_key = keys::ReportKey::derive(*kex->api->kex, (*ring)->own());
    if (!report_key) return tl::unexpected(report_key.error());
    ring_ = std::move(*ring);
    job_.emplace(std::move(*joined));
    job_->share_work(workers_);
    report_key_.emplace(std::move(*report_key));
    part_.module = module->full_name();
    part_.handshake_module = kex->full_name();
    return {};
}

engine::Workers::Settings Process::workers() const {
    const int node_ranks = identity_.node_ranks.value_or(identity_.ranks.value_or(0));
    return engine::workers_without_mpi(settings_.threads, engine::program_threads(openmp_threads_, false), node_ranks,
                                       engine::HardwareThreads::of_thread(getpid()), config::may_be_rank);
}

Result<const Job*> Process::job() {
    const std::lock_guard guard(lock_);
    if (!job_) {
        if (auto done = load_keys(); !done) return tl::unexpected(std::move(done.error()));
    }
    return &*job_;
}

void Process::complain(const std::string& line) {
    part_.errors.push_back(line);
    live_.tell(part_, 0);
    say(line);
}

void Process::say(const std::string& line) const {
    say_line(write, STDERR_FILENO, name_, line);
}

void Process::end(const std::string& line) {
    const std::lock_guard guard(lock_);
    ++part_.failed_opens;
    stop(line);
}

void Process::give_up(const std::string& line) {
    const std::lock_guard guard(lock_);
    stop(line);
}

/// Under the lock.
void Process::stop(const std::string& line) {
    complain(line);
    write_part(false);
    let_be_read(STDERR_FILENO);
    // By a signal: Hydra lets the other ranks of one that exits wait for it for ever. By this one: it leaves no core
    // file.
    kill(getpid(), SIGKILL);
    _exit(kExitRefused);
}

void Process::refuse(const std::string& operation, const std::string& why) {
    const std::lock_guard guard(lock_);
    if (!refused_.insert(operation).second) return;
    part_.refused_roads.push_back(operation);
    complain(operation + " is refused: " + why);
}

void Process::say_cut_off(const std::string& message) {
    {
        const std::lock_guard guard(lock_);
        ++part_.cut_off;
    }
    say(message + " was cut off, since it is longer than its receive, and could not be opened: altered on the way" +
        report::kOrOtherSizes);
}

void Process::begin(Party& party) {
    const std::lock_guard guard(lock_);
    any_party_ = true;
    const TrafficCounter counter = live_.counter(TrafficCounter::Threads::one);
    party.watch(counter);
    parties_.emplace(&party, counter);
    // Whether somebody can look at it is nothing that a job depends on.
    if (settings_.enabled && settings_.live) (void)live_.publish(report::own_live_folders(), part_);
}

void Process::end(const Party& party) {
    const std::lock_guard guard(lock_);
    const auto found = parties_.find(&party);
    if (found == parties_.end()) return;
    live_.give_back(found->second);
    parties_.erase(found);
    count(party.counters());
    expect_whole(party);
}

void Process::miss(const std::string& line) {
    const std::lock_guard guard(lock_);
    ++part_.failed_opens;
    complain(line);
}

void Process::expect_whole(const Party& party) {
    if (auto whole = party.expect_none_missing(); !whole) {
        ++part_.failed_opens;
        complain(whole.error().line);
    }
}

void Process::count(const Counters& counters) {
    part_.sealed_connections += counters.peers;
    for (const auto& sent : counters.sent) {
        part_.sealed_bytes_sent += sent.bytes;
        part_.sealed_records_sent += sent.messages;
    }
    for (const auto& received : counters.received) {
        part_.sealed_bytes_received += received.bytes;
        part_.sealed_records_received += received.messages;
    }
    part_.rekeys += counters.rekeys;
}

/// What the verdict must not call sealed. Where the channel library lets nothing out but by sealed connections, nothing
/// else is to be said.
void Process::say_what_is_not_sealed() {
    const auto confined = confined_by_channel();
    if (confined.value_or(false)) return;
    if (!any_party_) {
        part_.not_sealed.push_back(
            {"MPI in this process went neither through UCX nor through libfabric, where the "
             "fabric layer seals; what it sent between nodes is not known",
             0, 0, false});
    }
    part_.not_sealed.push_back({confined
                                    ? "other roads between nodes than MPI's network library are open (network = any)"
                                    : "sockets of the ranks are not sealed (seal_sockets = false)",
                                0, 0, true});
}

void Process::write_part(bool ended) {
    if (settings_.report_file.empty() || !settings_.enabled) return;
    part_.mpi_initialized = ended && is_rank_ && mpi_says("Initialized");
    part_.mpi_finalized = !part_.mpi_initialized || mpi_says("Finalized");
    if (!part_.mpi_initialized && part_.errors.empty()) return;  // a shell in a rank's place, a tool
    part_.ended = ended;
    report::Part part = part_;
    std::swap(part, part_);
    for (const auto& [party, counter] : parties_) count(party->counters());
    if (part_.mpi_initialized) say_what_is_not_sealed();
    std::swap(part, part_);
    if (!report_key_) {
        if (auto loaded = load_keys(); !loaded) {
            complain("no part of the report: " + loaded.error().line);
            return;
        }
    }
    part.module = part_.module;
    part.handshake_module = part_.handshake_module;
    if (part.mpi_initialized) part.program_sha256 = program_digest(settings_);
    auto written =
        report::write_part(settings_.report_file, part, [&](std::string_view text) { return report_key_->sign(text); });
    if (!written) complain(written.error().line);
}

void Process::finish() {
    const std::lock_guard guard(lock_);
    if (std::exchange(finished_, true) || getpid() != part_.pid) return;
    for (const auto& [party, counter] : parties_) expect_whole(*party);
    live_.withdraw();
    write_part(true);
}

}  // namespace cryptmpi::fabric
