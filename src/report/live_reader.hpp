// The pages of processes (live.hpp), as somebody else reads them. Whoever wrote one may have put anything into it: what
// is here was checked, and its texts are fit to be shown.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cryptmpi::report {

struct LiveProcess {
    std::string id;  // tells it from all others that there are or were on this node
    uid_t user = 0;
    int pid = 0;
    int rank = -1;  // -1: none
    int ranks = -1;
    std::int64_t began = 0;  // seconds since 1970
    std::string job_id, layer, library, role, node, group, suite, module, mpi, program;
    std::uint64_t sealed_records = 0, sealed_bytes = 0, opened_records = 0, opened_bytes = 0;
    std::uint64_t sealed_connections = 0, rekeys = 0;
    std::uint64_t native_connections = 0, unsealed_connections = 0;
    std::uint64_t failed_opens = 0, refused_handshakes = 0, refused_roads = 0, errors = 0;
};

struct LiveFolder {
    std::filesystem::path path;
    uid_t user;  // whose it has to be
};

/// All that this user may read: root reads everybody's, unless only its own are wanted.
enum class Whose { own, all };
std::vector<LiveFolder> folders_to_read(const char* runtime_folder, uid_t user, Whose whose = Whose::all);

struct LiveProcesses {
    std::vector<LiveProcess> processes;  // by job, rank, number
    int of_other_versions = 0;           // pages that another version of ours wrote
};

/// Of processes that are there. Pages of those that are gone are removed where they are our own.
LiveProcesses read_live(const std::vector<LiveFolder>& folders);

/// Pages of this user's processes that were killed, before a job begins.
void remove_stale_pages(const char* runtime_folder);

}  // namespace cryptmpi::report
