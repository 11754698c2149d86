// cryptmpi attest: what a job's report says and a canary shows, signed for whoever has to believe it elsewhere.
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "aead/registry.hpp"
#include "base/hex.hpp"
#include "base/json_text.hpp"
#include "base/own_names.hpp"
#include "command/job.hpp"
#include "command/reports.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "config/loading.hpp"
#include "keys/member_key.hpp"
#include "report/attestation.hpp"
#include "report/job_report.hpp"
#include "report/part.hpp"
#include "report/whole_file.hpp"

namespace cryptmpi::command {
namespace {

using report::Attestation;

/// The node's own, which root alone may read.
constexpr const char* kNodeKey = "/etc/cryptmpi/member.key";

struct Options {
    std::string report;
    std::string verify;
    std::string output;
    std::string hosts;
    Words canary;  // more words for cryptmpi canary
    bool no_canary = false;
    bool allow_exceptions = false;
    bool html = false;
    bool json = false;
};

struct Tools {
    config::Settings settings;
    const cryptmpi_kex* kex;
};

Result<Tools> tools() {
    auto settings = config::load(config::process_environment());
    if (!settings) return tl::unexpected<Error>(settings.error());
    auto module = aead::load_kex(settings->module_folder.string(), settings->module);
    if (!module) return tl::unexpected<Error>(module.error());
    return Tools{std::move(*settings), module->api->kex};
}

/// To stdout; the exit status.
int print(const Options& options, const Attestation& attestation, const report::Summary& summary) {
    const std::string text = options.json   ? attestation.text()
                             : options.html ? report::html_of(summary)
                                            : report::text_of(summary);
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        return complain("attest: it could not be written: " + std::string(std::strerror(errno)), kNotSealed);
    // As of cryptmpi report --check: whose settings allow an exception is the signer's choice, not the reader's.
    const bool exceptions = summary.verdict.outcome == report::Outcome::exceptions;
    return report::is_good(summary.verdict) && (!exceptions || options.allow_exceptions) ? 0 : kNotSealed;
}

// Making one

report::Attester own_name() {
    const passwd* user = getpwuid(geteuid());
    return {user != nullptr ? user->pw_name : std::to_string(geteuid()), host_name()};
}

/// The report with its signature looked at.
Result<report::Attested> read_report(const Options& options, const Tools& with) {
    const auto signers = report_signers(with.settings, *with.kex);
    if (!signers) return tl::unexpected<Error>(signers.error());
    const auto reading = report::Reading::of(options.report, *signers);
    if (!reading) return tl::unexpected<Error>(reading.error());
    return report::Attested{
        nlohmann::ordered_json::parse(reading->json()), reading->verified(), reading->verdict().line, {}};
}

/// The nodes that were named, else the first two of the report.
std::string hosts_of(const Options& options, const nlohmann::ordered_json& job) {
    if (!options.hosts.empty()) return options.hosts;
    const auto& nodes = job.at("nodes");
    return nodes.size() < 2 ? std::string()
                            : nodes[0].value("name", std::string()) + "," + nodes[1].value("name", std::string());
}

/// What cryptmpi canary found between two of the job's nodes, under the job's layer. It takes as long as two jobs.
Result<nlohmann::ordered_json> try_canary(const Options& options, const nlohmann::ordered_json& job) {
    const std::string hosts = hosts_of(options, job);
    if (hosts.empty())
        return fail(EINVAL,
                    "the job ran on one node: name two for the canary with --hosts, or leave it out with "
                    "--no-canary");
    std::string line = shell_word(own_file().string()) + " canary --json --layer " +
                       shell_word(job.value("layer", std::string())) + " --hosts " + shell_word(hosts);
    for (const auto& word : options.canary) line += " " + shell_word(word);
    std::fprintf(stderr, "cryptmpi: attest: trying a canary between %s, plain and sealed ...\n", hosts.c_str());
    std::FILE* out = popen(line.c_str(), "re");
    if (out == nullptr) return fail(errno, std::string("cryptmpi canary cannot be run: ") + std::strerror(errno));
    std::string text;
    std::array<char, 4096> piece{};
    for (std::size_t n = 0; (n = std::fread(piece.data(), 1, piece.size(), out)) > 0;) text.append(piece.data(), n);
    const int status = pclose(out);
    auto found = parse_json<nlohmann::ordered_json>(text);
    const bool ended = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kNotSealed);
    if (!ended || !found.is_object())
        return fail(EIO,
                    "the canary test did not run, as the line above says; mend that, or leave it out with "
                    "--no-canary");
    return found;
}

/// By the user, and by the node where its key can be read. Returns who signed.
Result<Words> sign(Attestation& attestation, const Tools& with) {
    Words names;
    const auto add = [&](const std::filesystem::path& file, const std::string& name) -> Result<void> {
        auto key = keys::MemberKey::read(*with.kex, file);
        if (!key) return tl::unexpected<Error>(key.error());
        auto signature = key->sign(keys::Purpose::attestation, attestation.signed_bytes());
        if (!signature) return tl::unexpected<Error>(signature.error());
        attestation.add({hex(key->public_key()), hex(*signature)});
        names.push_back(name);
        return {};
    };
    const auto self = own_name();
    if (auto done = add(with.settings.member_key_file, self.user + "@" + self.host); !done)
        return tl::unexpected<Error>(done.error());
    if (access(kNodeKey, R_OK) == 0)
        if (auto done = add(kNodeKey, self.host); !done) return tl::unexpected<Error>(done.error());
    return names;
}

/// Where it was told to, be that a link or a terminal; else beside the report, where others may write, too.
Result<std::string> write(const Options& options, const std::string& text) {
    if (options.output.empty()) {
        const std::string file = options.report + ".attestation";
        if (auto written = report::write_file(file, text); !written) return tl::unexpected<Error>(written.error());
        return file;
    }
    std::ofstream out(options.output, std::ios::binary | std::ios::trunc);
    out << text << std::flush;
    if (!out) return fail(errno, "attest: " + options.output + " cannot be written: " + std::strerror(errno));
    return options.output;
}

int make(const Options& options, const Tools& with) {
    auto what = read_report(options, with);
    if (!what) return complain(what.error().line, kNotSealed);
    // Which nodes a canary goes to, and how, is read from it.
    if (!what->verified) return complain("attest: nothing is attested: " + what->verdict, kNotSealed);
    if (!options.no_canary) {
        auto canary = try_canary(options, what->report);
        if (!canary) return complain("attest: " + canary.error().line, 1);
        what->canary = std::move(*canary);
    }
    auto attestation = Attestation::of(*what, own_name(), report::seconds_now());
    const auto names = sign(attestation, with);
    if (!names) return complain(names.error().line, 1);
    const auto file = write(options, attestation.text());
    if (!file) return complain(file.error().line, 1);
    std::fprintf(stderr, "cryptmpi: attest: wrote %s; elsewhere: cryptmpi attest --verify %s\n", file->c_str(),
                 file->c_str());
    return print(options, attestation, attestation.summary(*names));
}

// Verifying one

/// Members of the list whose signatures are good. Error: a signature that is not good, whoever's it claims to be.
Result<Words> vouchers(const Attestation& attestation, const keys::MemberList& list, const cryptmpi_kex& kex) {
    Words names;
    for (const auto& one : attestation.signatures()) {
        const auto key = from_hex<std::tuple_size_v<keys::MemberPublicKey>>(one.key);
        const auto signature = from_hex<std::tuple_size_v<keys::Signature>>(one.signature);
        if (!key || !signature) return fail(EBADMSG, "a signature is malformed");
        if (!keys::verify(kex, *key, keys::Purpose::attestation, attestation.signed_bytes(), *signature))
            return fail(EBADMSG,
                        "the signature by key " + hex(*key) + " does not belong to what it says: it was altered");
        if (const auto* member = list.find(*key)) names.push_back(member->name);
    }
    return names;
}

int verify(const Options& options, const Tools& with) {
    std::ifstream in(options.verify, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in) return complain("attest: " + options.verify + " cannot be read", kNotSealed);
    const auto attestation = Attestation::parse(text.str());
    if (!attestation) return complain("attest: " + options.verify + " " + attestation.error().line, kNotSealed);
    const auto list = keys::MemberList::read(with.settings.member_list);
    if (!list)
        return complain(list.error().line +
                            "; it needs a line for whoever signs: NAME ed25519 KEY, as cryptmpi keygen "
                            "--member prints it",
                        kNotSealed);
    const auto names = vouchers(*attestation, *list, *with.kex);
    if (!names) return complain("attest: " + options.verify + ": " + names.error().line, kNotSealed);
    return print(options, *attestation, attestation->summary(*names));
}

int attest(const Options& options) {
    const auto with = tools();
    if (!with) return complain(with.error().line, 1);
    return options.verify.empty() ? make(options, *with) : verify(options, *with);
}

}  // namespace

