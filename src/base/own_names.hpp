// What this process's machine and program are called, and which machine that is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cryptmpi {

std::string host_name();

/// Of the running kernel; empty: the system does not say.
std::string boot_id();

/// This process's network namespace in the running kernel; nullopt: the system does not say.
struct OwnNetwork {
    std::uint64_t device;
    std::uint64_t inode;
};
std::optional<OwnNetwork> own_network();

/// Both as a text: what two machines of one name do not share.
std::string kernel_and_network();

/// The file that this process runs; where nobody says which, the name that it was started by.
std::string program_name();

}  // namespace cryptmpi
