#include "config/toml_file.hpp"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

namespace cryptmpi::config {
namespace {

std::optional<TomlValue> flatten(const toml::node& node) {
    if (const auto* truth = node.as_boolean()) return TomlValue{truth->get()};
    if (const auto* whole = node.as_integer()) return TomlValue{static_cast<double>(whole->get())};
    if (const auto* number = node.as_floating_point()) return TomlValue{number->get()};
    if (const auto* text = node.as_string()) return TomlValue{text->get()};
    if (const auto* array = node.as_array()) {
        std::vector<std::string> texts;
        for (const auto& element : *array) {
            const auto* text = element.as_string();
            if (text == nullptr) return std::nullopt;
            texts.push_back(text->get());
        }
        return TomlValue{std::move(texts)};
    }
    return std::nullopt;
}

}  // namespace

Result<std::vector<TomlEntry>> read_toml(const std::filesystem::path& file) {
    errno = 0;
    std::ifstream stream(file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (!stream) {
        const int code = errno != 0 ? errno : EIO;
        return fail(code, "cannot read settings file " + file.string() + ": " + std::strerror(code));
    }
    auto parsed = toml::parse(text);
    if (!parsed) {
        return fail(EINVAL, file.string() + ":" + std::to_string(parsed.error().source().begin.line) +
                                ": not valid TOML: " + std::string(parsed.error().description()));
    }
    std::vector<TomlEntry> entries;
    for (const auto& [key, node] : parsed.table()) {
        const unsigned line = node.source().begin.line;
        auto value = flatten(node);
        if (!value) {
            return fail(EINVAL, file.string() + ":" + std::to_string(line) + ": " + std::string(key.str()) +
                                    ": expected true or false, a number, a string or a list of strings");
        }
        entries.push_back({std::string(key.str()), std::move(*value), line});
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
    return entries;
}

}  // namespace cryptmpi::config
