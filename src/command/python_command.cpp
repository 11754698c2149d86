// The subcommands that are written in Python, parts of the package cryptmpi_tools: found beside the installation, run
// by a python3 that has what they need.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>

#include "command/shell.hpp"
#include "command/subcommands.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPackage = "cryptmpi_tools";

struct PythonCommand {
    const char* name;    // of the subcommand
    const char* module;  // of cryptmpi_tools, that is run
    const char* description;
    Words modules;             // that python3 must have; Debian's packages are called python3-MODULE
    bool helps_alone = false;  // --help needs none of them
};

const std::array kCommands = {
    PythonCommand{"model",
                  "model",
                  "What encryption costs: fit, predict, plan and scale by models",
                  {"numpy", "scipy", "rich"},
                  true},
    PythonCommand{"tune",
                  "tune",
                  "Measures this machine and network, and writes the plans of large messages that suit them",
                  {"numpy", "scipy", "rich"},
                  true},
    PythonCommand{"canary",
                  "canary",
                  "Sends a known pattern between two nodes, plain and sealed, and looks for it in what leaves them",
                  {}},
    PythonCommand{"bench",
                  "study.bench_command",
                  "Measures one thing, plain and encrypted in turn: ciphers, ping-pong, pairs ...",
                  {"numpy", "scipy", "matplotlib", "rich", "jinja2"}},
    PythonCommand{"study",
                  "study",
                  "Measures the papers' figures and writes a page of them",
                  {"numpy", "scipy", "matplotlib", "rich", "jinja2"}},
};

// Neither line may import anything from the folder that the user happens to be in, which is where python3 -c and -m
// look first.
constexpr const char* kLook =
    "import sys; sys.path = [p for p in sys.path if p]; from importlib.util import find_spec; "
    "print('lacks:', *[m for m in sys.argv[1:] if find_spec(m) is None])";
constexpr const char* kRun =
    "import sys; sys.path = [sys.argv.pop(1)] + [p for p in sys.path if p]; import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)";

/// The folder that has the package in it: beside the command, in the build tree as installed.
fs::path python_folder() {
    return (own_file().parent_path() / CRYPTMPI_DATA_FROM_BIN / "cryptmpi").lexically_normal();
}

/// Those of `modules` that this python3 lacks; nullopt when it does not run.
std::optional<Words> lacks(const fs::path& python, const Words& modules) {
    Words line = {python.string(), "-c", kLook};
    line.insert(line.end(), modules.begin(), modules.end());
    const auto said = output_of(line);
    const auto start = said ? said->find("lacks:") : std::string::npos;
    if (start == std::string::npos) return std::nullopt;
    std::istringstream words(said->substr(start));
    Words missing;
    std::string word;
    for (words >> word; words >> word;) missing.push_back(word);
    return missing;
}

std::string joined(const Words& words, const std::string& before = {}) {
    std::string text;
    for (const auto& word : words) text.append(text.empty() ? "" : " ").append(before).append(word);
    return text;
}

/// The first python3 that has the modules: that of PATH, or else the system's, whose packages are Debian's.
tl::expected<fs::path, std::string> suitable_python(const Words& modules) {
    std::string complaint = "no python3 in PATH; install it (Debian: python3 " + joined(modules, "python3-") + ")";
    bool first = true;
    for (const auto& name : {"python3", "/usr/bin/python3"}) {
        const auto python = find_in_path(name, config::process_environment());
        if (!python) continue;
        const auto missing = lacks(*python, modules);
        if (missing && missing->empty()) return *python;
        if (!first) continue;
        first = false;
        complaint = missing ? python->string() + " lacks " + joined(*missing) +
                                  "; install what is missing (Debian: " + joined(*missing, "python3-") + ")"
                            : python->string() + " does not run; install another (Debian: python3)";
    }
    return tl::unexpected<std::string>(complaint);
}

int run(const PythonCommand& command, const Words& arguments) {
    const std::string name = command.name;
    const fs::path folder = python_folder();
    std::error_code ignored;
    if (!fs::is_directory(folder / kPackage, ignored)) {
        return complain(name + ": its Python package is not at " + (folder / kPackage).string() +
                            "; install all of CryptMPI (make install)",
                        1);
    }
    // The packages say their --help without them.
    const bool asks_for_help = std::any_of(arguments.begin(), arguments.end(),
                                           [](const auto& word) { return word == "--help" || word == "-h"; });
    const auto python = suitable_python(asks_for_help && command.helps_alone ? Words() : command.modules);
    if (!python) return complain(name + ": " + python.error(), 1);
    Words line = {python->string(), "-c", kRun, folder.string(), std::string(kPackage) + "." + command.module};
    line.insert(line.end(), arguments.begin(), arguments.end());
    return replace_by(python->string(), line);
}

}  // namespace

void add_python_commands(CLI::App& app, int& status) {
    for (const auto& command : kCommands) {
        auto* sub = app.add_subcommand(command.name, command.description);
        sub->set_help_flag();   // the package has its own --help
        sub->prefix_command();  // and reads its own words
        sub->callback([sub, &command, &status] { status = run(command, sub->remaining()); });
    }
}

}  // namespace cryptmpi::command
