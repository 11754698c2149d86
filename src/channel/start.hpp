// How this process starts: what it has inherited, and who works on its connections.
#pragma once

#include "channel/process.hpp"

namespace cryptmpi::channel {

/// Made by the first call that needs it, and never destroyed: other libraries' destructors still call us.
Process& this_process();
/// Is it this thread that makes it just now? That reads files, by calls of ours.
bool is_making_process();

/// Of this environment, with all that works in the background; it has looked at nothing else. For tests, which have
/// several.
Process* make_process(const config::Environment& environment);

}  // namespace cryptmpi::channel
