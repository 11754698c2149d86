// One settings struct, from defaults, then the file (TOML), then the environment. docs/settings.md lists them for
// users.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aead/suite.hpp"
#include "base/key_readers.hpp"
#include "base/padding.hpp"
#include "base/result.hpp"
#include "config/internal_variables.hpp"

namespace cryptmpi::config {

enum class Scope {
    automatic,      // between_nodes, but in the MPI layer all where a stranger could reach MPI
    between_nodes,  // a node's own connections (loopback, its own addresses) stay native
    all,            // loopback is sealed too; UNIX sockets never are
};

enum class Layer {
    automatic,  // by the transport between nodes: channel for TCP, fabric past it, mpi past UCX and libfabric, too
    channel,    // seals the TCP streams under MPI
    mpi,        // seals MPI's messages above it, on any network
    fabric,     // seals what MPI hands to UCX or libfabric, on any network
};
/// As the setting has it.
std::string_view name_of(Layer layer);

/// What carries MPI between nodes, under the layers above sockets. The channel layer knows TCP only.
enum class Network {
    automatic,  // by the layer, and under the MPI layer by what the MPI is told and what the node has
    tcp,        // every other road is closed
    fabric,     // what UCX and libfabric open for the fabric layer is open, every other road is closed
    any,        // other roads are open, and MPI's own packets on them go in clear
};
/// As the setting has it.
std::string_view name_of(Network network);

/// What a job that cryptmpi run starts has as its key.
enum class JobKeyFrom {
    automatic,  // file where key_file is set, else fresh
    fresh,      // drawn for this job, carried to the nodes by the remote shell
    file,       // the key file, which every node has
};

/// How the ranks come to the secret of the MPI layer.
enum class KeyDistribution {
    agreement,    // among those that hold the job key; against active attackers, too
    rsa_oaep,     // as C20 has it: keys wrapped for public keys that nobody vouches for. Passive attackers only
    interchange,  // as E12 has it: keys wrapped for public keys of the nodes from a file. Passive attackers only
};
/// As the setting has it.
std::string_view name_of(KeyDistribution way);

/// How two sides come to the fresh secret of a handshake.
enum class KeyExchange {
    x25519,
    x25519_mlkem768,  // and ML-KEM-768 beside it: who records now and has a quantum computer later reads nothing
};
/// As the setting has it.
std::string_view name_of(KeyExchange exchange);

/// What is done where the key file is on a file system that may carry it over the network in clear.
enum class KeyOnNetwork { warn, refuse, allow };

/// One entry of plaintext_peers: "10.0.0.7", "10.0.0.0/24", "[fd00::]/64", each with an optional ":port".
struct PlaintextPeer {
    std::uint8_t address[16];  // IPv4 as IPv4-mapped
    int prefix_bits;           // of 128
    std::optional<std::uint16_t> port;
    std::string text;  // as the user wrote it

    bool matches(const std::uint8_t (&peer)[16], std::uint16_t peer_port) const;
};
Result<PlaintextPeer> parse_plaintext_peer(std::string_view text);

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

/// Environment variables by name, listable so that a misspelt setting is noticed. Tests make their own.
class Environment {
public:
    Environment() = default;
    explicit Environment(std::map<std::string, std::string, std::less<>> variables)
        : variables_(std::move(variables)) {}

    /// nullopt when the variable is not set.
    std::optional<std::string> operator()(std::string_view name) const;
    const std::map<std::string, std::string, std::less<>>& variables() const { return variables_; }

private:
    std::map<std::string, std::string, std::less<>> variables_;
};
Environment process_environment();

/// $XDG_CONFIG_HOME/cryptmpi or ~/.config/cryptmpi (the password database's home if HOME is unset).
std::filesystem::path config_folder(const Environment& environment);

/// The settings file that a process with this environment reads, which may be missing; nullopt: none.
std::optional<std::filesystem::path> settings_file(const Environment& environment);

/// Reads CRYPTMPI_CONFIG or <config folder>/config.toml (which may be missing), then CRYPTMPI_*. Unknown keys, unknown
/// values and unknown CRYPTMPI_* variables (but for the internal CRYPTMPI_INTERNAL_*) are errors of one line:
/// file:line, what, and what is allowed. So is a legacy cipher that allow_legacy_cipher does not allow.
Result<Settings> load(const Environment& environment);

/// The file with the bytes of kReportTokenVariable, beside the parts.
std::filesystem::path report_token_file(const std::filesystem::path& report_file);
/// Where parts wait on a node that does not see the folder. Made by cryptmpi exec.
std::filesystem::path local_report_folder(std::string_view token);
bool is_report_token(std::string_view token);

/// Which process of the job this is, from the launcher's environment.
struct Process {
    // PMIX_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK; by a batch system alone SLURM_PROCID, FLUX_TASK_RANK,
    // JSM_NAMESPACE_RANK (LSF's jsrun)
    std::optional<int> rank;
    // OMPI_COMM_WORLD_SIZE, PMI_SIZE; of a rank that the batch system started itself SLURM_STEP_NUM_TASKS,
    // FLUX_JOB_SIZE, JSM_NAMESPACE_SIZE
    std::optional<int> ranks;
    std::string role;  // "rank", "launcher" (CRYPTMPI_INTERNAL_ROLE), "process"
    // Ranks of its node: OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS, JSM_NAMESPACE_LOCAL_SIZE,
    // SLURM_STEP_TASKS_PER_NODE
    std::optional<int> node_ranks = {};
    // Which of the job's groups of ranks it belongs to: empty for those that the launcher started, else those of one
    // MPI_Comm_spawn (by PMIX_NAMESPACE), or of all of them (PMI_SPAWNED).
    std::string group = {};
    // srun has started it (SLURM_STEP_ID), or a process of the step that is no rank. Of a launcher that somebody has
    // started by hand in a step, the ranks are not srun's.
    bool slurm_step = false;

    /// Whom its lines come from: "rank 3 on node1", or its machine.
    std::string name_on(const std::string& host) const {
        return rank ? "rank " + std::to_string(*rank) + " on " + host : host;
    }
};
Process identify(const Environment& environment);
/// A launcher that cryptmpi run started, its daemons, and what these start before a rank is one.
bool is_of_launcher(const Environment& environment);

/// OMP_NUM_THREADS, a number for each level of nesting, multiplied. 0: it says nothing.
std::size_t openmp_threads(const Environment& environment);

/// Padding is of what goes through sealed sockets. Error: some of the job's data would go past them, which nothing
/// pads.
Result<void> check_padding(const Settings& settings);

/// Error: the layer or the way of distributing keys has no handshake that ML-KEM could be a part of.
Result<void> check_key_exchange(const Settings& settings);

/// What is to be said once a job of its cipher, by this process; empty: nothing, or another process says it.
std::string cipher_warning(const Settings& settings, const Process& process);

/// Why this process runs under `layer` ("channel", "mpi", "fabric"), as cryptmpi run or exec said in
/// CRYPTMPI_INTERNAL_LAYER_REASON; empty when they did not choose it.
std::string layer_reason(const Environment& environment, std::string_view layer);

}  // namespace cryptmpi::config
