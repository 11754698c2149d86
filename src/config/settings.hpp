// One settings struct, with its defaults; loading.hpp fills it in. docs/settings.md lists all settings for users.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aead/suite.hpp"
#include "base/key_readers.hpp"
#include "base/padding.hpp"
#include "base/result.hpp"
#include "config/choices.hpp"
#include "config/environment.hpp"
#include "config/internal_variables.hpp"
#include "config/job_process.hpp"
#include "config/places.hpp"
#include "config/plaintext_peer.hpp"

namespace cryptmpi::config {

inline constexpr std::string_view kVariablePrefix = "CRYPTMPI_";

/// A setting that the file or a variable gave, as the variable that gives the same in any process: lists joined, paths
/// whole but for "~/". No value: no variable can say it.
struct GivenSetting {
    std::string variable;
    std::optional<std::string> value;
    std::string where;
};

/// Key in the file -> environment variable CRYPTMPI_<KEY in capitals>; a variable beats the file.
struct Settings {
    bool enabled = true;                           // enabled
    aead::Suite suite = aead::Suite::aes_256_gcm;  // cipher = "AES-256-GCM"
    std::string cipher_where;                      // where cipher was set, for lines about what it names
    bool allow_legacy_cipher = false;              // allow_legacy_cipher: one that is named may be a legacy one
    std::string module = "auto";                   // module = "auto" | "openssl" | "ipsec-mb" | ...
    Scope scope = Scope::automatic;                // scope = "auto" | "between-nodes" | "all"
    Layer layer = Layer::automatic;                // layer = "auto" | "channel" | "mpi" | "fabric"
    Network network = Network::automatic;          // network = "auto" | "tcp" | "fabric" | "any"
    Padding padding;                 // padding = "none" | "padme" | "power-of-two", the last two with ":N"
    std::string padding_where;       // where padding was set
    bool seal_sockets = true;        // seal_sockets: off for measurements of a layer above them
    int threads = 0;                 // threads = "auto" (0) | 1 to 64: that seal and open, of a rank
    std::vector<std::string> allow;  // allow = ["MPI_Put", ...]: refused procedures that pass in clear
    std::string allow_where;         // where allow was set, for lines about what it names
    // allow_programs: files that may be started although no library can be preloaded into them
    std::vector<std::filesystem::path> allow_programs;
    std::filesystem::path key_file;                    // key_file; default: <config folder>/job.key
    bool key_file_named = false;                       // else it is the default
    bool allow_group_key = false;                      // allow_group_key: root's file may be the process's group's, too
    std::string key_id;                                // of the file's keys, that of a job of cryptmpi run; empty: the
                                                       // first
    JobKeyFrom job_key = JobKeyFrom::automatic;        // job_key = "auto" | "fresh" | "file"
    KeyOnNetwork key_on_network = KeyOnNetwork::warn;  // key_on_network = "warn" | "refuse" | "allow"
    KeyDistribution key_distribution = KeyDistribution::agreement;  // "agreement" | "rsa-oaep" | "interchange"
    std::string key_distribution_where;                             // where it was set
    KeyExchange key_exchange = KeyExchange::x25519;                 // key_exchange = "x25519" | "x25519-mlkem768"
    std::string key_exchange_where;                                 // where it was set
    std::filesystem::path interchange_key_file;  // interchange_key_file; default: <config folder>/interchange.key
    std::filesystem::path interchange_keys;      // interchange_keys; default: <config folder>/interchange.keys
    std::filesystem::path member_key_file;       // member_key_file; default: <config folder>/member.key
    std::filesystem::path member_list;           // member_list; default: <config folder>/members
    bool require_members = false;                // require_members: handshakes prove which member each side is
    std::vector<PlaintextPeer> plaintext_peers;  // plaintext_peers = [ ... ]; in the environment comma-separated
    std::filesystem::path report_file;           // report_file; empty: none. On a node that cannot see the
                                                 // folder of cryptmpi run: a place of this node's
    bool live = true;                            // live: cryptmpi top on this node sees what the process does
    std::chrono::milliseconds handshake_timeout{
        600000};  // handshake_timeout_s: a rank that computes answers when it next enters MPI
    std::chrono::milliseconds agreement_timeout{
        60000};  // agreement_timeout_s: how much later than others a rank may come to MPI_Init
    std::chrono::milliseconds silence_timeout{
        0};                       // silence_timeout_s: without a record from a peer, its connection counts as cut off
    bool check_addresses = true;  // check_addresses: off behind address translation
    std::chrono::milliseconds abort_after{
        10000};  // abort_after_s: a rank whose connection failed may live so long; 0: for ever
    std::chrono::milliseconds rekey_after{3600000};  // rekey_s: no key seals for longer; 0: for ever
    std::string job_id;                              // job_id; default: what the launcher's environment tells, else ""
    std::filesystem::path module_folder;             // module_folder; default: beside the library
    std::filesystem::path profile;                   // profile; default: <config folder>/profile.json; "none": empty
    bool profile_named = false;                      // else it may be missing
    // What one key may seal, where it is less than the suite's limits: for tests, which reach it (kKeyLimitsVariable).
    std::uint64_t key_records = ~std::uint64_t{0};
    std::uint64_t key_bytes = ~std::uint64_t{0};
    std::vector<GivenSetting> given;  // by the file or a variable, each setting once

    /// A job that cryptmpi run starts under these settings gets a key of its own.
    bool fresh_key() const {
        return job_key == JobKeyFrom::fresh || (job_key == JobKeyFrom::automatic && !key_file_named);
    }
    /// Who but its owner may read the key file.
    KeyReaders key_readers() const { return allow_group_key ? KeyReaders::group : KeyReaders::owner; }
    bool plaintext_allowed(const std::uint8_t (&peer)[16], std::uint16_t port) const;

    /// What was set, as lines of the settings file, for a report: without paths of this job's own files.
    std::vector<std::string> given_lines() const;

    /// The keys are safe against whoever only listens, and no others.
    bool passive_only() const { return key_distribution != KeyDistribution::agreement; }
    /// Handshakes use ML-KEM, too.
    bool hybrid() const { return key_exchange != KeyExchange::x25519; }
    /// Other networks than TCP are open to ranks.
    bool roads_open() const { return seals_above_sockets() && network == Network::any; }
    /// What UCX and libfabric open is theirs: they carry what the fabric layer has sealed.
    bool doors_open() const {
        return layer == Layer::fabric && (network == Network::fabric || network == Network::automatic);
    }
    /// The job's data are sealed above its sockets; these are sealed, too.
    bool seals_above_sockets() const { return layer == Layer::mpi || layer == Layer::fabric; }
    /// Sockets inside a node are sealed. Under the MPI layer ranks whose sockets are not sealed must find their
    /// launcher, too.
    bool loopback_sealed() const { return scope == Scope::all && (!seals_above_sockets() || seal_sockets); }
};

/// Padding is of what goes through sealed sockets. Error: some of the job's data would go past them, which nothing
/// pads.
Result<void> check_padding(const Settings& settings);

/// Error: the layer or the way of distributing keys has no handshake that ML-KEM could be a part of.
Result<void> check_key_exchange(const Settings& settings);

/// What is to be said once a job of its cipher, by this process; empty: nothing, or another process says it.
std::string cipher_warning(const Settings& settings, const Process& process);

}  // namespace cryptmpi::config
