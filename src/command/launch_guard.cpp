#include "command/launch_guard.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "command/one_of.hpp"

namespace cryptmpi::command {
namespace {

// The parameters of all releases of Open MPI, without the part of it that a name may begin with.
constexpr std::array<std::string_view, 4> kRemoteShells = {"plm_rsh_agent", "plm_ssh_agent", "pls_rsh_agent",
                                                           "rsh_agent"};
constexpr std::array<std::string_view, 7> kFiles = {"mca_base_param_files",          "mca_param_files",
                                                    "mca_base_override_param_file",  "mca_base_param_file_prefix",
                                                    "mca_base_envar_file_prefix",    "mca_base_param_file_path",
                                                    "mca_base_param_file_path_force"};
constexpr std::array<std::string_view, 2> kDaemons = {"hnp_uri", "parent_uri"};
constexpr std::array<std::string_view, 5> kParts = {"orte_", "prte_", "opal_", "ompi_", "pmix_"};

/// orte_plm_rsh_agent and plm_rsh_agent are one parameter, and where both are said the longer name counts.
std::string_view without_part(std::string_view parameter) {
    const auto begins = [&](std::string_view part) { return parameter.starts_with(part); };
    for (;;) {
        const auto* const part = std::find_if(kParts.begin(), kParts.end(), begins);
        if (part == kParts.end()) return parameter;
        parameter.remove_prefix(part->size());
    }
}

/// Daemons that Intel MPI or Hydra would start by another way.
bool starts_daemons(std::string_view variable) {
    return variable.starts_with("I_MPI_HYDRA_BOOTSTRAP") || variable.starts_with("HYDRA_LAUNCHER") ||
           variable.starts_with("HYDRA_BOOTSTRAP");
}

/// The pieces of a text, without what stands behind "=" in each.
std::vector<std::string> names_in(std::string_view text, char delimiter) {
    std::vector<std::string> names;
    while (!text.empty()) {
        const auto end = std::min(text.find(delimiter), text.size());
        const auto piece = text.substr(0, end);
        names.emplace_back(piece.substr(0, piece.find('=')));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return names;
}

Result<void> guard_name(const std::string& option, const std::string& variable) {
    if (variable.starts_with("CRYPTMPI"))
        return fail(EINVAL,
                    "run: " + option + " " + variable +
                        ": settings are cryptmpi run's, and it passes them on; write them before the command: " +
                        variable + "=... cryptmpi run");
    if (starts_daemons(variable))
        return fail(EINVAL, "run: " + option + " " + variable +
                                " would start daemons past cryptmpi's remote shell; name that with --rsh");
    return {};
}

/// What the launcher's own option sets.
Result<void> guard_variables(const TypedOption& option) {
    const bool list = option.known->name == "genvexcl" || option.known->name == "envexcl";
    for (const auto& variable : names_in(option.values.front(), list ? ',' : ';')) {
        if (variable == "LD_PRELOAD")
            return fail(EINVAL, "run: " + option.name +
                                    " LD_PRELOAD: cryptmpi's own library has to come first, and does so before what "
                                    "--env LD_PRELOAD=... names");
        if (auto guarded = guard_name(option.name, variable); !guarded) return guarded;
    }
    return {};
}

Result<void> take_remote_shell(const std::string& option, const std::string& shell, std::string& rsh) {
    if (shell.find(':') != std::string::npos)
        return fail(EINVAL, "run: " + option + " " + shell + " names several remote shells; name one with --rsh");
    if (!rsh.empty() && rsh != shell)
        return fail(EINVAL, "run: two remote shells are named, " + rsh + " and " + shell + "; name one with --rsh");
    rsh = shell;
    return {};
}

/// True: the parameter is done by us, and not the launcher's any more.
Result<bool> guard_parameter(const TypedOption& option, std::string& rsh) {
    const std::string parameter(without_part(option.values[0]));
    const std::string& value = option.values[1];
    const std::string told = option.name + " " + option.values[0] + " " + value;
    if (one_of(kRemoteShells, parameter)) {
        if (auto taken = take_remote_shell(option.name + " " + parameter, value, rsh); !taken)
            return tl::unexpected<Error>(taken.error());
        return true;
    }
    if (parameter == "plm") {
        if (value == "rsh" || value == "ssh") return true;
        return fail(EINVAL, "run: " + told +
                                " starts daemons past cryptmpi's remote shell, so they would not be sealed; leave it "
                                "out, or name the remote shell with --rsh");
    }
    if (one_of(kFiles, parameter))
        return fail(EINVAL, "run: " + told + ": cryptmpi would not see what the file says; write it into the line");
    if (one_of(kDaemons, parameter))
        return fail(EINVAL, "run: " + told +
                                " takes daemons that somebody else has started, which are not sealed; leave it out");
    if (parameter.starts_with("mca_base_env_list"))
        return fail(EINVAL, "run: " + option.name + " " + parameter + ": write variables as -x NAME=VALUE");
    return false;
}

Result<void> guard_starter(const TypedOption& option) {
    const std::string& way = option.values.front();
    if (way == "ssh" || way == "rsh") return {};
    return fail(EINVAL, "run: " + option.name + " " + way +
                            " starts daemons past cryptmpi's remote shell, so they would not be sealed; leave it out, "
                            "or name the remote shell with --rsh");
}

/// True: the option is done by us, and not the launcher's any more.
Result<bool> guard_one(const TypedOption& option, std::string& rsh) {
    switch (option.meaning()) {
        case Meaning::refused:
            return fail(EINVAL, "run: option " + option.name + " " + std::string(option.known->mend));
        case Meaning::variable:
            if (auto guarded = guard_variables(option); !guarded) return tl::unexpected<Error>(guarded.error());
            return false;
        case Meaning::remote_shell: {
            if (auto taken = take_remote_shell(option.name, option.values.front(), rsh); !taken)
                return tl::unexpected<Error>(taken.error());
            return true;
        }
        case Meaning::starter: {
            if (auto guarded = guard_starter(option); !guarded) return tl::unexpected<Error>(guarded.error());
            return true;
        }
        case Meaning::parameter:
            return guard_parameter(option, rsh);
        default:
            return false;
    }
}

}  // namespace

Result<void> guard(std::vector<TypedOption>& options, std::string& rsh) {
    std::vector<TypedOption> kept;
    for (auto& option : options) {
        const auto taken = guard_one(option, rsh);
        if (!taken) return tl::unexpected<Error>(taken.error());
        if (!*taken) kept.push_back(std::move(option));
    }
    options = std::move(kept);
    return {};
}

Result<void> guard_variable(const std::string& option, const std::string& variable) {
    for (const auto& name : names_in(variable, ';')) {
        if (auto guarded = guard_name(option, name); !guarded) return guarded;
    }
    return {};
}

std::vector<std::string> said_of_networks(const std::vector<TypedOption>& options) {
    std::vector<std::string> words;
    for (const auto& option : options) {
        const auto& values = option.values;
        if (option.meaning() == Meaning::parameter && option.known->name.find("pmix") == std::string_view::npos) {
            words.insert(words.end(), {"--mca", values[0], values[1]});
        } else if (option.meaning() == Meaning::variable && option.known->values == 1) {
            words.insert(words.end(), {"-x", values[0]});
        } else if (option.meaning() == Meaning::variable) {
            words.insert(words.end(), {"-genv", values[0], values[1]});
        }
    }
    return words;
}

void let_pass(std::vector<TypedOption>& options, const std::vector<std::string>& variables) {
    for (auto& option : options) {
        if (option.meaning() != Meaning::variable_list && option.meaning() != Meaning::no_variables) continue;
        const bool of_all = option.known->name.starts_with("genv");
        std::string list = option.values.empty() ? std::string() : option.values.front();
        for (const auto& variable : variables) list += (list.empty() ? "" : ",") + variable;
        option.words = {of_all ? "-genvlist" : "-envlist", list};
    }
}

}  // namespace cryptmpi::command
