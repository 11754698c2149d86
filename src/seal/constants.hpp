// Every constant of the record protocol. docs/protocol.md explains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "aead/suite.hpp"

namespace cryptmpi::seal {

inline constexpr std::size_t kHeaderSize = 4;  // type (high 8 bits) and plaintext length (low 24 bits), little endian
inline constexpr std::size_t kTagSize = CRYPTMPI_TAG_SIZE;
inline constexpr std::size_t kNonceRoom = CRYPTMPI_MAX_NONCE_SIZE;  // each suite's own is aead::nonce_size()
inline constexpr std::size_t kRecordOverhead = kHeaderSize + kTagSize;
inline constexpr std::size_t kMaxPlaintext = 128 * 1024;  // of one record, bytes
inline constexpr std::size_t kMaxRecord = kMaxPlaintext + kRecordOverhead;
inline constexpr std::size_t kSecretSize = 32;
inline constexpr std::size_t kLengthSize = 4;  // at the end of a padded record's plaintext

// Begins the `info` of every key derivation: another protocol version derives other keys.
inline constexpr std::string_view kLabelPrefix = "cryptmpi 1 ";

/// A key's share of work, after which comes the next one.
struct Limits {
    std::uint64_t records;  // of a stream; messages, announcements and segments of a flow
    std::uint64_t bytes;    // of plaintext
};

inline constexpr Limits kUnlimited = {~std::uint64_t{0}, ~std::uint64_t{0}};

// SP 800-38D allows 2^32 calls under one key with counter nonces, and the bound on telling AES-GCM from random (RFC
// 8446 5.5: 2^34.5 blocks for an advantage of 2^-57) is far above both of these.
inline constexpr Limits kGcmLimits = {std::uint64_t{1} << 24, std::uint64_t{1} << 36};

// draft-irtf-cfrg-aegis-aead sets no bound for nonces that count, 2^48 messages even for random ones of 128 bits
// (10.1.1), and 2^61 bytes for one message. These keep far from both, and yet let a flow of messages with its 2^15 keys
// last.
inline constexpr Limits kAegisLimits = {std::uint64_t{1} << 32, std::uint64_t{1} << 48};

// Of the legacy suite no 3DES key sees more than 2^9 blocks, because each 4096 bytes of a message have their own
// (docs/protocol.md): blocks of 64 bits set no limit here (SP 800-67 rev. 2: 2^20 under one key). What is used up is
// the PRF that makes these keys, far less than AES-GCM's key would be.
inline constexpr Limits kLegacyLimits = {std::uint64_t{1} << 24, std::uint64_t{1} << 36};

constexpr Limits limits_of(aead::Suite suite) {
    switch (suite) {
        case aead::Suite::aes_128_gcm:
        case aead::Suite::aes_256_gcm:
            return kGcmLimits;
        case aead::Suite::aegis_128l:
        case aead::Suite::aegis_128x2:
        case aead::Suite::aegis_128x4:
        case aead::Suite::aegis_256:
        case aead::Suite::aegis_256x2:
        case aead::Suite::aegis_256x4:
            return kAegisLimits;
        case aead::Suite::legacy_3des:
            return kLegacyLimits;
    }
    return {};
}

enum class RecordType : std::uint8_t {
    data = 1,
    confirm = 2,  // the initiator's first record: proves that it holds the handshake's keys
    rekey = 3,    // the last record under this epoch's key
    close = 4,    // the end of this direction: anything that ends without it was cut off
    reset = 5,    // the same, by a sender that throws away what was on its way to it
    padded = 6,   // data, zeros, and how many bytes of data there are
};

}  // namespace cryptmpi::seal
