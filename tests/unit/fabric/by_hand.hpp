// A peer that derives its keys step by step, as docs/protocol.md has them, by nothing of src/fabric.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "fabric/flows.hpp"
#include "seal/support.hpp"

namespace cryptmpi::test {

inline keys::JobKey& some_key() {
    static auto& key = *new keys::JobKey;
    key.bytes[0] = 7;
    return key;
}

inline Bytes hmac(const Bytes& key, const Bytes& text) {
    Bytes tag(32);
    const iovec in{const_cast<std::uint8_t*>(text.data()), text.size()};
    EXPECT_EQ(crypto().kex->hmac_sha256(tag.data(), key.data(), key.size(), &in, 1), CRYPTMPI_OK);
    return tag;
}
inline Bytes joined(std::initializer_list<Bytes> parts) {
    Bytes all;
    for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}
inline Bytes text(const std::string& words) {
    return {words.begin(), words.end()};
}
inline Bytes expanded(const Bytes& secret, const Bytes& label, std::size_t size) {
    Bytes block = hmac(secret, joined({text("cryptmpi 1 "), label, {1}}));
    block.resize(size);
    return block;
}

/// Of the job `job`, under AES-256-GCM.
class PlayedPeer {
public:
    PlayedPeer(const fabric::Party& other, const keys::JobKey& job_key)
        : share(32), other_(other.share().begin(), other.share().end()) {
        const Bytes private_key = random_bytes(32);
        Bytes shared(32), job(32);
        const Bytes id = text("job");
        const iovec in{const_cast<std::uint8_t*>(id.data()), id.size()};
        EXPECT_EQ(crypto().kex->x25519_public(share.data(), private_key.data()), CRYPTMPI_OK);
        EXPECT_EQ(crypto().kex->x25519_shared(shared.data(), private_key.data(), other_.data()), CRYPTMPI_OK);
        EXPECT_EQ(crypto().kex->sha256(job.data(), &in, 1), CRYPTMPI_OK);
        const Bytes key(job_key.data(), job_key.data() + 32);
        const Bytes fabric_secret = expanded(key, joined({text("fabric"), {2}, job}), 32);
        pair_secret_ = hmac(fabric_secret, joined({text("pair"), shared}));
    }

    /// Of its fourth epoch (3) of the flow of this kind to the other.
    Bytes epoch_secret(const std::string& kind) const {
        const Bytes flow = expanded(pair_secret_, joined({text(kind), {0}, share, other_}), 32);
        return expanded(flow, joined({text("fabric epoch"), {3, 0}}), 32);
    }

    Bytes share;

private:
    Bytes other_;
    Bytes pair_secret_;
};

}  // namespace cryptmpi::test
