#include "config/settings.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <pwd.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>

#include "base/hex.hpp"
#include "base/nearest.hpp"
#include "base/printable.hpp"
#include "config/internal_variables.hpp"
#include "config/toml_file.hpp"

namespace cryptmpi::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVariablePrefix = "CRYPTMPI_";
constexpr std::string_view kInternalPrefix = "CRYPTMPI_INTERNAL_";
constexpr std::string_view kConfigVariable = "CRYPTMPI_CONFIG";
constexpr double kLongestTime_s = 24.0 * 3600;
constexpr int kMostThreads = 64;

/// A setting's raw value and where it stands.
struct Given {
    TomlValue value;
    bool from_variable;
    std::string where;  // "config.toml:3: cipher" or "environment variable CRYPTMPI_CIPHER"
    fs::path base;      // what a relative path is relative to
};

tl::unexpected<Error> refuse(const Given& given, const std::string& what) {
    return fail(EINVAL, given.where + ": " + what);
}

std::string as_text(const TomlValue& value) {
    if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
    if (const auto* number = std::get_if<double>(&value)) {
        std::array<char, 32> digits{};
        return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), *number).ptr};
    }
    if (const auto* text = std::get_if<std::string>(&value)) return '"' + *text + '"';
    return "a list";
}

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return result;
}

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Result<bool> read_bool(const Given& given) {
    if (const auto* truth = std::get_if<bool>(&given.value)) return *truth;
    if (const auto* text = std::get_if<std::string>(&given.value); text != nullptr && given.from_variable) {
        const std::string word = lower(trim(*text));
        if (word == "true" || word == "on" || word == "yes" || word == "1") return true;
        if (word == "false" || word == "off" || word == "no" || word == "0") return false;
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: true, false");
}

Result<std::string> read_text(const Given& given) {
    if (const auto* text = std::get_if<std::string>(&given.value)) return std::string(trim(*text));
    return refuse(given, as_text(given.value) + " is not allowed; allowed: a string");
}

Result<fs::path> read_path(const Given& given, const Environment& environment) {
    auto text = read_text(given);
    if (!text) return tl::unexpected<Error>(text.error());
    if (text->empty()) return fs::path{};
    if (text->starts_with("~/")) {
        if (auto home = environment("HOME")) return fs::path(*home) / text->substr(2);
        return refuse(given, "\"~\" cannot be resolved, because HOME is not set; write the whole path");
    }
    return (given.base / *text).lexically_normal();
}

Result<std::chrono::milliseconds> read_seconds(const Given& given, bool zero_allowed) {
    double seconds = -1;
    if (const auto* number = std::get_if<double>(&given.value)) seconds = *number;
    if (const auto* text = std::get_if<std::string>(&given.value); text != nullptr && given.from_variable) {
        const std::string_view digits = trim(*text);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
        if (error != std::errc{} || end != digits.data() + digits.size()) seconds = -1;
    }
    const bool in_range =
        std::isfinite(seconds) && seconds <= kLongestTime_s && (zero_allowed ? seconds >= 0 : seconds >= 0.001);
    if (!in_range) {
        return refuse(given, as_text(given.value) + " is not allowed; allowed: seconds, " +
                                 (zero_allowed ? "0 (never) to 86400" : "0.001 to 86400"));
    }
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::llround(seconds * 1000)));
}

/// A list of strings; in the environment separated by commas.
Result<std::vector<std::string>> read_list(const Given& given) {
    std::vector<std::string> texts;
    if (const auto* list = std::get_if<std::vector<std::string>>(&given.value)) {
        texts = *list;
    } else if (const auto* text = std::get_if<std::string>(&given.value); text != nullptr && given.from_variable) {
        for (std::string_view rest = *text; !trim(rest).empty();) {
            const auto comma = std::min(rest.find(','), rest.size());
            texts.emplace_back(trim(rest.substr(0, comma)));
            rest.remove_prefix(std::min(comma + 1, rest.size()));
        }
    } else {
        return refuse(given, as_text(given.value) + " is not allowed; allowed: a list of strings");
    }
    return texts;
}

Result<std::vector<PlaintextPeer>> read_peers(const Given& given) {
    auto texts = read_list(given);
    if (!texts) return tl::unexpected<Error>(texts.error());
    std::vector<PlaintextPeer> peers;
    for (const auto& text : *texts) {
        auto peer = parse_plaintext_peer(text);
        if (!peer) return refuse(given, peer.error().line);
        peers.push_back(std::move(*peer));
    }
    return peers;
}

/// Moves a read value into a setting, or passes the error on.
template <class T, class Target>
Result<void> store(Result<T> read, Target& target) {
    if (!read) return tl::unexpected<Error>(read.error());
    target = std::move(*read);
    return {};
}

struct Key {
    std::string_view name;
    Result<void> (*set)(Settings&, const Given&, const Environment&);
    bool is_path = false;
};

/// As read_list() takes it apart again.
std::optional<std::string> joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const auto& text : texts) {
        if (text.empty() || text != trim(text) || text.find(',') != std::string::npos) return std::nullopt;
        all += (all.empty() ? "" : ",") + text;
    }
    return all;
}

