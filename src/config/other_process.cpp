#include "config/other_process.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace cryptmpi::config {
namespace {

/// Without their suffixes, such as ".hydra" and ".mpich".
constexpr std::array<std::string_view, 4> kLaunchers = {"mpiexec", "mpirun", "orterun", "prterun"};

struct Ancestor {
    std::string name;  // 15 characters at most
    pid_t parent = 0;
};

/// The line is: number (name) state parent ... A name may have blanks and brackets.
Ancestor ancestor(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    const auto begin = line.find('('), end = line.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
    Ancestor found{line.substr(begin + 1, end - begin - 1), 0};
    char state = ' ';
    std::istringstream(line.substr(end + 1)) >> state >> found.parent;
    return found;
}

}  // namespace

std::optional<Environment> environment_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
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
    for (int i = 0; i < kMostAncestors && process > 1; ++i) {
        const Ancestor at = ancestor(process);
        const auto begins = [&](std::string_view launcher) { return at.name.starts_with(launcher); };
        if (std::any_of(kLaunchers.begin(), kLaunchers.end(), begins)) return true;
        process = at.parent;
    }
    return false;
}

}  // namespace cryptmpi::config
