#include "base/own_names.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <fstream>

namespace cryptmpi {

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = {};
    gethostname(name, HOST_NAME_MAX);
    return name;
}

std::string boot_id() {
    std::string text;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
    return text;
}

std::optional<OwnNetwork> own_network() {
    struct stat network {};
    if (stat("/proc/self/ns/net", &network) != 0) return std::nullopt;
    return OwnNetwork{network.st_dev, network.st_ino};
}

std::string kernel_and_network() {
    const auto network = own_network();
    return boot_id() + (network ? fmt::format(" {}", network->inode) : "");
}

std::string program_name() {
    char path[PATH_MAX] = {};
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : program_invocation_name;
}

}  // namespace cryptmpi
