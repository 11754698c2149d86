// Stands in for ssh in a launcher, so that the daemon on the other node runs under our library too.
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "command/fresh_key.hpp"
#include "command/job.hpp"
#include "command/remote_shell.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "config/internal_variables.hpp"
#include "config/loading.hpp"
#include "report/noted_hosts.hpp"

namespace cryptmpi::command {
namespace {

constexpr std::string_view kOptionsWithValue = "BbcDEeFIiJLlmOopQRSWw";  // of ssh(1)

/// The command for the other node's shell: `command` as it was, under exec, with this job's settings.
std::string remote_command(const std::string& command, const config::Settings& settings,
                           const config::Environment& environment, KeyRoad road) {
    std::string line = shell_word(own_file().string()) + " exec --role launcher --job " + shell_word(settings.job_id);
    if (environment(config::kLastingKeyVariable))
        line += road == KeyRoad::srun ? " --wrapped-key-on-stdin" : " --key-on-stdin";
    constexpr std::string_view kPrefix = "CRYPTMPI_";
    for (const auto& [name, value] : environment.variables()) {
        if (!name.starts_with(kPrefix) || name == config::kRoleVariable) continue;
        line += " --set " + shell_word(name.substr(kPrefix.size()) + "=" + value);
    }
    return line + " -- sh -c " + shell_word(command);
}

/// What a launcher calls ssh with.
struct Call {
    Words options;
    std::string host;
    std::string account;  // USER@HOST where a user is named, or HOST
    std::string command;
};

/// Nothing: it names no host or no command.
std::optional<Call> read_call(const Words& arguments) {
    std::size_t host = 0;
    std::string user;
    while (host < arguments.size() && arguments[host].starts_with('-')) {
        const auto& option = arguments[host];
        const bool takes_next = option.size() == 2 && kOptionsWithValue.find(option[1]) != std::string_view::npos;
        if (option.starts_with("-l"))
            user = takes_next && host + 1 < arguments.size() ? arguments[host + 1] : option.substr(2);
        host += takes_next ? 2 : 1;
    }
    if (host + 1 >= arguments.size()) return std::nullopt;
    Call call;
    call.options.assign(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(host));
    call.host = arguments[host];
    const bool names_user = user.empty() || call.host.find('@') != std::string::npos;
    call.account = names_user ? call.host : user + "@" + call.host;
    // ssh joins its arguments with spaces for the remote shell, and so do we.
    for (auto word = host + 1; word < arguments.size(); ++word)
        call.command += (call.command.empty() ? "" : " ") + arguments[word];
    return call;
}

/// The daemon there may write its parts of the report where only its own node sees them.
Result<void> note_host(const config::Settings& settings, const std::string& account) {
    const auto key = report_key(settings);
    if (!key) return tl::unexpected(key.error());
    return report::note_host(settings.report_file, account, settings.job_id,
                             [&](std::string_view text) { return key->sign(text); });
}

}  // namespace

int agent(const Words& arguments) {
    const auto environment = config::process_environment();
    auto settings = config::load(environment);
    if (!settings) return complain(settings.error().line, kExitRefused);
    auto call = read_call(arguments);
    if (!call) return complain("agent: expected [ssh options] HOST COMMAND...", kExitRefused);

    Words shell = split_words(environment(config::kAgentShellVariable).value_or("ssh"));
    const KeyRoad road = is_srun(shell) ? KeyRoad::srun : KeyRoad::encrypted;
    if (environment(config::kLastingKeyVariable)) {
        for (Words* words : {&shell, &call->options}) std::erase(*words, "-n");  // of ssh: no input
        if (auto given = key_to_stdin(settings->key_file, road); !given)
            return complain(given.error().line, kExitRefused);
    }
    if (environment(config::kReportTokenVariable) && !settings->report_file.empty()) {
        if (auto noted = note_host(*settings, call->account); !noted) return complain(noted.error().line, kExitRefused);
    }
    const Words line =
        remote_line(shell, call->options, call->host, remote_command(call->command, *settings, environment, road));

    // The remote shell program is none of the job's: its own connection to the node stays as it is.
    const std::string preload = preload_without(environment);
    if (preload.empty()) {
        unsetenv("LD_PRELOAD");
    } else {
        set_variable("LD_PRELOAD", preload);
    }
    return replace_by_outside(line.front(), line);
}

}  // namespace cryptmpi::command
