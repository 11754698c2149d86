#include "command/contexts.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

namespace cryptmpi::command {
namespace {

/// The options that a context may have, with the number of their values. Any other might have our program as its value.
constexpr std::array<std::pair<std::string_view, int>, 12> kOptions = {{{"-host", 1},
                                                                        {"--host", 1},
                                                                        {"-hosts", 1},
                                                                        {"-H", 1},
                                                                        {"-x", 1},
                                                                        {"-env", 2},
                                                                        {"-genv", 2},
                                                                        {"-wdir", 1},
                                                                        {"--wdir", 1},
                                                                        {"-wd", 1},
                                                                        {"-path", 1},
                                                                        {"--path", 1}}};

bool is_number_option(std::string_view word) {
    return word == "-n" || word == "-np" || word == "--np" || word == "--n";
}

Result<void> add_option(Context& context, const std::vector<std::string>& words, std::size_t& at) {
    const std::string& word = words[at];
    const auto* known =
        std::find_if(kOptions.begin(), kOptions.end(), [&](const auto& one) { return one.first == word; });
    const bool number = is_number_option(word);
    if (!number && known == kOptions.end()) {
        return fail(EINVAL, "run: option " + word +
                                " between a \":\" and its program is not known; write -n N, -host H, -x V, -env N V or "
                                "-wdir D there, and others in --launcher-args");
    }
    const std::size_t values = number ? 1 : static_cast<std::size_t>(known->second);
    if (at + values >= words.size()) return fail(EINVAL, "run: option " + word + " behind a \":\" lacks its value");
    if (number) {
        const std::string& text = words[at + 1];
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), context.ranks);
        if (error != std::errc{} || end != text.data() + text.size() || context.ranks < 1)
            return fail(EINVAL, "run: " + word + " " + text + " behind a \":\" is no number of ranks");
    } else {
        for (std::size_t i = 0; i <= values; ++i) context.options.push_back(words[at + i]);
    }
    at += values + 1;
    return {};
}

Result<Context> context_of(const std::vector<std::string>& words, bool first) {
    Context context;
    std::size_t at = 0;
    while (!first && at < words.size() && words[at].starts_with('-')) {
        if (auto added = add_option(context, words, at); !added) return tl::unexpected<Error>(added.error());
    }
    context.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
    if (context.program.empty()) return fail(EINVAL, "run: no program on one side of a \":\"");
    if (!first && context.ranks == 0)
        return fail(EINVAL, "run: how many ranks of " + context.program.front() + "? Give -n N behind the \":\"");
    return context;
}

}  // namespace

Result<std::vector<Context>> contexts_of(const std::vector<std::string>& words) {
    std::vector<Context> contexts;
    for (auto start = words.begin();;) {
        const auto end = std::find(start, words.end(), ":");
        auto context = context_of({start, end}, contexts.empty());
        if (!context) return tl::unexpected<Error>(context.error());
        contexts.push_back(std::move(*context));
        if (end == words.end()) return contexts;
        start = end + 1;
    }
}

}  // namespace cryptmpi::command
