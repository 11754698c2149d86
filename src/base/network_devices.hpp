// The devices by which a process reaches a network past the kernel's sockets.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace cryptmpi {

inline bool is_network_device(std::string_view path) {
    // Verbs (EFA's, too), Omni-Path, TrueScale, Slingshot, Gemini and Aries, usNIC, BXI, Myrinet, network cards that a
    // process drives itself, NVLink between nodes.
    static constexpr std::array<std::string_view, 14> kPrefixes = {
        "/dev/infiniband/", "/dev/hfi1",
        "/dev/opa",         "/dev/ipath",
        "/dev/cxi",         "/dev/gni",
        "/dev/kgni",        "/dev/usnic",
        "/dev/bxi",         "/dev/mx",
        "/dev/open-mx",     "/dev/vfio/",
        "/dev/uio",         "/dev/nvidia-caps-imex-channels/"};
    return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                       [&](std::string_view prefix) { return path.starts_with(prefix); });
}

}  // namespace cryptmpi
