// A process of the fabric layer for fuzzers: its job has toy_crypto, and what ends it is thrown.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "fabric/flows.hpp"
#include "fabric/surroundings.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"

namespace cryptmpi::fuzz {

struct Ended : std::runtime_error {
    using runtime_error::runtime_error;
};

inline const fabric::Job& toy_job() {
    static const keys::JobKey key;
    static const fabric::Job one = std::move(*fabric::Job::join(toy_crypto(), key, "job"));
    return one;
}

class ToyProcess final : public fabric::Surroundings {
public:
    Result<const fabric::Job*> job() override { return &toy_job(); }
    [[noreturn]] void end(const std::string& line) override {
        require_one_line(line);
        throw Ended(line);
    }
    [[noreturn]] void give_up(const std::string& line) override { end(line); }
    void refuse(const std::string& operation, const std::string& why) override { require_one_line(operation + why); }
    void say_cut_off(const std::string& message) override { require_one_line(message); }
    void begin(fabric::Party&) override {}
    void end(const fabric::Party&) override {}
    void miss(const std::string& line) override { require_one_line(line); }
};

}  // namespace cryptmpi::fuzz
