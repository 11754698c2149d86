#include "config/values.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <variant>

namespace cryptmpi::config {

namespace fs = std::filesystem;

namespace {

constexpr double kLongestTime_s = 24.0 * 3600;

/// As read_list() takes it apart again.
std::optional<std::string> joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const auto& text : texts) {
        if (text.empty() || text != trim(text) || text.find(',') != std::string::npos) return std::nullopt;
        all += (all.empty() ? "" : ",") + text;
    }
    return all;
}

/// A path that means the same in every folder. "~/" is for each node to resolve, and "none" no path.
std::string whole_path(const Given& given, const std::string& text) {
    std::string path(trim(text));
    if (path.empty() || path == "none" || path.starts_with("~/")) return path;
    return (given.base / path).lexically_normal().string();
}

}  // namespace

tl::unexpected<Error> refuse(const Given& given, const std::string& what) {
    return fail(EINVAL, given.where + ": " + what);
}

std::string as_text(const TomlValue& value) {
    if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
    if (const auto* number = std::get_if<double>(&value)) {
        std::array<char, 32> digits{};
        return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), *number).ptr};
    }
    if (const auto* text = std::get_if<std::string>(&value)) return '"' + *text + '"';
    return "a list";
}

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return result;
}

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Result<bool> read_bool(const Given& given) {
    if (const auto* truth = std::get_if<bool>(&given.value)) return *truth;
    if (const auto* text = std::get_if<std::string>(&given.value); text != nullptr && given.from_variable) {
        const std::string word = lower(trim(*text));
        if (word == "true" || word == "on" || word == "yes" || word == "1") return true;
        if (word == "false" || word == "off" || word == "no" || word == "0") return false;
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: true, false");
}

Result<std::string> read_text(const Given& given) {
    if (const auto* text = std::get_if<std::string>(&given.value)) return std::string(trim(*text));
    return refuse(given, as_text(given.value) + " is not allowed; allowed: a string");
}

Result<fs::path> read_path(const Given& given, const Environment& environment) {
    auto text = read_text(given);
    if (!text) return tl::unexpected<Error>(text.error());
    if (text->empty()) return fs::path{};
    if (text->starts_with("~/")) {
        if (auto home = environment("HOME")) return fs::path(*home) / text->substr(2);
        return refuse(given, "\"~\" cannot be resolved, because HOME is not set; write the whole path");
    }
    return (given.base / *text).lexically_normal();
}

Result<std::chrono::milliseconds> read_seconds(const Given& given, bool zero_allowed) {
    double seconds = -1;
    if (const auto* number = std::get_if<double>(&given.value)) seconds = *number;
    if (const auto* text = std::get_if<std::string>(&given.value); text != nullptr && given.from_variable) {
        const std::string_view digits = trim(*text);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
        if (error != std::errc{} || end != digits.data() + digits.size()) seconds = -1;
    }
    const bool in_range =
        std::isfinite(seconds) && seconds <= kLongestTime_s && (zero_allowed ? seconds >= 0 : seconds >= 0.001);
    if (!in_range) {
        return refuse(given, as_text(given.value) + " is not allowed; allowed: seconds, " +
                                 (zero_allowed ? "0 (never) to 86400" : "0.001 to 86400"));
    }
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::llround(seconds * 1000)));
}

Result<std::vector<std::string>> read_list(const Given& given) {
    std::vector<std::string> texts;
    if (const auto* list = std::get_if<std::vector<std::string>>(&given.value)) {
        texts = *list;
    } else if (const auto* text = std::get_if<std::string>(&given.value); text != nullptr && given.from_variable) {
        for (std::string_view rest = *text; !trim(rest).empty();) {
            const auto comma = std::min(rest.find(','), rest.size());
            texts.emplace_back(trim(rest.substr(0, comma)));
            rest.remove_prefix(std::min(comma + 1, rest.size()));
        }
    } else {
        return refuse(given, as_text(given.value) + " is not allowed; allowed: a list of strings");
    }
    return texts;
}

Result<std::vector<PlaintextPeer>> read_peers(const Given& given) {
    auto texts = read_list(given);
    if (!texts) return tl::unexpected<Error>(texts.error());
    std::vector<PlaintextPeer> peers;
    for (const auto& text : *texts) {
        auto peer = parse_plaintext_peer(text);
        if (!peer) return refuse(given, peer.error().line);
        peers.push_back(std::move(*peer));
    }
    return peers;
}

std::optional<std::string> variable_value(const Given& given, bool is_path) {
    std::optional<std::string> value;
    if (const auto* list = std::get_if<std::vector<std::string>>(&given.value)) {
        value = joined(*list);
    } else if (const auto* text = std::get_if<std::string>(&given.value)) {
        value = is_path ? whole_path(given, *text) : *text;
    } else {
        value = as_text(given.value);
    }
    return value && value->find('\0') == std::string::npos ? value : std::nullopt;
}

}  // namespace cryptmpi::config
