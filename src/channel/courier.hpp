// Brings handshakes to their end when the program does not call us meanwhile.
//
// The kernel completes a connection by itself, and takes a write on a fresh one at once; programs rely on both. (UCX
// holds a lock across connect and its first send; Open MPI blocks in the first recv of an accepted connection while its
// own connect is on its way to the same peer.) So one thread of ours does what the kernel would. It lives while there
// are handshakes; every call of the program that touches such a connection does the same work, and whoever is first
// does it.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

namespace cryptmpi::channel {

class Process;
struct Entry;
struct Shared;

class Courier {
public:
    explicit Courier(Process& process) : process_(process) {}
    void carry(Entry& entry);
    /// While it is held the thread touches no connection, and holds no lock.
    std::unique_lock<std::mutex> pause() { return std::unique_lock(work_lock_); }
    /// The child of a fork has no thread.
    void after_fork_in_child();

private:
    struct Parcel {
        Entry* entry;
        Shared* shared;
    };
    static void* run(void* courier);
    bool round();
    bool hear_bell() const;
    void work(std::vector<Parcel>& parcels);

    Process& process_;
    std::mutex work_lock_;
    std::mutex lock_;  // of what follows
    std::vector<Parcel> parcels_;
    bool running_ = false;
    int bell_ = -1;  // an eventfd: a new parcel
};

}  // namespace cryptmpi::channel
