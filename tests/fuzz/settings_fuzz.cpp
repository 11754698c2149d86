// An arbitrary settings file and, behind its first zero byte, variables: lines "CRYPTMPI_NAME=value".
#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "config/internal_variables.hpp"
#include "config/loading.hpp"
#include "config/settings.hpp"
#include "scratch.hpp"

using namespace cryptmpi;

namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

const fuzz::Scratch& scratch() {
    static const fuzz::Scratch made;
    return made;
}

Variables base() {
    return {{"HOME", "/home/somebody"}, {"PATH", "/usr/bin"}};
}

/// Who has only the variables that a process passes on has the same settings.
void require_same_by_variables(const config::Settings& settings) {
    Variables variables = base();
    variables[config::kSettingsGivenVariable] = "1";
    for (const auto& given : settings.given) {
        if (!given.value) return;  // no variable can say it, which the caller refuses
        variables[given.variable] = *given.value;
    }
    const auto again = config::load(config::Environment(variables));
    fuzz::require(again.has_value());
    auto ours = settings.given_lines(), theirs = again->given_lines();
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
    fuzz::require(ours == theirs);
    fuzz::require(again->plaintext_peers.size() == settings.plaintext_peers.size());
    for (std::size_t i = 0; i < settings.plaintext_peers.size(); ++i)
        fuzz::require(again->plaintext_peers[i].prefix_bits == settings.plaintext_peers[i].prefix_bits);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto end = text.find('\0');
    Variables variables = base();
    if (end != std::string_view::npos) {
        std::istringstream lines{std::string(text.substr(end + 1))};
        for (std::string line; std::getline(lines, line);) {
            const auto equals = line.find('=');
            // No process can have others.
            if (equals == 0 || equals == std::string::npos || line.find('\0') != std::string::npos) continue;
            variables[line.substr(0, equals)] = line.substr(equals + 1);
        }
    }
    variables["CRYPTMPI_CONFIG"] = scratch().write("config.toml", text.substr(0, end));
    const config::Environment environment(variables);
    (void)config::identify(environment);
    (void)config::openmp_threads(environment);
    const auto settings = config::load(environment);
    if (!settings) {
        fuzz::require_one_line(settings.error().line);
        return 0;
    }
    for (const auto& peer : settings->plaintext_peers) fuzz::require(peer.prefix_bits >= 0 && peer.prefix_bits <= 128);
    fuzz::require(settings->threads >= 0 && settings->threads <= 64);
    require_same_by_variables(*settings);
    return 0;
}
