// What `cryptmpi tune` wrote (docs/tuning.md): plans, what reductions cost, and of what these were measured. JSON text
// in, plans out.
//
// A profile is about speed only. What is in it can break neither the protocol nor the bounds of memory: numbers out of
// bounds make it no profile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/collectives.hpp"
#include "engine/plan.hpp"

namespace cryptmpi::engine {

/// What makes plans good: on another machine, or with another cipher or MPI, others may be better.
struct Fingerprint {
    std::string processor;  // its model
    int processors = 0;
    std::string cipher;
    std::string module;  // with its version
    std::string mpi;     // with its version
    std::string abi;
};

/// "processor: A there, B here; ..."; empty where both are alike.
std::string difference(const Fingerprint& there, const Fingerprint& here);

struct Profile {
    // Of a plan in it. The largest whole message has its bounds in the protocol, and a first segment may not be longer
    // than a message that has segments, nor than those between the first and the last: else there could be more than a
    // message may have. Every message may have a segment with MPI, whatever the others have.
    static constexpr std::size_t kLeastEdge = std::size_t{1} << 10;
    static constexpr std::size_t kLeastSegment = std::size_t{16} << 10;
    static constexpr std::size_t kMostSegment = std::size_t{1} << 20;
    static constexpr std::size_t kMostInFlight = 16;
    static constexpr std::size_t kMostRows = 16;

    Fingerprint fingerprint;
    std::string made;  // when
    Plans plans;
    CollectivePlan collectives;
};

/// What is in a profile's file; nullopt: there is none, and it may be missing. Errors: what is wrong, to follow the
/// file's name.
Result<std::optional<std::string>> profile_text(const std::filesystem::path& file, bool must_be_there);

/// Errors (EINVAL): what is wrong with the text, to follow the file's name.
Result<Profile> read_profile(std::string_view text);

}  // namespace cryptmpi::engine