/// A path that means the same in every folder. "~/" is for each node to resolve, and "none" no path.
std::string whole_path(const Given& given, const std::string& text) {
    std::string path(trim(text));
    if (path.empty() || path == "none" || path.starts_with("~/")) return path;
    return (given.base / path).lexically_normal().string();
}

/// The value of a variable that gives what was given; nullopt: none does.
std::optional<std::string> variable_value(const Given& given, bool is_path) {
    std::optional<std::string> value;
    if (const auto* list = std::get_if<std::vector<std::string>>(&given.value)) {
        value = joined(*list);
    } else if (const auto* text = std::get_if<std::string>(&given.value)) {
        value = is_path ? whole_path(given, *text) : *text;
    } else {
        value = as_text(given.value);
    }
    return value && value->find('\0') == std::string::npos ? value : std::nullopt;
}

Result<void> set_cipher(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        if (auto suite = aead::suite_by_name(trim(*text))) {
            settings.suite = *suite;
            settings.cipher_where = given.where;
            return {};
        }
    }
    std::string allowed;
    for (const auto suite : aead::kAllSuites) {
        allowed += (allowed.empty() ? "" : ", ") + std::string(aead::name(suite));
    }
    return refuse(given, as_text(given.value) + " is not a known cipher; allowed: " + allowed);
}

/// A legacy cipher is never used by a slip of the pen: it takes two settings.
Result<void> check_legacy(const Settings& settings) {
    if (!aead::is_legacy(settings.suite) || settings.allow_legacy_cipher) return {};
    return fail(EINVAL, settings.cipher_where + ": " + std::string(aead::name(settings.suite)) +
                            " is a legacy cipher, slow and with blocks of 64 bits: name AES-256-GCM, or set "
                            "allow_legacy_cipher = true");
}

Result<void> set_module(Settings& settings, const Given& given, const Environment&) {
    auto name = read_text(given);
    if (!name) return tl::unexpected<Error>(name.error());
    // The name becomes part of a file name, so it must not lead anywhere else.
    const bool plain = !name->empty() && std::all_of(name->begin(), name->end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 || letter == '-' || letter == '_';
    });
    if (!plain)
        return refuse(given, as_text(given.value) +
                                 " is not a module's name; allowed: auto, or one that 'cryptmpi doctor' lists");
    settings.module = std::move(*name);
    return {};
}

Result<void> set_scope(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        if (word == "auto" || word == "between-nodes" || word == "all") {
            settings.scope = word == "all" ? Scope::all : word == "auto" ? Scope::automatic : Scope::between_nodes;
            return {};
        }
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: auto, between-nodes, all");
}

Result<void> set_layer(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        for (const Layer layer : {Layer::automatic, Layer::channel, Layer::mpi, Layer::fabric}) {
            if (word != name_of(layer)) continue;
            settings.layer = layer;
            return {};
        }
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: auto, channel, mpi, fabric");
}

Result<void> set_network(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        for (const Network network : {Network::automatic, Network::tcp, Network::fabric, Network::any}) {
            if (word != name_of(network)) continue;
            settings.network = network;
            return {};
        }
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: auto, tcp, fabric, any");
}

Result<void> set_padding(Settings& settings, const Given& given, const Environment&) {
    const auto* text = std::get_if<std::string>(&given.value);
    std::string word = lower(text != nullptr ? trim(*text) : std::string_view{});
    Padding padding;
    bool good = true;
    if (const auto colon = word.find(':'); colon != std::string::npos) {
        const char* const end = word.data() + word.size();
        const auto [stop, error] = std::from_chars(word.data() + colon + 1, end, padding.least);
        good = error == std::errc{} && stop == end && padding.least >= 1 && padding.least <= Padding::kMostLeast;
        word.resize(colon);
        good = good && word != "none";
    }
    if (word == "padme") padding.scheme = Padding::Scheme::padme;
    if (word == "power-of-two") padding.scheme = Padding::Scheme::power_of_two;
    if (!good || (!padding.is_on() && word != "none")) {
        return refuse(given, as_text(given.value) +
                                 " is not allowed; allowed: none, padme, power-of-two, and the last two with the least "
                                 "bytes that are sent, as padme:256 (1 to " +
                                 std::to_string(Padding::kMostLeast) + ")");
    }
    padding.least = Padding{padding.scheme}.bucket(padding.least);  // one of the scheme's own
    settings.padding = padding;
    settings.padding_where = given.where;
    return {};
}

Result<void> set_threads(Settings& settings, const Given& given, const Environment&) {
    double number = -1;
    if (const auto* given_number = std::get_if<double>(&given.value)) number = *given_number;
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        int whole = -1;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), whole);
        if (word == "auto") number = 0;
        if (given.from_variable && error == std::errc{} && end == word.data() + word.size()) number = whole;
    }
    for (int threads = 0; threads <= kMostThreads; ++threads) {
        if (number != threads) continue;
        settings.threads = threads;
        return {};
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: auto, 1 to " + std::to_string(kMostThreads));
}

