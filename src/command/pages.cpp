// cryptmpi-pages FOLDER, run by the build: writes the manual's pages and the completion of bash and zsh, of the same
// data that --help shows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/joined.hpp"
#include "command/launch_line.hpp"
#include "command/subcommands.hpp"

namespace cryptmpi::command {
namespace {

// What is hidden from --help is in no group.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
    auto all = app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
    std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->get_name() < b->get_name(); });
    return all;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app, bool positional) {
    return app.get_options([positional](const CLI::Option* option) {
        return !option->get_group().empty() && option->get_positional() == positional;
    });
}

/// A Python package, which reads its own words and has its own --help.
bool reads_own_words(const CLI::App& sub) {
    return sub.get_parent() != nullptr && sub.get_help_ptr() == nullptr;
}

Words lines_of(const std::string& text) {
    std::istringstream stream(text);
    Words lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// "{a,b}" in the type of an option that takes one of several words.
Words choices_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const auto open = type.find('{');
    const auto close = type.find('}');
    if (open == std::string::npos || close == std::string::npos) return {};
    Words words;
    std::istringstream list(type.substr(open + 1, close - open - 1));
    for (std::string word; std::getline(list, word, ',');) words.push_back(word);
    return words;
}

bool takes_value(const CLI::Option& option) {
    return option.get_items_expected_max() > 0;
}

Words names_of(const CLI::Option& option) {
    Words names;
    for (const auto& name : option.get_snames()) names.push_back("-" + name);
    for (const auto& name : option.get_lnames()) names.push_back("--" + name);
    return names;
}

// --- The manual ---

