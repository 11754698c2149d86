// Starts an MPI program with its own MPI's launcher, everything that the launcher starts under the preloaded library.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "aead/registry.hpp"
#include "command/earlier_report.hpp"
#include "command/fresh_key.hpp"
#include "command/job.hpp"
#include "command/key_storage.hpp"
#include "command/launch_guard.hpp"
#include "command/launchers.hpp"
#include "command/placement.hpp"
#include "command/program.hpp"
#include "command/remote_shell.hpp"
#include "command/reports.hpp"
#include "command/run_report.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "command/typed_line.hpp"
#include "command/wrappers.hpp"
#include "config/internal_variables.hpp"
#include "config/loading.hpp"
#include "keys/key_ring.hpp"
#include "report/live.hpp"
#include "report/live_reader.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

// Of the internal variables, those that concern each process of the job.
constexpr std::array<std::string_view, 7> kForAll = {config::kReasonVariable,         config::kLastingKeyVariable,
                                                     config::kSealedLauncherVariable, config::kReportTokenVariable,
                                                     config::kReportFileVariable,     config::kSettingsGivenVariable,
                                                     config::kKeyIdVariable};

struct Options {
    std::string program_for_help;
    Places places;
    std::string launcher;
    std::string rsh;
    std::string report;
    std::string layer;
    Words variables;
    std::string launcher_arguments;
    bool verbose = false;
};

/// Whose MPI is not known: the launchers that are here, as words that can be copied.
std::string launchers_here(const config::Environment& environment) {
    std::string text;
    for (const auto& launcher : launchers_in_path(environment))
        text += (text.empty() ? "" : ", or ") + ("--mpi " + shell_word(launcher.file.string())) + " (" +
                name(launcher.mpi) + ")";
    return text.empty() ? "--mpi and the path of its mpiexec (none is in PATH)" : text;
}

/// The launcher whose MPI is the program's, or the one that --mpi names.
Result<Launcher> choose_launcher(const Options& options, const Context& context,
                                 const config::Environment& environment) {
    const auto library = library_behind(context, environment);
    const std::string behind = program_behind(context.program);
    if (options.launcher.empty()) {
        if (library) return launcher_of(*library, environment);
        return fail(EINVAL, "program " + behind + " is not linked with an MPI library; name the launcher of its MPI: " +
                                launchers_here(environment));
    }
    const auto named = find_in_path(options.launcher, environment);
    if (!named) return fail(ENOENT, "launcher " + options.launcher + " (--mpi) is missing or not executable");
    auto launcher = identify_launcher(*named);
    const auto is_hydra = [](Mpi mpi) { return mpi != Mpi::open_mpi; };
    if (launcher && library && is_hydra(launcher->mpi) != is_hydra(library->mpi)) {
        return fail(EINVAL, "program " + behind + " is linked with " + name(library->mpi) + " (" +
                                library->file.string() + "), but --mpi names a launcher of " + name(launcher->mpi) +
                                "; name one of " + name(library->mpi) + ", or leave --mpi out");
    }
    return launcher;
}

/// Starts the launcher and waits, passing signals on, while the job's fresh key stays in memory. Returns its exit
/// status as a shell would give it.
int supervise(const Words& line, FreshKey* key) {
    sigset_t handled;
    sigset_t before;
    sigemptyset(&handled);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM})
        sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, &before);
    const pid_t self = getpid();
    const pid_t child = fork();
    if (child < 0) return complain(std::string("run: cannot start a process: ") + std::strerror(errno), kExitRefused);
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, nullptr);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != self) _exit(kExitRefused);
        _exit(replace_by(line.front(), line));
    }
    for (;;) {
        siginfo_t info{};
        const int signal = sigtimedwait(&handled, &info, &kLookAfterKey);
        if (key != nullptr) key->held.restore();
        int status = 0;
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended < 0 && errno == ECHILD)
            return complain("run: the kernel does not tell how the launcher ended: SIGCHLD is ignored", kExitRefused);
        if (ended == child) {
            sigprocmask(SIG_SETMASK, &before, nullptr);
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        // What the terminal sends, it has sent to the launcher too.
        if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) kill(child, signal);
    }
}

