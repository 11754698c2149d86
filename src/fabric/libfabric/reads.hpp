// Reads of a peer's memory, carried by messages of ours: Intel MPI reads long active messages so although no provider
// shows that it can. The peer answers as it makes progress; the network itself can reach no memory of the program.
//
// Each is an untagged message of the flow `fabric active` with kOurData beside it: kind, id, three numbers (8 bytes
// each, little endian), then bytes.
//   ask:   key, address, size
//   part:  offset, 0, 0, bytes: as many parts as it takes
//   none:  0, 0, 0: nobody may read that there
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

namespace cryptmpi::fabric {
class Peer;
}

namespace cryptmpi::fabric::libfabric {

struct Endpoint;

/// Beside each message of ours, and of none of the program's: bound to both, so that neither passes for the other.
inline constexpr std::uint64_t kOurData = 0x6c69'6272'6561'6473;

/// What a program wants to read.
struct Wish {
    std::uint64_t from;  // the peer's address
    std::span<const iovec> into;
    std::uint64_t key;
    std::uint64_t address;
    void* context;
    bool wanted;  // the program gets its completion
};

class Reads {
public:
    explicit Reads(Endpoint& endpoint) : endpoint_(endpoint) {}

    // All under the domain's lock.
    std::int64_t ask(const Wish& wish);
    /// A message of ours from `peer` that has opened.
    void came(Peer* peer, std::span<const std::uint8_t> message);
    /// The provider has sent a message of ours.
    void sent() { --in_flight_; }
    /// Answers with as much as the provider takes now.
    void go_on();

private:
    struct Asked {
        const Peer* of;
        std::vector<iovec> into;
        std::size_t size;
        std::size_t got;
        void* context;
        bool wanted;
    };
    struct Answer {
        std::uint64_t to;
        std::uint64_t id;
        std::uint64_t key;
        std::uint64_t address;
        std::size_t size;
        std::size_t done;
    };
    enum class What : std::uint64_t { ask = 1, part, none };

    std::int64_t tell(std::uint64_t to, What what, std::uint64_t id, std::span<const std::uint64_t> numbers,
                      iovec bytes);
    std::int64_t answer(Answer& one);
    void take_part(Peer* peer, std::uint64_t id, std::uint64_t offset, std::span<const std::uint8_t> bytes);
    void complete(const Asked& asked);
    std::size_t most_in_part() const;

    Endpoint& endpoint_;
    std::uint64_t last_id_ = 0;
    std::uint64_t in_flight_ = 0;
    std::unordered_map<std::uint64_t, Asked> asked_;
    std::deque<Answer> answers_;
};

}  // namespace cryptmpi::fabric::libfabric
