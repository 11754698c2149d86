// Looks at this machine as a job would meet it, and names each problem with its mend.
#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "aead/registry.hpp"
#include "base/joined.hpp"
#include "base/processor.hpp"
#include "command/coverage.hpp"
#include "command/elf.hpp"
#include "command/job.hpp"
#include "command/launchers.hpp"
#include "command/networks.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "config/loading.hpp"
#include "engine/profile.hpp"
#include "keys/interchange.hpp"
#include "keys/job_key.hpp"
#include "keys/membership.hpp"
#include "report/signature.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Findings {
    Json json = Json::object();
    std::string text;
    std::vector<std::string> problems;

    void heading(const std::string& title) { text += title + "\n"; }
    void row(const std::string& label, const std::string& value) {
        text += "  " + label + std::string(label.size() < 20 ? 20 - label.size() : 1, ' ') + value + "\n";
    }
};

/// The value of `key` in a file of "key: value" or "key : value" lines.
std::string field(const char* file, std::string_view key) {
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) {
        const auto colon = line.find(':');
        if (colon == std::string::npos || !line.starts_with(key)) continue;
        const auto start = line.find_first_not_of(" \t", colon + 1);
        return start == std::string::npos ? "" : line.substr(start);
    }
    return {};
}

void look_at_processor(Findings& findings) {
    constexpr std::array kFeatures = {std::pair{"aes", "AES-NI"}, std::pair{"pclmulqdq", "PCLMUL"},
                                      std::pair{"vaes", "VAES"}, std::pair{"vpclmulqdq", "VPCLMUL"},
                                      std::pair{"avx512f", "AVX-512"}};
    const std::string flags = " " + field("/proc/cpuinfo", "flags") + " ";
    std::string present;
    Json json = Json::object();
    for (const auto& [flag, label] : kFeatures) {
        const bool has = flags.find(" " + std::string(flag) + " ") != std::string::npos;
        json[label] = has;
        present += (present.empty() ? "" : ", ") + std::string(label) + (has ? "" : " (no)");
    }
    const auto model = field("/proc/cpuinfo", "model name");
    findings.heading("Processor");
    findings.row("model", model);
    findings.row("features", present);
    findings.json["cpu"] = {{"model", model}, {"features", std::move(json)}};
    if (flags.find(" aes ") == std::string::npos) {
        findings.problems.emplace_back(
            "this processor has no AES instructions: sealing will be slow; use nodes that have them");
    }
}

/// ML-KEM is for key_exchange only: without that, it is no problem that nothing has it.
void look_at_kem(Findings& findings, const config::Settings& settings) {
    const auto kem = aead::load_kem(settings.module_folder);
    const std::string name = kem ? kem->full_name() : "";
    findings.row("ML-KEM-768", kem ? name : "none");
    findings.json["ml_kem"] = name;
    if (!kem && settings.hybrid()) findings.problems.push_back(settings.key_exchange_where + ": " + kem.error().line);
}

/// A cipher's module that is named may do for messages and not for handshakes.
void look_at_handshakes(Findings& findings, const config::Settings& settings) {
    const auto kex = aead::load_kex(settings.module_folder, settings.module);
    const std::string name = kex ? kex->full_name() : "";
    findings.row("handshakes by", kex ? name : "none");
    findings.json["handshake_module"] = name;
    if (kex) return;
    auto& problems = findings.problems;
    const bool known = std::find(problems.begin(), problems.end(), kex.error().line) != problems.end();
    if (!known) problems.push_back(kex.error().line);
}

/// Measures how fast a module seals by a cipher. Returns GB/s by size.
Json look_at_speed(Findings& findings, const aead::Module& module, aead::Suite suite) {
    constexpr std::array<std::size_t, 3> kSizes = {256, std::size_t{16} << 10U, std::size_t{1} << 20U};
    constexpr int kRounds = 15;
    std::string speeds;
    Json per_size = Json::object();
    for (const auto size : kSizes) {
        const auto speed = aead::measure(module, suite, size, aead::is_legacy(suite) ? 1 : kRounds);  // it is slow
        const double rate = speed ? static_cast<double>(size) / speed->seal_s / 1e9 : 0;
        std::array<char, 32> number{};
        std::snprintf(number.data(), number.size(), "%.2f", rate);
        speeds += (speeds.empty() ? "" : " | ") + std::string(number.data());
        per_size[std::to_string(size)] = rate;
    }
    findings.row(module.full_name(), std::string(aead::name(suite)) + "  " + speeds + " GB/s at 256 B | 16 KB | 1 MB");
    return per_size;
}

