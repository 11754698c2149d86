// Threads that share a caller's work: pieces of it that do not depend on one another.
//
// They are started when there is first something to share, and parked when there is nothing. The caller takes pieces as
// they do, and waits only for those that others have begun: what no thread had time for, it does itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "engine/hardware_threads.hpp"

namespace cryptmpi::engine {

class Workers {
public:
    struct Settings {
        std::size_t threads = 1;               // the caller among them
        HardwareThreads where = {};            // that they may run on; empty: where their starter may
        std::chrono::microseconds lingers{0};  // how long one looks for more work before it is parked
        // After a call that took longer than the caller alone would have, do some without them: 1, 2, 4 ... for as long
        // as it goes on like that.
        bool rest_when_late = false;
    };

    /// Nobody but the caller.
    Workers();
    explicit Workers(const Settings& settings);
    Workers(Workers&&) noexcept;
    Workers& operator=(Workers&&) noexcept;
    /// Ends the threads.
    ~Workers();

    std::size_t threads() const { return threads_; }
    /// As many, or 1 while the others rest.
    std::size_t ready() const;

    /// Calls work(piece, thread) once for each piece from 0 to `pieces` - 1, and returns when all are done. It returns
    /// how much the piece was, in any unit, and throws nothing; `thread` is less than threads(), and no two calls of it
    /// that run at the same time for this call of ours have the same. While another call of this is on its way (of
    /// another thread, or around this one), and in a forked child, the caller is alone.
    // HOT PATH
    template <class Work>
    void run(std::size_t pieces, const Work& work) {
        if (!crew_) {
            for (std::size_t piece = 0; piece < pieces; ++piece) static_cast<void>(work(piece, std::size_t{0}));
            return;
        }
        run_shared(pieces, called(work), {});
    }

    /// The same, but the caller first does what is for it alone: the others begin with the pieces meanwhile.
    template <class Work, class Own>
    void run_beside(const Own& own, std::size_t pieces, const Work& work) {
        if (!crew_) {
            own();
            for (std::size_t piece = 0; piece < pieces; ++piece) static_cast<void>(work(piece, std::size_t{0}));
            return;
        }
        run_shared(pieces, called(work), {&own, [](const void* at) { (*static_cast<const Own*>(at))(); }});
    }

private:
    class Crew;
    struct EndCrew {
        void operator()(Crew* crew) const;
    };
    struct Work {
        const void* at = nullptr;
        std::size_t (*call)(const void* at, std::size_t piece, std::size_t thread) = nullptr;
    };
    struct Own {
        const void* at = nullptr;
        void (*call)(const void* at) = nullptr;  // null: there is nothing
    };
    template <class Pieces>
    static Work called(const Pieces& work) {
        return {&work, [](const void* at, std::size_t piece, std::size_t thread) -> std::size_t {
                    return (*static_cast<const Pieces*>(at))(piece, thread);
                }};
    }
    void run_shared(std::size_t pieces, Work work, Own own);

    std::size_t threads_ = 1;
    std::unique_ptr<Crew, EndCrew> crew_;
};

}  // namespace cryptmpi::engine
