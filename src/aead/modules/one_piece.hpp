// The pieces of the modules' interface, for crypto libraries that take a message in one piece only.
#pragma once

#include <cryptmpi/module.h>
#include <strings.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "base/declassified.hpp"

namespace cryptmpi::modules {

/// Pieces of up to so many bytes in all are put together on the stack.
inline constexpr std::size_t kSmall = 2048;

/// For libraries that want an address even of no bytes.
inline const std::uint8_t* present(const void* at) {
    static constexpr std::uint8_t kNothing = 0;
    return at != nullptr ? static_cast<const std::uint8_t*>(at) : &kNothing;
}

inline std::uint8_t* present(void* at) {
    static std::uint8_t nothing;  // never written: only stands for outputs of no bytes
    return at != nullptr ? static_cast<std::uint8_t*>(at) : &nothing;
}

/// Copies the pieces to `out`, one after the other; their bytes in all.
inline std::size_t gather(const iovec* in, std::size_t count, std::uint8_t* out) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (in[i].iov_len == 0) continue;
        std::memcpy(out + size, in[i].iov_base, in[i].iov_len);
        size += in[i].iov_len;
    }
    return size;
}

inline void scatter(const std::uint8_t* in, const iovec* out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        if (out[i].iov_len == 0) continue;
        std::memcpy(out[i].iov_base, in, out[i].iov_len);
        in += out[i].iov_len;
    }
}

inline void zero(const iovec* out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
        if (out[i].iov_len > 0) std::memset(out[i].iov_base, 0, out[i].iov_len);
}

/// cryptmpi_aead's seal by `seal_one(in, size, out) -> bool`, which gets `in` equal to `out` for a message of several
/// pieces.
template <class SealOne>
int seal_in_one(const iovec* in, std::size_t in_count, std::uint8_t* out, SealOne seal_one) {
    if (in_count == 1)
        return seal_one(present(static_cast<const void*>(in[0].iov_base)), in[0].iov_len, present(out))
                   ? CRYPTMPI_OK
                   : CRYPTMPI_FAILED;
    const std::size_t size = gather(in, in_count, out);
    if (seal_one(present(out), size, present(out))) return CRYPTMPI_OK;
    explicit_bzero(present(out), size);  // what was gathered there is plaintext
    return CRYPTMPI_FAILED;
}

/// cryptmpi_aead's open by `open_one(out) -> status`, which gets room for all `size` bytes. Leaves zeros unless that
/// says CRYPTMPI_OK.
template <class OpenOne>
int open_in_one(std::size_t size, const iovec* out, std::size_t out_count, OpenOne open_one) {
    int status = CRYPTMPI_FAILED;
    if (out_count <= 1) {
        status = open_one(present(out_count == 1 ? out[0].iov_base : nullptr));
    } else {
        std::uint8_t small[kSmall];
        const std::unique_ptr<std::uint8_t[]> large(size > kSmall ? new (std::nothrow) std::uint8_t[size] : nullptr);
        std::uint8_t* const whole = size > kSmall ? large.get() : small;
        if (whole != nullptr) {
            status = open_one(whole);
            if (status == CRYPTMPI_OK) scatter(whole, out, out_count);
            explicit_bzero(whole, size);
        }
    }
    if (status != CRYPTMPI_OK) zero(out, out_count);
    return status;
}

inline bool equal_in_constant_time(const std::uint8_t* a, const std::uint8_t* b) {
    std::uint64_t left[2];
    std::uint64_t right[2];
    static_assert(sizeof left == CRYPTMPI_TAG_SIZE);
    std::memcpy(left, a, sizeof left);
    std::memcpy(right, b, sizeof right);
    return declassified(((left[0] ^ right[0]) | (left[1] ^ right[1])) == 0);  // one branch, at the end
}

}  // namespace cryptmpi::modules
