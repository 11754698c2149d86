// Can a preloaded library cover this program?
#pragma once

#include <filesystem>
#include <string>

#include "config/settings.hpp"
#include "programs/coverable.hpp"

namespace cryptmpi::command {

using programs::Refusal;

/// The program's file, as execvp would find it, when the loader will load our library into it. Scripts are judged by
/// their interpreter. Refused: missing, not executable, statically linked, set-user-ID, another machine's, Go, musl.
tl::expected<std::filesystem::path, Refusal> coverable(const std::string& program,
                                                       const config::Environment& environment);

}  // namespace cryptmpi::command
