// The rule behind layer = "auto": what an MPI is told of the networks it may use, and which layer suits that.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command/launchers.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

/// What the MPI and its transports are told, by the names of environment variables, wherever it was said.
class Parameters {
public:
    struct Told {
        std::string value;
        std::string by;  // "UCX_TLS=tcp,self", "--mca pml ob1", "pml = ob1 in /etc/openmpi-mca-params.conf"
    };

    const Told* operator()(std::string_view name) const;

    /// What comes later beats what came before: files first, then the environment, then the command line.
    void add_environment(const config::Environment& environment);
    /// A launcher's arguments: --mca NAME VALUE, -x NAME=VALUE, -genv NAME VALUE and their like.
    void add_arguments(const std::vector<std::string>& words);
    void add_variable(const std::string& name, const std::string& value);
    /// Lines of "NAME = VALUE", up to the first section; `prefix` makes a variable's name of theirs. May be missing.
    void add_file(const std::filesystem::path& file, const std::string& prefix);

private:
    std::map<std::string, Told, std::less<>> told_;
};

/// The files from which this MPI and its transports take parameters, and then everything else that tells them.
Parameters parameters_of(const std::optional<MpiLibrary>& library, const config::Environment& environment);

/// What the choice rests on.
struct Circumstances {
    std::optional<Mpi> mpi;  // nullopt: not known, as for a script
    Parameters parameters;
    std::vector<std::string> networks;  // of this node, around TCP
    bool own_door = false;              // the MPI drives these itself, past UCX and libfabric
};

/// A layer for a job, and why this one.
struct LayerChoice {
    config::Layer layer;  // never automatic
    std::string reason;
    config::Network network;  // what carries MPI between nodes: other roads are closed
};

/// Channel where the job's transport between nodes is TCP. Where it is or may be another, the fabric layer, and the MPI
/// layer for an MPI that reaches that network neither through UCX nor through libfabric.
LayerChoice choose_layer(const Circumstances& circumstances);

/// What a user tells this MPI so that it takes TCP.
const char* how_to_take_tcp(Mpi mpi);

}  // namespace cryptmpi::command
