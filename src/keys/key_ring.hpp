// The job keys that a process takes from its peers: its own, which it began with, and those that its key file has at
// the time. So a site can put another key into the file while jobs run: what begins then uses it, what runs goes on
// with its own, and they talk to each other as long as both keys are in the file.
#pragma once

#include <cryptmpi/module.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/key_readers.hpp"
#include "base/result.hpp"
#include "keys/job_key.hpp"

namespace cryptmpi::keys {

/// Used by any number of threads. Keys that were found stay where they are as long as it lives.
class KeyRing {
public:
    /// Of a key file. `begun_with` is the id of the key that this process's job began with; empty: the file's first.
    /// Errors: of the file; that key is not in it any more.
    static Result<std::unique_ptr<KeyRing>> read(const cryptmpi_kex& kex, const std::filesystem::path& file,
                                                 KeyReaders readers, std::string_view begun_with);
    KeyRing(const KeyRing&) = delete;
    KeyRing& operator=(const KeyRing&) = delete;

    const std::filesystem::path& file() const { return file_; }
    const JobKey& own() const { return *own_; }
    const KeyId& own_id() const { return own_id_; }

    /// Null: neither this process's own nor in its file now.
    const JobKey* find(const KeyId& id);
    /// All that find() finds, its own first.
    std::vector<const JobKey*> all();

    /// Around fork: the child does not have the thread that holds it.
    void lock() { lock_.lock(); }
    void unlock() { lock_.unlock(); }

private:
    struct Held {
        std::unique_ptr<JobKey> key;
        KeyId id;
        bool in_file;
    };
    /// By which a file is known to be what was read.
    struct Stamp {
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
        std::uint64_t size = 0;
        std::int64_t changed_ns = 0;
        bool operator==(const Stamp&) const = default;
    };

    KeyRing(const cryptmpi_kex& kex, std::filesystem::path file, KeyReaders readers)
        : kex_(kex), file_(std::move(file)), readers_(readers) {}
    Result<void> take(JobKeys keys);
    Stamp stamp() const;
    void look_again();

    const cryptmpi_kex& kex_;
    std::filesystem::path file_;
    KeyReaders readers_;
    const JobKey* own_ = nullptr;
    KeyId own_id_{};
    std::mutex lock_;
    std::vector<Held> held_;  // those that are not in the file any more stay, unused
    Stamp read_;
};

}  // namespace cryptmpi::keys
