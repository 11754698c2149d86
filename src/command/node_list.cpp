#include "command/node_list.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>

namespace cryptmpi::command {
namespace {

tl::unexpected<Error> bad(std::string_view what, std::string_view text, const std::string& why) {
    return fail(EINVAL, "the list of " + std::string(what) + " \"" + std::string(text) + "\": " + why);
}

template <typename Number>
std::optional<Number> number(std::string_view text) {
    Number value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
    return value;
}

/// The entries between the commas that stand outside brackets. An error's line says why there are none.
tl::expected<std::vector<std::string_view>, std::string> entries_of(std::string_view text) {
    std::vector<std::string_view> entries;
    std::size_t start = 0;
    bool inside = false;
    for (std::size_t at = 0; at <= text.size(); ++at) {
        const char letter = at < text.size() ? text[at] : ',';
        if (letter == '[' && inside) return tl::unexpected<std::string>("a [ stands inside another");
        if (letter == ']' && !inside) return tl::unexpected<std::string>("a ] has no [ before it");
        if (letter == '[') inside = true;
        if (letter == ']') inside = false;
        if (at == text.size() && inside) return tl::unexpected<std::string>("a [ has no ] behind it");
        if (letter != ',' || inside) continue;
        entries.push_back(text.substr(start, at - start));
        start = at + 1;
    }
    return entries;
}

/// What the brackets' "1-3,07-09" stands for, each with as many digits as the first of its range.
tl::expected<std::vector<std::string>, std::string> numbers_of(std::string_view ranges) {
    std::vector<std::string> numbers;
    while (true) {
        const auto comma = std::min(ranges.find(','), ranges.size());
        const auto range = ranges.substr(0, comma);
        const auto dash = std::min(range.find('-'), range.size());
        const auto first_text = range.substr(0, dash);
        const auto first = number<std::uint64_t>(first_text);
        const auto last = dash == range.size() ? first : number<std::uint64_t>(range.substr(dash + 1));
        if (!first || !last || *last < *first)
            return tl::unexpected<std::string>("\"" + std::string(range) + "\" is no range of numbers");
        if (*last - *first >= kMostNodes || numbers.size() + (*last - *first) >= kMostNodes)
            return tl::unexpected<std::string>("too many nodes");
        for (std::uint64_t value = *first; value <= *last; ++value) {
            const std::string digits = std::to_string(value);
            numbers.push_back(std::string(first_text.size() - std::min(first_text.size(), digits.size()), '0') +
                              digits);
        }
        if (comma == ranges.size()) return numbers;
        ranges.remove_prefix(comma + 1);
    }
}

/// The names that one entry stands for: each of its brackets multiplies them, the last one counting fastest.
tl::expected<std::vector<std::string>, std::string> names_of(std::string_view entry) {
    std::vector<std::string> names = {""};
    while (!entry.empty()) {
        const auto open = std::min(entry.find('['), entry.size());
        for (auto& name : names) name += entry.substr(0, open);
        if (open == entry.size()) break;
        const auto close = entry.find(']');
        const auto numbers = numbers_of(entry.substr(open + 1, close - open - 1));
        if (!numbers) return tl::unexpected<std::string>(numbers.error());
        if (names.size() * numbers->size() > kMostNodes) return tl::unexpected<std::string>("too many nodes");
        std::vector<std::string> longer;
        longer.reserve(names.size() * numbers->size());
        for (const auto& name : names) {
            for (const auto& digits : *numbers) longer.push_back(name + digits);
        }
        names = std::move(longer);
        entry.remove_prefix(close + 1);
    }
    return names;
}

/// The words of each line, without comments.
std::vector<std::vector<std::string_view>> lines_of(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r";
    std::vector<std::vector<std::string_view>> lines;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        auto line = text.substr(0, std::min(end, text.find('#')));
        auto& words = lines.emplace_back();
        while (true) {
            line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
            if (line.empty()) break;
            const auto stop = std::min(line.find_first_of(kBlanks), line.size());
            words.push_back(line.substr(0, stop));
            line.remove_prefix(stop);
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

/// "a", "a:2", "a:*"; nullopt: what a remote shell would take for an option, or no name, or no number.
std::optional<Host> host_of(std::string_view entry) {
    Host host{std::string(entry), 0};
    if (const auto colon = entry.rfind(':'); colon != std::string_view::npos) {
        const auto slots = entry.substr(colon + 1);
        host.slots = number<int>(slots).value_or(0);
        host.name = entry.substr(0, colon);
        if (host.slots < 1 && slots != "*") return std::nullopt;
    }
    if (host.name.empty() || host.name.front() == '-') return std::nullopt;
    if (host.name.find_first_of(" \t") != std::string::npos) return std::nullopt;
    return host;
}

/// Open MPI's slots=2 and its older words.
std::optional<int> slots_of(std::string_view word) {
    for (const std::string_view name : {"slots=", "cpu=", "count="}) {
        if (word.starts_with(name)) return number<int>(word.substr(name.size()));
    }
    return std::nullopt;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view text) {
    const auto entries = entries_of(text);
    if (!entries) return bad("nodes", text, entries.error());
    std::vector<std::string> nodes;
    for (const auto entry : *entries) {
        if (entry.empty() || entry.starts_with('-') || entry.find_first_of(" \t\r\n") != std::string_view::npos)
            return bad("nodes", text, "\"" + std::string(entry) + "\" is no node's name");
        const auto names = names_of(entry);
        if (!names) return bad("nodes", text, names.error());
        if (nodes.size() + names->size() > kMostNodes) return bad("nodes", text, "too many nodes");
        nodes.insert(nodes.end(), names->begin(), names->end());
    }
    return nodes;
}

Result<std::vector<int>> expand_count_list(std::string_view text) {
    std::vector<int> counts;
    for (std::string_view left = text;;) {
        const auto comma = std::min(left.find(','), left.size());
        const auto entry = left.substr(0, comma);
        const auto repeated = std::min(entry.find("(x"), entry.size());
        const auto count = number<int>(entry.substr(0, repeated));
        std::optional<std::size_t> times = 1;
        if (repeated != entry.size()) {
            const auto behind = entry.substr(repeated + 2);
            times = behind.ends_with(')') ? number<std::size_t>(behind.substr(0, behind.size() - 1)) : std::nullopt;
        }
        if (!count || *count < 1 || !times || *times < 1)
            return bad("counts", text, "\"" + std::string(entry) + "\" is no count; expected N or N(xTIMES)");
        if (*times > kMostNodes || counts.size() + *times > kMostNodes) return bad("counts", text, "too many nodes");
        counts.insert(counts.end(), *times, *count);
        if (comma == left.size()) return counts;
        left.remove_prefix(comma + 1);
    }
}

Result<std::vector<Host>> count_lines(std::string_view text) {
    std::vector<Host> hosts;
    for (const auto& words : lines_of(text)) {
        if (words.empty()) continue;
        if (words.size() != 1 || words[0].front() == '-')
            return bad("nodes", words[0], "a line of it is no node's name");
        const auto same =
            std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == words[0]; });
        if (same == hosts.end()) {
            hosts.push_back({std::string(words[0]), 1});
        } else {
            ++same->slots;
        }
    }
    if (hosts.empty()) return bad("nodes", text, "it names none");
    return hosts;
}

Result<std::vector<Host>> parse_host_list(std::string_view text) {
    const auto entries = expand_node_list(text);
    if (!entries) return tl::unexpected<Error>(entries.error());
    std::vector<Host> hosts;
    for (const auto& entry : *entries) {
        auto host = host_of(entry);
        if (!host) return fail(EINVAL, "\"" + entry + "\" is not a host; expected NAME or NAME:SLOTS");
        hosts.push_back(std::move(*host));
    }
    return hosts;
}

Result<std::vector<Host>> parse_host_file(std::string_view text) {
    std::vector<Host> hosts;
    int number_of_line = 0;
    for (const auto& words : lines_of(text)) {
        ++number_of_line;
        if (words.empty()) continue;
        auto host = host_of(words[0]);
        if (!host) return fail(EINVAL, fmt::format("line {}: \"{}\" is not a host", number_of_line, words[0]));
        for (std::size_t i = 1; i < words.size(); ++i) {
            const auto slots = slots_of(words[i]);
            if (slots) host->slots = *slots;
        }
        hosts.push_back(std::move(*host));
    }
    return hosts;
}

}  // namespace cryptmpi::command
