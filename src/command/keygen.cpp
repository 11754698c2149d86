#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "aead/registry.hpp"
#include "base/own_names.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "config/loading.hpp"
#include "keys/interchange.hpp"
#include "keys/job_key.hpp"
#include "keys/member_key.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

struct Options {
    bool force = false;
    bool rotate = false;
    bool add = false;
    std::string use;
    std::string revoke;
    std::optional<std::string> member;
    bool interchange = false;
    std::string key_file;

    bool changes() const { return rotate || add || !use.empty() || !revoke.empty(); }
};

int make_member_key(const config::Settings& settings, const cryptmpi_kex& kex, const std::string& name) {
    if (auto checked = keys::check_member_name(name); !checked)
        return complain("keygen: the member " + checked.error().line, 1);
    const auto key = keys::MemberKey::make(kex, settings.member_key_file);
    if (!key) return complain(key.error().line, 1);
    std::printf(
        "Wrote the member key: %s (mode 0600)\n"
        "Whoever is to believe what it signs needs this line in the file that the setting member_list names:\n"
        "%s\n",
        settings.member_key_file.c_str(), keys::line_of({name, key->public_key()}).c_str());
    return 0;
}

int make_interchange_key(const config::Settings& settings) {
    const auto module = aead::load_rsa(settings.module_folder.string());
    if (!module) return complain(module.error().line, 1);
    const std::string host = host_name();
    const auto pair = keys::RsaPair::generate(*module->rsa);
    if (!pair) return complain(pair.error().line, 1);
    if (auto written = pair->write(settings.interchange_key_file); !written) return complain(written.error().line, 1);
    std::printf(
        "Wrote this node's interchange key: %s (mode 0600)\n"
        "With key_distribution = \"interchange\", which is safe against passive attackers only, rank 0 needs this line "
        "in the\n"
        "file that the setting interchange_keys names:\n"
        "%s\n",
        settings.interchange_key_file.c_str(), keys::interchange_line(host, pair->modulus()).c_str());
    return 0;
}

/// A key file that is there, and what is made of it.
class Changed {
public:
    static Result<Changed> of(const fs::path& file, KeyReaders readers, const cryptmpi_kex& kex) {
        auto keys = keys::read_job_keys(file, readers);
        if (!keys) return tl::unexpected<Error>(keys.error());
        // A link stays one.
        std::error_code error;
        const fs::path place = fs::canonical(file, error);
        return Changed(error ? file : place, std::move(*keys), readers, kex);
    }

    Result<void> add(bool in_front) {
        if (keys_.size() == keys::kMostJobKeys)
            return fail(EINVAL, fmt::format("job key file {} has {} keys, and no room for more: take old ones out "
                                            "(cryptmpi keygen --revoke ID)",
                                            file_.string(), keys_.size()));
        auto key = keys::draw_job_key(kex_);
        if (!key) return tl::unexpected<Error>(key.error());
        keys_.insert(in_front ? keys_.begin() : keys_.end(), std::move(*key));
        return {};
    }
    Result<void> put_first(const std::string& id) {
        const auto at = place_of(id);
        if (!at) return tl::unexpected<Error>(at.error());
        std::rotate(keys_.begin(), keys_.begin() + *at, keys_.begin() + *at + 1);
        return {};
    }
    Result<void> take_out(const std::string& id) {
        const auto at = place_of(id);
        if (!at) return tl::unexpected<Error>(at.error());
        if (keys_.size() == 1)
            return fail(EINVAL, "key " + id + " is the only one in " + file_.string() +
                                    ": put another in front first (cryptmpi keygen --rotate)");
        keys_.erase(keys_.begin() + *at);
        return {};
    }
    Result<void> write() const { return keys::write_job_keys(file_, keys_, true, readers_); }

private:
    Changed(fs::path file, keys::JobKeys keys, KeyReaders readers, const cryptmpi_kex& kex)
        : file_(std::move(file)), keys_(std::move(keys)), readers_(readers), kex_(kex) {}

