#include "command/networks.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

/// The names in `folder` that start with `prefix`, sorted.
std::vector<std::string> names_in(const fs::path& folder, std::string_view prefix = {}) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        auto name = entry->path().filename().string();
        if (name.starts_with(prefix)) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// A card without a cable carries nothing. Where the kernel does not tell, there may be a link.
bool has_link(const fs::path& device) {
    bool told = false;
    for (const auto& port : names_in(device / "ports")) {
        std::string state;
        if (!std::getline(std::ifstream(device / "ports" / port / "state"), state)) continue;
        if (state.find("ACTIVE") != std::string::npos) return true;
        told = true;
    }
    return !told;
}

const char* kind(std::string_view device) {
    return device.starts_with("hfi1") ? "Omni-Path device " : "RDMA device ";
}

/// The kernel lists them to every container of the node; only those with a device file in /dev can be used.
void add_verbs_devices(const fs::path& root, std::vector<std::string>& networks) {
    const auto files = names_in(root / "dev/infiniband", "uverbs");
    const auto folder = root / "sys/class/infiniband";
    const auto devices = names_in(folder);
    if (files.empty()) return;
    for (const auto& device : devices) {
        if (has_link(folder / device)) networks.push_back(kind(device) + device);
    }
    if (devices.empty()) networks.push_back("verbs device /dev/infiniband/" + files.front());
}

void add_device_files(const fs::path& root, std::string_view prefix, const char* what,
                      std::vector<std::string>& networks) {
    for (const auto& name : names_in(root / "dev", prefix)) networks.push_back(what + name);
}

}  // namespace

std::vector<std::string> networks_around_tcp(const fs::path& root) {
    std::vector<std::string> networks;
    add_verbs_devices(root, networks);
    add_device_files(root, "hfi1_", "Omni-Path device ", networks);
    add_device_files(root, "cxi", "Slingshot device ", networks);
    add_device_files(root, "kgni", "Gemini or Aries device ", networks);
    add_device_files(root, "gni", "Gemini or Aries device ", networks);
    return networks;
}

}  // namespace cryptmpi::command
