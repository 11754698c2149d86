// A process of the fabric layer in a test: what ends the job is thrown, and what it says is kept.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fabric/flows.hpp"
#include "fabric/surroundings.hpp"
#include "seal/support.hpp"

namespace cryptmpi::test {

/// The job ends because of an attack, or of a mistake of the program's or the network library's.
struct Attacked : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct GaveUp : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class FakeProcess : public fabric::Surroundings {
public:
    Result<const fabric::Job*> job() override {
        static const keys::JobKey key;
        static const fabric::Job one = std::move(*fabric::Job::join(crypto(), key, "job"));
        return &one;
    }
    [[noreturn]] void end(const std::string& line) override { throw Attacked(line); }
    [[noreturn]] void give_up(const std::string& line) override { throw GaveUp(line); }
    void refuse(const std::string& operation, const std::string&) override { refused.push_back(operation); }
    void say_cut_off(const std::string& message) override { cut_off.push_back(message); }
    void begin(fabric::Party&) override {}
    void end(const fabric::Party& party) override { sent += party.counters().sent[0].messages; }
    void miss(const std::string& line) override { missed.push_back(line); }

    std::vector<std::string> refused, cut_off, missed;
    std::uint64_t sent = 0;  // tagged messages of parties that have ended
};

}  // namespace cryptmpi::test