/// Returns the chosen module with its version; empty: there is none.
std::string look_at_choice(Findings& findings, const config::Settings& settings) {
    const auto chosen = aead::choose(settings.module_folder.string(), settings.module, settings.suite);
    if (!chosen) {
        findings.problems.push_back(chosen.error().line);
        return "";
    }
    findings.row("chosen", std::string(chosen->api->name) + " for " + std::string(aead::name(settings.suite)) +
                               " (module = " + settings.module + ")");
    findings.json["chosen_module"] = chosen->api->name;
    return chosen->full_name();
}

/// Returns the chosen module with its version; empty: there is none.
std::string look_at_modules(Findings& findings, const config::Settings& settings) {
    const std::string folder = settings.module_folder.string();
    const auto inventory = aead::inspect(folder);
    Json modules = Json::array();
    findings.heading("Cipher modules in " + folder);
    for (const auto& module : inventory.usable) {
        Json speeds = Json::object();
        for (const auto suite : aead::kAllSuites) {
            if (module.offers(suite)) speeds[std::string(aead::name(suite))] = look_at_speed(findings, module, suite);
        }
        modules.push_back({{"name", module.api->name},
                           {"version", module.api->version},
                           {"usable", true},
                           {"gb_per_s", std::move(speeds)}});
    }
    for (const auto& module : inventory.unusable) {
        findings.row(module.name, "cannot be used: " + module.reason);
        modules.push_back({{"name", module.name}, {"usable", false}, {"reason", module.reason}});
    }
    findings.json["modules"] = std::move(modules);
    look_at_kem(findings, settings);
    std::string chosen = look_at_choice(findings, settings);
    look_at_handshakes(findings, settings);
    return chosen;
}

/// Whose plans will jobs take? MPI's part of a profile's fingerprint only a job can check.
void look_at_profile(Findings& findings, const config::Settings& settings, const std::string& module) {
    const std::string file = settings.profile.string();
    findings.heading("Profile of cryptmpi tune");
    findings.json["profile"] = {{"file", file}, {"state", "none"}};
    const auto text = settings.profile.empty() ? Result<std::optional<std::string>>(std::nullopt)
                                               : engine::profile_text(settings.profile, settings.profile_named);
    if (text && !*text) {
        findings.row("file", (file.empty() ? "" : file + " ") + std::string("(none: default plans)"));
        return;
    }
    const auto profile = text ? engine::read_profile(**text) : tl::unexpected(text.error());
    std::string wrong = profile ? "" : profile.error().line;
    findings.json["profile"]["state"] = profile ? "good" : "unreadable";
    if (profile) {
        const auto& made_for = profile->fingerprint;
        const engine::Fingerprint here{
            processor_model(), processor_count(), std::string(aead::name(settings.suite)), module,
            made_for.mpi,      made_for.abi};
        if (const auto other = engine::difference(made_for, here); !other.empty()) {
            wrong = "it was made for others (" + other + ")";
            findings.json["profile"]["state"] = "stale";
        }
        findings.json["profile"]["mpi"] = made_for.mpi;
        findings.row("made",
                     profile->made + " for " + made_for.mpi + ", " + made_for.cipher + " by " + made_for.module);
    }
    findings.row("file", file + " (" + findings.json["profile"]["state"].get<std::string>() + ")");
    if (!wrong.empty()) {
        findings.problems.push_back("profile " + file + ": " + wrong +
                                    "; jobs use the default plans: run cryptmpi tune, "
                                    "or remove the file");
    }
}

/// What the loader says when it is to load these objects, in this order, into a program; empty when it can.
std::string loaders_complaint(const std::vector<fs::path>& objects) {
    std::string list;
    for (const auto& object : objects) list += (list.empty() ? "" : ":") + object.string();
    // A layer's library refuses settings that are for other layers; whether it can be loaded is the question here.
    const auto said = output_of({"env", "CRYPTMPI_KEY_DISTRIBUTION=agreement", "CRYPTMPI_REQUIRE_MEMBERS=false",
                                 "CRYPTMPI_PADDING=none", "CRYPTMPI_KEY_EXCHANGE=x25519", "LD_PRELOAD=" + list,
                                 "LD_BIND_NOW=1", "true"});
    if (!said) return "the system's commands env and true cannot be run";
    return said->substr(0, said->find('\n'));
}

