// Environment variables: this process's own, another one's, or those that a test made.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cryptmpi::config {

/// Environment variables by name, listable so that a misspelt setting is noticed. Tests make their own.
class Environment {
public:
    Environment() = default;
    explicit Environment(std::map<std::string, std::string, std::less<>> variables)
        : variables_(std::move(variables)) {}

    /// nullopt when the variable is not set.
    std::optional<std::string> operator()(std::string_view name) const;
    const std::map<std::string, std::string, std::less<>>& variables() const { return variables_; }

private:
    std::map<std::string, std::string, std::less<>> variables_;
};
Environment process_environment();

}  // namespace cryptmpi::config
