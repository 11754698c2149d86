// What goes on with connections while the program does not call us, as those see it who work on connections.
#pragma once

#include <array>
#include <mutex>

#include "channel/table.hpp"

namespace cryptmpi::channel {

/// The courier and the pulse, which call those who work on connections.
class Background {
public:
    virtual ~Background() = default;

    /// Brings the connection to where nothing is left to carry, if the program does not.
    virtual void carry(Entry& entry) = 0;
    /// A connection is open: its peer is to be heard from now on.
    virtual void opened() = 0;

    /// While they are held the threads touch no connection, and hold no lock.
    using Pause = std::array<std::unique_lock<std::mutex>, 2>;
    virtual Pause pause() = 0;
    /// The child of a fork has no thread.
    virtual void after_fork_in_child() = 0;
};

}  // namespace cryptmpi::channel
