// What libfabric says a provider can do, less what a sealed endpoint cannot.
#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cryptmpi::fabric::libfabric {

// A sealed endpoint sends and receives messages, tagged or not, and by them reads and writes a peer's memory. What
// computes in the network or takes memory of a device is not shown: MPI then does the same by messages.
inline constexpr std::uint64_t kShownCapabilities = FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_SOURCE |
                                                    FI_DIRECTED_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_FENCE;

inline constexpr std::uint64_t kMemoryCapabilities = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Does the program want to read and write memory, and in a way that we can? What must be ordered, wait for a fence, or
/// go on without the peer, we cannot: then there is no answer. No hints: it wants to see all there is.
enum class MemoryWish : std::uint8_t { none, can_be_kept, cannot_be_kept };
MemoryWish memory_wish(const fi_info* hints);
/// Has an endpoint of this tagged messages, and large enough? As the program sees it.
bool can_serve_memory(const fi_info& shown);
/// Wishes, in a copy of the program's: nothing that the provider is not to do, and our overhead on top of its sizes.
void adapt_hints(fi_info& hints);

/// Why an answer is of no use to a sealed endpoint; nullptr: it is.
const char* unusable(const fi_info& answer);
/// What the program sees of it.
void adapt_answer(fi_info& answer, bool with_memory);

/// Where immediate data has 8 bytes, and a probe tells it (provider tcp), a program that asked for no more than 4 is
/// shown these: the others say how long a message is that only begins here. False: all that there is stays shown.
bool keep_data_for_lengths(fi_info& answer, const fi_info* hints);
inline constexpr unsigned kShownDataSize = 4;

/// An answer as the provider gave it, as long as this lives.
class AsGiven {
public:
    explicit AsGiven(fi_info& shown);
    ~AsGiven();
    AsGiven(const AsGiven&) = delete;
    AsGiven& operator=(const AsGiven&) = delete;

private:
    fi_info& info_;
    std::size_t message_ = 0;
    std::size_t inject_ = 0;
    std::array<std::uint64_t, 3> capabilities_ = {};
};

}  // namespace cryptmpi::fabric::libfabric