void look_at_library(Findings& findings, const std::string& label, const fs::path& file) {
    std::error_code ignored;
    const bool there = fs::exists(file, ignored);
    const std::string complaint = there ? loaders_complaint({file}) : "";
    findings.row(label, file.filename().string() + (!there              ? " (missing)"
                                                    : complaint.empty() ? ""
                                                                        : " (cannot be loaded)"));
    findings.json["layers"][label] = {{"file", file.string()}, {"usable", there && complaint.empty()}};
    if (!there) {
        findings.problems.push_back("library " + file.string() + " is missing; install CryptMPI again");
    } else if (!complaint.empty()) {
        findings.problems.push_back("library " + file.string() + " cannot be loaded (" + complaint +
                                    "); install CryptMPI again, built on this system");
    }
}

void look_at_layers(Findings& findings, const config::Settings& settings) {
    findings.heading("Layers in " + settings.module_folder.string());
    look_at_library(findings, "channel", library_file(settings, config::Layer::channel));
    look_at_library(findings, "fabric", library_file(settings, config::Layer::fabric));
    look_at_library(findings, "mpi", library_file(settings, config::Layer::mpi));
    for (const char* abi : {"standard", "mpich", "openmpi"}) {
        std::error_code ignored;
        const bool there = fs::exists(abi_library_file(settings, abi), ignored);
        findings.row(std::string("mpi, ") + abi + " ABI", there ? "present" : "not built: no mpi.h of it was there");
        findings.json["layers"]["mpi"]["abis"][abi] = there;
    }
}

/// Does the MPI layer fit this MPI, and how many of its procedures does it cover?
void look_at_coverage(Findings& findings, Json& json, const config::Settings& settings, const MpiLibrary& library) {
    const std::string abi = abi_of(library);
    const auto ours = abi_library_file(settings, abi);
    const std::string which = std::string(name(library.mpi)) + " (" + library.file.string() + ")";
    json["abi"] = abi;
    json["mpi_layer"] = false;
    std::error_code ignored;
    if (!fs::exists(ours, ignored)) {
        findings.row("  mpi layer", "none for the " + abi + " ABI");
        findings.problems.push_back("the MPI layer cannot cover " + which + ": " + ours.string() +
                                    " is missing; build CryptMPI where an mpi.h of that ABI is installed");
        return;
    }
    if (const auto own = loaders_complaint({library.file}); !own.empty()) {
        findings.row("  mpi layer", "not tried: the loader cannot load the MPI library by itself (" + own + ")");
        return;
    }
    if (const auto complaint = loaders_complaint({library.file, ours}); !complaint.empty()) {
        findings.row("  mpi layer", "does not fit");
        findings.problems.push_back("the MPI layer cannot cover " + which + ": " + complaint +
                                    "; build CryptMPI against this MPI's mpi.h");
        return;
    }
    auto counts = count_procedures(library.file);
    if (!counts) {
        findings.row("  mpi layer", "fits; " + counts.error().line);
        return;
    }
    json["mpi_layer"] = true;
    json["procedures"] = *counts;
    const auto count = [&](const char* group) { return fmt::format("{} {}", (*counts)[group], group); };
    findings.row("  mpi layer", "fits (" + abi + " ABI): " + count("sealed") + ", " + count("local") + ", " +
                                    count("refused") + ", " + count("unclassified") + " procedures");
}

/// What an MPI gets wrong by itself, so that nobody looks for it in us. Empty: nothing is known.
std::string known_trouble(const MpiLibrary& library) {
    const auto elf = read_elf(library.file);
    const bool over_ucx = elf && std::any_of(elf->needed.begin(), elf->needed.end(),
                                             [](const auto& needed) { return needed.starts_with("libucp."); });
    if (library.mpi != Mpi::mpich || !over_ucx) return {};
    return "over UCX it now and then waits for ever in MPI_Finalize on a busy node, plain, too (docs/fabrics.md)";
}

