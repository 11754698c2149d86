#include "comm/layer.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "base/last_words.hpp"
#include "base/say_line.hpp"
#include "base/secret_memory.hpp"
#include "comm/members.hpp"
#include "comm/quiet.hpp"
#include "comm/ranks_per_thread.hpp"
#include "comm/tuned.hpp"
#include "config/checkpoint.hpp"
#include "engine/rank_threads.hpp"
#include "programs/program_digest.hpp"
#include "report/own_part.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::comm {
namespace {

constexpr std::size_t kPoolMost = std::size_t{64} << 20;  // bytes of unused buffers that are kept

bool repeats(std::vector<int> ranks) {
    std::sort(ranks.begin(), ranks.end());
    return std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
}

}  // namespace

Layer::Layer(Host host)
    : Voice(host.mpi),
      host_(std::move(host)),
      types_(*this, own_traffic_),
      pool_(kPoolMost),
      left_with_mpi_(mpi),
      transport_{mpi, tuned_.plans, pool_, workers_, traffic_, left_with_mpi_, MPI_COMM_NULL} {
    const auto& environment = host_.environment;
    identity_ = config::identify(environment);
    name_ = identity_.name_on(host_.name);
    auto loaded = config::load_unless_checkpointed(environment);
    if (!loaded) {
        complain(loaded.error().line);
        _exit(kExitRefused);
    }
    settings_ = std::move(*loaded);
    scope_ = Scope(settings_, host_.confined);
    report::Part& part = rank_report_.part();
    part.layer = part.library = "mpi";
    report::tell_process(part, environment, settings_, identity_, host_.name);
    for (const std::string& procedure : settings_.allow) part.not_sealed.push_back({"allow: " + procedure, 0, 0, true});
    // protocol: W9
    if (settings_.passive_only()) {
        part.not_sealed.push_back({"key_distribution = " + std::string(config::name_of(settings_.key_distribution)) +
                                       ": the keys are safe against passive attackers only",
                                   0, 0, true});
    }
    scope_.tell(settings_, part);
}

void Layer::complain(const std::string& line) {
    const auto guard = this->guard();
    rank_report_.add_error(line);
    say(line);
    if (!reported_) return;
    auto done = write_report();
    if (done) return;
    reported_ = false;
    end_job("what failed could not be put into the report any more: " + done.error().line);
}

void Layer::complain_of_refused(const std::string& procedure, const std::string& reason) {
    {
        const std::lock_guard guard(refused_lock_);
        if (!refused_.insert(procedure).second) return;
    }
    complain(procedure + " is refused: " + reason);
}

void Layer::say(const std::string& line) const {
    say_line(write, host_.messages, name_, line);
}

void Layer::end_job(const std::string& line) {
    complain(line);
    let_be_read(host_.messages);
    if (!ended_) mpi.Abort(MPI_COMM_WORLD, kExitRefused);
    _exit(kExitRefused);
}

int Layer::integrity_error(const std::string& line) {
    rank_report_.count_failed_open();
    complain(line);
    return error_code_;
}

int Layer::raise(MPI_Comm handle, const std::string& line) {
    const int code = integrity_error(line);
    return raise_on_comm(*this, handle, code);
}

namespace {

/// A class and a code of ours, if MPI has room for them.
int make_error(const Native& mpi, const char* of_class, const char* of_code) {
    int error_class = MPI_ERR_OTHER;
    int code = MPI_ERR_OTHER;
    if (mpi.Add_error_class(&error_class) != MPI_SUCCESS) return MPI_ERR_OTHER;
    mpi.Add_error_string(error_class, of_class);
    if (mpi.Add_error_code(error_class, &code) != MPI_SUCCESS) return error_class;
    mpi.Add_error_string(code, of_code);
    return code;
}

}  // namespace

void Layer::make_error_classes() {
    error_code_ = make_error(mpi, "CryptMPI: a message failed its integrity check",
                             "CryptMPI: a message failed its integrity check: altered, lost, replayed or moved");
    refused_code_ = make_error(mpi, "CryptMPI: a procedure is refused",
                               "CryptMPI: a procedure is refused, since what it moves would not be sealed");
}