/// All that says how the job's ranks will travel between nodes.
LayerEvidence evidence_of(const Launch& launch, const Launcher& launcher, const Context& first,
                          const config::Environment& environment) {
    LayerEvidence evidence;
    evidence.library = library_behind(first, environment);
    const auto beside = library_beside(launcher);
    if (!evidence.library && beside) evidence.library = MpiLibrary{launcher.mpi, *beside};
    for (const auto& [variable, value] : launch.variables) {
        if (value) evidence.variables.emplace_back(variable, *value);
    }
    evidence.launcher_arguments = said_of_networks(launch.options);
    for (const auto& context : launch.more) {
        const Words more = said_of_networks(context.options);
        evidence.launcher_arguments.insert(evidence.launcher_arguments.end(), more.begin(), more.end());
    }
    return evidence;
}

/// Takes from the launcher's options what is ours to do, and refuses what would leave something unsealed.
Result<void> guard(Launch& launch, std::string& rsh) {
    if (auto guarded = guard(launch.options, rsh); !guarded) return guarded;
    for (auto& context : launch.more) {
        if (auto guarded = guard(context.options, rsh); !guarded) return guarded;
    }
    return {};
}

/// A word behind an option that no table has may be its value. Where it names a program, too, the launcher might start
/// that one past us. Open MPI 4 takes no OPTION=VALUE.
Result<void> check_values(const Launch& launch, const Launcher& launcher, const config::Environment& environment) {
    const bool joins = launcher.mpi != Mpi::open_mpi || launcher.prrte;
    std::vector<TypedOption> all = launch.options;
    for (const auto& context : launch.more) all.insert(all.end(), context.options.begin(), context.options.end());
    for (const auto& option : all) {
        if (option.known != nullptr) continue;
        for (auto word = option.words.begin() + 1; word != option.words.end(); ++word) {
            if (find_in_path(*word, environment))
                return fail(EINVAL, "run: option " + option.name + " is not known, and " + *word +
                                        " behind it may be its value or a program; " +
                                        (joins ? "write " + option.name + "=" + *word + ", or " : "") +
                                        "leave the option out");
        }
    }
    return {};
}

/// The variables for the ranks that --env gives.
Result<void> add_variables(const Words& variables, Launch& launch) {
    for (const auto& variable : variables) {
        const auto equals = variable.find('=');
        if (equals == 0 || variable.empty())
            return fail(EINVAL, "run: --env \"" + variable + "\": expected NAME or NAME=VALUE");
        const std::string name = variable.substr(0, equals);
        launch.variables.emplace_back(
            name, equals == std::string::npos ? std::nullopt : std::optional(variable.substr(equals + 1)));
    }
    return {};
}

/// The user's key file, which a job with a fresh key needs for its report only: made if there is none.
Result<void> prepare_lasting_key(const config::Settings& settings) {
    std::error_code ignored;
    if (fs::exists(settings.key_file, ignored)) return {};
    auto kex = aead::load_kex(settings.module_folder.string(), settings.module);
    if (!kex) return tl::unexpected<Error>(kex.error());
    auto written = keys::write_job_key(settings.key_file, *kex->api->kex, false);
    if (!written && written.error().code != EEXIST) return written;  // another job may have been quicker
    if (written)
        complain("made the key file " + settings.key_file.string() + ", with which the reports of your jobs are signed",
                 0);
    return {};
}

/// The job goes on with the key that is the file's first now, whatever is put before it.
Result<void> pin_key(config::Settings& settings) {
    auto kex = aead::load_kex(settings.module_folder.string(), settings.module);
    if (!kex) return tl::unexpected<Error>(kex.error());
    const auto ring = keys::KeyRing::read(*kex->api->kex, settings.key_file, settings.key_readers(), "");
    if (!ring) return tl::unexpected<Error>(ring.error());
    settings.key_id = keys::key_id_text((*ring)->own_id());
    set_variable(config::kKeyIdVariable, settings.key_id);
    return {};
}

/// On other nodes the settings file is another or none, and the working folder another: what this node's gave holds on
/// all of them, and nothing else.
Result<void> pass_on_settings(const config::Settings& settings) {
    for (const auto& given : settings.given) {
        if (!given.value) {
            return fail(EINVAL, given.where +
                                    ": cannot be passed on to the job's nodes: no text of a list may be empty, or have "
                                    "a comma, or blanks at its ends, and none a null character");
        }
        set_variable(given.variable, *given.value);
    }
    unsetenv("CRYPTMPI_CONFIG");
    set_variable(config::kSettingsGivenVariable, "1");
    return {};
}

