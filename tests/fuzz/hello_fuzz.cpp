// An arbitrary hello to each role; the first byte chooses the role, whether addresses are checked, and whether keys are
// exchanged by ML-KEM, too.
#include <algorithm>
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
    keys::Local local{fuzz::toy_crypto(), fuzz::toy_crypto().aead, &job_key, (data[0] & 2) != 0};
    local.kem = (data[0] & 4) != 0 ? fuzz::toy_kem() : nullptr;
    const keys::Identity self{};
    keys::HandshakeState state{};
    std::vector<std::uint8_t> ours(local.hello_size(role));
    if (!keys::start(local, role, self, state) ||
        (role == keys::Role::initiator && !keys::write_hello(local, state, ours))) {
        std::abort();
    }
    // As many bytes are read as the peer's hello should have, or fewer, where it says that it is shorter.
    const std::vector<std::uint8_t> hello(data + 1, data + 1 + std::min(size - 1, local.hello_size(keys::other(role))));
    const auto done = keys::read_hello(local, state, hello);
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
