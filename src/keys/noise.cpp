#include "keys/noise.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include "base/pieces.hpp"
#include "base/secret.hpp"

namespace cryptmpi::keys::noise {
namespace {

/// One cipher context under the current key, for one text.
class TextCipher {
public:
    TextCipher(const cryptmpi_aead& aead, const SymmetricState& state)
        : aead_(aead), context_(aead.create(CRYPTMPI_AES_256_GCM, state.key)) {
        for (std::size_t i = 0; i < 8; ++i) {
            nonce_[11 - i] = static_cast<std::uint8_t>(state.nonce >> (8 * i));
        }
    }
    ~TextCipher() {
        if (context_ != nullptr) {
            aead_.destroy(context_);
        }
    }
    TextCipher(const TextCipher&) = delete;
    TextCipher& operator=(const TextCipher&) = delete;

    int seal(const std::uint8_t hash[kHash], std::span<const std::uint8_t> plain, std::uint8_t* out) const {
        const iovec in = piece(plain.data(), plain.size());
        return context_ == nullptr ? CRYPTMPI_FAILED
                                   : aead_.seal(context_, nonce_, hash, kHash, &in, 1, out, out + plain.size());
    }
    int open(const std::uint8_t hash[kHash], const std::uint8_t* in, std::span<std::uint8_t> plain) const {
        const iovec out = {plain.data(), plain.size()};
        return context_ == nullptr
                   ? CRYPTMPI_FAILED
                   : aead_.open(context_, nonce_, hash, kHash, in, plain.size(), &out, 1, in + plain.size());
    }

private:
    const cryptmpi_aead& aead_;
    void* context_;
    std::uint8_t nonce_[12] = {};
};

}  // namespace

Result<void> primitive(int status, const char* name) {
    if (status != CRYPTMPI_OK) {
        return fail(EIO, std::string("handshake: the crypto module's ") + name + " failed");
    }
    return {};
}

Result<void> mix_hash(const cryptmpi_kex& kex, SymmetricState& state, const void* data, std::size_t size) {
    const iovec in[] = {piece(state.hash, kHash), piece(data, size)};
    std::uint8_t hash[kHash];
    if (auto done = primitive(kex.sha256(hash, in, 2), "SHA-256"); !done) {
        return done;
    }
    std::memcpy(state.hash, hash, kHash);
    return {};
}

Result<void> hkdf(const cryptmpi_kex& kex, const std::uint8_t chaining_key[32], const void* input, std::size_t size,
                  std::uint8_t* out, int outputs) {
    Secret<kHash> extracted;
    const iovec in = piece(input, size);
    int status = kex.hmac_sha256(extracted.data(), chaining_key, kHash, &in, 1);
    for (std::uint8_t number = 1; number <= outputs && status == CRYPTMPI_OK; ++number) {
        const std::uint8_t* const previous = number == 1 ? out : out + kHash * (number - 2U);
        const iovec block[] = {piece(previous, number == 1 ? 0 : kHash), piece(&number, 1)};
        status = kex.hmac_sha256(out + kHash * (number - 1U), extracted.data(), kHash, block, 2);
    }
    return primitive(status, "HMAC-SHA-256");
}

Result<void> mix_key(const cryptmpi_kex& kex, SymmetricState& state, const void* input, std::size_t size) {
    Secret<2 * kHash> out;
    if (auto done = hkdf(kex, state.chaining_key, input, size, out.data(), 2); !done) {
        return done;
    }
    std::memcpy(state.chaining_key, out.data(), kHash);
    std::memcpy(state.key, out.data() + kHash, kHash);
    state.nonce = 0;
    return {};
}

Result<void> mix_key_and_hash(const cryptmpi_kex& kex, SymmetricState& state, const void* input, std::size_t size) {
    Secret<3 * kHash> out;
    if (auto done = hkdf(kex, state.chaining_key, input, size, out.data(), 3); !done) {
        return done;
    }
    std::memcpy(state.chaining_key, out.data(), kHash);
    std::memcpy(state.key, out.data() + 2 * kHash, kHash);
    state.nonce = 0;
    return mix_hash(kex, state, out.data() + kHash, kHash);
}

Result<void> encrypt_and_hash(const cryptmpi_kex& kex, const cryptmpi_aead& aead, SymmetricState& state,
                              std::span<const std::uint8_t> plain, std::uint8_t* out) {
    const int status = TextCipher(aead, state).seal(state.hash, plain, out);
    if (auto done = primitive(status, "AES-256-GCM"); !done) {
        return done;
    }
    ++state.nonce;
    return mix_hash(kex, state, out, plain.size() + CRYPTMPI_TAG_SIZE);
}

Result<void> decrypt_and_hash(const cryptmpi_kex& kex, const cryptmpi_aead& aead, SymmetricState& state,
                              const std::uint8_t* in, std::span<std::uint8_t> plain, std::string_view peer) {
    switch (TextCipher(aead, state).open(state.hash, in, plain)) {
        case CRYPTMPI_OK:
            break;
        // protocol: H9
        case CRYPTMPI_FORGED:
            return fail(EKEYREJECTED, std::string(peer) +
                                          "'s hello does not open: it was altered on the way, or the peer does not "
                                          "have the job key that it names");
        default:
            return primitive(CRYPTMPI_FAILED, "AES-256-GCM");
    }
    ++state.nonce;
    return mix_hash(kex, state, in, plain.size() + CRYPTMPI_TAG_SIZE);
}

Result<void> mix_share(const cryptmpi_kex& kex, SymmetricState& state, const std::uint8_t share[32]) {
    if (auto done = mix_hash(kex, state, share, 32); !done) {
        return done;
    }
    return mix_key(kex, state, share, 32);
}

}  // namespace cryptmpi::keys::noise