Result<void> Layer::load_keys() {
    return keys_.load(scope_.terms(), rank_report_.part());
}

Result<void> Layer::agree() {
    const auto terms = terms_of(tuned_.collectives);
    auto table = keys_.agree({mpi, world_rank_, world_size_, host_.name, host_.surroundings, terms,
                              [this](const std::string& line) { say(line); }});
    if (!table) return tl::unexpected(table.error());
    rank_report_.part().peer_members = std::move(table->members);
    scope_.place(std::move(table->nodes), world_rank_);
    auto plan = plan_of(table->terms);
    if (!plan) return tl::unexpected(plan.error());
    tuned_.collectives = *plan;
    return {};
}

void Layer::share_state() {
    threads_ = true;
    types_.share();
    pool_.share();
}

void Layer::take_level(int thread_level) {
    const std::lock_guard hold(level_lock_);
    starter_ = std::this_thread::get_id();
    if (thread_level == MPI_THREAD_MULTIPLE || session_has_threads_) share_state();
}

/// The thread that called MPI_Init is in no other call now, and without MPI_THREAD_MULTIPLE no other thread is in one
/// while this one is: those that will be see what is set here.
void Layer::take_session_of_threads() {
    const std::lock_guard hold(level_lock_);
    session_has_threads_ = true;
    if (starter_ == std::thread::id() || threads_) return;
    if (starter_ == std::this_thread::get_id()) {
        share_state();
    } else {
        came_too_late_ = true;
    }
}

void Layer::begin(int thread_level) {
    take_level(thread_level);
    mpi.Comm_rank(MPI_COMM_WORLD, &world_rank_);
    mpi.Comm_size(MPI_COMM_WORLD, &world_size_);
    name_ = fmt::format("rank {} on {}", world_rank_, host_.name);
    report::Part& part = rank_report_.part();
    part.rank = world_rank_;
    part.ranks = world_size_;
    part.group = identity_.group;
    if (!identity_.rank && world_size_ == 1) part.launcher_here = true;  // no launcher has started it
    part.mpi_initialized = true;
    seal::claim_keys();
    wipe_secret_memory_in_children();
    if (auto done = load_keys(); !done) end_job(done.error().line);
    const std::string about_profile = load_profile(settings_, mpi, keys_.kex(), part, tuned_);
    // Once a job: the report has it for each process.
    if (world_rank_ == 0 && !about_profile.empty()) say(about_profile);
    if (const std::string note = scope_.note(); world_rank_ == 0 && !note.empty()) say(note);
    if (world_rank_ == 0 && settings_.passive_only()) {
        say("note: key_distribution = " + std::string(config::name_of(settings_.key_distribution)) +
            ": the keys are safe against passive attackers only: whoever can change what ranks send each other as "
            "they start can read and change all that follows");
    }
    if (auto done = agree(); !done) end_job(done.error().line);
    keys_.count_traffic_in(rank_report_.counter());  // not that of the agreement's streams
    make_error_classes();
    begun_ = true;
    if (settings_.live) rank_report_.publish();
    add(MPI_COMM_WORLD, keys_.world_id());
    if (scope_.seals_own()) add_comm_self();
    make_transport();
}

void Layer::add_comm_self() {
    auto id = keys_.derive_id(keys_.world_id(), "self", 0, {world_rank_});
    if (!id) end_job(id.error().line);
    add(MPI_COMM_SELF, *id);
}

namespace {

/// Is it an MPICH of this device, or made of one?
bool is_of_ch3(const Native& mpi) {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> said{};
    int length = 0;
    return mpi.Get_library_version(said.data(), &length) == MPI_SUCCESS &&
           std::string_view(said.data()).find("ch3:") != std::string_view::npos;
}

}  // namespace

