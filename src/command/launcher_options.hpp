// The options of each MPI's launcher: how many words belong to each, and what it means to us.
#pragma once

#include <string>
#include <string_view>

#include "command/mpi.hpp"

namespace cryptmpi::command {

enum class Meaning {
    plain,          // none of our business
    ranks,          // the number of ranks
    hosts,          // a list of nodes
    host_file,      // a file of nodes
    places,         // says how many ranks come, or where, so that the nodes' slots do not
    directory,      // where the ranks run
    variable,       // of the ranks' environment: NAME=VALUE, NAME or NAME VALUE
    variable_list,  // nothing of the environment but these variables
    no_variables,   // nothing of the environment
    parameter,      // an MCA parameter: NAME VALUE
    remote_shell,   // the program that starts commands on other nodes
    starter,        // the way in which the daemons are started
    help,
    idle,     // prints something, and starts nothing
    refused,  // the entry says why
};

struct LauncherOption {
    std::string_view name;  // without dashes
    int values = 0;
    Meaning meaning = Meaning::plain;
    std::string_view mend = {};  // of what is refused: why, and what to write
};

/// The option that this MPI's launcher would see in `name` (without dashes and "=VALUE"). nullptr: none that we know.
const LauncherOption* find_option(Mpi mpi, std::string_view name);

/// What Open MPI 4 takes an unknown `word` for that has one dash: several one-letter options, of which this is the
/// first. Empty: for none.
std::string taken_for(Mpi mpi, std::string_view word);

/// The option that Open MPI 5 could take an unknown `name` for, as it takes names that are cut short. Empty: none.
std::string abbreviated(Mpi mpi, std::string_view name);

/// The other MPI whose launcher has such an option; nullptr: none.
const char* other_with_option(Mpi mpi, std::string_view name);

}  // namespace cryptmpi::command
