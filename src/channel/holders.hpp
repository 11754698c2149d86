// Who holds a connection, as the processes that share it count each other. It lies in shared memory (shared.hpp).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cryptmpi::channel {

/// A process as those of its PID namespace know it: the namespace, and its number there. 0: it cannot be known.
using ProcessName = std::uint64_t;

/// The process that calls, be it a child of vfork.
ProcessName name_of_this_process();

/// The child of this process with this number, where `children_are_here`.
ProcessName name_of_child(std::int32_t pid);
/// Children of this process are in its own PID namespace.
bool children_are_here();
/// A child that `parent` is about to fork, and has no number yet. A process forks one at a time.
ProcessName unborn_child_of(ProcessName parent);

/// It has ended for certain. One of another PID namespace has not, as far as we know.
bool has_ended(ProcessName process);

/// How many processes hold a connection, and which of all that were in this place it is. Who was not counted, or
/// counted too often, may go on to hold the place when it is another connection's: by its number it finds out.
///
/// Those that have signed are known by name, so that one that was killed does not count for ever: else nobody would be
/// the last one, who ends the stream, and the peer would take its end for a cut.
class Holders {
public:
    /// More than so many do not sign.
    static constexpr std::size_t kMostNames = 64;

    std::uint32_t generation() const {
        return static_cast<std::uint32_t>(value_.load(std::memory_order_acquire) >> kShift);
    }
    std::uint32_t count() const { return static_cast<std::uint32_t>(value_.load(std::memory_order_acquire)); }

    /// One more. False: it is another connection by now.
    bool join(std::uint32_t generation);
    /// One of those that are counted is this process. Once is enough.
    void sign(std::uint32_t generation, ProcessName process);
    /// Who signed as `before` is `now`. Of several that say so the first one does it.
    void rename(std::uint32_t generation, ProcessName before, ProcessName now);
    /// One less: `process`, if it had signed. Returns how many are left; nothing: it is another connection by now, or
    /// nobody was counted. Where all that have signed have ended, they are not among them.
    std::optional<std::uint32_t> leave(std::uint32_t generation, ProcessName process);
    /// Nobody holds it any more; under both locks of the connection, so that who waits for one finds another number.
    void finish();

private:
    std::optional<std::uint32_t> one_less(std::uint32_t generation);

    static constexpr int kShift = 32;
    std::atomic<std::uint64_t> value_;
    std::array<std::atomic<std::uint64_t>, kMostNames> names_;  // each with a part of the connection's number
};

}  // namespace cryptmpi::channel
