// What comes beside large messages in synchronous mode: their announcements once more, on our communicator. So do whole
// messages that are as long as an announcement, since a probe that finds one cannot tell which of the two it is.
//
// To receive the announcement from the program's communicator is to end the program's send, so a probe must leave it in
// MPI's queue. It tells from this second one how long the message is.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "comm/large.hpp"
#include "comm/voice.hpp"
#include "seal/message.hpp"

namespace cryptmpi::comm {

using Hint = std::array<std::uint8_t, seal::kAnnouncedWire>;

class Hints {
public:
    Hints(Voice& voice, const SegmentTransport& transport) : voice_(voice), transport_(transport) {}
    Hints(const Hints&) = delete;
    Hints& operator=(const Hints&) = delete;

    /// Those of a rank that have come, and whose messages no receive has taken; in the order of sending.
    const std::list<Hint>& of(int world_rank);
    /// A receive has taken the message.
    void drop(int world_rank, const std::uint8_t* announcement);
    /// The same of a whole message, which does not say whether it was in synchronous mode: one that comes later stays
    /// until so many younger ones have come.
    void drop_if_come(int world_rank, const std::uint8_t* wire);

private:
    /// Anybody who can write MPI's packets can send what looks like one, so both have an end: the oldest go.
    struct Sender {
        std::list<Hint> come;
        std::list<Hint> awaited;  // of messages that were taken before
    };
    void collect(int world_rank, Sender& sender);
    static bool take(std::list<Hint>& list, const Hint& hint);

    Voice& voice_;
    const SegmentTransport& transport_;
    std::unordered_map<int, Sender> senders_;
};

}  // namespace cryptmpi::comm
