// Starts one program under the preloaded library. Checks everything first, so that a mistake is one line and not a job
// in clear.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <optional>

#include "command/earlier_report.hpp"
#include "command/fresh_key.hpp"
#include "command/job.hpp"
#include "command/key_storage.hpp"
#include "command/program.hpp"
#include "command/reports.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "config/internal_variables.hpp"
#include "config/loading.hpp"
#include "config/other_process.hpp"
#include "report/live.hpp"
#include "report/live_reader.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::command {
namespace {

struct Options {
    std::string program_for_help;
    std::string job;
    std::string report;
    std::string role;
    std::string layer;
    bool key_on_stdin = false;
    bool wrapped_key_on_stdin = false;
    Words forwarded;  // NAME=VALUE, CRYPTMPI_ left out
};

/// Once a job: its ranks start here, whichever launcher and layer they have. A rank's own children are not told again.
void warn_of_cipher(const config::Settings& settings, const config::Environment& environment) {
    const std::string warning = config::cipher_warning(settings, config::identify(environment));
    if (warning.empty() || environment(config::kWarnedOfCipherVariable)) return;
    complain(warning, 0);
    set_variable(config::kWarnedOfCipherVariable, "1");
}

/// Once a job of several nodes whose launcher was started by hand.
void warn_of_launcher(const Options& options, const config::Environment& environment) {
    const auto process = config::identify(environment);
    const bool several_nodes = process.ranks && process.node_ranks && *process.node_ranks < *process.ranks;
    if (!options.role.empty() || environment(config::kSealedLauncherVariable) ||
        environment(config::kWarnedOfLauncherVariable))
        return;
    if (process.rank != 0 || (!several_nodes && config::has_launcher_above())) return;
    complain(process.slurm_step
                 ? "note: srun's own connections are in clear: command lines, environment, standard input and output "
                   "(docs/slurm.md)"
                 : "note: the launcher's own connections are in clear, because it was started by hand: whoever owns "
                   "the network can make a node start another program as this user; cryptmpi run seals them, too",
             0);
    set_variable(config::kWarnedOfLauncherVariable, "1");
}

/// libfabric's tcp provider reads no more from a peer of whom it holds 64 messages that nobody has asked for: the one
/// that is waited for may be behind them, and the MPI layer makes several messages of a large one.
void hold_more_messages(config::Layer layer, const config::Environment& environment) {
    constexpr const char* kHeld = "FI_TCP_MAX_SAVED";
    if (layer == config::Layer::mpi && !environment(kHeld)) set_variable(kHeld, "65536");
}

/// A launcher that starts its daemons by another way than our agent leaves them without the job's fresh key.
Result<void> check_key_reached(const config::Settings& settings, const config::Environment& environment) {
    std::error_code ignored;
    if (!environment(config::kLastingKeyVariable) || std::filesystem::exists(settings.key_file, ignored)) return {};
    return fail(ENOENT, "the job's fresh key (" + settings.key_file.string() +
                            ") is not in this node's memory: the job has ended, the launcher came here by another way "
                            "than cryptmpi run's remote shell, or this is a container without the node's /dev/shm; "
                            "job_key = \"file\" takes the key file instead");
}

/// What this node's login shell sets: a job of cryptmpi run has its settings from there alone.
void forget_settings() {
    const auto environment = config::process_environment();
    for (const auto& [name, value] : environment.variables()) {
        if (name.starts_with("CRYPTMPI_")) unsetenv(name.c_str());
    }
}

/// A launcher may give the ranks on other nodes the home folder of its own node (Hydra does). A node's member key is
/// where the first process there finds it.
void keep_members_of_this_node(const config::Settings& settings) {
    set_variable("CRYPTMPI_MEMBER_KEY_FILE", settings.member_key_file.string());
    set_variable("CRYPTMPI_MEMBER_LIST", settings.member_list.string());
}

/// What the options say becomes settings, which are variables of the environment.
Result<void> take_settings(const Options& options) {
    if (!options.forwarded.empty()) forget_settings();
    for (const auto& setting : options.forwarded) {
        const auto equals = setting.find('=');
        if (equals == std::string::npos) return fail(EINVAL, "exec: --set " + setting + ": expected NAME=VALUE");
        set_variable("CRYPTMPI_" + setting.substr(0, equals), setting.substr(equals + 1));
    }
    if (!options.job.empty()) set_variable("CRYPTMPI_JOB_ID", options.job);
    if (!options.report.empty()) {
        const std::string file = std::filesystem::absolute(options.report).lexically_normal();
        if (const char* job = std::getenv(config::kReportFileVariable);
            job != nullptr && file != std::filesystem::path(job).lexically_normal())
            return fail(EINVAL, "exec: --report " + options.report +
                                    ": a sealed job has started this, whose report is " + job +
                                    "; leave the option out, or start a job of its own by cryptmpi run");
        set_variable("CRYPTMPI_REPORT_FILE", file);
    }
    if (!options.layer.empty()) set_variable("CRYPTMPI_LAYER", options.layer);
    return {};
}

/// The job's fresh key, where cryptmpi run's remote shell has sent it.
Result<std::optional<keys::KeyInMemory>> take_key(const Options& options, const config::Settings& settings) {
    if (!options.key_on_stdin && !options.wrapped_key_on_stdin) return std::nullopt;
    auto kept = key_from_stdin(settings, options.wrapped_key_on_stdin ? KeyRoad::srun : KeyRoad::encrypted);
    if (!kept) return tl::unexpected(kept.error());
    return std::optional(std::move(*kept));
}

/// The job's agent on another node has started this: no process of the job has come to this node before.
bool is_first_here(const Options& options) {
    return !options.forwarded.empty();
}

/// All but the program.
Result<void> check_job(const Options& options, const config::Settings& settings,
                       const config::Environment& environment) {
    if (auto checked = check_key_reached(settings, environment); !checked) return checked;
    if (auto checked = check_key_and_module(settings); !checked) return checked;
    if (auto prepared = prepare_local_report(settings, environment, is_first_here(options)); !prepared) return prepared;
    const bool first = config::identify(environment).rank.value_or(0) == 0 && options.role.empty();
    const bool speaks = first && !environment(config::kSealedLauncherVariable);  // cryptmpi run has spoken
    return check_key_storage(settings, KeyUse::protects_jobs, speaks);
}

/// In a job that was started by hand nobody else has marked the folder of its parts.
Result<void> join_report(const Options& options, const config::Settings& settings,
                         const config::Environment& environment) {
    if (settings.report_file.empty()) return {};
    if (const auto token = environment(config::kReportTokenVariable)) {
        pass_on_seen_folder(settings.report_file, *token, is_first_here(options));
        return {};
    }
    if (auto checked = report::check_parts_folder(settings.report_file); !checked) return checked;
    const auto fresh = random_name("exec");
    if (!fresh) return tl::unexpected<Error>(fresh.error());
    const std::string token = report::join_parts(settings.report_file, *fresh);
    set_variable(config::kFolderTokenVariable, token);
    if (!token.empty()) pass_on_seen_folder(settings.report_file, token, false);
    return {};
}

/// The layer for this program, if it does what is asked for.
Result<LayerChoice> layer_for(const std::filesystem::path& file, const config::Settings& settings,
                              const config::Environment& environment) {
    const auto library = library_of(file, environment);
    if (auto checked = check_allow(settings, library); !checked) return tl::unexpected(checked.error());
    LayerChoice choice = choose_layer(settings, environment, {library, {}, {}});
    if (auto checked = check_choice(settings, choice); !checked) return tl::unexpected(checked.error());
    if (auto checked = check_libraries(settings, choice.layer); !checked) return tl::unexpected(checked.error());
    return choice;
}

/// The environment that makes the program a sealed one.
void prepare_environment(const Options& options, const config::Settings& settings,
                         const config::Environment& environment, const LayerChoice& choice) {
    pass_on(choice);
    set_variable("LD_PRELOAD", options.role.empty() ? preload_of_rank(settings, choice.layer, environment)
                                                    : preload_of_launcher(settings, choice.layer, environment));
    hold_more_messages(choice.layer, environment);
    if (!settings.job_id.empty()) set_variable("CRYPTMPI_JOB_ID", settings.job_id);
    // A launcher's children inherit its role; a rank that is started by exec is none.
    if (options.role.empty()) {
        unsetenv(config::kRoleVariable);
        const std::string place = config::launch_of_place(environment);
        if (!place.empty() && !environment(config::kPlaceVariable)) set_variable(config::kPlaceVariable, place);
    } else {
        set_variable(config::kRoleVariable, options.role);
    }
}

int refuse(const Error& error) {
    return complain(error.line, kExitRefused);
}

/// Without CryptMPI, as the setting `enabled` says. The first rank removes the earlier report, which would pass for
/// this job's; within a job of cryptmpi run, the report is that one's.
int start_plain(const Options& options, const config::Settings& settings, const config::Environment& environment,
                const Words& program) {
    const bool first = config::identify(environment).rank.value_or(0) == 0;
    const bool forgets = first && !settings.report_file.empty() && !environment(config::kReportFileVariable);
    if (forgets) {
        if (auto forgotten = forget_report(settings.report_file); !forgotten) return refuse(forgotten.error());
    }
    if (!options.report.empty()) {
        return complain(
            "exec: enabled = false: the program would run in clear, and there is no report of that; set enabled, or "
            "leave out --report",
            kExitRefused);
    }
    if (forgets) complain("note: enabled = false: the job runs in clear, without CryptMPI, and has no report", 0);
    leave_children_as_found();
    return replace_by(program.front(), program);
}

int exec(const Options& options, const Words& program) {
    if (program.empty()) return complain("exec: no program given; see cryptmpi exec --help", kExitRefused);
    if (auto taken = take_settings(options); !taken) return refuse(taken.error());
    const auto environment = config::process_environment();
    auto settings = config::load(environment);
    if (!settings) return refuse(settings.error());
    if (!settings->enabled) return start_plain(options, *settings, environment, program);
    if (settings->require_members && !options.forwarded.empty()) keep_members_of_this_node(*settings);

    auto key = take_key(options, *settings);
    if (!key) return refuse(key.error());
    if (auto checked = check_job(options, *settings, environment); !checked) return refuse(checked.error());
    auto file = coverable(program.front(), environment);
    if (!file) return complain(file.error().line, file.error().status);
    const auto choice = layer_for(*file, *settings, environment);
    if (!choice) return refuse(choice.error());
    if (auto joined = join_report(options, *settings, environment); !joined) return refuse(joined.error());
    if (settings->live) report::remove_stale_pages(report::own_runtime_folder());

    prepare_environment(options, *settings, environment, *choice);
    warn_of_cipher(*settings, config::process_environment());
    warn_of_launcher(options, environment);
    if (*key) return hold_while_running(std::move(**key), file->string(), program);
    leave_children_as_found();
    // The channel library, which this process may have from its launcher, would give itself to the program.
    const bool sockets_stay_clear =
        options.role.empty() && choice->layer != config::Layer::channel && !settings->seal_sockets;
    return sockets_stay_clear ? replace_by_outside(file->string(), program) : replace_by(file->string(), program);
}

}  // namespace

