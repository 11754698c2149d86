// Reads of a peer's memory, carried by messages of ours: Intel MPI reads long active messages so although no provider
// shows that it can. The peer answers as it makes progress; the network itself can reach no memory of the program.
//
// The question is an untagged message with kOurData beside it: id, key, address, size (8 bytes each, little endian).
// The answer is a tagged one, to a receive of ours: 1, then what was asked for; or 0: nobody may read that there. It
// takes none of the program's buffers: Intel MPI keeps pointers into them, and they would come round too soon. Both
// are of the flow `fabric active`.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

namespace cryptmpi::fabric {
class Peer;
}

namespace cryptmpi::fabric::libfabric {

struct Endpoint;

/// Beside each message of ours, and of none of the program's: bound to both, so that neither passes for the other.
inline constexpr std::uint64_t kOurData = 0x6c69'6272'6561'6473;

/// The tags of answers: no MPI has a communicator whose number has all bits set. The question's id is in the rest.
inline constexpr unsigned kIdBits = 24;
inline constexpr std::uint64_t answer_tag(std::uint64_t id) {
    return ~std::uint64_t{0} << kIdBits | (id & ((std::uint64_t{1} << kIdBits) - 1));
}
inline constexpr std::size_t kAnswerHeader = 8;

inline std::size_t total(std::span<const iovec> parts) {
    std::size_t size = 0;
    for (const iovec& part : parts) size += part.iov_len;
    return size;
}

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
    /// A question of `peer`'s that has opened.
    void asked(const Peer* peer, std::span<const std::uint8_t> question);
    /// The provider has sent a message of ours.
    void sent() { --in_flight_; }
    /// Says as much as the provider takes now.
    void go_on();

private:
    struct Question {
        std::uint64_t peer;  // its address: who asks, or is asked
        std::uint64_t id;
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t size;
    };

    std::int64_t say(const Question& one);
    std::int64_t answer(const Question& one);
    template <class Say>
    void go_on(std::deque<Question>& questions, Say say);

    Endpoint& endpoint_;
    std::uint64_t last_id_ = 0;
    std::uint64_t in_flight_ = 0;
    std::deque<Question> questions_;  // of the program's
    std::deque<Question> answers_;    // due to peers
};

}  // namespace cryptmpi::fabric::libfabric