/// Of a user who leaves the ranks no environment: they need what is ours all the same, and what --env gives.
void let_pass(Launch& launch) {
    Words variables;
    for (const auto& [variable, value] : launch.variables) variables.push_back(variable);
    let_pass(launch.options, variables);
    for (auto& context : launch.more) let_pass(context.options, variables);
}

/// One job, from the line that was typed to its verdict. Its steps stand in the order in which they are taken; each has
/// what those before it have found, and nothing is started before all have succeeded.
class JobRun {
public:
    JobRun(const Options& options, const LaunchLine& typed) : options_(options), typed_(typed) {}
    /// Returns the exit status.
    int run();

private:
    using Step = Result<void> (JobRun::*)();
    /// Stops at the first that fails.
    Result<void> take(std::initializer_list<Step> steps);

    Result<void> read_settings();
    Result<void> check_settings();
    Result<void> find_programs();
    Result<void> find_launcher();
    Result<void> guard_words();
    Result<void> choose_layer();
    Result<void> name_job();
    Result<fs::path> place_in_cache() const;
    Result<void> prepare_report();
    Result<void> take_key();
    int start_plain();
    void tell_processes();
    void start_by_exec();
    void say_what_starts(const Words& words) const;
    config::Settings settings_of_ranks() const;

    const Options& options_;
    const LaunchLine& typed_;
    int refusal_ = kExitRefused;  // the exit status of a step that fails
    config::Environment environment_;
    std::optional<config::Settings> settings_;
    std::optional<std::string> lasting_key_;  // within a job that has a fresh key: the file of the user's own
    bool is_fresh_ = false;                   // this job has a key of its own
    Launch launch_;
    std::optional<Launcher> launcher_;
    int ranks_ = 0;
    std::string rsh_;
    std::optional<LayerChoice> choice_;
    std::string job_;
    std::string token_;
    bool is_report_asked_ = false;
    fs::path report_file_;
    std::optional<FreshKey> fresh_key_;
    fs::path job_key_;
    std::optional<Signing> signing_;
};

Result<void> JobRun::take(std::initializer_list<Step> steps) {
    for (const Step step : steps) {
        if (auto taken = (this->*step)(); !taken) return taken;
    }
    return {};
}

/// A job that is started in another one has ranks and a report of its own.
void leave_outer_job() {
    unsetenv(config::kPlaceVariable);
    unsetenv(config::kFolderTokenVariable);
    unsetenv(config::kSeenFolderVariable);
    const char* const outer = std::getenv(config::kReportFileVariable);
    if (outer == nullptr) return;
    const char* const asked = std::getenv("CRYPTMPI_REPORT_FILE");
    if (asked != nullptr && std::strcmp(asked, outer) == 0) unsetenv("CRYPTMPI_REPORT_FILE");
    unsetenv(config::kReportFileVariable);
    unsetenv(config::kReportTokenVariable);
}

/// Removes the earlier report that lies where the line or the environment wants this job's, for which it would pass.
/// Comes before the settings, which may be what is refused.
Result<void> forget_named_report(const std::string& option, const config::Environment& environment) {
    const std::string asked = option.empty() ? environment("CRYPTMPI_REPORT_FILE").value_or("") : option;
    return asked.empty() ? Result<void>{} : forget_report(fs::absolute(asked));
}

/// The same where the settings want it: their file alone may say so.
Result<void> forget_report_of_settings(const std::string& option, const config::Settings& settings) {
    if (!option.empty() || settings.report_file.empty()) return {};
    return forget_report(settings.report_file);
}

Result<void> JobRun::read_settings() {
    if (!options_.layer.empty()) set_variable("CRYPTMPI_LAYER", options_.layer);
    leave_outer_job();
    environment_ = config::process_environment();
    // Who is refused from here on has no report.
    if (auto forgotten = forget_named_report(options_.report, environment_); !forgotten) return forgotten;
    auto settings = config::load(environment_);
    if (!settings) return tl::unexpected<Error>(settings.error());
    settings_ = std::move(*settings);
    if (auto forgotten = forget_report_of_settings(options_.report, *settings_); !forgotten) return forgotten;
    // Within a job that has a fresh key the setting key_file is that one's.
    lasting_key_ = environment_(config::kLastingKeyVariable);
    if (lasting_key_) settings_->key_file = *lasting_key_;
    is_fresh_ = settings_->fresh_key() || (lasting_key_ && settings_->job_key == config::JobKeyFrom::automatic);
    unsetenv(config::kLastingKeyVariable);
    unsetenv(config::kKeyIdVariable);  // of the job that this one is started in
    settings_->key_id.clear();
    return {};
}