Result<void> set_allow(Settings& settings, const Given& given, const Environment&) {
    auto names = read_list(given);
    if (!names) return tl::unexpected<Error>(names.error());
    for (const auto& name : *names) {
        if (!name.starts_with("MPI_") && !name.starts_with("MPIX_")) {
            return refuse(given,
                          as_text(name) + " is no MPI procedure's name; expected MPI's own spelling, such as MPI_Put");
        }
    }
    settings.allow = std::move(*names);
    settings.allow_where = given.where;
    return {};
}

Result<void> set_allow_programs(Settings& settings, const Given& given, const Environment&) {
    auto files = read_list(given);
    if (!files) return tl::unexpected<Error>(files.error());
    std::vector<fs::path> programs;
    for (const auto& file : *files) {
        if (!file.starts_with('/'))
            return refuse(given, as_text(file) + " is not a program's whole path; expected such as /sbin/ldconfig");
        programs.emplace_back(file);
    }
    settings.allow_programs = std::move(programs);
    return {};
}

Result<void> set_key_file(Settings& settings, const Given& given, const Environment& environment) {
    auto path = read_path(given, environment);
    if (path && path->empty()) return refuse(given, "is empty; name the key file, or leave the setting out");
    settings.key_file_named = true;
    return store(std::move(path), settings.key_file);
}

Result<void> set_job_key(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        if (word == "auto" || word == "fresh" || word == "file") {
            settings.job_key = word == "fresh"  ? JobKeyFrom::fresh
                               : word == "file" ? JobKeyFrom::file
                                                : JobKeyFrom::automatic;
            return {};
        }
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: auto, fresh, file");
}

Result<void> set_key_distribution(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        for (const auto way : {KeyDistribution::agreement, KeyDistribution::rsa_oaep, KeyDistribution::interchange}) {
            if (word != name_of(way)) continue;
            settings.key_distribution = way;
            settings.key_distribution_where = given.where;
            return {};
        }
    }
    return refuse(given, as_text(given.value) +
                             " is not allowed; allowed: agreement, and, safe against passive attackers only, "
                             "rsa-oaep, interchange");
}

/// Only the MPI layer has other ways than the agreement.
Result<void> check_key_distribution(const Settings& settings) {
    const bool other_layer = settings.layer == Layer::channel || settings.layer == Layer::fabric;
    if (!settings.passive_only() || !other_layer) return {};
    return fail(EINVAL, settings.key_distribution_where + ": " + std::string(name_of(settings.key_distribution)) +
                            " is for the MPI layer only, and the layer here is " +
                            std::string(name_of(settings.layer)) + ": set layer = \"mpi\", or leave this out");
}

Result<void> set_key_exchange(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        for (const auto exchange : {KeyExchange::x25519, KeyExchange::x25519_mlkem768}) {
            if (word != name_of(exchange)) continue;
            settings.key_exchange = exchange;
            settings.key_exchange_where = given.where;
            return {};
        }
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: x25519, x25519-mlkem768");
}

Result<void> set_key_on_network(Settings& settings, const Given& given, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&given.value)) {
        const std::string word = lower(trim(*text));
        if (word == "warn" || word == "refuse" || word == "allow") {
            settings.key_on_network = word == "warn"     ? KeyOnNetwork::warn
                                      : word == "refuse" ? KeyOnNetwork::refuse
                                                         : KeyOnNetwork::allow;
            return {};
        }
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: warn, refuse, allow");
}

Result<void> set_profile(Settings& settings, const Given& given, const Environment& environment) {
    auto text = read_text(given);
    if (!text) return tl::unexpected<Error>(text.error());
    if (text->empty()) return refuse(given, "is empty; name a profile, or none");
    settings.profile_named = true;
    settings.profile.clear();
    return *text == "none" ? Result<void>{} : store(read_path(given, environment), settings.profile);
}

