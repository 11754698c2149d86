#include "command/layer_choice.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "base/joined.hpp"
#include "command/one_of.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

/// Where the MPI was told to go between nodes.
enum class Road {
    unsaid,
    tcp,
    fabric,  // another network, through UCX or libfabric
    own,     // another network, by what is neither
};
struct Said {
    Road road = Road::unsaid;
    std::string by;
};

/// A list of components: "a,b", or "^a,b" for all but these.
struct List {
    bool excluded = false;
    std::vector<std::string> names;

    bool has(std::string_view name) const { return std::find(names.begin(), names.end(), name) != names.end(); }
};

List parse_list(std::string text) {
    List list;
    list.excluded = text.starts_with('^');
    if (list.excluded) text.erase(0, 1);
    std::replace(text.begin(), text.end(), ';', ',');  // libfabric's "tcp;ofi_rxm"
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
        std::erase_if(word, [](char letter) { return letter == ' ' || letter == '\\'; });  // UCX's "\rc": no alias
        word = word.substr(0, word.find(':'));                                             // UCX's "ud:aux"
        if (!word.empty()) list.names.push_back(std::move(word));
    }
    return list;
}

/// What a list of names says, each of which is TCP's, stays inside the node or says nothing, or leads to another
/// network by `other`.
Said said_by(const Parameters::Told& told, std::initializer_list<std::string_view> tcp,
             std::initializer_list<std::string_view> inside, Road other) {
    const List list = parse_list(told.value);
    if (list.excluded) return {};
    bool some_tcp = false;
    for (const auto& name : list.names) {
        if (one_of(tcp, name)) {
            some_tcp = true;
        } else if (!one_of(inside, name)) {
            return {other, told.by};
        }
    }
    return {some_tcp ? Road::tcp : Road::unsaid, told.by};
}

Said said_by_ucx_transports(const Parameters& parameters) {
    const auto* told = parameters("UCX_TLS");
    if (told == nullptr) return {};
    const List list = parse_list(told->value);
    const bool without_verbs = list.has("ib") || (list.has("rc") && list.has("ud") && list.has("dc"));
    if (list.excluded) return without_verbs ? Said{Road::tcp, told->by} : Said{};
    if (list.has("all")) return {};
    return said_by(*told, {"tcp"},
                   {"self", "sm", "shm", "mm", "posix", "sysv", "xpmem", "cma", "knem", "cuda", "cuda_copy", "cuda_ipc",
                    "gdr_copy", "rocm", "rocm_copy", "rocm_ipc", "ze", "ze_copy", "ze_ipc"},
                   Road::fabric);
}

/// A verbs device is named with its port, mlx5_0:1; anything else is an interface of the kernel's, eth0.
Said said_by_ucx_devices(const Parameters& parameters) {
    const auto* told = parameters("UCX_NET_DEVICES");
    if (told == nullptr || told->value.empty() || told->value == "all" || told->value.starts_with('^')) return {};
    return {told->value.find(':') == std::string::npos ? Road::tcp : Road::fabric, told->by};
}

Said said_to_ucx(const Parameters& parameters) {
    Said transports = said_by_ucx_transports(parameters);
    Said devices = said_by_ucx_devices(parameters);
    if (transports.road == Road::tcp || devices.road == Road::unsaid) return transports;
    return devices;
}

/// By the first of these variables that is set.
Said said_to_libfabric(const Parameters& parameters, std::initializer_list<const char*> variables) {
    for (const char* variable : variables) {
        if (const auto* told = parameters(variable); told != nullptr && !told->value.empty()) {
            return said_by(*told, {"tcp", "sockets", "net"}, {"shm", "sm2", "ofi_rxm", "ofi_mrail", "lnx"},
                           Road::fabric);
        }
    }
    return {};
}

/// What is said in several places, where it is not known which of them counts: another network beats TCP, and
/// what the fabric layer cannot seal beats what it can.
Said either(const Said& one, const Said& another) {
    return one.road >= another.road ? one : another;
}