void add_attest(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("attest", "Sign what a job's report says and a canary shows, or verify such a file");
    auto* report = sub->add_option("REPORT", options->report, "The job's report, as --report named it");
    auto* verify = sub->add_option("--verify", options->verify,
                                   "An attestation to check instead, by the keys in the setting member_list");
    sub->add_option("-o,--output", options->output, "Where to (default: REPORT.attestation)")->excludes(verify);
    sub->add_option("--hosts", options->hosts, "The two nodes of the canary (default: the report's first two)")
        ->excludes(verify);
    sub->add_option("--canary-option", options->canary,
                    "A word more for cryptmpi canary, such as --mpi=MPIEXEC; may be repeated")
        ->allow_extra_args(false)
        ->excludes(verify);
    sub->add_flag("--no-canary", options->no_canary, "Send no canary: sign the report alone")->excludes(verify);
    sub->add_flag("--allow-exceptions", options->allow_exceptions,
                  "End with 0 also for SEALED WITH EXCEPTIONS, where the settings that the job ran with allow each");
    auto* json = sub->add_flag("--json", options->json, "Print the attestation itself");
    sub->add_flag("--html", options->html, "Print one page to show or to print, which needs no other file")
        ->excludes(json);
    report->excludes(verify);
    sub->footer("Exit status 0 only if it is signed, and the verdict inside is good without exceptions; else 123.");
    sub->callback([options, report, verify, &status] {
        if (report->empty() && verify->empty()) throw CLI::RequiredError("REPORT or --verify FILE");
        status = attest(*options);
    });
}

}  // namespace cryptmpi::command
