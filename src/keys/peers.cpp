#include "keys/peers.hpp"

#include <fmt/core.h>

#include <bit>
#include <cerrno>
#include <string>

namespace cryptmpi::keys {

// protocol: A7
tl::unexpected<Error> wrong_size(int rank, std::size_t sent, std::size_t due) {
    return fail(EPROTO,
                fmt::format("key agreement: rank {} sent {} bytes where {} were expected: is it started under the "
                            "same version of cryptmpi, with the same key_distribution, key_exchange and "
                            "require_members?",
                            rank, sent, due));
}

Result<void> Peers::receive(int rank, std::span<std::uint8_t> message) {
    const auto size = receive_up_to(rank, message);
    if (!size) return tl::unexpected(size.error());
    if (*size != message.size()) return wrong_size(rank, *size, message.size());
    return {};
}

std::chrono::milliseconds patience_for(int rank, int peer, std::chrono::milliseconds first) {
    const int depth = std::popcount(static_cast<unsigned>(rank));
    return peer > rank ? first : first * (1 + depth);
}

}  // namespace cryptmpi::keys