Said said_to_mpich(const Parameters& parameters) {
    if (const auto* told = parameters("MPIR_CVAR_NEMESIS_NETMOD"))
        return said_by(*told, {"tcp"}, {}, Road::own);  // ch3
    Said ucx = said_to_ucx(parameters);
    Said libfabric = said_to_libfabric(parameters, {"MPIR_CVAR_OFI_USE_PROVIDER", "FI_PROVIDER"});
    for (const char* variable : {"MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_NETMOD", "MPICH_CH4_NETMOD"}) {
        const auto* told = parameters(variable);
        if (told != nullptr && told->value == "ucx") return ucx;
        if (told != nullptr && told->value == "ofi") return libfabric;
    }
    return either(ucx, libfabric);
}

Said said_to_intel(const Parameters& parameters) {
    if (const auto* told = parameters("I_MPI_FABRICS")) {
        const auto& fabrics = told->value;
        // Before 2019 the fabric itself was named: shm:tcp, shm:dapl, ofa, tmi.
        if (fabrics.ends_with("tcp")) return {Road::tcp, told->by};
        if (!fabrics.ends_with("ofi") && fabrics != "shm") return {Road::own, told->by};
    }
    return said_to_libfabric(parameters, {"I_MPI_OFI_PROVIDER", "FI_PROVIDER"});
}

/// Open MPI sends through one pml: ob1 over btls, cm over one mtl, or ucx. Unless it is told which, it looks at the
/// devices.
Said said_to_open_mpi(const Parameters& parameters) {
    const auto* pml = parameters("OMPI_MCA_pml");
    if (pml == nullptr || pml->value.empty() || pml->value.starts_with('^')) return {};
    if (pml->value == "ucx") return said_to_ucx(parameters);
    if (pml->value == "ob1") {
        const auto* btl = parameters("OMPI_MCA_btl");
        return btl == nullptr ? Said{} : said_by(*btl, {"tcp"}, {"self", "vader", "sm", "smcuda"}, Road::own);
    }
    if (pml->value != "cm") return {Road::own, pml->by};
    const auto* mtl = parameters("OMPI_MCA_mtl");
    if (mtl == nullptr || mtl->value == "ofi") {
        return said_to_libfabric(parameters, {"OMPI_MCA_mtl_ofi_provider_include", "FI_PROVIDER"});
    }
    return mtl->value.starts_with('^') ? Said{} : Said{Road::own, mtl->by};
}

Said said_to(std::optional<Mpi> mpi, const Parameters& parameters) {
    if (mpi == Mpi::mpich) return said_to_mpich(parameters);
    if (mpi == Mpi::intel) return said_to_intel(parameters);
    if (mpi == Mpi::open_mpi) return said_to_open_mpi(parameters);
    return either(said_to_open_mpi(parameters), either(said_to_intel(parameters), said_to_mpich(parameters)));
}

/// Hydra's and Open MPI's options that set a variable, and what makes the variable's name of the word that follows.
struct SettingOption {
    const char* option;
    const char* prefix;
    bool one_word;  // NAME=VALUE
};
constexpr std::array<SettingOption, 10> kSettingOptions = {{{"--mca", "OMPI_MCA_", false},
                                                            {"-mca", "OMPI_MCA_", false},
                                                            {"--gmca", "OMPI_MCA_", false},
                                                            {"-gmca", "OMPI_MCA_", false},
                                                            {"--omca", "OMPI_MCA_", false},
                                                            {"-x", "", true},
                                                            {"-genv", "", false},
                                                            {"--genv", "", false},
                                                            {"-env", "", false},
                                                            {"--env", "", false}}};

}  // namespace

const Parameters::Told* Parameters::operator()(std::string_view name) const {
    const auto found = told_.find(name);
    return found == told_.end() ? nullptr : &found->second;
}

void Parameters::add_variable(const std::string& name, const std::string& value) {
    told_[name] = {value, std::string(name).append("=").append(value)};
}

void Parameters::add_environment(const config::Environment& environment) {
    for (const auto& [name, value] : environment.variables()) add_variable(name, value);
}

