#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "base/nearest.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "command/typed_line.hpp"

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

/// A line about a first word that is no subcommand, with the one that was meant.
std::optional<std::string> unknown_subcommand(const CLI::App& app, const Words& arguments) {
    if (arguments.empty() || arguments[0].starts_with('-')) return std::nullopt;
    const std::string& word = arguments[0];
    std::size_t nearest = 3;
    std::string meant;
    for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
        const std::size_t far = edit_distance(word, sub->get_name());
        if (far == 0) return std::nullopt;
        if (far >= nearest || sub->get_group().empty()) continue;
        nearest = far;
        meant = sub->get_name();
    }
    return "no subcommand " + word + (meant.empty() ? "; see cryptmpi --help" : "; did you mean " + meant + "?");
}

/// A line of "run" that starts nothing leaves no report that would pass for its own.
int refuse_line(const LaunchLine& line, const std::string& why) {
    if (auto forgotten = forget_report_of(line); !forgotten) complain(forgotten.error().line, kExitRefused);
    return complain(why, kExitRefused);
}

int main_of(Words arguments) {
    CLI::App app;
    int status = 0;
    Words program;
    LaunchLine line;
    add_everything(app, program, line, status);

    const std::string first = arguments.empty() ? "" : arguments[0];
    const bool runs = first == "run";
    const bool starts_program = runs || first == "exec";
    if (runs) {
        line = read_typed_line({arguments.begin() + 1, arguments.end()}, config::process_environment());
        if (line.error && !line.wants_help) {
            forget_report_in({arguments.begin() + 1, arguments.end()});
            return refuse_line(line, line.error->line);
        }
        arguments.resize(1);
        if (line.wants_help) arguments.emplace_back("--help");
        if (!line.wants_help) arguments.insert(arguments.end(), line.own.begin(), line.own.end());
    } else if (starts_program) {
        program = cut_program(*app.get_subcommand(first), arguments);
    } else if (auto wrong = unknown_subcommand(app, arguments)) {
        return complain(*wrong, 2);
    }
    try {
        std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
        app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        const std::string asked = first.empty() || first.starts_with('-') ? "cryptmpi" : "cryptmpi " + first;
        const std::string why = std::string(error.what()) + "; see " + asked + " --help";
        return runs ? refuse_line(line, why) : complain(why, starts_program ? kExitRefused : 2);
    }
    if (app.get_subcommands().empty()) return complain("a subcommand is required; see cryptmpi --help", 2);
    return status;
}

}  // namespace
}  // namespace cryptmpi::command

int main(int argc, char** argv) {
    using namespace cryptmpi::command;
    try {
        watch_children();
        // Else it would look for its libraries in the current folder.
        if (own_file().empty())
            return complain("/proc is not mounted here, by which cryptmpi finds its own libraries; mount it",
                            cryptmpi::kExitRefused);
        Words arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
        // Launchers take the path of a remote shell without arguments, so the agent is this file under another name, or
        // a script that calls it.
        const std::string_view called = argc > 0 ? argv[0] : "";
        if (called == "cryptmpi-agent" || called.ends_with("/cryptmpi-agent")) return agent(arguments);
        if (!arguments.empty() && arguments[0] == "agent") return agent(Words(arguments.begin() + 1, arguments.end()));
        return main_of(std::move(arguments));
    } catch (const std::exception& error) {
        return complain(error.what(), cryptmpi::kExitRefused);
    }
}
