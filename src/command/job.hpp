// What exec and run do alike before a program starts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command/launchers.hpp"
#include "command/layer_choice.hpp"
#include "config/settings.hpp"
#include "keys/report_key.hpp"

namespace CLI {
class App;
}

namespace cryptmpi::command {

/// What is known of a job besides the settings and the environment.
struct LayerEvidence {
    std::optional<MpiLibrary> library;
    std::vector<std::pair<std::string, std::string>> variables;  // for the ranks
    std::vector<std::string> launcher_arguments;
};
/// The setting, or for "auto" what the evidence and the networks of this node say.
LayerChoice choose_layer(const config::Settings& settings, const config::Environment& environment,
                         const LayerEvidence& evidence);

/// Gives what this process starts the layer, what carries MPI, and the reason for its report.
void pass_on(const LayerChoice& choice);

/// "layer channel: this node has no ..."
std::string text(const LayerChoice& choice);

/// What the MPI layer's library loads for programs of one ABI.
std::filesystem::path abi_library_file(const config::Settings& settings, const std::string& abi);
/// The preloaded library of a layer and the agent that starts remote daemons, both in the module folder.
std::filesystem::path library_file(const config::Settings& settings, config::Layer layer);
std::filesystem::path agent_file(const config::Settings& settings);

/// Whether the layer that was chosen has what is asked for (config::check_padding, config::check_key_exchange), and
/// this node a module for it.
Result<void> check_choice(const config::Settings& settings, const LayerChoice& choice);

/// The libraries that a rank and its launcher need are there and can be preloaded. Error: one line.
Result<void> check_libraries(const config::Settings& settings, config::Layer layer);
/// The key file, and the module if one is named. Error: one line.
Result<void> check_key_and_module(const config::Settings& settings);

/// What a job's report is signed with. Errors: the key file's.
Result<keys::ReportKey> report_key(const config::Settings& settings);

/// The setting allow names nothing that is not refused. Error: one line. Of a program whose MPI is not known only names
/// that every MPI has can be judged; the layer judges the others at its start.
Result<void> check_allow(const config::Settings& settings, const std::optional<MpiLibrary>& library);

/// LD_PRELOAD of a rank. The channel library comes first, also under the MPI layer, whose sockets it seals unless the
/// setting seal_sockets is off; then the user's own. The MPI layer's comes behind these, which may be tools that stand
/// between the program and MPI, and before an MPI library among them.
std::string preload_of_rank(const config::Settings& settings, config::Layer layer,
                            const config::Environment& environment);
/// LD_PRELOAD of a launcher and its daemons: the channel library, whatever seals MPI's data.
std::string preload_of_launcher(const config::Settings& settings, config::Layer layer,
                                const config::Environment& environment);
/// LD_PRELOAD without any of ours; empty when nothing else was there.
std::string preload_without(const config::Environment& environment);

/// --layer, for exec and run.
void add_layer_option(CLI::App& subcommand, std::string& layer);

void set_variable(const std::string& name, const std::string& value);

}  // namespace cryptmpi::command