void Layer::make_transport() {
    Communicator* world = find(MPI_COMM_WORLD);
    if (world == nullptr) return;
    // Never freed: the program may send until MPI's own end in MPI_Finalize.
    MPI_Group group = MPI_GROUP_NULL;
    mpi.Comm_group(MPI_COMM_WORLD, &group);
    mpi.Comm_create(MPI_COMM_WORLD, group, &transport_.comm);
    mpi.Comm_create(MPI_COMM_WORLD, group, &own_traffic_);
    require_members(*this, transport_.comm, world->world_ranks(), "cryptmpi");
    require_members(*this, own_traffic_, world->world_ranks(), "cryptmpi");
    mpi.Comm_set_errhandler(own_traffic_, MPI_ERRORS_RETURN);
    mpi.Group_free(&group);
    make_alone();
    takes_back_sent_ = is_of_ch3(mpi);
    const std::size_t program = engine::program_threads(config::openmp_threads(host_.environment), threads_);
    engine::RankThreads rank_threads(settings_.threads, program, engine::HardwareThreads::of_this_thread());
    const int mine[] = {threads_ ? 1 : 0, rank_threads.must_ask() ? 1 : 0};
    int any[] = {0, 0};
    mpi.Allreduce(mine, any, static_cast<int>(std::size(any)), MPI_INT, MPI_MAX, transport_.comm);
    threads_somewhere_ = any[0] != 0;
    if (threads_somewhere_) world->make_nodes(mpi);
    if (any[1] != 0) rank_threads.share_with(ranks_of_node(mpi, transport_.comm, rank_threads.own()));
    make_workers(rank_threads.workers());
    int* most = nullptr;
    int known = 0;
    mpi.Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &known);
    if (known != 0) most_marks_ = static_cast<std::uint32_t>(*most) / 2;  // a message has two tags
    transport_.tag_of_hints = static_cast<int>(2 * most_marks_);
}

/// Once, since MPI_COMM_SELF's error handler would have to be quiet whenever one is made of it later.
void Layer::make_alone() {
    MPI_Group group = MPI_GROUP_NULL;
    mpi.Comm_group(MPI_COMM_SELF, &group);
    mpi.Comm_create(MPI_COMM_SELF, group, &alone_);
    mpi.Comm_set_errhandler(alone_, MPI_ERRORS_RETURN);
    mpi.Group_free(&group);
}

void Layer::make_workers(const engine::Workers::Settings& workers) {
    keys_.seal_with_threads(workers.threads);  // no flow has a key yet
    workers_ = engine::Workers(workers);
}

std::uint32_t Layer::next_mark(int world_rank) {
    std::uint32_t& next = marks_[world_rank];
    const std::uint32_t mark = next;
    next = mark + 1 < most_marks_ ? mark + 1 : 0;
    return mark;
}

void Layer::report() {
    if (!begun_) return;
    for (const auto& [handle, communicator] : communicators_) {
        if (communicator) communicator->free_own_traffic(mpi);
    }
    const auto guard = this->guard();
    leave_report();
}

void Layer::report_so_far() {
    const auto guard = this->guard();
    if (begun_ && !reported_) leave_report();  // else another thread has ended the last session
}

void Layer::leave_report() {
    if (settings_.report_file.empty()) return;
    rank_report_.part().program_sha256 = programs::program_digest(
        keys_.kex(), [](const char* file) { return open(file, O_RDONLY | O_CLOEXEC); }, close);
    if (auto done = write_report(); !done) complain(done.error().line);
    reported_ = true;
}

Result<void> Layer::write_report() {
    std::vector<FlowTotals> so_far;
    for (const auto& [handle, communicator] : communicators_) {
        if (communicator) so_far.push_back(communicator->totals());
    }
    return rank_report_.write(settings_.report_file, so_far,
                              [&](std::string_view text) { return keys_.sign_report(text); });
}

void Layer::end_if_over() {
    auto over = EndOfSelf::over;
    if (end_of_self_.compare_exchange_strong(over, EndOfSelf::none)) end();
}

void Layer::end() {
    begun_ = false;
    ended_ = true;
    reported_ = false;
    rank_report_.withdraw();
    communicators_.clear();
    last_ = nullptr;
    last_handle_ = MPI_COMM_NULL;
    keys_.wipe();
    workers_ = engine::Workers();
}

