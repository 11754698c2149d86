// What one process says of its traffic, and a whole job's report made of such parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "report/sizes.hpp"
#include "report/verdict.hpp"

namespace cryptmpi::report {

/// Traffic that was not sealed, and why, with how often and how many bytes (where the reason lets us count them).
struct Unsealed {
    std::string reason;  // "loopback", "plaintext_peers 10.0.0.7", "inherited from the launcher", ...
    std::uint64_t connections = 0;
    std::uint64_t bytes = 0;
    bool allowed = false;  // by a setting of the user's
};

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
    std::string layer;         // "channel", "mpi"
    std::string layer_reason;  // why this one; empty: nobody chose
    std::string library;       // "channel", "mpi": which of the two wrote this part; under the MPI layer both may
    std::string node;          // host name
    std::string kernel;        // of the node: its boot's id and the network namespace; nodes may share a name
    int pid = 0;
    std::string role;  // "rank", "launcher", "process"
    int rank = -1;     // -1: none
    int ranks = -1;
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

/// A tag of the text that only who holds the job key can make (keys::ReportKey).
using Sign = std::function<Result<std::string>(std::string_view text)>;

/// 32 hexadecimal digits by which people tell keys apart. They tell nothing of the key.
Result<std::string> fingerprint(const Sign& sign);

/// Writes `<report_file>.parts/<node>.<pid>.<library>.<image>.json`, signed, atomically. Never throws; an error is one
/// line.
Result<void> write_part(const std::filesystem::path& report_file, const Part& part, const Sign& sign);

/// In the place of what has this name: others, where they may write, leave links that lead where they like. Error: one
/// line.
Result<void> write_file(const std::filesystem::path& file, const std::string& text);

/// Makes the folder of the parts, and tries to write there. Error: one line.
Result<void> prepare_parts(const std::filesystem::path& report_file);

/// Puts a job's token beside its parts (config::report_token_file), and whether the job has a key of its own: then they
/// cannot be checked later. Error: one line.
Result<void> mark_parts(const std::filesystem::path& report_file, const std::string& token, bool fresh_key);

/// What the side that started a job knows of it, whatever the parts say.
struct Started {
    std::string job_id;          // empty: not known
    int ranks = -1;              // -1: not known
    int status = 0;              // the launcher's, once it has ended
    std::string unfetched = {};  // which nodes' parts could not be had, and why
};

/// A job's report is its parts' sums, per rank and per node lists, and what is missing ("2 of 4 ranks reported"), as
/// JSON text. A part that is not signed with the job key is an error of the job.
///
/// Merges the parts of a job that somebody started, also where none came, into a report_file, and removes them. Parts
/// are signed under the job's key; the report under one that is still there when somebody checks it.
Result<Verdict> finish_job(const std::filesystem::path& report_file, const Started& started, const Sign& sign_of_parts,
                           const Sign& sign_of_report);

/// The nodes of the parts that are there and signed.
std::vector<std::string> nodes_of_parts(const std::filesystem::path& report_file, const Started& started,
                                        const Sign& sign);

/// Notes beside the parts that the job has a daemon on this host; and all that were noted by somebody of the job, since
/// a remote shell is given their names.
Result<void> note_host(const std::filesystem::path& report_file, const std::string& host, const std::string& job_id,
                       const Sign& sign);
std::set<std::string> noted_hosts(const std::filesystem::path& report_file, const std::string& job_id,
                                  const Sign& sign);

/// The files of parts and of notes in the folder of a report, by name, and their text.
std::map<std::string, std::string> raw_parts(const std::filesystem::path& report_file);
/// Puts one beside the others. Error: no name of a part, or it cannot be written.
Result<void> add_raw_part(const std::filesystem::path& report_file, const std::string& name, const std::string& text);

/// Of a merged file, whose signature must be good, or of a report_file whose parts are not merged yet. Without `sign`
/// (nobody has the job key) signatures are not looked at, which the verdict says.
class Reading {
public:
    static Result<Reading> of(const std::filesystem::path& report_file, const Sign& sign);
    /// The same, signed by any of these; none: it cannot be verified.
    static Result<Reading> of(const std::filesystem::path& report_file, const std::vector<Sign>& signers);

    const Verdict& verdict() const { return verdict_; }
    /// Its signature, or those of its parts, were looked at; a merged report's is good.
    bool verified() const { return verified_; }
    /// The verdict and what it rests on, readable.
    const std::string& summary() const { return summary_; }
    /// The same as one page, which needs nothing else to be shown or printed.
    const std::string& html() const { return html_; }
    /// Its numbers for Prometheus.
    const std::string& metrics() const { return metrics_; }
    /// The whole report.
    const std::string& json() const { return json_; }

private:
    Verdict verdict_;
    bool verified_ = false;
    std::string summary_;
    std::string html_;
    std::string metrics_;
    std::string json_;
};

}  // namespace cryptmpi::report
