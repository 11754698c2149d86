#include "command/launch_line.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "command/one_of.hpp"

namespace cryptmpi::command {
namespace {

using Words = std::vector<std::string>;

/// run's own options with a value. All are spelt with two dashes, so that -hosts and -env are the launcher's.
constexpr std::array<std::string_view, 8> kOwn = {"--hosts", "--ppn",    "--mpi",           "--rsh",
                                                  "--layer", "--report", "--launcher-args", "--env"};
constexpr std::array<std::string_view, 1> kOwnFlags = {"--verbose"};

bool is_option(std::string_view word) {
    return word.size() > 1 && word.front() == '-';
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool asks_for_help(std::string_view word) {
    return word == "-h" || word == "-help" || word == "--help";
}

/// The name that the launcher looks up: without dashes, and without "=VALUE".
std::string_view bare_name(std::string_view word) {
    word = word.substr(0, word.find('='));
    return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// Takes words from the front of a line.
class Reader {
public:
    Reader(Mpi mpi, Words words) : mpi_(mpi), words_(std::move(words)) {}

    bool at_end() const { return at_ == words_.size(); }
    const std::string& word() const { return words_[at_]; }
    std::string take() { return words_[at_++]; }
    std::size_t taken() const { return at_; }
    Words rest() const { return {words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end()}; }

    /// The option of the launcher's that stands here. Error: it lacks a value, or would start nothing.
    Result<TypedOption> launcher_option() {
        TypedOption option;
        const std::string typed = take();
        option.words.push_back(typed);
        option.known = find_option(mpi_, bare_name(typed));
        const auto equals = typed.find('=');
        option.name = typed.substr(0, equals);
        if (option.known == nullptr) return option;
        // Open MPI 5 takes -bind-to, with one dash, for --bind-to-core, which has no value. Two dashes are right in
        // each.
        if (mpi_ == Mpi::open_mpi && option.known->name.size() > 1)
            option.words.front() = "--" + typed.substr(typed.find_first_not_of('-'));
        if (option.known->meaning == Meaning::idle)
            return fail(EINVAL, "run: the launcher's option " + option.name + " starts nothing; leave it out");
        // Hydra would take the value for the program.
        if (equals != std::string::npos && option.known->values == 0 && mpi_ != Mpi::open_mpi)
            return fail(EINVAL, "run: option " + typed + ": " + option.name + " has no value");
        if (equals != std::string::npos) add_value(option, typed.substr(equals + 1));
        // Open MPI 4 does not know --wdir=/tmp; all of its releases know two words.
        if (equals != std::string::npos && mpi_ == Mpi::open_mpi && option.known->values > 0) {
            option.words.front().resize(option.words.front().find('='));
            option.words.push_back(option.values.front());
        }
        while (static_cast<int>(option.values.size()) < option.known->values) {
            if (at_end() || word() == ":") return fail(EINVAL, "run: option " + option.name + " lacks its value");
            if (mpi_ != Mpi::open_mpi && asks_for_help(word()))
                return fail(EINVAL, "run: option " + option.name + " " + word() +
                                        " prints the launcher's help, and starts nothing; leave it out");
            option.words.push_back(word());
            add_value(option, take());
        }
        return option;
    }

private:
    /// Hydra takes NAME=VALUE for the two words NAME VALUE, too.
    void add_value(TypedOption& option, const std::string& value) const {
        const auto equals = value.find('=');
        const bool both = mpi_ != Mpi::open_mpi && option.known->meaning == Meaning::variable &&
                          option.known->values == 2 && option.values.empty() && equals != std::string::npos;
        if (both) {
            option.values = {value.substr(0, equals), value.substr(equals + 1)};
        } else {
            option.values.push_back(value);
        }
    }

    Mpi mpi_;
    Words words_;
    std::size_t at_ = 0;
};

/// Whose option it is that this MPI's launcher does not have; empty: nobody's.
std::string owner_of(Mpi mpi, std::string_view name) {
    const char* other = other_with_option(mpi, name);
    if (other == nullptr) return {};
    return " is " + std::string(other) + "'s, and the program's MPI is " + command::name(mpi);
}

tl::unexpected<Error> lost(Mpi mpi, const TypedOption& option) {
    const std::string owner = owner_of(mpi, bare_name(option.name));
    return fail(EINVAL, "run: option " + option.name + (owner.empty() ? " is not known" : owner) +
                            ", so it cannot be told where the program begins; write -- before the program, or the "
                            "option in --launcher-args");
}

/// What no table knows must not be another option all the same, of which we would not know what it does.
Result<void> check_unknown(Mpi mpi, const std::string& word) {
    const auto first = taken_for(mpi, word);
    const auto whole = abbreviated(mpi, bare_name(word));
    if (first.empty() && whole.empty()) return {};
    if (const auto owner = owner_of(mpi, bare_name(word)); !owner.empty())
        return fail(EINVAL, "run: option " + word + owner);
    if (!whole.empty())
        return fail(EINVAL, "run: option " + word + " is cut short; write --" + whole + ", if you mean that");
    return fail(EINVAL, "run: option " + word + " would be taken for " + first +
                            " and other options of one letter; write each of them by itself");
}

Result<int> ranks_of(const std::string& option, const std::string& text) {
    int ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (error == std::errc{} && end == text.data() + text.size() && ranks > 0) return ranks;
    return fail(EINVAL, "run: " + option + " " + text + " behind a \":\" is no number of ranks");
}

/// Reads the options before one program.
class OptionsReader {
public:
    OptionsReader(Mpi mpi, bool first, bool marked, LaunchLine& line, Context& context)
        : mpi_(mpi), first_(first), marked_(marked), line_(line), context_(context) {}

    Result<void> read(Reader& words) {
        while (!words.at_end() && words.word() != "--" && !line_.wants_help) {
            if (!is_option(words.word())) {
                // Behind an option that no table has, words may be its values, up to the "--".
                if (!marked_ || !after_unknown_) return {};
                context_.options.back().words.push_back(words.take());
                continue;
            }
            if (auto taken = take_option(words); !taken) return taken;
        }
        if (!words.at_end() && words.word() == "--") words.take();
        return {};
    }

private:
    Result<void> take_option(Reader& words) {
        after_unknown_ = false;
        const std::string typed = words.word();
        const std::string own = typed.substr(0, typed.find('='));
        if (asks_for_help(typed)) {
            line_.wants_help = true;
            return {};
        }
        if (one_of(kOwnFlags, typed) || one_of(kOwn, own)) return take_own(words, own);
        // The same thing, and one of the two is enough.
        if (own == "-ppn" || (own == "-perhost" && mpi_ == Mpi::intel)) return take_own(words, "--ppn");
        if (typed.starts_with("-n") && is_number(typed.substr(2))) {
            words.take();
            return add_ranks("-n", typed.substr(2));
        }
        auto option = words.launcher_option();
        if (!option) return tl::unexpected<Error>(option.error());
        if (option->meaning() == Meaning::ranks) return add_ranks(option->name, option->values.front());
        if (option->known == nullptr) {
            if (auto checked = check_unknown(mpi_, typed); !checked) return checked;
            if (!marked_ && typed.find('=') == std::string::npos) return lost(mpi_, *option);
            after_unknown_ = typed.find('=') == std::string::npos;
        }
        context_.options.push_back(std::move(*option));
        return {};
    }

    Result<void> take_own(Reader& words, const std::string& name) {
        const std::string typed = words.take();
        if (!first_) return fail(EINVAL, "run: option " + typed + " behind a \":\" is run's own; write it first");
        const auto equals = typed.find('=');
        line_.own.push_back(name);
        if (equals != std::string::npos) line_.own.push_back(typed.substr(equals + 1));
        if (one_of(kOwnFlags, typed) || equals != std::string::npos) return {};
        if (words.at_end()) return fail(EINVAL, "run: option " + typed + " lacks its value");
        line_.own.push_back(words.take());
        return {};
    }

    Result<void> add_ranks(const std::string& option, const std::string& text) {
        if (first_) {
            line_.own.insert(line_.own.end(), {"--np", text});
            return {};
        }
        const auto ranks = ranks_of(option, text);
        if (!ranks) return tl::unexpected<Error>(ranks.error());
        context_.ranks = *ranks;
        return {};
    }

    Mpi mpi_;
    bool first_;
    bool marked_;  // a "--" says where the program begins
    LaunchLine& line_;
    Context& context_;
    bool after_unknown_ = false;
};

Result<void> read_context(Mpi mpi, const Words& words, LaunchLine& line) {
    const bool first = line.contexts.empty();
    Context context;
    Reader reader(mpi, words);
    OptionsReader options(mpi, first, one_of(words, "--"), line, context);
    auto read = options.read(reader);
    line.read += reader.taken();
    if (!read || line.wants_help) return read;
    context.program = reader.rest();
    if (context.program.empty()) return fail(EINVAL, "run: no program given; see cryptmpi run --help");
    if (!first && context.ranks == 0)
        return fail(EINVAL, "run: how many ranks of " + context.program.front() + "? Give -n N behind the \":\"");
    line.contexts.push_back(std::move(context));
    return {};
}

}  // namespace

LaunchLine read_line(Mpi mpi, const Words& words) {
    LaunchLine line;
    for (auto start = words.begin();;) {
        const auto end = std::find(start, words.end(), ":");
        const auto read = read_context(mpi, {start, end}, line);
        if (!read) line.error = read.error();
        if (line.error || line.wants_help || end == words.end()) return line;
        start = end + 1;
    }
}

Result<std::vector<TypedOption>> read_launcher_arguments(Mpi mpi, const Words& words) {
    std::vector<TypedOption> options;
    Reader reader(mpi, words);
    while (!reader.at_end()) {
        const bool behind_unknown = !options.empty() && options.back().known == nullptr;
        if (!is_option(reader.word()) && behind_unknown && reader.word() != ":") {
            options.back().words.push_back(reader.take());
            continue;
        }
        if (!is_option(reader.word()) || reader.word() == "--") {
            return fail(EINVAL, "run: --launcher-args: \"" + reader.word() +
                                    "\" is no option, and would start a program that cryptmpi does not see; write "
                                    "programs behind the options: cryptmpi run -n 1 ./a : -n 2 ./b");
        }
        if (asks_for_help(reader.word()))
            return fail(EINVAL, "run: --launcher-args: " + reader.word() + " starts nothing; leave it out");
        auto option = reader.launcher_option();
        if (!option) return tl::unexpected<Error>(option.error());
        if (option->known == nullptr) {
            if (auto checked = check_unknown(mpi, option->words.front()); !checked)
                return tl::unexpected<Error>(checked.error());
        }
        options.push_back(std::move(*option));
    }
    return options;
}

void append_words(Words& line, const std::vector<TypedOption>& options) {
    for (const auto& option : options) line.insert(line.end(), option.words.begin(), option.words.end());
}

}  // namespace cryptmpi::command
