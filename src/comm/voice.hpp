// How a rank tells of what goes wrong, and ends the job: the layer, as those see it whom it is made of.
#pragma once

#include <string>

#include "comm/native.hpp"

namespace cryptmpi::comm {

class Voice {
public:
    Voice(const Voice&) = delete;
    Voice& operator=(const Voice&) = delete;

    const Native& mpi;

    /// Prints one line.
    virtual void say(const std::string& line) const = 0;
    /// The descriptor that lines are written to.
    virtual int messages() const = 0;
    /// A code of ours, of which a line is printed when it is made.
    virtual bool has_complained_of(int code) const = 0;
    /// Ends the whole job: nothing goes on without keys.
    [[noreturn]] virtual void end_job(const std::string& line) = 0;

protected:
    explicit Voice(const Native& native) : mpi(native) {}
    ~Voice() = default;
};

}  // namespace cryptmpi::comm
