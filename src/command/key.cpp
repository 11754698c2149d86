// cryptmpi key: what is in the key file, and its way to other nodes.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <sstream>
#include <utility>

#include "aead/registry.hpp"
#include "command/remote_shell.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "config/loading.hpp"
#include "keys/job_key.hpp"
#include "keys/report_key.hpp"
#include "report/signature.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstalled = "key file installed: ";
constexpr const char* kThereAlready = "key file is up to date: ";

struct Options {
    std::string action;
    Words hosts;
    std::string rsh;
    std::string key_file;
    bool force = false;
};

int list(const fs::path& file, KeyReaders readers, const cryptmpi_kex& kex) {
    const auto keys = keys::read_job_keys(file, readers);
    if (!keys) return complain(keys.error().line, 1);
    std::printf("%s\n", file.c_str());
    for (const auto& key : *keys) {
        const auto id = keys::id_of(kex, *key);
        const auto of_reports = keys::ReportKey::derive(kex, *key);
        if (!id || !of_reports) return complain((!id ? id.error() : of_reports.error()).line, 1);
        const auto fingerprint = report::fingerprint([&](std::string_view text) { return of_reports->sign(text); });
        std::printf("  %s  %s  fingerprint in reports %s\n", keys::key_id_text(*id).c_str(),
                    key == keys->front() ? "used by what begins " : "taken from peers too",
                    fingerprint ? fingerprint->c_str() : "?");
    }
    return 0;
}

/// The remote shell's line. The file's place there is that node's own, unless it was named here.
Words installing(const Options& options, const std::string& place, const std::string& host) {
    std::string command = shell_word(own_file().string()) + " receive-key";
    if (!place.empty()) command += " --key-file " + shell_word(place);
    if (options.force) command += " --force";
    return remote_line(split_words(options.rsh), {}, host, command);
}

/// What a node said of it: the line that says how it ended, whatever its login shell prints besides.
std::pair<bool, std::string> outcome(const std::optional<std::string>& answer) {
    if (!answer) return {false, "no answer (the remote shell could not be run, or did not end in time)"};
    std::istringstream lines(*answer);
    std::string last = "no answer";
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(kInstalled) || line.starts_with(kThereAlready)) return {true, line};
        if (!line.empty()) last = line;
    }
    return {false, last};
}

int install(const Options& options, const fs::path& file, const std::string& place, KeyReaders readers) {
    if (options.hosts.empty()) return complain("key install: which nodes? cryptmpi key install HOST...", 1);
    if (is_srun(split_words(options.rsh)))
        return complain("key install: srun does not encrypt what passes through it; use --rsh ssh", 1);
    for (const auto& host : options.hosts) {
        if (host.starts_with('-')) return complain("key install: \"" + host + "\" is no node's name", 1);
    }
    const auto keys = keys::read_job_keys(file, readers);
    if (!keys) return complain(keys.error().line, 1);
    Secret<keys::kMostJobKeys * keys::kJobKeyLineSize> text;
    std::size_t size = 0;
    for (const auto& key : *keys) {
        Secret<keys::kJobKeyLineSize> line;
        keys::write_key_line(*key, line);
        std::copy(line.bytes, line.bytes + line.size(), text.bytes + size);
        size += line.size();
    }
    int status = 0;
    for (const auto& host : options.hosts) {
        const auto [done, said] = outcome(answer_of(installing(options, place, host), {text.data(), size}));
        std::fprintf(done ? stdout : stderr, "%s: %s\n", host.c_str(), said.c_str());
        if (!done) status = 1;
    }
    return status;
}

bool same(const keys::JobKey& a, const keys::JobKey& b) {
    return std::equal(a.bytes, a.bytes + a.size(), b.bytes);
}

