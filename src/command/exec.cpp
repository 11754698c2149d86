// Starts one program under the preloaded library. Checks everything first, so that a mistake is one line and not a job
// in clear.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "command/job.hpp"
#include "command/process.hpp"
#include "command/program.hpp"
#include "command/subcommands.hpp"

namespace cryptmpi::command {
namespace {

struct Options {
    std::string program_for_help;
    std::string job;
    std::string report;
    std::string role;
    std::string layer;
    Words forwarded;  // NAME=VALUE, CRYPTMPI_ left out
};

/// Once a job: its ranks start here, whichever launcher and layer they have. A rank's own children are not told again.
void warn_of_cipher(const config::Settings& settings, const config::Environment& environment) {
    constexpr const char* kWarned = "CRYPTMPI_INTERNAL_WARNED_OF_CIPHER";
    const std::string warning = config::cipher_warning(settings, config::identify(environment));
    if (warning.empty() || environment(kWarned)) return;
    complain(warning, 0);
    set_variable(kWarned, "1");
}

/// libfabric's tcp provider reads no more from a peer of whom it holds 64 messages that nobody has asked for: the one
/// that is waited for may be behind them, and the MPI layer makes several messages of a large one.
void hold_more_messages(config::Layer layer, const config::Environment& environment) {
    constexpr const char* kHeld = "FI_TCP_MAX_SAVED";
    if (layer == config::Layer::mpi && !environment(kHeld)) set_variable(kHeld, "65536");
}

int exec(const Options& options, const Words& program) {
    if (program.empty()) return complain("exec: no program given; see cryptmpi exec --help", kRefused);
    for (const auto& setting : options.forwarded) {
        const auto equals = setting.find('=');
        if (equals == std::string::npos) return complain("exec: --set " + setting + ": expected NAME=VALUE", kRefused);
        set_variable("CRYPTMPI_" + setting.substr(0, equals), setting.substr(equals + 1));
    }
    if (!options.job.empty()) set_variable("CRYPTMPI_JOB_ID", options.job);
    if (!options.report.empty())
        set_variable("CRYPTMPI_REPORT_FILE", std::filesystem::absolute(options.report).string());
    if (!options.layer.empty()) set_variable("CRYPTMPI_LAYER", options.layer);
    const auto environment = config::process_environment();
    auto settings = config::load(environment);
    if (!settings) return complain(settings.error().line, kRefused);
    if (!settings->enabled) return replace_by(program.front(), program);

    if (auto checked = check_key_and_module(*settings); !checked) return complain(checked.error().line, kRefused);
    auto file = coverable(program.front(), environment);
    if (!file) return complain(file.error().line, file.error().status);
    const auto library = library_of(*file, environment);
    if (auto checked = check_allow(*settings, library); !checked) return complain(checked.error().line, kRefused);
    const LayerChoice choice = choose_layer(*settings, environment, {library, {}, {}});
    if (auto checked = check_library(*settings, choice.layer); !checked)
        return complain(checked.error().line, kRefused);

    pass_on_reason(choice);
    set_variable("LD_PRELOAD", preload_with(*settings, choice.layer, environment));
    hold_more_messages(choice.layer, environment);
    if (!settings->job_id.empty()) set_variable("CRYPTMPI_JOB_ID", settings->job_id);
    // A launcher's children inherit its role; a rank that is started by exec is none.
    if (options.role.empty()) {
        unsetenv("CRYPTMPI_INTERNAL_ROLE");
    } else {
        set_variable("CRYPTMPI_INTERNAL_ROLE", options.role);
    }
    warn_of_cipher(*settings, config::process_environment());
    return replace_by(file->string(), program);
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
    sub->add_option("--set", options->forwarded, "A setting as NAME=VALUE")->allow_extra_args(false)->group("");
    // Its words are cut off before the options are parsed; this tells --help of it.
    sub->add_option("PROGRAM", options->program_for_help, "The program; all words after it are its own arguments");
    sub->callback([options, &program, &status] { status = exec(*options, program); });
}

}  // namespace cryptmpi::command
