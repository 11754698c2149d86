// The memory of sealed connections, shared by the processes that share their sockets.
//
// A socket that survives fork or exec has one stream of records for all its processes, so its keys, counters and
// buffers live in a memory file that they all map (shared.hpp). The file is closed at exec unless a sealed socket
// survives it.
//
// Not base/secret_memory.hpp, whose pages are one process's: this one has to be shared, found again after exec, and
// large, for the buffers that lie beside the keys. Like it, it is in no core dump.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/result.hpp"
#include "channel/shared.hpp"

namespace cryptmpi::channel {

class Table;

class Arena {
public:
    explicit Arena(Table& table) : table_(table) {}

    /// A free slot, wiped, with its locks made and `process` on it. Errors: no memory.
    Result<Shared*> take(ProcessName process);
    /// Wipes the slot and gives it back.
    void give_back(Shared* slot);

    /// Maps the file that an earlier program of this process left behind.
    Result<void> adopt(int fd);
    /// The adopted or own slot of the socket with this inode; nullptr if there is none.
    Shared* find(std::uint64_t inode);

    /// A slot's number, and back (nullptr: no such slot in use).
    std::size_t number(const Shared& slot) const { return static_cast<std::size_t>(&slot - slots_); }
    Shared* slot(std::size_t number);

    /// The memory file, or -1 while no connection was ever sealed. Never to be closed by the program.
    int fd() const { return fd_; }

    /// Around fork: no lock of ours may be held by a thread that the child does not have.
    void lock() { create_lock_.lock(); }
    void unlock() { create_lock_.unlock(); }

private:
    Result<void> create();
    Result<void> map();
    struct Header;

    Table& table_;
    std::mutex create_lock_;
    int fd_ = -1;
    Header* header_ = nullptr;
    Shared* slots_ = nullptr;
};

}  // namespace cryptmpi::channel
