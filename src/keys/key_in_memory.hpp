// A job's fresh key in a node's memory: a file of one line, as a key file has it, in /dev/shm, so that all of the job's
// processes on the node can read it and no disk ever has it.
//
// Whoever needs it to stay holds a shared lock on it, for as long as it lives. The last holder overwrites and removes
// it. A file whose holders were killed has no lock: the next sweep removes it.
#pragma once

#include <cryptmpi/module.h>

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "keys/job_key.hpp"

namespace cryptmpi::keys {

inline constexpr const char* kMemoryFolder = "/dev/shm";

class KeyInMemory {
public:
    /// A file name that nobody can know before, so that nobody can take it before. Error: no random bytes.
    static Result<std::filesystem::path> new_file(const cryptmpi_kex& kex,
                                                  const std::filesystem::path& folder = kMemoryFolder);
    /// Is it such a name, in this folder?
    static bool is_file_name(const std::filesystem::path& file, const std::filesystem::path& folder = kMemoryFolder);

    /// Puts the key there, or holds what is there if it is this key. Each error is one line: a file of somebody else's
    /// or with another key, a file system that is not this kernel's memory, no room.
    static Result<KeyInMemory> keep(const std::filesystem::path& file, const JobKey& key);

    KeyInMemory(KeyInMemory&& other) noexcept;
    KeyInMemory& operator=(KeyInMemory&& other) noexcept;
    /// Overwrites and removes the file if nobody else holds it.
    ~KeyInMemory();

    /// After a fork both processes hold it. This one leaves it to the other.
    void leave();
    /// Makes the file again if somebody removed it under us, as systemd-logind does when a user's last session ends
    /// (RemoveIPC); the holder asks now and then.
    void restore();
    /// After a fork: keeps the file's memory from being swapped out, which a parent's lock does not do for its child.
    void pin();

private:
    KeyInMemory(std::filesystem::path file, int fd) : file_(std::move(file)), fd_(fd) {}

    std::filesystem::path file_;
    int fd_ = -1;
    void* pinned_ = nullptr;
};

/// Overwrites and removes this user's files of that kind which nobody holds any more. Returns how many.
std::size_t sweep_keys(const std::filesystem::path& folder = kMemoryFolder);

}  // namespace cryptmpi::keys
