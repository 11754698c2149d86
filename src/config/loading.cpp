#include "config/loading.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.hpp"
#include "base/printable.hpp"
#include "config/internal_variables.hpp"
#include "config/known_settings.hpp"
#include "config/toml_file.hpp"
#include "config/values.hpp"

namespace cryptmpi::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInternalPrefix = "CRYPTMPI_INTERNAL_";

Result<void> apply(const KnownSetting& known, Settings& settings, const Given& given, const Environment& environment) {
    if (auto set = known.set(settings, given, environment); !set) return set;
    const std::string variable = known.variable();
    std::erase_if(settings.given, [&](const GivenSetting& earlier) { return earlier.variable == variable; });
    settings.given.push_back({variable, variable_value(given, known.is_path), given.where});
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
    const auto all = known_settings();
    for (auto& entry : *entries) {
        const std::string where = fmt::format("{}:{}: ", file.string(), entry.line);
        const auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == entry.key; });
        if (known == all.end()) {
            std::vector<std::string> names;
            names.reserve(all.size());
            for (const auto& one : all) names.emplace_back(one.name);
            return fail(EINVAL, unknown_name(where, "unknown setting", entry.key, names));
        }
        const Given given{std::move(entry.value), false, where + entry.key, file.parent_path()};
        if (auto applied = apply(*known, settings, given, environment); !applied) return applied;
    }
    return {};
}

Result<void> apply_variables(const Environment& environment, Settings& settings) {
    const auto all = known_settings();
    std::vector<std::string> names;
    names.reserve(all.size() + 1);
    for (const auto& known : all) names.push_back(known.variable());
    names.emplace_back(kConfigVariable);
    for (const auto& [name, value] : environment.variables()) {
        if (!name.starts_with(kVariablePrefix) || name.starts_with(kInternalPrefix) || name == kConfigVariable)
            continue;
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end()) return fail(EINVAL, unknown_name("", "unknown environment variable", name, names));
        const Given given{value, true, "environment variable " + name, fs::current_path()};
        const auto& known = all[static_cast<std::size_t>(found - names.begin())];
        if (auto applied = apply(known, settings, given, environment); !applied) return applied;
    }
    return {};
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

/// A legacy cipher is never used by a slip of the pen: it takes two settings.
Result<void> check_legacy(const Settings& settings) {
    if (!aead::is_legacy(settings.suite) || settings.allow_legacy_cipher) return {};
    return fail(EINVAL, settings.cipher_where + ": " + std::string(aead::name(settings.suite)) +
                            " is a legacy cipher, slow and with blocks of 64 bits: name AES-256-GCM, or set "
                            "allow_legacy_cipher = true");
}

/// Only the MPI layer has other ways than the agreement.
Result<void> check_key_distribution(const Settings& settings) {
    const bool other_layer = settings.layer == Layer::channel || settings.layer == Layer::fabric;
    if (!settings.passive_only() || !other_layer) return {};
    return fail(EINVAL, settings.key_distribution_where + ": " + std::string(name_of(settings.key_distribution)) +
                            " is for the MPI layer only, and the layer here is " +
                            std::string(name_of(settings.layer)) + ": set layer = \"mpi\", or leave this out");
}

/// The settings file, which may be missing unless somebody named it.
Result<void> read_file(const Environment& environment, Settings& settings) {
    const auto named = environment(kConfigVariable);
    if (named && named->empty()) {
        return fail(EINVAL, "environment variable CRYPTMPI_CONFIG: is empty; name a settings file, or unset it");
    }
    const auto file = settings_file(environment);
    auto applied = file ? apply_file(settings, *file, environment) : Result<void>{};
    if (applied || (!named && (applied.error().code == ENOENT || applied.error().code == ENOTDIR))) return {};
    Error error = applied.error();
    if (named && error.code == ENOENT) error.line += " (named by CRYPTMPI_CONFIG; correct it, or unset it)";
    return tl::unexpected<Error>(std::move(error));
}

void fill_in_defaults(const Environment& environment, Settings& settings) {
    const fs::path folder = config_folder(environment);
    const auto fill_in = [&](fs::path& path, const char* name) {
        if (path.empty()) path = folder / name;
    };
    fill_in(settings.interchange_key_file, "interchange.key");
    fill_in(settings.interchange_keys, "interchange.keys");
    fill_in(settings.key_file, "job.key");
    fill_in(settings.member_key_file, "member.key");
    fill_in(settings.member_list, "members");
    if (!settings.profile_named) settings.profile = folder / "profile.json";
    if (settings.module_folder.empty()) settings.module_folder = default_module_folder();
    if (settings.job_id.empty()) settings.job_id = launched_job_id(environment);
}

Result<Settings> load_unguarded(const Environment& environment) {
    Settings settings;
    for (const auto step : {read_key_limits, read_file, apply_variables}) {
        if (auto done = step(environment, settings); !done) return tl::unexpected<Error>(done.error());
    }
    for (const auto check : {check_legacy, check_key_distribution, check_key_exchange, check_padding}) {
        if (auto checked = check(settings); !checked) return tl::unexpected<Error>(checked.error());
    }
    fill_in_defaults(environment, settings);
    if (environment(kCoveredVariable)) settings.enabled = true;
    settings.key_id = environment(kKeyIdVariable).value_or("");
    if (const auto place = environment(kReportFileVariable); place && !place->empty()) settings.report_file = *place;
    settings.report_file = report_place(settings.report_file, environment);
    return settings;
}

}  // namespace

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

}  // namespace cryptmpi::config
