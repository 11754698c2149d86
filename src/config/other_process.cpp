#include "config/other_process.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/process_stat.hpp"

namespace cryptmpi::config {
namespace {

/// Without their suffixes, such as ".hydra" and ".mpich".
constexpr std::array<std::string_view, 4> kLaunchers = {"mpiexec", "mpirun", "orterun", "prterun"};

/// By the file that it runs: a script of a launcher's name is a wrapper of somebody's, such as of the ranks.
bool is_launcher(pid_t process) {
    std::error_code ignored;
    const auto link = std::filesystem::path("/proc") / std::to_string(process) / "exe";
    const std::string file = std::filesystem::read_symlink(link, ignored).filename();
    return std::any_of(kLaunchers.begin(), kLaunchers.end(), [&](auto launcher) { return file.starts_with(launcher); });
}

/// 0: nobody knows.
pid_t parent_of(pid_t process) {
    const auto field = ProcessStat(process)[ProcessStat::kParent];
    return field ? static_cast<pid_t>(std::atoi(field->c_str())) : 0;
}

}  // namespace

std::optional<Environment> environment_of(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
    if (!file) return std::nullopt;
    std::map<std::string, std::string, std::less<>> variables;
    for (std::string line; std::getline(file, line, '\0');) {
        if (const auto at = line.find('='); at != std::string::npos) {
            variables.emplace(line.substr(0, at), line.substr(at + 1));
        }
    }
    // A process that ends just now, or a thread of the system, has none.
    if (variables.empty()) return std::nullopt;
    return Environment(std::move(variables));
}

bool may_be_rank(pid_t process) {
    const auto environment = environment_of(process);
    return !environment || identify(*environment).rank.has_value();
}

bool has_launcher_above() {
    constexpr int kMostAncestors = 64;
    pid_t process = getppid();
    for (int i = 0; i < kMostAncestors && process > 0; ++i) {  // the first one of a container may be a launcher
        if (is_launcher(process)) return true;
        process = parent_of(process);
    }
    return false;
}

}  // namespace cryptmpi::config
