#include "command/job.hpp"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "aead/registry.hpp"
#include "keys/job_key.hpp"

namespace cryptmpi::command {

namespace fs = std::filesystem;

namespace {

/// Devices of networks that carry messages around TCP.
constexpr const char* kNetworkDevices[] = {"/dev/infiniband", "/dev/hfi1_0", "/dev/cxi0", "/dev/gni0"};

/// Settings of MPIs and their transports that leave only TCP between nodes.
bool tcp_is_asked_for(const config::Environment& environment) {
    const auto is = [&](const char* name, std::string_view value) { return environment(name) == value; };
    if (is("FI_PROVIDER", "tcp") || is("FI_PROVIDER", "sockets") || is("I_MPI_OFI_PROVIDER", "tcp")) return true;
    if (const auto transports = environment("UCX_TLS")) {
        return transports->find("tcp") != std::string::npos && transports->find("rc") == std::string::npos &&
               transports->find("dc") == std::string::npos && transports->find("ud") == std::string::npos &&
               transports->find("ib") == std::string::npos && transports->find("all") == std::string::npos;
    }
    const auto btl = environment("OMPI_MCA_btl");
    return btl && btl->find("tcp") != std::string::npos && is("OMPI_MCA_pml", "ob1");
}

}  // namespace

LayerChoice choose_layer(const config::Settings& settings, const config::Environment& environment) {
    if (settings.layer != config::Layer::automatic) return {settings.layer, "the setting layer"};
    std::error_code ignored;
    for (const char* device : kNetworkDevices) {
        if (!fs::exists(device, ignored)) continue;
        if (tcp_is_asked_for(environment)) return {config::Layer::channel, "the environment asks the MPI for TCP"};
        return {config::Layer::mpi, std::string("this node has ") + device};
    }
    return {config::Layer::channel, "this node has no network but TCP's"};
}

fs::path library_file(const config::Settings& settings, config::Layer layer) {
    return settings.module_folder / (layer == config::Layer::mpi ? "libcryptmpi-mpi.so" : "libcryptmpi-channel.so");
}

fs::path agent_file(const config::Settings& settings) {
    return settings.module_folder / "cryptmpi-agent";
}

Result<void> check_installation(const config::Settings& settings, config::Layer layer) {
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
    if (settings.module != "auto") {
        auto module = aead::choose(settings.module_folder.string(), settings.module, settings.suite);
        if (!module) return tl::unexpected<Error>(module.error());
    }
    auto key = keys::read_job_key(settings.key_file);
    if (!key) return tl::unexpected<Error>(key.error());
    return {};
}

std::string preload_without(const fs::path& library, const config::Environment& environment) {
    const std::string all = environment("LD_PRELOAD").value_or("");
    std::string others;
    for (std::size_t start = 0; start < all.size();) {
        const auto end = std::min(all.find_first_of(" :", start), all.size());
        const std::string_view entry(all.data() + start, end - start);
        if (!entry.empty() && entry != library.native()) others += (others.empty() ? "" : ":") + std::string(entry);
        start = end + 1;
    }
    return others;
}

std::string preload_with(const fs::path& library, const config::Environment& environment) {
    const std::string others = preload_without(library, environment);
    return others.empty() ? library.string() : library.string() + ":" + others;
}

void add_layer_option(CLI::App& subcommand, std::string& layer) {
    subcommand
        .add_option("--layer", layer,
                    "channel: seals TCP streams; mpi: seals messages, on any network (default: the setting layer)")
        ->check(CLI::IsMember({"auto", "channel", "mpi"}));
}

void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace cryptmpi::command
