// The settings that are one of a few words, and these words.
#pragma once

#include <array>
#include <string_view>

namespace cryptmpi::config {

/// A word of the settings file, and what it stands for.
template <class Value>
struct Choice {
    std::string_view word;
    Value value;
};

enum class Scope {
    automatic,      // between_nodes, but in the MPI layer all where a stranger could reach MPI
    between_nodes,  // a node's own connections (loopback, its own addresses) stay native
    all,            // loopback is sealed too; UNIX sockets never are
};
inline constexpr std::array<Choice<Scope>, 3> kScopes = {{
    {"auto", Scope::automatic},
    {"between-nodes", Scope::between_nodes},
    {"all", Scope::all},
}};

enum class Layer {
    automatic,  // by the transport between nodes: channel for TCP, fabric past it, mpi past UCX and libfabric, too
    channel,    // seals the TCP streams under MPI
    mpi,        // seals MPI's messages above it, on any network
    fabric,     // seals what MPI hands to UCX or libfabric, on any network
};
inline constexpr std::array<Choice<Layer>, 4> kLayers = {{
    {"auto", Layer::automatic},
    {"channel", Layer::channel},
    {"mpi", Layer::mpi},
    {"fabric", Layer::fabric},
}};
std::string_view name_of(Layer layer);

/// What carries MPI between nodes, under the layers above sockets. The channel layer knows TCP only.
enum class Network {
    automatic,  // by the layer, and under the MPI layer by what the MPI is told and what the node has
    tcp,        // every other road is closed
    fabric,     // what UCX and libfabric open for the fabric layer is open, every other road is closed
    any,        // other roads are open, and MPI's own packets on them go in clear
};
inline constexpr std::array<Choice<Network>, 4> kNetworks = {{
    {"auto", Network::automatic},
    {"tcp", Network::tcp},
    {"fabric", Network::fabric},
    {"any", Network::any},
}};
std::string_view name_of(Network network);

/// What a job that cryptmpi run starts has as its key.
enum class JobKeyFrom {
    automatic,  // file where key_file is set, else fresh
    fresh,      // drawn for this job, carried to the nodes by the remote shell
    file,       // the key file, which every node has
};
inline constexpr std::array<Choice<JobKeyFrom>, 3> kJobKeys = {{
    {"auto", JobKeyFrom::automatic},
    {"fresh", JobKeyFrom::fresh},
    {"file", JobKeyFrom::file},
}};

/// How the ranks come to the secret of the MPI layer.
enum class KeyDistribution {
    agreement,    // among those that hold the job key; against active attackers, too
    rsa_oaep,     // as C20 has it: keys wrapped for public keys that nobody vouches for. Passive attackers only
    interchange,  // as E12 has it: keys wrapped for public keys of the nodes from a file. Passive attackers only
};
inline constexpr std::array<Choice<KeyDistribution>, 3> kKeyDistributions = {{
    {"agreement", KeyDistribution::agreement},
    {"rsa-oaep", KeyDistribution::rsa_oaep},
    {"interchange", KeyDistribution::interchange},
}};
std::string_view name_of(KeyDistribution way);

/// How two sides come to the fresh secret of a handshake.
enum class KeyExchange {
    x25519,
    x25519_mlkem768,  // and ML-KEM-768 beside it: who records now and has a quantum computer later reads nothing
};
inline constexpr std::array<Choice<KeyExchange>, 2> kKeyExchanges = {{
    {"x25519", KeyExchange::x25519},
    {"x25519-mlkem768", KeyExchange::x25519_mlkem768},
}};
std::string_view name_of(KeyExchange exchange);

/// What is done where the key file is on a file system that may carry it over the network in clear.
enum class KeyOnNetwork { warn, refuse, allow };
inline constexpr std::array<Choice<KeyOnNetwork>, 3> kKeysOnNetwork = {{
    {"warn", KeyOnNetwork::warn},
    {"refuse", KeyOnNetwork::refuse},
    {"allow", KeyOnNetwork::allow},
}};

}  // namespace cryptmpi::config