/// On the other node. A file there is replaced if it has a key of ours: then it is an older or newer state of ours.
int receive(const fs::path& file, bool force, KeyReaders readers) {
    constexpr int kPatience_ms = 60'000;
    Secret<keys::kMostJobKeys * keys::kJobKeyLineSize + 1> text;
    std::size_t size = 0;
    for (;;) {
        pollfd readable{STDIN_FILENO, POLLIN, 0};
        if (size == text.size() || poll(&readable, 1, kPatience_ms) <= 0) break;
        const ssize_t count = read(STDIN_FILENO, text.data() + size, text.size() - size);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        size += static_cast<std::size_t>(count);
    }
    const auto keys = keys::parse_job_keys({text.data(), size});
    if (!keys)
        return complain("receive-key: what came on the standard input is no key file: it " + keys.error().line +
                            "; let the remote shell pass its input on (ssh without -n)",
                        1);
    std::error_code error;
    const bool there = fs::exists(fs::symlink_status(file, error));
    if (there && !force) {
        const auto old = keys::read_job_keys(file, readers);
        if (!old) return complain(old.error().line, 1);
        const auto has = [&](const auto& key) {
            return std::any_of(keys->begin(), keys->end(), [&](const auto& one) { return same(*one, *key); });
        };
        if (std::equal(old->begin(), old->end(), keys->begin(), keys->end(),
                       [](const auto& a, const auto& b) { return same(*a, *b); })) {
            std::printf("%s%s\n", kThereAlready, file.c_str());
            return 0;
        }
        if (std::none_of(old->begin(), old->end(), has))
            return complain("job key file " + file.string() +
                                " has other keys, none of them ours; it is replaced with --force only",
                            1);
    }
    const fs::path place = there ? fs::canonical(file, error) : file;
    if (auto written = keys::write_job_keys(error ? file : place, *keys, there, readers); !written)
        return complain(written.error().line, 1);
    std::printf("%s%s (%zu %s)\n", kInstalled, file.c_str(), keys->size(), keys->size() == 1 ? "key" : "keys");
    return 0;
}

int key(const Options& options) {
    auto settings = config::load(config::process_environment());
    if (!settings) return complain(settings.error().line, 1);
    const bool named = !options.key_file.empty() || settings->key_file_named;
    const fs::path file = options.key_file.empty() ? settings->key_file : fs::absolute(options.key_file);
    if (options.action == "install") return install(options, file, named ? file.string() : "", settings->key_readers());
    auto kex = aead::load_kex(settings->module_folder.string(), settings->module);
    if (!kex) return complain(kex.error().line, 1);
    return list(file, settings->key_readers(), *kex->api->kex);
}

}  // namespace

void add_key(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    options->rsh = "ssh";
    auto* sub = app.add_subcommand("key", "Show the keys in the key file, or put the file on other nodes");
    sub->footer(
        "Examples:\n"
        "  cryptmpi key list                    ids, and which is used\n"
        "  cryptmpi key install node1 node2     by ssh; never over a file that has other keys only\n"
        "docs/keys.md: how a site changes keys while jobs run.");
    sub->add_option("ACTION", options->action, "list, or install")
        ->required()
        ->check(CLI::IsMember({"list", "install"}));
    sub->add_option("HOST", options->hosts, "Nodes that get the file, mode 0600, on their standard input");
    sub->add_option("--rsh", options->rsh, "What reaches other nodes, and encrypts (default: ssh)");
    sub->add_option("--key-file", options->key_file, "The file, here and there (default: the setting key_file)");
    sub->add_flag("--force", options->force, "Replace a file there that has other keys only");
    sub->callback([options, &status] { status = key(*options); });
}

void add_receive_key(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub =
        app.add_subcommand("receive-key", "Not for users: writes the key file that comes on the standard input");
    sub->group("");
    sub->add_option("--key-file", options->key_file);
    sub->add_flag("--force", options->force);
    sub->callback([options, &status] {
        const auto settings = config::load(config::process_environment());
        const fs::path file =
            !settings || !options->key_file.empty() ? fs::path(options->key_file) : settings->key_file;
        status = settings ? receive(file, options->force, settings->key_readers()) : complain(settings.error().line, 1);
    });
}

}  // namespace cryptmpi::command