constexpr std::array<Key, 35> kKeys = {{
    {"enabled", [](Settings& s, const Given& g, const Environment&) { return store(read_bool(g), s.enabled); }},
    {"cipher", set_cipher},
    {"allow_legacy_cipher",
     [](Settings& s, const Given& g, const Environment&) { return store(read_bool(g), s.allow_legacy_cipher); }},
    {"module", set_module},
    {"scope", set_scope},
    {"layer", set_layer},
    {"network", set_network},
    {"seal_sockets",
     [](Settings& s, const Given& g, const Environment&) { return store(read_bool(g), s.seal_sockets); }},
    {"padding", set_padding},
    {"threads", set_threads},
    {"allow", set_allow},
    {"allow_programs", set_allow_programs},
    {"key_file", set_key_file, true},
    {"allow_group_key",
     [](Settings& s, const Given& g, const Environment&) { return store(read_bool(g), s.allow_group_key); }},
    {"job_key", set_job_key},
    {"key_on_network", set_key_on_network},
    {"key_distribution", set_key_distribution},
    {"key_exchange", set_key_exchange},
    {"interchange_key_file",
     [](Settings& s, const Given& g, const Environment& e) { return store(read_path(g, e), s.interchange_key_file); },
     true},
    {"interchange_keys",
     [](Settings& s, const Given& g, const Environment& e) { return store(read_path(g, e), s.interchange_keys); },
     true},
    {"member_key_file",
     [](Settings& s, const Given& g, const Environment& e) { return store(read_path(g, e), s.member_key_file); }, true},
    {"member_list",
     [](Settings& s, const Given& g, const Environment& e) { return store(read_path(g, e), s.member_list); }, true},
    {"require_members",
     [](Settings& s, const Given& g, const Environment&) { return store(read_bool(g), s.require_members); }},
    {"plaintext_peers",
     [](Settings& s, const Given& g, const Environment&) { return store(read_peers(g), s.plaintext_peers); }},
    {"report_file",
     [](Settings& s, const Given& g, const Environment& e) { return store(read_path(g, e), s.report_file); }, true},
    {"live", [](Settings& s, const Given& g, const Environment&) { return store(read_bool(g), s.live); }},
    {"handshake_timeout_s", [](Settings& s, const Given& g,
                               const Environment&) { return store(read_seconds(g, false), s.handshake_timeout); }},
    {"silence_timeout_s",
     [](Settings& s, const Given& g, const Environment&) { return store(read_seconds(g, true), s.silence_timeout); }},
    {"agreement_timeout_s", [](Settings& s, const Given& g,
                               const Environment&) { return store(read_seconds(g, false), s.agreement_timeout); }},
    {"check_addresses",
     [](Settings& s, const Given& g, const Environment&) { return store(read_bool(g), s.check_addresses); }},
    {"abort_after_s",
     [](Settings& s, const Given& g, const Environment&) { return store(read_seconds(g, true), s.abort_after); }},
    {"rekey_s",
     [](Settings& s, const Given& g, const Environment&) { return store(read_seconds(g, true), s.rekey_after); }},
    {"job_id", [](Settings& s, const Given& g, const Environment&) { return store(read_text(g), s.job_id); }},
    {"module_folder",
     [](Settings& s, const Given& g, const Environment& e) { return store(read_path(g, e), s.module_folder); }, true},
    {"profile", set_profile, true},
}};

std::string variable_of(const Key& key) {
    std::string name(kVariablePrefix);
    for (const unsigned char letter : key.name) name += static_cast<char>(std::toupper(letter));
    return name;
}

Result<void> apply(const Key& key, Settings& settings, const Given& given, const Environment& environment) {
    if (auto set = key.set(settings, given, environment); !set) return set;
    const std::string variable = variable_of(key);
    std::erase_if(settings.given, [&](const GivenSetting& earlier) { return earlier.variable == variable; });
    settings.given.push_back({variable, variable_value(given, key.is_path), given.where});
    return {};
}

std::string unknown_name(const std::string& where, const std::string& what, std::string_view wrong,
                         const std::vector<std::string>& names) {
    std::string line =
        where + what + " \"" + std::string(wrong) + "\"; did you mean \"" + nearest(wrong, names) + "\"? Known: ";
    for (const auto& name : names) line += (name == names.front() ? "" : ", ") + name;
    return line;
}

Result<void> apply_file(Settings& settings, const fs::path& file, const Environment& environment) {
    auto entries = read_toml(file);
    if (!entries) return tl::unexpected<Error>(entries.error());
    for (auto& entry : *entries) {
        const std::string where = file.string() + ":" + std::to_string(entry.line) + ": ";
        const auto* key = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& k) { return k.name == entry.key; });
        if (key == kKeys.end()) {
            std::vector<std::string> names;
            names.reserve(kKeys.size());
            for (const auto& known : kKeys) names.emplace_back(known.name);
            return fail(EINVAL, unknown_name(where, "unknown setting", entry.key, names));
        }
        const Given given{std::move(entry.value), false, where + entry.key, file.parent_path()};
        if (auto applied = apply(*key, settings, given, environment); !applied) return applied;
    }
    return {};
}

Result<void> apply_variables(Settings& settings, const Environment& environment) {
    std::vector<std::string> names;
    names.reserve(kKeys.size() + 1);
    for (const auto& key : kKeys) names.push_back(variable_of(key));
    names.emplace_back(kConfigVariable);
    for (const auto& [name, value] : environment.variables()) {
        if (!name.starts_with(kVariablePrefix) || name.starts_with(kInternalPrefix) || name == kConfigVariable)
            continue;
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end()) return fail(EINVAL, unknown_name("", "unknown environment variable", name, names));
        const Given given{value, true, "environment variable " + name, fs::current_path()};
        const auto& key = kKeys[static_cast<std::size_t>(found - names.begin())];
        if (auto applied = apply(key, settings, given, environment); !applied) return applied;
    }
    return {};
}