Result<void> JobRun::check_settings() {
    if (!settings_->enabled) return {};
    if (is_fresh_) {
        if (auto made = prepare_lasting_key(*settings_); !made) return made;
    }
    if (auto checked = check_key_and_module(*settings_); !checked) return checked;
    return check_key_storage(*settings_, is_fresh_ ? KeyUse::signs_reports : KeyUse::protects_jobs, true);
}

Result<void> JobRun::find_programs() {
    const Context& first = typed_.contexts.front();
    launch_.command = first.program;
    launch_.options = first.options;
    launch_.more.assign(typed_.contexts.begin() + 1, typed_.contexts.end());
    for (const auto& context : typed_.contexts) {
        const auto file = coverable(place_of(context, context.program.front()), environment_);
        if (file || (!settings_->enabled && file.error().status != kExitNotFound)) continue;
        refusal_ = file.error().status;
        return fail(ENOENT, file.error().line);
    }
    return {};
}

Result<void> JobRun::find_launcher() {
    auto launcher = choose_launcher(options_, typed_.contexts.front(), environment_);
    if (!launcher) return tl::unexpected<Error>(launcher.error());
    launcher_ = std::move(*launcher);
    auto more = read_launcher_arguments(launcher_->mpi, CLI::detail::split_up(options_.launcher_arguments));
    if (!more) return tl::unexpected<Error>(more.error());
    launch_.options.insert(launch_.options.end(), more->begin(), more->end());
    const auto ranks = place_ranks(options_.places, launcher_->mpi, environment_, launch_);
    if (!ranks) return tl::unexpected<Error>(ranks.error());
    ranks_ = *ranks;
    rsh_ = options_.rsh;
    return add_variables(options_.variables, launch_);
}

Result<void> JobRun::guard_words() {
    if (auto guarded = guard(launch_, rsh_); !guarded) return guarded;
    if (rsh_.empty()) rsh_ = default_remote_shell(environment_);
    for (const auto& variable : options_.variables) {
        if (auto guarded = guard_variable("--env", variable); !guarded) return guarded;
    }
    return check_values(launch_, *launcher_, environment_);
}

Result<void> JobRun::choose_layer() {
    const LayerEvidence evidence = evidence_of(launch_, *launcher_, typed_.contexts.front(), environment_);
    if (auto checked = check_allow(*settings_, evidence.library); !checked) return checked;
    choice_ = command::choose_layer(*settings_, environment_, evidence);
    if (auto checked = check_choice(*settings_, *choice_); !checked) return checked;
    return check_libraries(*settings_, choice_->layer);
}

Result<void> JobRun::name_job() {
    job_ = settings_->job_id;
    if (!environment_("CRYPTMPI_JOB_ID")) {
        auto random = random_name("run");
        if (!random) return tl::unexpected<Error>(random.error());
        job_ = *random;
    }
    auto token = random_name("run");
    if (!token) return tl::unexpected<Error>(token.error());
    token_ = *token;
    return {};
}

Result<fs::path> JobRun::place_in_cache() const {
    const auto kex = aead::load_kex(settings_->module_folder.string(), settings_->module);
    if (!kex) return tl::unexpected<Error>(kex.error());
    return cache_file(environment_, job_, *kex->api->kex);
}

Result<void> JobRun::prepare_report() {
    if (settings_->live) report::remove_stale_pages(report::own_runtime_folder());
    is_report_asked_ = !options_.report.empty() || !settings_->report_file.empty();
    report_file_ = !options_.report.empty() ? fs::absolute(options_.report) : settings_->report_file;
    if (!is_report_asked_) {
        auto cached = place_in_cache();
        if (!cached) return tl::unexpected<Error>(cached.error());
        report_file_ = std::move(*cached);
    }
    if (auto passed = pass_on_settings(*settings_); !passed) return passed;
    if (auto made = make_place_of_report(report_file_, !is_report_asked_, token_, is_fresh_); !made) return made;
    for (const char* variable : {"CRYPTMPI_REPORT_FILE", config::kReportFileVariable})
        set_variable(variable, report_file_.string());
    set_variable(config::kReportTokenVariable, token_);
    pass_on_seen_folder(report_file_, token_, true);
    return {};
}