void Parameters::add_arguments(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const auto* option = std::find_if(kSettingOptions.begin(), kSettingOptions.end(),
                                          [&](const SettingOption& known) { return words[i] == known.option; });
        if (option == kSettingOptions.end()) continue;
        const std::string& word = words[++i];
        const auto equals = word.find('=');
        if (option->one_word) {
            if (equals != std::string::npos) add_variable(word.substr(0, equals), word.substr(equals + 1));
        } else if (i + 1 < words.size()) {
            const std::string& value = words[++i];
            std::string by = option->option;
            by.append(" ").append(word).append(" ").append(value);
            told_[option->prefix + word] = {value, std::move(by)};
        }
    }
}

void Parameters::add_file(const fs::path& file, const std::string& prefix) {
    const auto trim = [](std::string text) {
        text.erase(0, text.find_first_not_of(" \t"));
        text.erase(text.find_last_not_of(" \t\r") + 1);
        return text;
    };
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line) && !line.starts_with('[');) {
        line = line.substr(0, line.find('#'));
        const auto equals = line.find('=');
        if (equals == std::string::npos) continue;
        const std::string name = trim(line.substr(0, equals));
        std::string value = trim(line.substr(equals + 1));
        std::string by = std::string(name).append("=").append(value).append(" in ").append(file.string());
        told_[prefix + name] = {std::move(value), std::move(by)};
    }
}

Parameters parameters_of(const std::optional<MpiLibrary>& library, const config::Environment& environment) {
    constexpr const char* kOpenMpi = "OMPI_MCA_";
    Parameters parameters;
    if (library && library->mpi == Mpi::open_mpi) {
        std::error_code ignored;
        fs::path folder = fs::canonical(library->file, ignored).parent_path();
        // The distributions' own has its files there.
        if (folder.native().starts_with("/usr/lib")) {
            parameters.add_file("/etc/openmpi/openmpi-mca-params.conf", kOpenMpi);
        }
        for (; folder.has_relative_path(); folder = folder.parent_path()) {
            const auto file = folder / "etc" / "openmpi-mca-params.conf";
            if (!fs::exists(file, ignored)) continue;
            parameters.add_file(file, kOpenMpi);
            break;
        }
    }
    parameters.add_file("/etc/ucx/ucx.conf", "");
    if (const auto folder = environment("UCX_CONFIG_DIR")) parameters.add_file(fs::path(*folder) / "ucx.conf", "");
    if (const auto home = environment("HOME"); home && !home->empty()) {
        parameters.add_file(fs::path(*home) / "ucx.conf", "");
        parameters.add_file(fs::path(*home) / ".openmpi" / "mca-params.conf", kOpenMpi);
    }
    parameters.add_environment(environment);
    return parameters;
}

LayerChoice choose_layer(const Circumstances& circumstances) {
    using config::Layer;
    using config::Network;
    const std::string mpi = circumstances.mpi ? name(*circumstances.mpi) : "the MPI";
    const Said said = said_to(circumstances.mpi, circumstances.parameters);
    if (said.road == Road::tcp)
        return {Layer::channel, said.by + " confines " + mpi + " to TCP between nodes", Network::tcp};
    const bool said_nothing = said.road == Road::unsaid;
    if (said_nothing && circumstances.networks.empty()) {
        return {Layer::channel, "this node has no network but TCP's, and nothing leads " + mpi + " to another",
                Network::tcp};
    }
    const std::string why =
        said_nothing ? "this node has " + joined(circumstances.networks) + ", and nothing confines " + mpi + " to TCP"
                     : said.by + " leads " + mpi + " to another network than TCP";
    if (circumstances.own_door) return {Layer::mpi, why + ", which its library drives itself", Network::any};
    if (said.road == Road::own) return {Layer::mpi, why + ", past UCX and libfabric", Network::any};
    return {Layer::fabric, why, Network::fabric};
}

const char* how_to_take_tcp(Mpi mpi) {
    switch (mpi) {
        case Mpi::open_mpi:
            return "--mca pml ob1 --mca btl tcp,self,vader";
        case Mpi::intel:
            return "I_MPI_OFI_PROVIDER=tcp";
        case Mpi::mpich:
            break;
    }
    return "UCX_TLS=tcp,self or FI_PROVIDER=tcp";
}

}  // namespace cryptmpi::command