/// The folder with our library and modules: the library's own, or for an executable in bin/ the lib folder beside it.
fs::path default_module_folder() {
    Dl_info here{};
    const bool found = dladdr(reinterpret_cast<const void*>(&default_module_folder), &here) != 0;
    constexpr std::uintptr_t kPageMask = 4095;
    const bool in_executable =
        !found || reinterpret_cast<std::uintptr_t>(here.dli_fbase) == (getauxval(AT_PHDR) & ~kPageMask);
    std::error_code ignored;
    if (!in_executable) return fs::weakly_canonical(here.dli_fname, ignored).parent_path();
    const fs::path prefix = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
    for (const char* lib : {"lib", CRYPTMPI_LIBDIR}) {
        if (auto folder = prefix / lib / "cryptmpi"; fs::is_directory(folder, ignored)) return folder;
    }
    return prefix / "lib" / "cryptmpi";
}

/// One id for all of a job's processes, those that it spawns later included.
std::string default_job_id(const Environment& environment) {
    if (auto name_space = environment("PMIX_NAMESPACE")) {
        if (const auto at = name_space->rfind('@'); at != std::string::npos) return name_space->substr(0, at);
        // Open MPI 4 gives a number: the job's family in the high half, the count of spawned groups in the low.
        std::uint32_t number = 0;
        const char* end = name_space->data() + name_space->size();
        const auto [stop, error] = std::from_chars(name_space->data(), end, number);
        if (error == std::errc{} && stop == end) return std::to_string(number >> 16U);
        return *name_space;
    }
    if (auto uuid = environment("I_MPI_HYDRA_UUID")) return *uuid;
    auto job = environment("SLURM_JOB_ID");
    auto step = environment("SLURM_STEP_ID");
    if (job && step) return *job + "." + *step;
    for (const char* name : {"FLUX_JOB_ID", "PBS_JOBID"}) {
        if (auto id = environment(name)) return *id;
    }
    // LSF numbers the elements of a job array by themselves; 0: the job is none.
    auto lsf = environment("LSB_JOBID");
    if (!lsf) return "";
    const std::string element = environment("LSB_JOBINDEX").value_or("0");
    return element == "0" ? *lsf : *lsf + "[" + element + "]";
}

/// The report's place as this node sees it.
fs::path report_place(const fs::path& report_file, const Environment& environment) {
    const auto token = environment(kReportTokenVariable);
    if (!token || !is_report_token(*token) || report_file.empty()) return report_file;
    std::ifstream stream(report_token_file(report_file));
    std::string found;
    if (std::getline(stream, found) && found == *token) return report_file;
    return local_report_folder(*token) / report_file.filename();
}

Result<void> read_key_limits(const Environment& environment, Settings& settings) {
    const auto text = environment(kKeyLimitsVariable);
    if (!text) return {};
    const char* const end = text->data() + text->size();
    const auto [comma, error] = std::from_chars(text->data(), end, settings.key_records);
    const bool has_bytes = error == std::errc{} && comma != end && *comma == ',';
    const auto [stop, wrong] = std::from_chars(has_bytes ? comma + 1 : end, end, settings.key_bytes);
    // A rekey record and one other have to have room.
    if (has_bytes && wrong == std::errc{} && stop == end && settings.key_records >= 2) return {};
    return fail(EINVAL, std::string("environment variable ") + kKeyLimitsVariable + ": \"" + *text +
                            "\" is not allowed; allowed: records from 2 and bytes, such as \"8,1000000\"");
}

Result<Settings> load_unguarded(const Environment& environment) {
    Settings settings;
    if (auto read = read_key_limits(environment, settings); !read) return tl::unexpected<Error>(read.error());
    const auto named = environment(kConfigVariable);
    if (named && named->empty()) {
        return fail(EINVAL, "environment variable CRYPTMPI_CONFIG: is empty; name a settings file, or unset it");
    }
    const auto file = settings_file(environment);
    if (auto applied = file ? apply_file(settings, *file, environment) : Result<void>{}; !applied) {
        const bool may_be_missing = !named && (applied.error().code == ENOENT || applied.error().code == ENOTDIR);
        if (!may_be_missing) {
            Error error = applied.error();
            if (named && error.code == ENOENT) error.line += " (named by CRYPTMPI_CONFIG; correct it, or unset it)";
            return tl::unexpected<Error>(std::move(error));
        }
    }
    if (auto applied = apply_variables(settings, environment); !applied) return tl::unexpected<Error>(applied.error());
    if (auto checked = check_legacy(settings); !checked) return tl::unexpected<Error>(checked.error());
    if (auto checked = check_key_distribution(settings); !checked) return tl::unexpected<Error>(checked.error());
    if (auto checked = check_key_exchange(settings); !checked) return tl::unexpected<Error>(checked.error());
    if (settings.interchange_key_file.empty())
        settings.interchange_key_file = config_folder(environment) / "interchange.key";
    if (settings.interchange_keys.empty()) settings.interchange_keys = config_folder(environment) / "interchange.keys";
    if (auto checked = check_padding(settings); !checked) return tl::unexpected<Error>(checked.error());
    if (settings.key_file.empty()) settings.key_file = config_folder(environment) / "job.key";
    if (settings.member_key_file.empty()) settings.member_key_file = config_folder(environment) / "member.key";
    if (settings.member_list.empty()) settings.member_list = config_folder(environment) / "members";
    if (settings.module_folder.empty()) settings.module_folder = default_module_folder();
    if (!settings.profile_named) settings.profile = config_folder(environment) / "profile.json";
    if (settings.job_id.empty()) settings.job_id = default_job_id(environment);
    if (environment(kCoveredVariable)) settings.enabled = true;
    settings.key_id = environment(kKeyIdVariable).value_or("");
    settings.report_file = report_place(settings.report_file, environment);
    return settings;
}

}  // namespace

