// Who may carry what this layer has sealed: UCX and libfabric, for MPI that came through our doors. Their transports
// used past the doors would carry what nobody has sealed.
#include <uct/api/uct.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "fabric/opening.hpp"
#include "fabric/process.hpp"
#include "interpose/loaded.hpp"

namespace cryptmpi::fabric {
namespace {

using interpose::LoadedObject;

/// What the parts of UCX and libfabric's providers define. Other libraries may have one of these inside, and send by it
/// past our doors: their names differ.
constexpr std::array kMarks = {"ucs_socket_create", "uct_iface_open", "ucp_init_version", "fi_getinfo", "fi_prov_ini"};
constexpr std::array<std::string_view, 5> kNames = {"libucs.", "libucs-", "libuct", "libucp", "libfabric"};

bool has_their_name(const LoadedObject& object) {
    const std::string_view file = object.file();
    const auto name = file.substr(file.rfind('/') + 1);
    return name.ends_with("-fi.so") ||
           std::any_of(kNames.begin(), kNames.end(), [&](std::string_view known) { return name.starts_with(known); });
}

bool is_carrier(const LoadedObject& object) {
    return has_their_name(object) && std::any_of(kMarks.begin(), kMarks.end(),
                                                 [&](const char* mark) { return object.exported(mark) != nullptr; });
}

bool carries(const void* caller) {
    const auto objects = LoadedObject::all();
    const LoadedObject* const object = LoadedObject::holding(objects, caller);
    return object != nullptr && is_carrier(*object);
}

/// UCX's own function; null, after a line, where it is not UCX that calls, or where UCX was not called through the
/// door: who found ucp's functions by dlsym, say, would open a network for what nobody has sealed.
template <class Function>
Function* for_ucx(const char* name, const void* caller) {
    if (!carries(caller) || cryptmpi_fabric_is_opening() == 0) {
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

/// Asked by the channel library in the same process. Who uses them, and never came through a door, is not sealed by it:
/// then their sockets are like all others.
extern "C" [[gnu::visibility("default")]] int cryptmpi_fabric_carries(const void* caller) {
    return cryptmpi::fabric::Opening::has_been() && cryptmpi::fabric::carries(caller) ? 1 : 0;
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
