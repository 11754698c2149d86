// From a secret to a cipher's key and nonces, and from an epoch's secret to the next one's. The only place that derives
// keys.
#pragma once

#include <cryptmpi/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "aead/suite.hpp"
#include "base/endian.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"
#include "base/traffic.hpp"
#include "seal/constants.hpp"
#include "seal/key_age.hpp"

namespace cryptmpi::seal {

/// What sealing stands on: given to whoever seals, never read from a global.
struct Crypto {
    const cryptmpi_aead* aead = nullptr;
    const cryptmpi_kex* kex = nullptr;
    aead::Suite suite = aead::Suite::aes_256_gcm;
    std::size_t threads = 1;      // that work with one key at the same time: on segments, on records of a stream
    Limits lowered = kUnlimited;  // a key's share of work, where it is less than the suite's
    KeyAge age = {};              // of a sender's key
    TrafficCounter watched = {};  // streams count all here; messages only their new keys, since their layers count
};

/// What one key may seal.
constexpr Limits limits_of(const Crypto& crypto) {
    const Limits most = limits_of(crypto.suite);
    return {std::min(most.records, crypto.lowered.records), std::min(most.bytes, crypto.lowered.bytes)};
}

/// HKDF-Expand (RFC 5869) with SHA-256; `info` is the protocol's name and version followed by `label`. size <= 64.
Result<void> expand(const cryptmpi_kex& kex, const std::uint8_t secret[kSecretSize], std::string_view label,
                    std::uint8_t* out, std::size_t size);

/// One epoch's cipher contexts and nonce base, made from that epoch's secret. Owned by one process.
class RecordKey {
public:
    RecordKey() = default;
    RecordKey(const RecordKey&) = delete;
    RecordKey& operator=(const RecordKey&) = delete;
    RecordKey(RecordKey&& other) noexcept;
    RecordKey& operator=(RecordKey&& other) noexcept;
    ~RecordKey();

    static Result<RecordKey> derive(const Crypto& crypto, const std::uint8_t secret[kSecretSize]);

    explicit operator bool() const { return context_ != nullptr; }
    void* context() const { return context_; }
    /// Makes those of the other threads, which few flows need. Errors: EIO, the crypto module has none.
    Result<void> share_among_threads();
    /// A context is for one thread at a time: that of `thread`, below the number of threads; 0 has context().
    void* context_of(std::size_t thread) const { return thread == 0 ? context_ : others_[thread - 1]; }
    /// That work with it at the same time.
    std::size_t threads() const { return threads_; }
    /// nonce = base xor (zeros, counter big endian), as in RFC 8446, section 5.3; as long as the suite's nonces, and
    /// zeros behind it.
    void nonce(std::uint64_t counter, std::uint8_t out[kNonceRoom]) const { nonce(0, counter, out); }
    /// The same with `lane`, 4 bytes big endian, before the counter.
    // HOT PATH
    void nonce(std::uint32_t lane, std::uint64_t counter, std::uint8_t out[kNonceRoom]) const {
        std::memcpy(out, base_, kNonceRoom);
        std::uint8_t* const end = out + nonce_size_;
        xor_big(end - sizeof counter, counter);
        xor_big(end - sizeof counter - sizeof lane, lane);
    }

private:
    friend class BriefContexts;
    using CipherKey = Secret<32>;

    const cryptmpi_aead* aead_ = nullptr;
    void* context_ = nullptr;
    std::vector<void*> others_;
    std::unique_ptr<CipherKey> key_;  // until the other threads have contexts that stay; null where there are none
    std::size_t threads_ = 1;
    aead::Suite suite_ = aead::Suite::aes_256_gcm;
    std::size_t nonce_size_ = kNonceRoom;
    std::uint8_t base_[kNonceRoom] = {};
};

/// The threads' contexts for one piece of work, where keeping them with each key would be too many: each thread makes
/// its own when it has something to do, and none outlives the work. `key` does.
class BriefContexts {
public:
    explicit BriefContexts(const RecordKey& key) : key_(key), others_(key.threads() - 1) {}
    BriefContexts(const BriefContexts&) = delete;
    BriefContexts& operator=(const BriefContexts&) = delete;
    ~BriefContexts();

    /// By that thread, below the key's number of threads. Null: the crypto module has none.
    void* of(std::size_t thread);

private:
    const RecordKey& key_;
    std::vector<void*> others_;
};

/// Replaces `secret` by the next epoch's; the old one cannot be computed from the new one.
Result<void> ratchet(const cryptmpi_kex& kex, std::uint8_t secret[kSecretSize]);

}  // namespace cryptmpi::seal
