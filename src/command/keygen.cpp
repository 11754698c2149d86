#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "aead/registry.hpp"
#include "command/process.hpp"
#include "command/subcommands.hpp"
#include "keys/job_key.hpp"
#include "keys/member_key.hpp"

namespace cryptmpi::command {
namespace {

struct Options {
    bool force = false;
    std::string member;
    std::string key_file;
};

int make_member_key(const config::Settings& settings, const cryptmpi_kex& kex, const std::string& name) {
    // The line is read as one of a list first: a name that no list can have is refused.
    if (auto read = keys::MemberList::parse(keys::line_of({name, {}})); !read)
        return complain("keygen: the member " + read.error().line.substr(read.error().line.find("has ")), 1);
    const auto key = keys::MemberKey::make(kex, settings.member_key_file);
    if (!key) return complain(key.error().line, 1);
    std::printf(
        "Wrote the member key: %s (mode 0600)\n"
        "Whoever is to believe what it signs needs this line in the file that the setting member_list names:\n"
        "%s\n",
        settings.member_key_file.c_str(), keys::line_of({name, key->public_key()}).c_str());
    return 0;
}

int keygen(const Options& options) {
    auto settings = config::load(config::process_environment());
    if (!settings) return complain(settings.error().line, 1);
    const auto file = options.key_file.empty() ? settings->key_file : std::filesystem::absolute(options.key_file);
    auto kex = aead::load_kex(settings->module_folder.string());
    if (!kex) return complain(kex.error().line, 1);
    if (!options.member.empty()) return make_member_key(*settings, *kex->api->kex, options.member);
    if (auto written = keys::write_job_key(file, *kex->api->kex, options.force); !written) {
        return complain(written.error().line, 1);
    }
    const std::string folder = shell_word(file.parent_path().string());
    const std::string name = shell_word(file.string());
    std::printf(
        "Wrote the job key: %s (mode 0600)\n"
        "cryptmpi run signs its reports with it. Under a launcher that you start yourself, and with job_key = "
        "\"file\",\n"
        "every node of a job needs this same file. Where nodes do not share the folder:\n"
        "    ssh NODE mkdir -p -m 700 %s && scp -p %s NODE:%s\n",
        file.c_str(), folder.c_str(), name.c_str(), folder.c_str());
    return 0;
}

}  // namespace

void add_keygen(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("keygen", "Make the key file, once");
    sub->add_flag("--force", options->force, "Replace a key that is there; jobs that run with it are not disturbed");
    sub->add_option("--key-file", options->key_file, "Where to (default: the setting key_file)");
    sub->add_option(
           "--member", options->member,
           "Make this user's own signing key instead, in the setting member_key_file, for a member of this name")
        ->excludes("--force")
        ->excludes("--key-file");
    sub->callback([options, &status] { status = keygen(*options); });
}

}  // namespace cryptmpi::command
