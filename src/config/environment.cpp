#include "config/environment.hpp"

#include <unistd.h>

namespace cryptmpi::config {

std::optional<std::string> Environment::operator()(std::string_view name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return std::nullopt;
    return found->second;
}

Environment process_environment() {
    std::map<std::string, std::string, std::less<>> variables;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view line = *entry;
        if (const auto equals = line.find('='); equals != std::string_view::npos) {
            variables.emplace(line.substr(0, equals), line.substr(equals + 1));
        }
    }
    return Environment(std::move(variables));
}

}  // namespace cryptmpi::config
