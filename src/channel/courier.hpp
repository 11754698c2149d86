// Carries early data: what a program wrote before the handshake was done.
//
// The kernel takes a write on a fresh connection at once, and programs rely on it (UCX holds a lock across connect and its first send).
// So do we; but then somebody has to finish the handshake and send, also if the program never calls us again. That is this thread;
// it is started by the first early write, and every call of the program that touches the connection does the same work sooner.
#pragma once

#include <mutex>
#include <vector>

namespace cryptmpi::channel {

class Process;
struct Entry;
struct Shared;

class Courier {
public:
    void carry(Process& process, int fd, Entry& entry);
    /// The child of a fork has no thread.
    void after_fork_in_child();

private:
    struct Parcel {
        int fd;
        Entry* entry;
        Shared* shared;
    };
    struct Work;
    static void* run(void* process);
    bool round(Process& process);

    std::mutex lock_;
    std::vector<Parcel> parcels_;
    bool running_ = false;
};

}  // namespace cryptmpi::channel
