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
    /// A party begins and ends: its counts are the report's.
    virtual void begin(Party& party) = 0;
    virtual void end(const Party& party) = 0;
};

}  // namespace cryptmpi::fabric
