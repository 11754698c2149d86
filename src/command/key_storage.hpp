// Where the job key's file lies: what a network file system carries may be read on the network.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

/// The network file system that holds `file`, as people call it, if the file may have come over the network in clear;
/// empty: this node's own, or one that is mounted with encryption, or there is no such file.
std::string clear_network_of(const std::filesystem::path& file);

/// What whoever has read the key file can do.
enum class KeyUse {
    protects_jobs,  // read and change what jobs send, and forge their reports
    signs_reports,  // forge reports: the job's data have a fresh key
};

/// Refuses, or warns in one line if this process is the one to `speak` for its job, as the setting key_on_network says.
Result<void> check_key_storage(const config::Settings& settings, KeyUse use, bool speak);

}  // namespace cryptmpi::command