void add_exec(CLI::App& app, const Words& program, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("exec", "Start one program sealed, inside a launcher line that you have");
    sub->footer(
        "Example: mpiexec -n 4 cryptmpi exec ./program input.txt\n"
        "Exit status: the program's; 125 refused (settings, key, a program that cannot be covered), 126 not runnable, "
        "127 not found.");
    sub->add_option("--job", options->job, "The job's id; all its processes must have the same");
    sub->add_option("--report", options->report, "Report file (setting report_file)");
    add_layer_option(*sub, options->layer);
    sub->add_option("--role", options->role, "What the report calls this process")->check(CLI::IsMember({"launcher"}));
    sub->add_flag("--wrapped-key-on-stdin", options->wrapped_key_on_stdin, "The same, wrapped by MUNGE")->group("");
    sub->add_flag("--key-on-stdin", options->key_on_stdin, "The job's key comes first on the standard input")
        ->group("");
    sub->add_option("--set", options->forwarded, "A setting as NAME=VALUE")->allow_extra_args(false)->group("");
    // Its words are cut off before the options are parsed; this tells --help of it.
    sub->add_option("PROGRAM", options->program_for_help, "The program; all words after it are its own arguments");
    sub->callback([options, &program, &status] { status = exec(*options, program); });
}

}  // namespace cryptmpi::command