void look_at_mpi(Findings& findings, Json& json, const config::Settings& settings,
                 const config::Environment& environment, const MpiLibrary& library) {
    config::Settings as_auto = settings;
    as_auto.layer = config::Layer::automatic;
    const LayerChoice choice = choose_layer(as_auto, environment, {library, {}, {}});
    findings.row("  layer auto", text(choice).substr(6));
    json["auto_layer"] = config::name_of(choice.layer);
    json["auto_reason"] = choice.reason;
    if (settings.layer == config::Layer::channel && choice.layer != config::Layer::channel) {
        findings.problems.push_back(std::string("the setting layer is channel, but ") + choice.reason +
                                    "; that network is closed to sealed jobs: leave layer at auto, or tell " +
                                    name(library.mpi) + " to use TCP (" + how_to_take_tcp(library.mpi) + ")");
    }
    look_at_coverage(findings, json, settings, library);
    json["known_trouble"] = known_trouble(library);
    if (const auto trouble = known_trouble(library); !trouble.empty()) findings.row("  known trouble", trouble);
}

void look_at_mpis(Findings& findings, const config::Settings& settings, const config::Environment& environment) {
    Json mpis = Json::array();
    findings.heading("MPI");
    for (const auto& launcher : launchers_in_path(environment)) {
        const auto library = library_beside(launcher);
        findings.row(name(launcher.mpi), launcher.version);
        findings.row("  launcher", launcher.file.string());
        findings.row("  library", library ? library->string() : "not found");
        Json json = {{"mpi", name(launcher.mpi)},
                     {"version", launcher.version},
                     {"launcher", launcher.file.string()},
                     {"library", library ? library->string() : ""}};
        if (library) look_at_mpi(findings, json, settings, environment, {launcher.mpi, *library});
        mpis.push_back(std::move(json));
    }
    if (mpis.empty())
        findings.row("none", "no launcher in PATH; cryptmpi run finds one beside a program's MPI library");
    findings.json["mpis"] = std::move(mpis);
}

/// Empty: the module that would make it cannot be loaded, which another line says.
std::string fingerprint_of_key(const config::Settings& settings) {
    const auto key = report_key(settings);
    if (!key) return {};
    return report::fingerprint([&](std::string_view text) { return key->sign(text); }).value_or("");
}

void look_at_key(Findings& findings, const config::Settings& settings) {
    std::array<char, 8> mode{};
    struct stat status {};
    const bool there = stat(settings.key_file.c_str(), &status) == 0;
    if (there) std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(status.st_mode & 07777U));
    const auto key = keys::read_job_keys(settings.key_file, settings.key_readers());
    findings.heading("Job key");
    findings.row("file",
                 settings.key_file.string() + (there ? std::string(" (mode ") + mode.data() + ")" : " (missing)"));
    findings.json["key_file"] = {
        {"path", settings.key_file.string()}, {"mode", mode.data()}, {"usable", key.has_value()}};
    if (key) {
        if (const auto text = fingerprint_of_key(settings); !text.empty()) {
            findings.row("fingerprint", text + ", as reports name it");
            findings.json["key_file"]["fingerprint"] = text;
        }
        if (key->size() > 1)
            findings.row("more keys", fmt::format("{}, taken from peers too (cryptmpi key list)", key->size() - 1));
        findings.json["key_file"]["keys"] = key->size();
    }
    if (!key && there) findings.problems.push_back(key.error().line);
    const bool fresh = settings.fresh_key();
    if (!there && !fresh) findings.problems.push_back(key.error().line);
    findings.row("of jobs by run",
                 fresh ? "fresh, one for each job (job_key)" : "the key file, the same on every node");
    if (!there && fresh) findings.row("", "cryptmpi run makes the file; cryptmpi exec needs it (cryptmpi keygen)");
    findings.json["job_key"] = fresh ? "fresh" : "file";
}

/// By interchange every node needs its private key, and that of rank 0 the list.
void look_at_interchange(Findings& findings, const config::Settings& settings) {
    if (settings.key_distribution != config::KeyDistribution::interchange) return;
    const auto module = aead::load_rsa(settings.module_folder.string());
    if (!module) return findings.problems.push_back(module.error().line);
    findings.heading("Interchange keys");
    const auto pair = keys::RsaPair::read(*module->rsa, settings.interchange_key_file, settings.key_readers());
    findings.row("this node's", settings.interchange_key_file.string() + (pair ? "" : " (cannot be used)"));
    if (!pair) findings.problems.push_back(pair.error().line);
    const auto list = keys::InterchangeList::read(settings.interchange_keys);
    findings.row("list of rank 0", settings.interchange_keys.string() + (list ? "" : " (cannot be used)"));
    findings.json["interchange"] = {{"key_usable", pair.has_value()}, {"list_usable", list.has_value()}};
}

