// What exec and run do alike before a program starts.
#pragma once

#include <string>

#include "config/settings.hpp"

namespace cryptmpi::command {

/// Our preloaded library and the agent that starts remote daemons, both in the module folder.
std::filesystem::path library_file(const config::Settings& settings);
std::filesystem::path agent_file(const config::Settings& settings);

/// Everything but the program: the library, the module if one is named, the key file. Error: one line.
Result<void> check_installation(const config::Settings& settings);

/// LD_PRELOAD with our library first, the user's own after it.
std::string preload_with(const std::filesystem::path& library, const config::Environment& environment);
/// LD_PRELOAD without it; empty when nothing else was there.
std::string preload_without(const std::filesystem::path& library, const config::Environment& environment);

void set_variable(const std::string& name, const std::string& value);

}  // namespace cryptmpi::command