    Result<std::ptrdiff_t> place_of(const std::string& id) const {
        for (auto key = keys_.begin(); key != keys_.end(); ++key) {
            const auto found = keys::id_of(kex_, **key);
            if (!found) return tl::unexpected<Error>(found.error());
            if (keys::key_id_text(*found) == id) return key - keys_.begin();
        }
        return fail(ENOENT, "no key " + id + " in " + file_.string() + ": cryptmpi key list shows which there are");
    }

    fs::path file_;
    keys::JobKeys keys_;
    KeyReaders readers_;
    const cryptmpi_kex& kex_;
};

Result<void> change(const Options& options, const fs::path& file, KeyReaders readers, const cryptmpi_kex& kex) {
    auto changed = Changed::of(file, readers, kex);
    if (!changed) return tl::unexpected<Error>(changed.error());
    const auto done = options.rotate         ? changed->add(true)
                      : options.add          ? changed->add(false)
                      : !options.use.empty() ? changed->put_first(options.use)
                                             : changed->take_out(options.revoke);
    return done ? changed->write() : done;
}

int keygen(const Options& options) {
    auto settings = config::load(config::process_environment());
    if (!settings) return complain(settings.error().line, 1);
    const auto file = options.key_file.empty() ? settings->key_file : fs::absolute(options.key_file);
    auto kex = aead::load_kex(settings->module_folder.string(), settings->module);
    if (!kex) return complain(kex.error().line, 1);
    if (options.member) return make_member_key(*settings, *kex->api->kex, *options.member);
    if (options.interchange) return make_interchange_key(*settings);
    if (options.changes()) {
        if (auto done = change(options, file, settings->key_readers(), *kex->api->kex); !done)
            return complain(done.error().line, 1);
        std::printf(
            "Changed %s. Jobs that run go on with their own key; cryptmpi key list shows what holds now.\n"
            "Nodes with files of their own: cryptmpi key install NODE...\n",
            file.c_str());
        return 0;
    }
    if (auto written = keys::write_job_key(file, *kex->api->kex, options.force, settings->key_readers()); !written) {
        return complain(written.error().line, 1);
    }
    std::printf(
        "Wrote the job key: %s%s\n"
        "cryptmpi run signs its reports with it. Under a launcher that you start yourself, and with job_key = "
        "\"file\",\n"
        "every node of a job needs this same file. Where nodes do not share the folder:\n"
        "    cryptmpi key install NODE...\n",
        file.c_str(), settings->allow_group_key ? "" : " (mode 0600)");
    return 0;
}

}  // namespace

void add_keygen(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("keygen", "Make the key file, once; put other keys into it, and take old ones out");
    auto* force = sub->add_flag("--force", options->force,
                                "Replace the file with one new key; what runs under the old one meets nobody new");
    auto* rotate =
        sub->add_flag("--rotate", options->rotate, "Put a new key in front, and keep the others for jobs that run");
    auto* add = sub->add_flag("--add", options->add,
                              "Put a new key behind: it is taken from peers, and not used until --use says so");
    auto* use = sub->add_option("--use", options->use, "Put the key with this id in front: what begins uses it");
    auto* revoke = sub->add_option("--revoke", options->revoke,
                                   "Take the key with this id out: nothing that begins takes it any more");
    sub->add_option("--key-file", options->key_file, "Where to (default: the setting key_file)");
    auto* member = sub->add_option(
        "--member", options->member,
        "Make this user's own signing key instead, in the setting member_key_file, for a member of this name");
    member->excludes("--key-file");
    auto* interchange = sub->add_flag("--interchange", options->interchange,
                                      "Make this node's RSA key for key_distribution = \"interchange\" instead, in the "
                                      "setting interchange_key_file");
    interchange->excludes("--key-file");
    const std::vector<CLI::Option*> alone = {force, rotate, add, use, revoke, member, interchange};
    for (auto* one : alone) {
        for (auto* other : alone) {
            if (one != other) one->excludes(other);
        }
    }
    sub->callback([options, &status] { status = keygen(*options); });
}

}  // namespace cryptmpi::command
