#include "config/other_process.hpp"

#include <fstream>
#include <string>

namespace cryptmpi::config {

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

}  // namespace cryptmpi::config
