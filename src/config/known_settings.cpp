#include "config/known_settings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <utility>
#include <variant>
#include <vector>

#include "config/choices.hpp"

namespace cryptmpi::config {
namespace {

namespace fs = std::filesystem;

constexpr int kMostThreads = 64;

/// Moves a read value into a setting, or passes the error on.
template <class T, class Target>
Result<void> store(Result<T> read, Target& target) {
    if (!read) return tl::unexpected<Error>(read.error());
    target = std::move(*read);
    return {};
}

template <auto kMember>
Result<void> set_bool(Settings& settings, const Given& given, const Environment&) {
    return store(read_bool(given), settings.*kMember);
}

template <auto kMember>
Result<void> set_path(Settings& settings, const Given& given, const Environment& environment) {
    return store(read_path(given, environment), settings.*kMember);
}

template <auto kMember>
Result<void> set_seconds(Settings& settings, const Given& given, const Environment&) {
    return store(read_seconds(given, false), settings.*kMember);
}

template <auto kMember>
Result<void> set_seconds_or_never(Settings& settings, const Given& given, const Environment&) {
    return store(read_seconds(given, true), settings.*kMember);
}

template <class Value, std::size_t kCount>
Result<Value> read_choice(const Given& given, const std::array<Choice<Value>, kCount>& choices) {
    const auto* text = std::get_if<std::string>(&given.value);
    const std::string word = text != nullptr ? lower(trim(*text)) : "";
    std::string allowed;
    for (const auto& choice : choices) {
        if (word == choice.word) return choice.value;
        allowed += (allowed.empty() ? "" : ", ") + std::string(choice.word);
    }
    return refuse(given, as_text(given.value) + " is not allowed; allowed: " + allowed);
}

template <auto kMember, const auto& kChoices>
Result<void> set_choice(Settings& settings, const Given& given, const Environment&) {
    return store(read_choice(given, kChoices), settings.*kMember);
}

Result<void> set_key_exchange(Settings& settings, const Given& given, const Environment&) {
    settings.key_exchange_where = given.where;
    return store(read_choice(given, kKeyExchanges), settings.key_exchange);
}

Result<void> set_key_distribution(Settings& settings, const Given& given, const Environment&) {
    settings.key_distribution_where = given.where;
    if (auto way = read_choice(given, kKeyDistributions)) return store(std::move(way), settings.key_distribution);
    return refuse(given, as_text(given.value) +
                             " is not allowed; allowed: agreement, and, safe against passive attackers only, "
                             "rsa-oaep, interchange");
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
        return refuse(given, fmt::format("{} is not allowed; allowed: none, padme, power-of-two, and the last two with "
                                         "the least bytes that are sent, as padme:256 (1 to {})",
                                         as_text(given.value), Padding::kMostLeast));
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
    return refuse(given, fmt::format("{} is not allowed; allowed: auto, 1 to {}", as_text(given.value), kMostThreads));
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

Result<void> set_profile(Settings& settings, const Given& given, const Environment& environment) {
    auto text = read_text(given);
    if (!text) return tl::unexpected<Error>(text.error());
    if (text->empty()) return refuse(given, "is empty; name a profile, or none");
    settings.profile_named = true;
    settings.profile.clear();
    return *text == "none" ? Result<void>{} : store(read_path(given, environment), settings.profile);
}

Result<void> set_plaintext_peers(Settings& settings, const Given& given, const Environment&) {
    return store(read_peers(given), settings.plaintext_peers);
}

Result<void> set_job_id(Settings& settings, const Given& given, const Environment&) {
    return store(read_text(given), settings.job_id);
}

constexpr std::array<KnownSetting, 35> kKnownSettings = {{
    {"enabled", set_bool<&Settings::enabled>},
    {"cipher", set_cipher},
    {"allow_legacy_cipher", set_bool<&Settings::allow_legacy_cipher>},
    {"module", set_module},
    {"scope", set_choice<&Settings::scope, kScopes>},
    {"layer", set_choice<&Settings::layer, kLayers>},
    {"network", set_choice<&Settings::network, kNetworks>},
    {"seal_sockets", set_bool<&Settings::seal_sockets>},
    {"padding", set_padding},
    {"threads", set_threads},
    {"allow", set_allow},
    {"allow_programs", set_allow_programs},
    {"key_file", set_key_file, true},
    {"allow_group_key", set_bool<&Settings::allow_group_key>},
    {"job_key", set_choice<&Settings::job_key, kJobKeys>},
    {"key_on_network", set_choice<&Settings::key_on_network, kKeysOnNetwork>},
    {"key_distribution", set_key_distribution},
    {"key_exchange", set_key_exchange},
    {"interchange_key_file", set_path<&Settings::interchange_key_file>, true},
    {"interchange_keys", set_path<&Settings::interchange_keys>, true},
    {"member_key_file", set_path<&Settings::member_key_file>, true},
    {"member_list", set_path<&Settings::member_list>, true},
    {"require_members", set_bool<&Settings::require_members>},
    {"plaintext_peers", set_plaintext_peers},
    {"report_file", set_path<&Settings::report_file>, true},
    {"live", set_bool<&Settings::live>},
    {"handshake_timeout_s", set_seconds<&Settings::handshake_timeout>},
    {"silence_timeout_s", set_seconds_or_never<&Settings::silence_timeout>},
    {"agreement_timeout_s", set_seconds<&Settings::agreement_timeout>},
    {"check_addresses", set_bool<&Settings::check_addresses>},
    {"abort_after_s", set_seconds_or_never<&Settings::abort_after>},
    {"rekey_s", set_seconds_or_never<&Settings::rekey_after>},
    {"job_id", set_job_id},
    {"module_folder", set_path<&Settings::module_folder>, true},
    {"profile", set_profile, true},
}};

}  // namespace

std::string KnownSetting::variable() const {
    std::string variable(kVariablePrefix);
    for (const unsigned char letter : name) variable += static_cast<char>(std::toupper(letter));
    return variable;
}

std::span<const KnownSetting> known_settings() {
    return kKnownSettings;
}

}  // namespace cryptmpi::config
