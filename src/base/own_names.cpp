#include "base/own_names.hpp"

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

std::string kernel_and_network() {
    std::string text;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
    struct stat network {};
    if (stat("/proc/self/ns/net", &network) == 0) text += " " + std::to_string(network.st_ino);
    return text;
}

std::string program_name() {
    char path[PATH_MAX] = {};
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : program_invocation_name;
}

}  // namespace cryptmpi
