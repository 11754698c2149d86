// What is known of each MPI's launcher: how to tell it, where it is, and how it is told of nodes, ranks and variables.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "command/launch_line.hpp"
#include "command/node_list.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

struct MpiLibrary {
    Mpi mpi;
    std::filesystem::path file;
};

/// Which MPI a shared object is, by its name and content; nullopt when it is none.
std::optional<Mpi> library_kind(const std::filesystem::path& file);

/// The MPI ABI that it follows, as our libraries are named: "mpich", "openmpi", "standard".
const char* abi_of(const MpiLibrary& library);

/// The MPI library that the loader would load for `program`.
std::optional<MpiLibrary> library_of(const std::filesystem::path& program, const config::Environment& environment);

struct Launcher {
    Mpi mpi;
    bool prrte;  // Open MPI 5 and later start their daemons through PRRTE, which has other parameters
    std::filesystem::path file;
    std::string version;  // the line it says of itself
};

/// Asks the launcher for its version. Errors: not runnable, or no launcher that we know.
Result<Launcher> identify_launcher(const std::filesystem::path& file);

/// The launcher that belongs to `library`: near it, else in PATH. Error: none of that MPI, naming --mpi.
Result<Launcher> launcher_of(const MpiLibrary& library, const config::Environment& environment);

/// Every launcher in PATH, each file once.
std::vector<Launcher> launchers_in_path(const config::Environment& environment);

/// The library that belongs to `launcher`, if it can be found.
std::optional<std::filesystem::path> library_beside(const Launcher& launcher);

struct Launch {
    int ranks = 0;            // 0: as the launcher decides
    std::vector<Host> hosts;  // empty: as the launcher decides
    int per_node = 0;         // 0: as the hosts' slots say
    std::string agent;        // starts the daemons on other nodes; empty: the launcher's own way
    std::vector<std::pair<std::string, std::optional<std::string>>> variables;  // for the ranks; no value: ours
    std::vector<TypedOption> options;                                           // that the user has typed
    std::vector<std::string> command;                                           // what each rank runs
    std::vector<Context> more;                                                  // other programs, with their own ranks
};

/// The launcher's command line.
std::vector<std::string> command_line(const Launcher& launcher, const Launch& launch);

}  // namespace cryptmpi::command
