// What exec and run do alike before a program starts.
#pragma once

#include <string>

#include "config/settings.hpp"

namespace CLI {
class App;
}

namespace cryptmpi::command {

/// A layer for a job, and why this one.
struct LayerChoice {
    config::Layer layer;  // never automatic
    std::string why;
};
/// The setting, or for "auto" what suits the networks of this node and what the environment tells the MPI to use.
LayerChoice choose_layer(const config::Settings& settings, const config::Environment& environment);

/// The preloaded library of a layer and the agent that starts remote daemons, both in the module folder.
std::filesystem::path library_file(const config::Settings& settings, config::Layer layer);
std::filesystem::path agent_file(const config::Settings& settings);

/// Everything but the program: the library, the module if one is named, the key file. Error: one line.
Result<void> check_installation(const config::Settings& settings, config::Layer layer);

/// LD_PRELOAD with our library first, the user's own after it.
std::string preload_with(const std::filesystem::path& library, const config::Environment& environment);
/// LD_PRELOAD without it; empty when nothing else was there.
std::string preload_without(const std::filesystem::path& library, const config::Environment& environment);

/// --layer, for exec and run.
void add_layer_option(CLI::App& subcommand, std::string& layer);

void set_variable(const std::string& name, const std::string& value);

}  // namespace cryptmpi::command