Result<void> JobRun::take_key() {
    if (is_fresh_) {
        auto drawn = draw_fresh_key(*settings_);
        if (!drawn) return tl::unexpected<Error>(drawn.error());
        fresh_key_.emplace(std::move(*drawn));
        set_variable(config::kLastingKeyVariable, settings_->key_file.string());
    } else if (auto pinned = pin_key(*settings_); !pinned) {
        return pinned;
    }
    job_key_ = fresh_key_ ? fresh_key_->file : settings_->key_file;
    auto signing = signing_of(job_key_, *settings_);
    if (!signing) return tl::unexpected<Error>(signing.error());
    signing_.emplace(std::move(*signing));
    if (fresh_key_ || lasting_key_) set_variable("CRYPTMPI_KEY_FILE", job_key_.string());
    return {};
}

/// Without CryptMPI, as the setting `enabled` says.
int JobRun::start_plain() {
    if (!options_.report.empty()) {
        return complain(
            "run: enabled = false: the job would run in clear, and there is no report of that; set enabled, or "
            "leave out --report",
            kExitRefused);
    }
    complain("note: enabled = false: the job runs in clear, without CryptMPI", 0);
    if (!rsh_.empty()) launch_.agent = rsh_;
    const Words words = command_line(*launcher_, launch_);
    return replace_by(words.front(), words);
}

void JobRun::tell_processes() {
    set_variable("CRYPTMPI_JOB_ID", job_);
    pass_on(*choice_);  // chosen once for all nodes
    // Whoever could edit what the launcher says would choose the program that a node starts: whatever seals MPI's data,
    // its sockets are sealed.
    set_variable(config::kRoleVariable, "launcher");
    set_variable(config::kSealedLauncherVariable, "1");  // its ranks reach it under scope "all", too
    set_variable(config::kAgentShellVariable, rsh_);
    set_variable("LD_PRELOAD", preload_of_launcher(*settings_, choice_->layer, environment_));
    launch_.agent = agent_file(*settings_).string();
    const config::Environment now = config::process_environment();
    for (const auto& [variable, value] : now.variables()) {
        const bool for_all = std::find(kForAll.begin(), kForAll.end(), variable) != kForAll.end();
        if (variable.starts_with("CRYPTMPI_") && (for_all || !variable.starts_with("CRYPTMPI_INTERNAL_")))
            launch_.variables.emplace_back(variable, std::nullopt);
    }
    let_pass(launch_);
}

/// Each program is started by our command, which makes sure that it is covered.
void JobRun::start_by_exec() {
    const Words start = {own_file().string(), "exec", "--"};
    launch_.command.insert(launch_.command.begin(), start.begin(), start.end());
    for (auto& context : launch_.more) context.program.insert(context.program.begin(), start.begin(), start.end());
}

/// Who looks on shall not wonder what it waits for; a log needs no such line.
void JobRun::say_what_starts(const Words& words) const {
    if (!options_.verbose && isatty(STDERR_FILENO) != 1) return;
    std::string text;
    for (const auto& word : words) text += options_.verbose ? " " + shell_word(word) : "";
    complain("starting " + typed_.contexts.front().program.front() + " with " + name(launcher_->mpi) + " (" +
                 launcher_->version + "), " + command::text(*choice_) + (options_.verbose ? ":" : "") + text,
             0);
}

/// As the layer's choice has completed them.
config::Settings JobRun::settings_of_ranks() const {
    config::Settings settings = *settings_;
    settings.layer = choice_->layer;
    settings.network = choice_->network;
    return settings;
}