/// Text as it stands: nothing in it is a request or an escape of roff's.
std::string as_text(const std::string& text) {
    std::string out;
    for (const char letter : text) {
        if (letter == '\\') {
            out += "\\e";
        } else if (letter == '-') {
            out += "\\-";
        } else {
            out += letter;
        }
    }
    return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

std::string value_of(const CLI::Option& option) {
    if (!takes_value(option)) return "";
    const Words choices = choices_of(option);
    if (!choices.empty()) return " " + as_text(joined(choices, "|"));
    std::string type = option.get_type_name();
    type = type.substr(0, type.find(':'));
    return " \\fI" + as_text(type.empty() ? "VALUE" : type) + "\\fR";
}

/// Indented lines are examples, shown as they are; what follows "Exit status:" has a section of its own.
std::string footer_in_roff(const std::string& footer) {
    const std::string mark = "Exit status: ";
    std::string page;
    bool example = false;
    bool first = true;
    for (std::string line : lines_of(footer)) {
        const bool indented = line.starts_with("  ");
        if (example && !indented) page += ".EE\n.RE\n";
        if (!indented && line.starts_with(mark)) {
            page += ".SH EXIT STATUS\n";
            line = line.substr(mark.size());
        } else if (first) {
            page += line == "Examples:" ? ".SH EXAMPLES\n" : ".SH NOTES\n";
            if (line == "Examples:") line.clear();
        } else if (!indented && example) {
            page += ".PP\n";
        }
        if (indented && !example) page += ".RS\n.EX\n";
        example = indented;
        first = false;
        if (!line.empty()) page += as_text(indented ? line.substr(2) : line) + "\n";
    }
    return example ? page + ".EE\n.RE\n" : page;
}

std::string option_in_roff(const CLI::Option& option) {
    Words names;
    for (const auto& name : names_of(option)) names.push_back("\\fB" + as_text(name) + "\\fR");
    return ".TP\n" + joined(names, ", ") + value_of(option) + "\n" + as_text(option.get_description()) + "\n";
}

std::string manual_page(const CLI::App& app) {
    const bool whole = app.get_parent() == nullptr;
    const std::string called = whole ? "cryptmpi" : "cryptmpi " + app.get_name();
    std::string title = whole ? "cryptmpi" : "cryptmpi-" + app.get_name();
    std::string heading = title;
    std::transform(heading.begin(), heading.end(), heading.begin(), [](unsigned char c) { return std::toupper(c); });

    const auto options = options_of(app, false);
    const auto positionals = options_of(app, true);
    // No date: pages of the same source are the same.
    std::string page = ".TH " + heading + " 1 \"\" \"CryptMPI " CRYPTMPI_VERSION "\" \"User Commands\"\n.nh\n";
    page += ".SH NAME\n" + as_text(title) + " \\- " + as_text(app.get_description()) + "\n";
    page += ".SH SYNOPSIS\n.B " + as_text(called) + "\n";
    if (!options.empty()) page += "[\\fIOPTIONS\\fR]\n";
    if (whole) page += "\\fISUBCOMMAND\\fR ...\n";
    if (reads_own_words(app)) page += "[\\fIARGUMENTS\\fR ...]\n";
    for (const auto* option : positionals) page += "\\fI" + as_text(option->get_name(true)) + "\\fR\n";
    if (reads_own_words(app))
        page += ".SH OPTIONS\nThis subcommand is a Python package with options of its own:\n.B " +
                as_text(called + " --help") + "\nlists them.\n";
    if (!positionals.empty()) {
        page += ".SH ARGUMENTS\n";
        for (const auto* option : positionals)
            page +=
                ".TP\n\\fI" + as_text(option->get_name(true)) + "\\fR\n" + as_text(option->get_description()) + "\n";
    }
    if (!options.empty()) {
        page += ".SH OPTIONS\n";
        for (const auto* option : options) page += option_in_roff(*option);
    }
    if (whole) {
        page += ".SH SUBCOMMANDS\n";
        for (const auto* sub : subcommands_of(app))
            page +=
                ".TP\n.BR cryptmpi\\-" + as_text(sub->get_name()) + " (1)\n" + as_text(sub->get_description()) + "\n";
    }
    page += footer_in_roff(app.get_footer());
    page += ".SH SEE ALSO\n";
    return page + (whole ? "The pages of the subcommands, and the folder doc/cryptmpi of the installation.\n"
                         : ".BR cryptmpi (1)\n");
}

// --- Completion ---

std::string bash_completion(const CLI::App& app) {
    Words subcommands;
    for (const auto* sub : subcommands_of(app)) subcommands.push_back(sub->get_name());
    std::string page =
        "# bash completion of cryptmpi. Made by the build.\n"
        "_cryptmpi() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "        COMPREPLY=($(compgen -W \"" +
        joined(subcommands, " ") +
        " --help --version\" -- \"$current\"))\n"
        "        return\n"
        "    fi\n"
        "    case ${COMP_WORDS[1]} in\n";
    for (const auto* sub : subcommands_of(app)) {
        Words names;
        std::string values;
        for (const auto* option : options_of(*sub, false)) {
            const Words own = names_of(*option);
            names.insert(names.end(), own.begin(), own.end());
            if (const Words choices = choices_of(*option); !choices.empty())
                values += "            " + joined(own, "|") + ") words=\"" + joined(choices, " ") + "\" ;;\n";
        }
        if (reads_own_words(*sub)) names.emplace_back("--help");
        page += "    " + sub->get_name() + ")\n";
        if (!values.empty()) page += "        case $before in\n" + values + "        esac\n";
        page += "        [[ -z $words && $current == -* ]] && words=\"" + joined(names, " ") + "\"\n        ;;\n";
    }
    return page +
           "    esac\n"
           "    [ -z \"$words\" ] || COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
           "}\n"
           "complete -o default -F _cryptmpi cryptmpi\n";
}

/// In zsh's specifications of arguments, inside single quotes.
std::string in_zsh(const std::string& text) {
    std::string out;
    for (const char letter : text) {
        if (letter == '\'') {
            out += "'\\''";
            continue;
        }
        if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') out += '\\';
        out += letter;
    }
    return out;
}

std::string zsh_completion(const CLI::App& app) {
    std::string page = "#compdef cryptmpi\n# Made by the build.\nlocal -a subcommands\nsubcommands=(\n";
    for (const auto* sub : subcommands_of(app))
        page += "    '" + in_zsh(sub->get_name()) + ":" + in_zsh(sub->get_description()) + "'\n";
    page +=
        ")\n"
        "if (( CURRENT == 2 )); then\n"
        "    _describe 'subcommand' subcommands\n"
        "    return\n"
        "fi\n"
        "shift words\n"
        "(( CURRENT-- ))\n"
        "case $words[1] in\n";
    for (const auto* sub : subcommands_of(app)) {
        page += sub->get_name() + ")\n    _arguments";
        for (const auto* option : options_of(*sub, false)) {
            for (const auto& name : names_of(*option)) {
                page += " \\\n        '*" + name + "[" + in_zsh(option->get_description()) + "]";
                const Words choices = choices_of(*option);
                if (takes_value(*option))
                    page += choices.empty() ? ":value:_files" : ":value:(" + joined(choices, " ") + ")";
                page += "'";
            }
        }
        page += " \\\n        '*::file:_files'\n    ;;\n";
    }
    return page + "esac\n";
}

void write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    if (!file) throw std::runtime_error("cannot write " + path);
}

void write_all(const std::string& folder) {
    CLI::App app;
    int status = 0;
    const Words program;
    const LaunchLine line;
    add_everything(app, program, line, status);
    write(folder + "/man1/cryptmpi.1", manual_page(app));
    for (const auto* sub : subcommands_of(app))
        write(folder + "/man1/cryptmpi-" + sub->get_name() + ".1", manual_page(*sub));
    write(folder + "/cryptmpi", bash_completion(app));
    write(folder + "/_cryptmpi", zsh_completion(app));
}

}  // namespace
}  // namespace cryptmpi::command

int main(int argc, char** argv) {
    try {
        if (argc != 2) throw std::runtime_error("one folder is required");
        cryptmpi::command::write_all(argv[1]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cryptmpi-pages: %s\n", error.what());
        return 1;
    }
}
