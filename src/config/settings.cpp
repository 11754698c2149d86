#include "config/settings.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "config/values.hpp"

namespace cryptmpi::config {

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

bool Settings::plaintext_allowed(const std::uint8_t (&peer)[16], std::uint16_t port) const {
    return std::any_of(plaintext_peers.begin(), plaintext_peers.end(),
                       [&](const PlaintextPeer& allowed) { return allowed.matches(peer, port); });
}

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

}  // namespace cryptmpi::config
