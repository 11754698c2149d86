#include "command/wrappers.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace cryptmpi::command {
namespace {

struct Wrapper {
    std::string_view name;
    std::string_view with_value;  // options whose value is a word of its own, " -n --adjustment "
    int words = 0;                // of its own, before the program
    bool settings = false;        // NAME=VALUE before the program
};

constexpr std::array<Wrapper, 17> kWrappers = {{
    {"env", " -u --unset -C --chdir ", 0, true},
    {"taskset", "", 1},
    {"numactl", " -i --interleave -N --cpunodebind -C --physcpubind -m --membind -p --preferred ", 0},
    {"nice", " -n --adjustment ", 0},
    {"ionice", " -c --class -n --classdata ", 0},
    {"chrt", " -T -P -D ", 1},
    {"timeout", " -k --kill-after -s --signal ", 1},
    {"stdbuf", " -i -o -e --input --output --error ", 0},
    {"time", " -o --output -f --format ", 0},
    {"nohup", "", 0},
    {"setsid", "", 0},
    {"prlimit", "", 0},
    {"setarch", "", 1},
    {"hwloc-bind", " --cpubind --membind --mempolicy ", 1},
    {"catchsegv", "", 0},
    {"valgrind", "", 0},
    {"gdb", " -ex -x -iex --command ", 0},
}};

const Wrapper* wrapper_called(std::string_view word) {
    const auto slash = word.rfind('/');
    const auto base = slash == std::string_view::npos ? word : word.substr(slash + 1);
    const auto* found =
        std::find_if(kWrappers.begin(), kWrappers.end(), [&](const Wrapper& one) { return one.name == base; });
    return found == kWrappers.end() ? nullptr : found;
}

/// Where the program of a wrapper at `at` stands; the end, if nowhere.
std::size_t behind(const Wrapper& wrapper, const std::vector<std::string>& words, std::size_t at) {
    int own = wrapper.words;
    for (++at; at < words.size(); ++at) {
        const std::string& word = words[at];
        if (word == "--") continue;
        if (word.size() > 1 && word.front() == '-') {
            if (wrapper.with_value.find(" " + word + " ") != std::string_view::npos) ++at;
            continue;
        }
        if (wrapper.settings && word.find('=') != std::string::npos) continue;
        if (own-- > 0) continue;
        return at;
    }
    return words.size();
}

}  // namespace

std::string program_behind(const std::vector<std::string>& words) {
    if (words.empty()) return {};
    std::size_t at = 0;
    while (const Wrapper* wrapper = wrapper_called(words[at])) {
        const std::size_t next = behind(*wrapper, words, at);
        if (next == words.size()) break;
        at = next;
    }
    return words[at];
}

}  // namespace cryptmpi::command
