// Tells a peer that is silent from one that has nothing to say.
//
// Whoever owns the network can keep what a peer sends, and let the connection stand: the program would wait for ever,
// and no record that does not open says why. With silence_timeout_s set, one thread sends an empty record on each open
// connection several times in that time, and ends a connection on which none has opened for so long. It never reads
// what the program waits for; what the program has not read yet counts as heard.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

namespace cryptmpi::channel {

class Process;
struct Entry;
struct Shared;

class Pulse {
public:
    explicit Pulse(Process& process) : process_(process) {}
    /// A connection is open: from now on, if the settings say so.
    void start();
    /// While it is held the thread touches no connection, and holds no lock.
    std::unique_lock<std::mutex> pause() { return std::unique_lock(work_lock_); }
    /// The child of a fork has no thread; its first connection starts one.
    void after_fork_in_child();

private:
    struct Last {
        Shared* shared;
        std::uint32_t records;
        std::int64_t when_ns;
    };
    static void* run(void* pulse);
    void beat(Process& process, std::map<Entry*, Last>& heard);

    Process& process_;
    std::mutex work_lock_;
    std::mutex lock_;  // of what follows
    bool running_ = false;
};

}  // namespace cryptmpi::channel
