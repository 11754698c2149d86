// The devices by which a process reaches a network past the kernel's sockets.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace cryptmpi {

inline bool is_network_device(std::string_view path) {
    // Verbs (EFA's, too), Omni-Path, TrueScale, Slingshot, Gemini and Aries, usNIC, BXI, Myrinet, network cards that a
    // process drives itself, NVLink between nodes; frames and packets of the kernel's own devices, by its side door.
    static constexpr std::array<std::string_view, 18> kPrefixes = {
        "/dev/infiniband/", "/dev/hfi1",
        "/dev/opa",         "/dev/ipath",
        "/dev/cxi",         "/dev/gni",
        "/dev/kgni",        "/dev/usnic",
        "/dev/bxi",         "/dev/mx",
        "/dev/open-mx",     "/dev/vfio/",
        "/dev/uio",         "/dev/nvidia-caps-imex-channels/",
        "/dev/net/tun",     "/dev/vhost-net",
        "/dev/vhost-vsock", "/dev/ppp"};
    // macvtap and ipvtap number their devices; a tape drive has another name behind these letters.
    constexpr std::string_view kTap = "/dev/tap";
    if (path.starts_with(kTap) && path.size() > kTap.size() && path[kTap.size()] >= '0' && path[kTap.size()] <= '9')
        return true;
    return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                       [&](std::string_view prefix) { return path.starts_with(prefix); });
}

}  // namespace cryptmpi