int JobRun::run() {
    const auto refuse = [&](const Error& error) { return complain(error.line, refusal_); };
    auto done = take({&JobRun::read_settings, &JobRun::check_settings, &JobRun::find_programs, &JobRun::find_launcher});
    if (!done) return refuse(done.error());
    if (!settings_->enabled) return start_plain();
    done = take(
        {&JobRun::guard_words, &JobRun::choose_layer, &JobRun::name_job, &JobRun::prepare_report, &JobRun::take_key});
    if (!done) return refuse(done.error());
    tell_processes();
    start_by_exec();
    const Words words = command_line(*launcher_, launch_);
    say_what_starts(words);
    const bool may_be_clear = may_leave_in_clear(settings_of_ranks());
    if (may_be_clear) mark_local_report(token_);
    const int status = supervise(words, fresh_key_ ? &*fresh_key_ : nullptr);
    const Collecting parts{report_file_, {job_, ranks_, status, {}, token_}, token_, rsh_, job_key_, may_be_clear};
    return conclude(*signing_, parts, is_report_asked_ || options_.verbose);
}

}  // namespace

Result<void> forget_report_of(const LaunchLine& line) {
    leave_outer_job();
    const auto environment = config::process_environment();
    const auto at = std::find(line.own.begin(), line.own.end(), "--report");
    const std::string option = at == line.own.end() || at + 1 == line.own.end() ? std::string() : *(at + 1);
    if (auto forgotten = forget_named_report(option, environment); !forgotten) return forgotten;
    const auto settings = config::load(environment);
    return settings ? forget_report_of_settings(option, *settings) : Result<void>{};
}

void forget_report_in(const Words& words) {
    constexpr std::string_view kOption = "--report";
    for (auto word = words.begin(); word != words.end() && *word != "--"; ++word) {
        std::string name;
        if (word->starts_with(std::string(kOption) + "=")) name = word->substr(kOption.size() + 1);
        if (*word == kOption && word + 1 != words.end()) name = *(word + 1);
        std::error_code unknown;
        // What is none of ours stays, and needs no line: it may be none of this line's.
        if (!name.empty() && fs::file_size(fs::absolute(name), unknown) > 0 && !unknown)
            (void)forget_report(fs::absolute(name));
    }
}

void add_run(CLI::App& app, const LaunchLine& line, int& status) {
    const CLI::Range some(1, INT_MAX);
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("run", "Start an MPI program sealed, with its own MPI's launcher");
    sub->footer(
        "Examples:\n"
        "  cryptmpi run -n 4 --hosts a,b ./program input.txt\n"
        "  cryptmpi run --hosts a:2,b:2 --report job.json ./program\n"
        "  cryptmpi run -n 4 --mpi $(which mpiexec) python3 script.py\n"
        "  cryptmpi run -n 1 ./a : -n 3 ./b\n"
        "  cryptmpi run -np 4 -hostfile nodes --map-by node -x OMP_NUM_THREADS ./program\n"
        "Options of the MPI's own launcher are passed on as they stand (docs/running.md).\n"
        "Exit status: the launcher's if it is not 0; 123 the job ended well, but its report says neither SEALED nor "
        "NOTHING TO SEAL, nor names only exceptions that your settings allow; 125 refused (settings, key, a program "
        "that cannot be covered), 126 not runnable, 127 not found.");
    sub->add_option("-n,--np", options->places.ranks,
                    "Number of ranks (default: the sum of the hosts' slots, or what the batch job has)")
        ->check(some);
    sub->add_option("--hosts", options->places.hosts, "Nodes, a,b or a:2,b:2; filled one after the other");
    sub->add_option("--ppn", options->places.per_node, "Ranks on each node")->check(some);
    sub->add_option("--mpi", options->launcher, "The launcher (default: that of the program's MPI library)");
    sub->add_option("--rsh", options->rsh, "Starts commands on other nodes (default: ssh; in a Slurm job srun)");
    add_layer_option(*sub, options->layer);
    sub->add_option("--report", options->report, "Write the job's report here, and its verdict to stderr in any case");
    sub->add_option("--env", options->variables, "NAME or NAME=VALUE for the ranks; may be repeated")
        ->allow_extra_args(false);
    sub->add_option("--launcher-args", options->launcher_arguments,
                    "More arguments for the launcher, in one word; quotes keep spaces");
    sub->add_flag("--verbose", options->verbose, "Show the launcher's command line and the verdict");
    // Its words are cut off before the options are parsed; this tells --help of it.
    sub->add_option("PROGRAM", options->program_for_help, "The program; all words after it are its own arguments");
    sub->callback([options, &line, &status] { status = JobRun(*options, line).run(); });
}

}  // namespace cryptmpi::command
