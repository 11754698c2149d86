// What one process says of its traffic: its part of the job's report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "report/parts_folder.hpp"
#include "report/signature.hpp"
#include "report/sizes.hpp"

namespace cryptmpi::report {

/// Traffic that was not sealed, and why, with how often and how many bytes (where the reason lets us count them).
struct Unsealed {
    std::string reason;  // "loopback", "plaintext_peers 10.0.0.7", "inherited from the launcher", ...
    std::uint64_t connections = 0;
    std::uint64_t bytes = 0;
    bool allowed = false;  // by a setting of the user's
};
nlohmann::ordered_json json_of(const Unsealed& entry);

/// A profile that cryptmpi tune wrote, and that this process found.
struct TunedBy {
    std::string file;    // empty: there was none
    std::string digest;  // of its content
    std::string unused;  // why its plans were not used; empty: they were
};

/// Of the calendar, since 1970.
std::int64_t seconds_now();

/// Everything that a process's part holds. Filled at exit by the layer, written by write_part.
struct Part {
    std::string job_id;
    std::string report_token;  // of the cryptmpi run that started the job; empty: none did. An id may be given twice
    std::string folder_token;  // of the parts' folder, as a job that was started by hand has found it; empty: unknown
    std::string seen_folder;   // what was seen of that folder (config::seen_folder); not told
    std::string layer;         // "channel", "mpi"
    std::string layer_reason;  // why this one; empty: nobody chose
    std::string library;       // "channel", "mpi": which of the two wrote this part; under the MPI layer both may
    std::string node;          // host name
    std::string kernel;        // of the node: its boot's id and the network namespace; nodes may share a name
    int pid = 0;
    std::uint64_t pid_namespace = 0;  // what `pid` is a number in; 0: not known
    std::int64_t image = 0;           // of a forked process, by new_image(); 0: that of the program
    std::string role;                 // "rank", "launcher", "process"
    int rank = -1;                    // -1: none
    int ranks = -1;
    std::string launch;            // which start of a launcher the rank is of; empty: the launcher does not say
    std::string group;             // of ranks that the job has spawned; empty: those that its launcher started
    bool slurm_step = false;       // srun has started it; no launcher inside the step has
    bool launcher_here = false;    // mpiexec or its like runs on this node, so that its way to this rank is no network
    bool seals_sockets = false;    // the channel library is in the process, and writes a part of its own
    int spawned = 0;               // ranks that this one, as root of MPI_Comm_spawn, has started
    bool mpi_initialized = false;  // in this very process, under us: else it is no rank, whatever its environment says
    bool mpi_finalized = true;     // false: MPI was initialised, and the process ended without MPI_Finalize
    bool mpi_aborted = false;      // the program called MPI_Abort
    bool ended = true;             // false: written early, for what must not be lost if the process is killed
    std::int64_t user = -1;        // the process's effective user; -1: not known
    std::uint64_t user_namespace = 0;  // what `user` is a number in; 0: not known
    std::int64_t began = seconds_now();
    std::string program;                  // the file that this process runs
    std::string program_sha256;           // of its content; empty: nobody asked, as of processes that are no ranks
    std::vector<std::string> settings;    // that the settings file or a variable gave, as lines of that file
    std::string suite;                    // "AES-256-GCM"
    std::string module;                   // "ipsec-mb 1.3"
    std::string handshake_module;         // "libsodium 1.0.18": its X25519, Ed25519, HMAC and random bytes
    std::string kem_module;               // "openssl 3.5.0": its ML-KEM-768; empty: the key exchange has none
    std::string padding;                  // "none", "padme:256": of the sizes of writes to sealed sockets
    std::string key_exchange = "x25519";  // "x25519-mlkem768": handshakes, and the MPI layer's agreement
    std::string scope;
    std::string member;                  // whose member key it has; empty: members are not required
    std::set<std::string> peer_members;  // who its peers in handshakes proved to be, by its list
    std::string clear_packets;           // why MPI's own packets may travel in clear; empty: they do not
    // Of processes under the MPI layer; what plans are tuned for, with the suite and the module.
    std::string processor;
    int processors = 0;
    std::string mpi;
    std::string abi;
    TunedBy profile;
    std::uint64_t sealed_connections = 0;
    std::uint64_t sealed_bytes_sent = 0, sealed_bytes_received = 0;    // of plaintext
    std::uint64_t padding_bytes_sent = 0, padding_bytes_received = 0;  // of those bytes, the ones that are no data
    std::uint64_t sealed_records_sent = 0, sealed_records_received = 0;
    std::uint64_t records_by_workers = 0;  // of all these, those that another thread than the caller's sealed or opened
    Sizes sizes_sent,
        sizes_received;  // of messages and of blocks of collective operations; the channel layer sees none
    std::uint64_t native_connections =
        0;  // inside the node; their bytes are not counted: nothing of ours runs on that path
    std::uint64_t rekeys = 0;
    std::uint64_t failed_opens = 0;
    std::uint64_t cut_off =
        0;  // messages that were longer than their receives, so that nothing of them could be opened
    std::uint64_t refused_handshakes = 0;
    std::vector<std::string> refused_roads;  // "verbs device /dev/infiniband/uverbs0", "UDP to 10.0.0.7:4242"
    std::vector<Unsealed> not_sealed;
    std::vector<std::string> errors;  // the lines that were printed
};

/// For a process that was just forked. Its number may be one that its parent, or another child of that, has written a
/// part by: after these have ended, or in another PID namespace.
std::int64_t new_image();

/// Where the job's parts go, as this process was told.
KnownFolder known_folder(const Part& part);

/// Writes `<report_file>.parts/<node>.<pid>.<library>.<PID namespace>-<image>.json`, signed, atomically. Never throws;
/// an error is one line.
Result<void> write_part(const std::filesystem::path& report_file, const Part& part, const Sign& sign);

}  // namespace cryptmpi::report
