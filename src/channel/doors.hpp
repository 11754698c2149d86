// What UCX and libfabric open where the fabric layer, in the same process, seals what they carry.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace cryptmpi::channel {

class Doors {
public:
    /// Closed, if asked for or if the fabric layer's library is not in this process: nothing is a carrier's.
    explicit Doors(bool open);

    /// Does a socket of this caller carry what the fabric layer has sealed? Connections that it accepts do, too.
    bool carries(const void* caller) const { return carries_ != nullptr && carries_(caller) != 0; }
    /// Is this thread inside a call by which MPI opens a network through the fabric layer? Devices are opened by
    /// libraries below UCX and libfabric, which others can call, too.
    bool is_opening() const { return is_opening_ != nullptr && is_opening_() != 0; }

    /// A device that was opened so.
    void opened(const std::string& device);
    bool has_opened(const std::string& device) const;

    /// Around fork: no lock of ours may be held by a thread that the child does not have.
    void lock() { lock_.lock(); }
    void unlock() { lock_.unlock(); }

private:
    using Carries = int (*)(const void* caller);
    using IsOpening = int (*)();

    Carries carries_ = nullptr;
    IsOpening is_opening_ = nullptr;
    mutable std::mutex lock_;
    std::set<std::string> devices_;
};

}  // namespace cryptmpi::channel