void look_at_members(Findings& findings, const config::Settings& settings) {
    findings.json["require_members"] = settings.require_members;
    if (!settings.require_members) return;
    findings.heading("Members (require_members)");
    const auto kex = aead::load_kex(settings.module_folder, settings.module);
    if (!kex) return;  // another line says so
    const auto members = keys::Membership::read(*kex->api->kex, settings.member_key_file, settings.member_list);
    findings.row("this side is", members ? (*members)->own_name() : "nobody: see below");
    findings.row("list", settings.member_list.string());
    findings.json["member"] = members ? (*members)->own_name() : "";
    if (!members) findings.problems.push_back(members.error().line);
}

void look_at_settings(Findings& findings, const config::Settings& settings, const config::Environment& environment) {
    const auto read = config::settings_file(environment);
    const std::string file = read ? read->string() : "";
    std::error_code ignored;
    findings.heading("Settings");
    findings.row("file", !read                        ? "none read: cryptmpi run gave this job its settings"
                         : fs::exists(*read, ignored) ? file
                                                      : file + " (none: defaults)");
    findings.row("enabled", settings.enabled ? "true" : "false: programs run in clear");
    constexpr const char* kAutomatic = "auto: between-nodes; all under the MPI layer where strangers can reach MPI";
    findings.row("scope", settings.scope == config::Scope::all         ? "all"
                          : settings.scope == config::Scope::automatic ? kAutomatic
                                                                       : "between-nodes");
    const std::string way(config::name_of(settings.key_distribution));
    findings.row("key distribution", way + (settings.passive_only() ? " (safe against passive attackers only)" : ""));
    const std::string exchange(config::name_of(settings.key_exchange));
    findings.row("key exchange", exchange);
    for (const auto& peer : settings.plaintext_peers) findings.row("plaintext peer", peer.text);
    findings.json["settings"] = {{"file", file},
                                 {"enabled", settings.enabled},
                                 {"key_distribution", way},
                                 {"passive_attackers_only", settings.passive_only()},
                                 {"key_exchange", exchange},
                                 {"plaintext_peers", settings.plaintext_peers.size()}};
}

void look_at_system(Findings& findings) {
    const auto networks = networks_around_tcp();
    const auto seccomp = field("/proc/self/status", "Seccomp");
    findings.heading("System");
    findings.row("networks beside TCP",
                 networks.empty() ? "none" : joined(networks) + " (closed to jobs under the channel layer)");
    findings.row("seccomp", seccomp == "0" || seccomp.empty() ? "none" : "a filter is active (mode " + seccomp + ")");
    findings.json["system"] = {{"networks", networks}, {"seccomp", seccomp}};
}

int doctor(bool as_json) {
    const auto environment = config::process_environment();
    Findings findings;
    look_at_processor(findings);
    if (auto settings = config::load(environment)) {
        look_at_settings(findings, *settings, environment);
        look_at_key(findings, *settings);
        look_at_interchange(findings, *settings);
        look_at_members(findings, *settings);
        const auto module = look_at_modules(findings, *settings);
        look_at_profile(findings, *settings, module);
        look_at_layers(findings, *settings);
        look_at_mpis(findings, *settings, environment);
    } else {
        findings.problems.push_back(settings.error().line);
    }
    look_at_system(findings);

    findings.json["problems"] = findings.problems;
    findings.json["ok"] = findings.problems.empty();
    if (as_json) {
        std::puts(findings.json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
        findings.heading(findings.problems.empty() ? "No problem found." : "Problems");
        for (const auto& problem : findings.problems) findings.text += "  - " + problem + "\n";
        std::fputs(findings.text.c_str(), stdout);
    }
    return findings.problems.empty() ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
    auto as_json = std::make_shared<bool>(false);
    auto* sub = app.add_subcommand("doctor", "Check this machine: processor, modules, layers, MPIs, key");
    sub->add_flag("--json", *as_json, "As JSON");
    sub->footer("Exit status: 0 nothing wrong, 1 a problem was found; each is printed with its mend.");
    sub->callback([as_json, &status] { status = doctor(*as_json); });
}

}  // namespace cryptmpi::command
