// What a door needs from the process around it.
#pragma once

#include <string>

#include "base/result.hpp"
#include "fabric/flows.hpp"

namespace cryptmpi::fabric {

class Surroundings {
public:
    virtual ~Surroundings() = default;
    /// Errors: no job key, no crypto module.
    virtual Result<const Job*> job() = 0;
    /// Ends the job with this line: what came was altered, or nothing can be sealed.
    [[noreturn]] virtual void end(const std::string& line) = 0;
    /// Ends the job with this line where MPI cannot go on without something that is refused: no message was altered.
    [[noreturn]] virtual void give_up(const std::string& line) = 0;
    /// An operation was refused: says so once for each, and keeps it for the report.
    virtual void refuse(const std::string& operation, const std::string& why) = 0;
    /// Says that `message` was longer than its receive, and that nothing of it could be opened. Programs may send more
    /// than is received, so that the job goes on.
    virtual void say_cut_off(const std::string& message) = 0;
    /// A party begins and ends: its counts are the report's.
    virtual void begin(Party& party) = 0;
    virtual void end(const Party& party) = 0;
    /// At the end of a party: what it still waited for has not come. Counts as a message that did not open.
    virtual void miss(const std::string& line) = 0;
};

}  // namespace cryptmpi::fabric
