#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

#include "command/process.hpp"
#include "command/subcommands.hpp"

namespace cryptmpi::command {
namespace {

/// Cuts the program and its arguments off a subcommand's own options: they begin at the first word that is neither an
/// option nor an option's value, or after "--".
Words cut_program(const CLI::App& sub, Words& arguments) {
    std::size_t at = 1;
    while (at < arguments.size() && arguments[at] != "--" && arguments[at].size() > 1 && arguments[at][0] == '-') {
        const auto* option = sub.get_option_no_throw(arguments[at]);
        const bool takes_next = option != nullptr && option->get_items_expected_max() > 0;
        at += takes_next ? 2 : 1;
    }
    at = std::min(at, arguments.size());
    const auto cut = arguments.begin() + static_cast<std::ptrdiff_t>(at);
    const bool marked = at < arguments.size() && *cut == "--";
    Words program(marked ? cut + 1 : cut, arguments.end());
    arguments.erase(cut, arguments.end());
    return program;
}

int main_of(Words arguments) {
    CLI::App app("CryptMPI: unmodified MPI programs, encrypted and authenticated between nodes", "cryptmpi");
    app.set_version_flag("--version", "cryptmpi " CRYPTMPI_VERSION);
    app.require_subcommand(0, 1);  // with 1, an unknown one would be told that one is required
    app.footer(
        "Examples:\n"
        "  cryptmpi run -n 4 --hosts a,b ./program args       with the launcher of the program's own MPI, and a fresh "
        "key\n"
        "  cryptmpi keygen                                    once: the key file, for launchers that you start "
        "yourself\n"
        "  mpiexec -n 4 cryptmpi exec ./program args          inside a launcher line that you have\n"
        "  cryptmpi doctor                                    is this machine ready?\n"
        "  cryptmpi coverage                                  what becomes of each MPI procedure\n"
        "  cryptmpi run --report job.json -n 4 ./program && cryptmpi report job.json\n"
        "  cryptmpi tune --hosts a,b                          plans of large messages for this network\n"
        "  cryptmpi model papers                              the papers' figures, computed again\n"
        "Each subcommand has a --help. Settings: docs/settings.md.");
    int status = 0;
    Words program;
    add_keygen(app, status);
    add_run(app, program, status);
    add_exec(app, program, status);
    add_doctor(app, status);
    add_coverage(app, status);
    add_report(app, status);
    add_collect(app, status);
    add_python_commands(app, status);

    const bool starts_program = !arguments.empty() && (arguments[0] == "exec" || arguments[0] == "run");
    if (starts_program) program = cut_program(*app.get_subcommand(arguments[0]), arguments);
    try {
        std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
        app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        return complain(std::string(error.what()) + "; see cryptmpi --help", starts_program ? kRefused : 2);
    }
    if (app.get_subcommands().empty()) return complain("a subcommand is required; see cryptmpi --help", 2);
    return status;
}

}  // namespace
}  // namespace cryptmpi::command

int main(int argc, char** argv) {
    using namespace cryptmpi::command;
    try {
        Words arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
        // Launchers take the path of a remote shell without arguments, so the agent is this file under another name.
        const std::string_view called = argc > 0 ? argv[0] : "";
        if (called == "cryptmpi-agent" || called.ends_with("/cryptmpi-agent")) return agent(arguments);
        return main_of(std::move(arguments));
    } catch (const std::exception& error) {
        return complain(error.what(), kRefused);
    }
}
