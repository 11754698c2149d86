#include "command/job.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "aead/registry.hpp"
#include "base/joined.hpp"
#include "command/elf.hpp"
#include "command/networks.hpp"
#include "config/internal_variables.hpp"
#include "interpose/allow.hpp"
#include "keys/key_ring.hpp"

namespace cryptmpi::command {

namespace fs = std::filesystem;

namespace {

/// A script's MPI is not known before it runs, but its launcher often is.
std::optional<Mpi> mpi_of_launcher(const config::Environment& environment) {
    if (environment("OMPI_COMM_WORLD_SIZE")) return Mpi::open_mpi;
    if (environment("I_MPI_HYDRA_UUID")) return Mpi::intel;
    return std::nullopt;
}

/// Not ours, and not those of another installation, which a launcher's side may have come from.
std::vector<std::string> preloaded_by_user(const config::Environment& environment) {
    const std::string all = environment("LD_PRELOAD").value_or("");
    std::vector<std::string> others;
    for (std::size_t start = 0; start < all.size();) {
        const auto end = std::min(all.find_first_of(" :", start), all.size());
        const std::string entry = all.substr(start, end - start);
        if (!entry.empty() && !fs::path(entry).filename().native().starts_with("libcryptmpi-")) others.push_back(entry);
        start = end + 1;
    }
    return others;
}

/// As LD_PRELOAD names it: by its path, or by a name that the loader looks for.
bool is_mpi_library(const std::string& entry) {
    const auto defines_it = [](const fs::path& file) {
        const auto functions = exported_functions(file);
        return functions && std::find(functions->begin(), functions->end(), "PMPI_Send") != functions->end();
    };
    if (entry.find('/') != std::string::npos) return defines_it(entry);
    const auto files = cached_objects(entry);
    return std::any_of(files.begin(), files.end(), defines_it);
}

Result<void> check_library(const config::Settings& settings, config::Layer layer) {
    const std::string library = library_file(settings, layer).string();
    std::error_code ignored;
    if (!fs::exists(library, ignored)) {
        return fail(ENOENT,
                    "library " + library + " is missing; install CryptMPI on this node, or correct module_folder");
    }
    if (library.find_first_of(" :") != std::string::npos) {
        return fail(EINVAL,
                    "library " + library +
                        " cannot be preloaded, because its path has a space or a colon; install CryptMPI elsewhere");
    }
    return {};
}

LayerChoice choice_by_network(config::Network network) {
    const std::string reason = "the setting network is " + std::string(config::name_of(network));
    switch (network) {
        case config::Network::tcp:
            return {config::Layer::channel, reason, network};
        case config::Network::fabric:
            return {config::Layer::fabric, reason, network};
        default:
            return {config::Layer::mpi, reason, network};
    }
}

/// What carries MPI under a layer that somebody asked for, where `automatic` would be this choice.
config::Network network_under(config::Layer layer, config::Network asked_for, const LayerChoice& automatic) {
    using config::Network;
    if (layer == config::Layer::channel) return Network::tcp;
    if (asked_for != Network::automatic) return asked_for;
    if (layer == config::Layer::fabric) return Network::fabric;
    return automatic.network == Network::tcp ? Network::tcp : Network::any;
}

/// Does the MPI drive the network itself, past UCX and libfabric (MVAPICH2)?
bool has_own_door(const fs::path& library) {
    const auto elf = read_elf(library);
    if (!elf) return false;
    const auto needs = [&](std::string_view name) {
        return std::any_of(elf->needed.begin(), elf->needed.end(),
                           [&](const std::string& needed) { return needed.starts_with(name); });
    };
    return (needs("libibverbs.") || needs("libpsm2.")) && !needs("libucp.") && !needs("libfabric.");
}

}  // namespace

LayerChoice choose_layer(const config::Settings& settings, const config::Environment& environment,
                         const LayerEvidence& evidence) {
    Circumstances circumstances;
    circumstances.mpi = evidence.library ? std::optional(evidence.library->mpi) : mpi_of_launcher(environment);
    circumstances.parameters = parameters_of(evidence.library, environment);
    for (const auto& [name, value] : evidence.variables) circumstances.parameters.add_variable(name, value);
    circumstances.parameters.add_arguments(evidence.launcher_arguments);
    circumstances.networks = networks_around_tcp();
    circumstances.own_door = evidence.library && has_own_door(evidence.library->file);
    LayerChoice choice = settings.network == config::Network::automatic ? choose_layer(circumstances)
                                                                        : choice_by_network(settings.network);
    if (settings.layer == config::Layer::automatic && settings.passive_only()) {
        return {config::Layer::mpi,
                "the setting key_distribution is " + std::string(config::name_of(settings.key_distribution)),
                network_under(config::Layer::mpi, settings.network, choice)};
    }
    if (settings.layer == config::Layer::automatic) return choice;
    // cryptmpi run has chosen for all nodes, and passes on why.
    const auto reason = config::layer_reason(environment, config::name_of(settings.layer));
    return {settings.layer, reason.empty() ? "asked for by --layer or the setting layer" : reason,
            network_under(settings.layer, settings.network, choice)};
}

void pass_on(const LayerChoice& choice) {
    const std::string layer(config::name_of(choice.layer));
    set_variable("CRYPTMPI_LAYER", layer);
    set_variable("CRYPTMPI_NETWORK", std::string(config::name_of(choice.network)));
    set_variable(config::kReasonVariable, layer + ": " + choice.reason);
}

std::string text(const LayerChoice& choice) {
    return "layer " + std::string(config::name_of(choice.layer)) + ": " + choice.reason;
}

fs::path library_file(const config::Settings& settings, config::Layer layer) {
    return settings.module_folder / ("libcryptmpi-" + std::string(config::name_of(layer)) + ".so");
}

fs::path abi_library_file(const config::Settings& settings, const std::string& abi) {
    return settings.module_folder / ("cryptmpi-mpi-" + abi + ".so");
}

fs::path agent_file(const config::Settings& settings) {
    return settings.module_folder / "cryptmpi-agent";
}

Result<void> check_choice(const config::Settings& settings, const LayerChoice& choice) {
    config::Settings chosen = settings;
    chosen.layer = choice.layer;
    chosen.network = choice.network;
    if (auto checked = config::check_padding(chosen); !checked) return checked;
    // Its ranks would say the same, each for itself.
    if (settings.enabled && settings.require_members && choice.layer == config::Layer::fabric)
        return fail(EINVAL,
                    "the fabric layer has no handshake that could prove which member a rank is, and require_members is "
                    "on: choose another layer (cryptmpi run --layer mpi), or turn it off");
    if (!settings.enabled || !settings.hybrid()) return {};
    if (auto checked = config::check_key_exchange(chosen); !checked) return checked;
    if (const auto kem = aead::load_kem(settings.module_folder); !kem)
        return fail(kem.error().code, settings.key_exchange_where + ": " + kem.error().line);
    return {};
}

Result<void> check_libraries(const config::Settings& settings, config::Layer layer) {
    if (layer != config::Layer::channel) {
        if (auto checked = check_library(settings, layer); !checked) return checked;
    }
    return check_library(settings, config::Layer::channel);
}

Result<void> check_key_and_module(const config::Settings& settings) {
    // By "auto" this one comes from the key agreement's module at least, and finding the fastest is for the ranks.
    const bool certain = settings.module == "auto" && settings.suite == aead::Suite::aes_256_gcm;
    if (!certain) {
        auto module = aead::choose(settings.module_folder.string(), settings.module, settings.suite);
        if (!module) return tl::unexpected<Error>(module.error());
    }
    auto kex = aead::load_kex(settings.module_folder.string(), settings.module);
    if (!kex) return tl::unexpected<Error>(kex.error());
    auto ring = keys::KeyRing::read(*kex->api->kex, settings.key_file, settings.key_readers(), settings.key_id);
    if (!ring) return tl::unexpected<Error>(ring.error());
    return {};
}

Result<keys::ReportKey> report_key(const config::Settings& settings) {
    auto kex = aead::load_kex(settings.module_folder.string(), settings.module);
    if (!kex) return tl::unexpected<Error>(kex.error());
    auto ring = keys::KeyRing::read(*kex->api->kex, settings.key_file, settings.key_readers(), settings.key_id);
    if (!ring) return tl::unexpected<Error>(ring.error());
    return keys::ReportKey::derive(*kex->api->kex, (*ring)->own());
}

Result<void> check_allow(const config::Settings& settings, const std::optional<MpiLibrary>& library) {
    return interpose::check_allow(settings, [&](const std::string& name) {
        if (!library) return true;
        const auto functions = exported_functions(library->file);
        return !functions || std::find(functions->begin(), functions->end(), name) != functions->end();
    });
}

std::string preload_without(const config::Environment& environment) {
    return joined(preloaded_by_user(environment), ":");
}

std::string preload_of_launcher(const config::Settings& settings, config::Layer layer,
                                const config::Environment& environment) {
    std::vector<std::string> all = preloaded_by_user(environment);
    // A rank that MPI_Comm_spawn asks for is started by the launcher's processes, past `exec`.
    if (layer == config::Layer::fabric) all.insert(all.begin(), library_file(settings, layer).string());
    all.insert(all.begin(), library_file(settings, config::Layer::channel).string());
    return joined(all, ":");
}

std::string preload_of_rank(const config::Settings& settings, config::Layer layer,
                            const config::Environment& environment) {
    std::vector<std::string> all = preloaded_by_user(environment);
    if (layer == config::Layer::mpi) {
        all.insert(std::find_if(all.begin(), all.end(), is_mpi_library), library_file(settings, layer).string());
    }
    // MPI's network library is found behind us, whatever the user has preloaded.
    if (layer == config::Layer::fabric) all.insert(all.begin(), library_file(settings, layer).string());
    if (layer == config::Layer::channel || settings.seal_sockets) {
        all.insert(all.begin(), library_file(settings, config::Layer::channel).string());
    }
    return joined(all, ":");
}

void add_layer_option(CLI::App& subcommand, std::string& layer) {
    subcommand
        .add_option(
            "--layer", layer,
            "channel: seals TCP streams; mpi: seals messages, on any network; fabric: seals what MPI hands to UCX "
            "or libfabric, on any network (default: the setting layer)")
        ->check(CLI::IsMember({"auto", "channel", "mpi", "fabric"}));
}

void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace cryptmpi::command
