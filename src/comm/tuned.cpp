#include "comm/tuned.hpp"

#include <fmt/core.h>
#include <mpi.h>

#include <array>
#include <bit>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "base/endian.hpp"  // numbers of the protocol are little endian
#include "base/hex.hpp"
#include "base/pieces.hpp"
#include "base/processor.hpp"
#include "engine/profile.hpp"

namespace cryptmpi::comm {
namespace {

constexpr const char* kMend = "; the default plans are used. Mend: cryptmpi tune, or setting profile = \"none\"";

/// What MPI says of itself: its name and version, which are the beginning of the first line.
std::string name_of(const Native& mpi) {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> said{};
    int length = 0;
    if (mpi.Get_library_version(said.data(), &length) != MPI_SUCCESS) return "unknown";
    std::string name;
    for (const char letter : std::string(said.data())) {
        if (letter == ',' || letter == '\n') break;
        const bool space = letter == ' ' || letter == '\t';
        if (!space) name += letter;
        if (space && !name.empty() && name.back() != ' ') name += ' ';
    }
    return name.empty() ? "unknown" : name;
}

/// Enough of the SHA-256 to tell profiles apart.
std::string digest_of(const cryptmpi_kex& kex, const std::string& text) {
    constexpr std::size_t kShown = 8;
    std::array<std::uint8_t, 32> hash{};
    const iovec in = piece(text.data(), text.size());
    if (kex.sha256(hash.data(), &in, 1) != CRYPTMPI_OK) return "";
    return hex(std::span(hash).first<kShown>());
}

/// Open MPI sends up to 64 KB at once, without asking the receiver first.
Tuned default_for(std::string_view abi) {
    if (abi != "openmpi") return {};
    const auto plan = engine::Plan::of_short_segments();
    return {engine::Plans(plan), {{}, static_cast<std::uint32_t>(plan.segment_of_few)}};
}

/// Why it is not used; empty: what it says is in `tuned`.
std::string take(const std::string& text, const engine::Fingerprint& here, Tuned& tuned) {
    auto profile = engine::read_profile(text);
    if (!profile) return profile.error().line;
    if (const auto other = engine::difference(profile->fingerprint, here); !other.empty()) {
        return "it was made for others (" + other + ")";
    }
    tuned = {std::move(profile->plans), profile->collectives};
    return "";
}

}  // namespace

std::string load_profile(const config::Settings& settings, const Native& mpi, const cryptmpi_kex& kex,
                         report::Part& part, Tuned& tuned) {
    part.processor = processor_model();
    part.processors = processor_count();
    part.mpi = name_of(mpi);
    part.abi = CRYPTMPI_MPI_ABI;
    tuned = default_for(part.abi);
    if (settings.profile.empty()) return "";
    auto text = engine::profile_text(settings.profile, settings.profile_named);
    if (text && !*text) return "";
    part.profile.file = settings.profile.string();
    if (text) {
        part.profile.digest = digest_of(kex, **text);
        const engine::Fingerprint here{part.processor, part.processors, part.suite, part.module, part.mpi, part.abi};
        part.profile.unused = take(**text, here, tuned);
    } else {
        part.profile.unused = text.error().line;
    }
    if (part.profile.unused.empty()) return "";
    return "profile " + part.profile.file + ": " + part.profile.unused + kMend;
}

keys::Terms terms_of(const engine::CollectivePlan& plan) {
    const std::array<std::uint32_t, 4> numbers{plan.costs.message_ns, plan.costs.kib_ns, plan.costs.combine_kib_ns,
                                               plan.piece};
    static_assert(sizeof numbers == sizeof(keys::Terms));
    return std::bit_cast<keys::Terms>(numbers);
}

// protocol: A20
Result<engine::CollectivePlan> plan_of(const keys::Terms& terms) {
    const auto [message_ns, kib_ns, combine_kib_ns, piece] = std::bit_cast<std::array<std::uint32_t, 4>>(terms);
    const engine::CollectivePlan plan{{message_ns, kib_ns, combine_kib_ns}, piece};
    if (engine::is_sound(plan)) return plan;
    return fail(EPROTO, fmt::format("rank 0 says of collective operations what no profile can say (pieces of {} "
                                    "bytes): does it run the same version of cryptmpi?",
                                    piece));
}

}  // namespace cryptmpi::comm
