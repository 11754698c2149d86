// The other ranks of a job, all of whose messages are the fuzzer's input.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <span>

#include "keys/agreement.hpp"

namespace cryptmpi::fuzz {

/// Every message that is awaited is the next bytes of the input, whoever it should be from.
class InputPeers : public keys::Peers {
public:
    InputPeers(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

    Result<void> send(int rank, std::span<const std::uint8_t> message) override {
        sent_[rank] += message.size();
        return {};
    }
    Result<std::size_t> receive_up_to(int, std::span<std::uint8_t> room) override {
        // A hello has the size that it says.
        const bool hello = room.size() == keys::kLargestHelloSize && rest_.size() >= keys::kPrefixSize;
        const std::size_t size = hello ? keys::hello_size(rest_.data()) : room.size();
        if (rest_.size() < size) {
            return fail(ETIMEDOUT, "no more");
        }
        std::copy_n(rest_.begin(), size, room.begin());
        rest_ = rest_.subspan(size);
        return size;
    }

    /// How many bytes that rank was sent.
    std::size_t sent_to(int rank) const {
        const auto found = sent_.find(rank);
        return found == sent_.end() ? 0 : found->second;
    }

private:
    std::span<const std::uint8_t> rest_;
    std::map<int, std::size_t> sent_;
};

}  // namespace cryptmpi::fuzz