std::vector<std::string> Settings::given_lines() const {
    constexpr std::array kOfThisJob = {"CRYPTMPI_KEY_FILE", "CRYPTMPI_REPORT_FILE", "CRYPTMPI_JOB_ID",
                                       "CRYPTMPI_MODULE_FOLDER"};
    std::vector<std::string> lines;
    for (const auto& one : given) {
        if (std::find(kOfThisJob.begin(), kOfThisJob.end(), one.variable) != kOfThisJob.end()) continue;
        lines.push_back(lower(std::string_view(one.variable).substr(kVariablePrefix.size())) + " = " +
                        one.value.value_or("(" + one.where + ")"));
    }
    return lines;
}

namespace {

std::optional<int> number_in(const Environment& environment, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const auto text = environment(name);
        if (!text) continue;
        int number = 0;
        const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
        if (error == std::errc{} && end == text->data() + text->size() && number >= 0) return number;
    }
    return std::nullopt;
}

/// Of a list as Slurm writes it, "2(x3),1" (2 tasks on each of three nodes, 1 on the fourth), that of one node.
std::optional<int> tasks_of_node(std::string_view list, int node) {
    while (!list.empty()) {
        const std::string_view entry = list.substr(0, list.find(','));
        list.remove_prefix(std::min(entry.size() + 1, list.size()));
        const char* const end = entry.data() + entry.size();
        int tasks = 0;
        auto [at, error] = std::from_chars(entry.data(), end, tasks);
        if (error != std::errc{}) return std::nullopt;
        int nodes = 1;
        if (at != end) {
            if (!std::string_view(at, end).starts_with("(x")) return std::nullopt;
            const auto [stop, wrong] = std::from_chars(at + 2, end, nodes);
            if (wrong != std::errc{} || std::string_view(stop, end) != ")") return std::nullopt;
        }
        if (node < nodes) return tasks;
        node -= nodes;
    }
    return std::nullopt;
}

std::optional<int> node_ranks(const Environment& environment) {
    const auto told =
        number_in(environment, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "JSM_NAMESPACE_LOCAL_SIZE"});
    if (told) return told;
    const auto tasks = environment("SLURM_STEP_TASKS_PER_NODE");
    const auto node = number_in(environment, {"SLURM_NODEID"});
    return tasks && node ? tasks_of_node(*tasks, *node) : std::nullopt;
}

/// Is this process in a step that srun has started? A batch script and salloc's shell are in none, or in one with a
/// number that no int can hold.
bool is_in_slurm_step(const Environment& environment) {
    return number_in(environment, {"SLURM_STEP_ID"}).has_value();
}

/// What the batch system that started this process itself says of it.
struct Task {
    std::optional<int> rank;
    std::optional<int> ranks;
};

Task task_of(const Environment& environment, bool slurm_step) {
    // A batch script has SLURM_PROCID and SLURM_NTASKS, too: the job's, which its steps need not have.
    if (slurm_step)
        return {number_in(environment, {"SLURM_PROCID"}),
                number_in(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})};
    if (const auto rank = number_in(environment, {"FLUX_TASK_RANK"}))
        return {rank, number_in(environment, {"FLUX_JOB_SIZE"})};
    return {number_in(environment, {"JSM_NAMESPACE_RANK"}), number_in(environment, {"JSM_NAMESPACE_SIZE"})};
}

/// Open MPI counts a job's groups from one: in a number's low half, or behind the "@" of a name.
std::string spawned_group(const Environment& environment) {
    const auto name_space = environment("PMIX_NAMESPACE");
    if (!name_space) return environment("PMI_SPAWNED") ? "spawned" : "";
    std::string group = name_space->substr(name_space->rfind('@') + 1);
    if (name_space->find('@') == std::string::npos) {
        std::uint32_t number = 0;
        const char* end = name_space->data() + name_space->size();
        const auto [stop, error] = std::from_chars(name_space->data(), end, number);
        if (error != std::errc{} || stop != end) return "";
        group = std::to_string(number & 0xffffU);
    }
    return group == "1" ? "" : group;
}

}  // namespace