void Layer::add(MPI_Comm handle, const CommunicatorId& id, Ours ours) {
    if (handle == MPI_COMM_NULL) return;
    std::vector<int> in_world = world_ranks_of(mpi, handle);
    int rank = 0;
    mpi.Comm_rank(handle, &rank);
    const auto guard = this->guard();
    if (std::find(in_world.begin(), in_world.end(), MPI_UNDEFINED) != in_world.end()) {
        end_job("a communicator with processes from outside MPI_COMM_WORLD is not sealed yet");
    }
    // The key agreement authenticated which rank of MPI_COMM_WORLD this one is; no message is sealed as another's.
    if (rank < 0 || static_cast<std::size_t>(rank) >= in_world.size() ||
        in_world[static_cast<std::size_t>(rank)] != world_rank_ || repeats(in_world)) {
        end_job("MPI gives this rank another place in a communicator than its own: MPI's own messages were altered");
    }
    auto made = std::make_shared<Communicator>(job_, handle, id, std::move(in_world), rank, ours);
    if (!made->crosses() && !scope_.seals_own()) made.reset();  // remembered as one that stays on the node
    communicators_[handle] = std::move(made);
    last_handle_ = MPI_COMM_NULL;
    last_ = nullptr;
}

void Layer::forget(MPI_Comm handle, const std::shared_ptr<Communicator>& freed) {
    const auto guard = this->guard();
    if (freed) rank_report_.count_flows(freed->totals());
    const auto found = communicators_.find(handle);
    if (found == communicators_.end() || found->second != freed) return;
    communicators_.erase(found);
    last_handle_ = MPI_COMM_NULL;
    last_ = nullptr;
}

/// All procedures that make one are refused: did the user let one of them pass in clear?
bool Layer::intercommunicators_allowed() const {
    return std::any_of(settings_.allow.begin(), settings_.allow.end(), [](const std::string& name) {
        return name.starts_with("MPI_Intercomm_create") || name.starts_with("MPI_Comm_spawn") ||
               name == "MPI_Comm_accept" || name == "MPI_Comm_connect" || name == "MPI_Comm_join";
    });
}

Layer::Handle Layer::look_at(MPI_Comm handle) const {
    // MPI raises its error once more when it gets the program's call.
    std::optional<QuietElsewhere> quiet;
    if (!threads_) quiet.emplace(mpi);
    int between = 0;
    if (mpi.Comm_test_inter(handle, &between) != MPI_SUCCESS) return Handle::of_none;
    return between != 0 ? Handle::of_inter : Handle::of_intra;
}

Communicator* Layer::look_up(MPI_Comm handle) {
    if (handle == MPI_COMM_NULL) return nullptr;
    // Under Open MPI a communicator of a session outlives MPI_COMM_WORLD, but not the keys.
    if (ended_ && scope_.seals_anything())
        end_job("a communicator was used after MPI_Finalize: the job's keys are gone");
    if (!begun_) return nullptr;
    auto found = communicators_.find(handle);
    if (found == communicators_.end()) {
        if (handle == MPI_COMM_SELF) return nullptr;
        const Handle kind = look_at(handle);
        if (kind == Handle::of_none) return nullptr;  // MPI says so
        if (kind == Handle::of_inter) {
            if (!intercommunicators_allowed()) end_job("an intercommunicator was used: these are not sealed yet");
            return nullptr;
        }
        // Made by a procedure that we did not see. Without an identity that its members agree on, it cannot be sealed.
        add(handle, {});
        found = communicators_.find(handle);
        if (found->second && found->second->crosses()) {
            end_job("a communicator was used that cryptmpi did not see being made: it cannot be sealed");
        }
        found->second.reset();
    }
    last_handle_ = handle;
    last_ = found->second.get();
    return last_;
}

std::shared_ptr<Communicator> Layer::share(MPI_Comm handle) {
    const auto found = communicators_.find(handle);
    return found == communicators_.end() ? nullptr : found->second;
}

}  // namespace cryptmpi::comm
