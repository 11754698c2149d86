// A subcommand for users is a file of its name, those in Python are in python_command.cpp. `status`: of the command.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace CLI {
class App;
}

namespace cryptmpi::command {

struct LaunchLine;  // launch_line.hpp

using Words = std::vector<std::string>;

void add_keygen(CLI::App& app, int& status);
void add_key(CLI::App& app, int& status);
/// Not for users: what cryptmpi key install calls on other nodes.
void add_receive_key(CLI::App& app, int& status);
void add_exec(CLI::App& app, const Words& program, int& status);
void add_run(CLI::App& app, const LaunchLine& line, int& status);
/// Removes what an earlier job left under the name of this line's report. For lines that start nothing.
Result<void> forget_report_of(const LaunchLine& line);
/// The same of a report that may be named in words that were not read, which may also be the program's.
void forget_report_in(const Words& words);
void add_doctor(CLI::App& app, int& status);
void add_coverage(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_attest(CLI::App& app, int& status);
void add_top(CLI::App& app, int& status);
/// Not for users: what cryptmpi run calls on other nodes.
void add_collect(CLI::App& app, int& status);
/// Those that are Python packages, which python_command.cpp lists.
void add_python_commands(CLI::App& app, int& status);

/// All of these, and what cryptmpi itself says of them.
void add_everything(CLI::App& app, const Words& program, const LaunchLine& line, int& status);

/// Not for users: what a launcher calls in place of ssh. `arguments` are ssh's.
int agent(const Words& arguments);

}  // namespace cryptmpi::command