bool PlaintextPeer::matches(const std::uint8_t (&peer)[16], std::uint16_t peer_port) const {
    if (port && *port != peer_port) return false;
    const auto whole = static_cast<std::size_t>(prefix_bits / 8);
    if (std::memcmp(peer, address, whole) != 0) return false;
    const int rest = prefix_bits % 8;
    return rest == 0 || ((peer[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

namespace {

std::optional<int> number_up_to(int highest, std::string_view digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool is_number = error == std::errc{} && end == digits.data() + digits.size();
    return is_number && value >= 0 && value <= highest ? std::optional(value) : std::nullopt;
}

/// "10.0.0.0/24:5000", "[fd00::]/64:5000" or "fd00::1" in its parts.
struct PeerText {
    std::string host;
    bool is_ipv6 = false;
    std::string_view rest;  // from the "/" or the ":" before the port on
};

std::optional<PeerText> split_peer(std::string_view text) {
    if (text.starts_with('[')) {
        const auto bracket = text.find(']');
        if (bracket == std::string_view::npos) return std::nullopt;
        return PeerText{std::string(text.substr(1, bracket - 1)), true, text.substr(bracket + 1)};
    }
    const bool is_ipv6 = std::count(text.begin(), text.end(), ':') > 1;  // without brackets: no port possible
    const auto end = std::min(is_ipv6 ? text.find('/') : text.find_first_of("/:"), text.size());
    return PeerText{std::string(text.substr(0, end)), is_ipv6, text.substr(end)};
}

bool read_host(const PeerText& text, PlaintextPeer& peer) {
    if (text.is_ipv6) return inet_pton(AF_INET6, text.host.c_str(), peer.address) == 1;
    peer.address[10] = peer.address[11] = 0xff;
    return inet_pton(AF_INET, text.host.c_str(), peer.address + 12) == 1;
}

bool read_prefix(PeerText& text, PlaintextPeer& peer) {
    peer.prefix_bits = 128;
    if (!text.rest.starts_with('/')) return true;
    const auto colon = std::min(text.rest.find(':'), text.rest.size());
    const auto bits = number_up_to(text.is_ipv6 ? 128 : 32, text.rest.substr(1, colon - 1));
    if (!bits) return false;
    peer.prefix_bits = text.is_ipv6 ? *bits : *bits + 96;
    text.rest.remove_prefix(colon);
    return true;
}

bool read_port(PeerText& text, PlaintextPeer& peer) {
    if (text.rest.empty()) return true;
    if (!text.rest.starts_with(':')) return false;
    const auto port = number_up_to(65535, text.rest.substr(1));
    if (!port || *port == 0) return false;
    peer.port = static_cast<std::uint16_t>(*port);
    return true;
}

}  // namespace

Result<PlaintextPeer> parse_plaintext_peer(std::string_view text) {
    PlaintextPeer peer{};
    peer.text = text;
    auto parts = split_peer(text);
    if (parts && read_host(*parts, peer) && read_prefix(*parts, peer) && read_port(*parts, peer)) return peer;
    return fail(EINVAL, '"' + std::string(text) +
                            "\" is not an address; allowed: 10.0.0.7, 10.0.0.0/24, [fd00::1], [fd00::]/64, each "
                            "with an optional :port");
}

bool Settings::plaintext_allowed(const std::uint8_t (&peer)[16], std::uint16_t port) const {
    return std::any_of(plaintext_peers.begin(), plaintext_peers.end(),
                       [&](const PlaintextPeer& allowed) { return allowed.matches(peer, port); });
}

std::optional<std::string> Environment::operator()(std::string_view name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return std::nullopt;
    return found->second;
}

Environment process_environment() {
    std::map<std::string, std::string, std::less<>> variables;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view line = *entry;
        if (const auto equals = line.find('='); equals != std::string_view::npos) {
            variables.emplace(line.substr(0, equals), line.substr(equals + 1));
        }
    }
    return Environment(std::move(variables));
}

fs::path config_folder(const Environment& environment) {
    if (auto xdg = environment("XDG_CONFIG_HOME"); xdg && xdg->starts_with('/')) return fs::path(*xdg) / "cryptmpi";
    if (auto home = environment("HOME"); home && !home->empty()) return fs::path(*home) / ".config/cryptmpi";
    std::array<char, 4096> buffer{};
    passwd entry{};
    passwd* found = nullptr;
    if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
        return fs::path(found->pw_dir) / ".config/cryptmpi";
    }
    return "/etc/cryptmpi";
}

std::optional<fs::path> settings_file(const Environment& environment) {
    if (const auto named = environment(kConfigVariable)) return fs::absolute(*named);
    if (environment(kSettingsGivenVariable)) return std::nullopt;
    return config_folder(environment) / "config.toml";
}

Result<Settings> load(const Environment& environment) {
    try {
        auto settings = load_unguarded(environment);
        // What stands in a file may be anything, and a line of ours is one line that no terminal obeys.
        if (!settings) settings.error().line = printable(settings.error().line);
        return settings;
    } catch (const std::exception& error) {  // out of memory, or a working folder that is gone
        return fail(EIO, std::string("cannot read the settings: ") + error.what());
    }
}

fs::path report_token_file(const fs::path& report_file) {
    return report_file.string() + ".parts/token";
}

bool is_report_token(std::string_view token) {
    constexpr std::size_t kDigits = 32;
    return token.size() == kDigits && token.find_first_not_of(kHexDigits) == std::string_view::npos;
}

fs::path local_report_folder(std::string_view token) {
    return fs::path("/dev/shm") / ("cryptmpi-parts-" + std::string(token));
}

bool is_of_launcher(const Environment& environment) {
    return environment(kRoleVariable) == "launcher";
}

Process identify(const Environment& environment) {
    Process process;
    process.ranks = number_in(environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
    process.rank = number_in(environment, {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"});
    const bool in_step = is_in_slurm_step(environment);
    const bool launcher = is_of_launcher(environment);
    const auto batch = task_of(environment, in_step);
    // A launcher inside a step is a task of the batch system, too, without being a rank.
    if (!process.rank && !launcher) process.rank = batch.rank;
    // The ranks that a launcher inside a step has started are others than the step's tasks.
    const auto name_space = environment("PMIX_NAMESPACE");
    const bool by_hydra = environment("MPI_LOCALNRANKS").has_value();
    const bool a_task = name_space ? name_space->starts_with("slurm.pmix.") : process.rank == batch.rank && !by_hydra;
    process.slurm_step = in_step && (a_task || !process.rank);
    if (process.rank && !process.ranks && a_task) process.ranks = batch.ranks;
    if (process.rank) process.node_ranks = node_ranks(environment);
    if (process.rank) process.group = spawned_group(environment);
    process.role = process.rank ? "rank" : launcher ? "launcher" : "process";
    return process;
}

std::size_t openmp_threads(const Environment& environment) {
    constexpr std::size_t kMost = 4096;  // more than any node has
    const std::string text = environment("OMP_NUM_THREADS").value_or("");
    std::size_t all = 0;
    for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
        std::size_t level = 0;
        const auto [stop, error] = std::from_chars(at, end, level);
        if (error != std::errc{} || level == 0) return 0;
        all = std::min(std::max(all, std::size_t{1}) * std::min(level, kMost), kMost);
        at = stop == end ? end : stop + 1;
    }
    return all;
}

Result<void> check_padding(const Settings& settings) {
    const bool past_sockets =
        settings.roads_open() || settings.doors_open() || (settings.seals_above_sockets() && !settings.seal_sockets);
    if (!settings.padding.is_on() || !past_sockets) return {};
    return fail(EINVAL, settings.padding_where + ": padding = " + settings.padding.name() +
                            " pads what goes through sealed sockets, and under layer = " +
                            std::string(name_of(settings.layer)) +
                            " the job's messages would go past them, unpadded: set layer = channel or network = tcp "
                            "(with seal_sockets = true), or padding = none");
}

Result<void> check_key_exchange(const Settings& settings) {
    const std::string given =
        settings.key_exchange_where + ": " + std::string(name_of(settings.key_exchange)) + " is for ";
    if (settings.hybrid() && settings.layer == Layer::fabric) {
        return fail(EINVAL, given +
                                "the channel and the MPI layer: the fabric layer has no room for ML-KEM's keys in the "
                                "addresses that its shares travel in: set another layer (--layer mpi), or "
                                "key_exchange = x25519");
    }
    if (settings.hybrid() && settings.passive_only()) {
        return fail(EINVAL, given + "key_distribution = agreement, and with " +
                                std::string(name_of(settings.key_distribution)) +
                                " everything rests on RSA: set key_distribution = agreement, or key_exchange = x25519");
    }
    return {};
}

std::string cipher_warning(const Settings& settings, const Process& process) {
    const bool first = process.rank ? *process.rank == 0 : process.role == "process";
    if (!first || !aead::is_legacy(settings.suite)) return "";
    return "warning: this job uses the legacy cipher " + std::string(aead::name(settings.suite)) +
           " (allow_legacy_cipher), which is slow and has blocks of 64 bits; AES-256-GCM is the better choice";
}

std::string_view name_of(Layer layer) {
    switch (layer) {
        case Layer::automatic:
            return "auto";
        case Layer::channel:
            return "channel";
        case Layer::mpi:
            return "mpi";
        case Layer::fabric:
            return "fabric";
    }
    return "";
}

std::string_view name_of(KeyDistribution way) {
    switch (way) {
        case KeyDistribution::agreement:
            return "agreement";
        case KeyDistribution::rsa_oaep:
            return "rsa-oaep";
        case KeyDistribution::interchange:
            return "interchange";
    }
    return "";
}

std::string_view name_of(KeyExchange exchange) {
    switch (exchange) {
        case KeyExchange::x25519:
            return "x25519";
        case KeyExchange::x25519_mlkem768:
            return "x25519-mlkem768";
    }
    return "";
}

std::string_view name_of(Network network) {
    switch (network) {
        case Network::automatic:
            return "auto";
        case Network::tcp:
            return "tcp";
        case Network::fabric:
            return "fabric";
        case Network::any:
            return "any";
    }
    return "";
}

std::string layer_reason(const Environment& environment, std::string_view layer) {
    const auto told = environment(kReasonVariable);
    const std::string lead = std::string(layer) + ": ";
    return told && told->starts_with(lead) ? told->substr(lead.size()) : "";
}

}  // namespace cryptmpi::config
