// Who may carry what this layer has sealed: UCX and libfabric, for MPI that came through our doors. Their transports
// used past the doors would carry what nobody has sealed.
#include <uct/api/uct.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fabric/opening.hpp"
#include "fabric/process.hpp"
#include "loader/loaded.hpp"

namespace cryptmpi::fabric {
namespace {

using loader::LoadedObject;

enum class Road : std::uint8_t { ucx, libfabric };

/// What the parts of UCX and libfabric's providers define. Other libraries may have one of these inside, and send by it
/// past our doors: their names differ.
struct Mark {
    const char* name;
    Road road;
};
constexpr std::array<Mark, 5> kMarks = {{{"ucs_socket_create", Road::ucx},
                                         {"uct_iface_open", Road::ucx},
                                         {"ucp_init_version", Road::ucx},
                                         {"fi_getinfo", Road::libfabric},
                                         {"fi_prov_ini", Road::libfabric}}};
constexpr std::array<std::string_view, 5> kNames = {"libucs.", "libucs-", "libuct", "libucp", "libfabric"};

bool has_their_name(const LoadedObject& object) {
    const std::string_view file = object.file();
    const auto name = file.substr(file.rfind('/') + 1);
    return name.ends_with("-fi.so") ||
           std::any_of(kNames.begin(), kNames.end(), [&](std::string_view known) { return name.starts_with(known); });
}

/// Whose part the caller is; nothing: of neither.
std::optional<Road> road_of(const void* caller) {
    const auto objects = LoadedObject::all();
    const LoadedObject* const object = LoadedObject::holding(objects, caller);
    if (object == nullptr || !has_their_name(*object)) return std::nullopt;
    const auto* const mark = std::find_if(kMarks.begin(), kMarks.end(),
                                          [&](const Mark& one) { return object->exported(one.name) != nullptr; });
    return mark == kMarks.end() ? std::nullopt : std::optional(mark->road);
}

/// UCX's own function; null, after a line, where it is not UCX that calls, or where UCX was not called through the
/// door: who found ucp's functions by dlsym, say, would open a network for what nobody has sealed.
template <class Function>
Function* for_ucx(const char* name, const void* caller) {
    if (road_of(caller) != Road::ucx || cryptmpi_fabric_is_opening() == 0) {
        Process::get().refuse(
            name,
            "the transports of UCX are open to MPI through ucp only; keep other users off them (Open MPI: btl ^uct)");
        return nullptr;
    }
    for (const auto& object : LoadedObject::all()) {
        if (void* const found = object.exported(name)) return reinterpret_cast<Function*>(found);
    }
    return nullptr;
}

}  // namespace
}  // namespace cryptmpi::fabric

/// Asked by the channel library in the same process. Who uses libfabric, and got nothing through its door, is not
/// sealed by it: then its sockets are like all others. Those of UCX always are: its transport tcp writes to whatever
/// address a packet says, whoever has connected and sent it.
extern "C" [[gnu::visibility("default")]] int cryptmpi_fabric_carries(const void* caller) {
    using namespace cryptmpi::fabric;
    return Opening::may_carry() && road_of(caller) == Road::libfabric ? 1 : 0;
}

using cryptmpi::fabric::for_ucx;

#define ENTRY extern "C" [[gnu::visibility("default")]]

// Nothing of a transport can be used without one of these.
ENTRY ucs_status_t uct_md_open(uct_component_h component, const char* name, const uct_md_config_t* config,
                               uct_md_h* made) {
    auto* const open = for_ucx<decltype(uct_md_open)>("uct_md_open", __builtin_return_address(0));
    return open == nullptr ? UCS_ERR_UNSUPPORTED : open(component, name, config, made);
}

ENTRY ucs_status_t uct_iface_open(uct_md_h domain, uct_worker_h worker, const uct_iface_params_t* params,
                                  const uct_iface_config_t* config, uct_iface_h* made) {
    auto* const open = for_ucx<decltype(uct_iface_open)>("uct_iface_open", __builtin_return_address(0));
    return open == nullptr ? UCS_ERR_UNSUPPORTED : open(domain, worker, params, config, made);
}

ENTRY ucs_status_t uct_cm_open(uct_component_h component, uct_worker_h worker, const uct_cm_config_t* config,
                               uct_cm_h* made) {
    auto* const open = for_ucx<decltype(uct_cm_open)>("uct_cm_open", __builtin_return_address(0));
    return open == nullptr ? UCS_ERR_UNSUPPORTED : open(component, worker, config, made);
}
