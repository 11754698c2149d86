// An arbitrary hello to each role; the first byte chooses the role and whether addresses are checked.
#include <cstdlib>
#include <vector>

#include "keys/handshake.hpp"
#include "toy_crypto.hpp"

using namespace cryptmpi;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1 + keys::kHelloSize) {
        return 0;
    }
    const auto role = (data[0] & 1) != 0 ? keys::Role::initiator : keys::Role::responder;
    const keys::JobKey job_key;
    const keys::Local local{fuzz::toy_crypto(), fuzz::toy_crypto().aead, &job_key, (data[0] & 2) != 0};
    const keys::Identity self{};
    keys::HandshakeState state{};
    std::array<std::uint8_t, keys::kHelloSize> ours{};
    if (!keys::start(local, role, self, state) ||
        (role == keys::Role::initiator && !keys::write_hello(local, state, ours))) {
        std::abort();
    }
    const std::vector<std::uint8_t> hello(data + 1, data + 1 + keys::kHelloSize);
    const auto done = keys::read_hello(local, state, std::span<const std::uint8_t, keys::kHelloSize>(hello));
    if (!done) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&state);
        for (std::size_t i = 0; i < sizeof state; ++i) {
            if (bytes[i] != 0) {
                std::abort();
            }
        }
        return 0;
    }
    seal::DirectionState send{};
    seal::DirectionState receive{};
    if ((role == keys::Role::responder && !keys::write_hello(local, state, ours)) ||
        !keys::finish(local, state, send, receive)) {
        std::abort();
    }
    return 0;
}
