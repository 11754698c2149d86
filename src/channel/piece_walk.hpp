// A walk over the pieces of an iovec.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/pieces.hpp"

namespace cryptmpi::channel {

class Pieces {
public:
    explicit Pieces(std::span<const iovec> all) : all_(all), left_(total(all)) {}

    std::size_t left() const { return left_; }

    /// The next `size` bytes (at most left()) as pieces in `out`; moves past them. Returns how many pieces, or 0,
    /// without moving, when they do not fit into `out`.
    std::size_t take(std::size_t size, std::span<iovec> out) {
        Pieces ahead = *this;
        std::size_t count = 0;
        while (size > 0) {
            if (ahead.left_in_piece() == 0) {
                ahead.next_piece();
                continue;
            }
            if (count == out.size()) return 0;
            const std::size_t here = std::min(size, ahead.left_in_piece());
            out[count++] = {ahead.here(), here};
            ahead.advance(here);
            size -= here;
        }
        *this = ahead;
        return count;
    }

    /// Copies `size` bytes into the pieces.
    void fill(const std::uint8_t* from, std::size_t size) {
        each(size, [&](std::uint8_t* here, std::size_t n) {
            std::memcpy(here, from, n);
            from += n;
        });
    }

    /// Copies the next `size` bytes out of the pieces.
    void gather(std::uint8_t* to, std::size_t size) {
        each(size, [&](const std::uint8_t* here, std::size_t n) {
            std::memcpy(to, here, n);
            to += n;
        });
    }

    void skip(std::size_t size) {
        each(size, [](const std::uint8_t*, std::size_t) {});
    }

private:
    std::size_t left_in_piece() const { return all_.front().iov_len - offset_; }
    std::uint8_t* here() const { return static_cast<std::uint8_t*>(all_.front().iov_base) + offset_; }
    void next_piece() {
        all_ = all_.subspan(1);
        offset_ = 0;
    }
    void advance(std::size_t n) {
        offset_ += n;
        left_ -= n;
    }

    template <class Action>
    void each(std::size_t size, Action action) {
        while (size > 0) {
            if (left_in_piece() == 0) {
                next_piece();
                continue;
            }
            const std::size_t n = std::min(size, left_in_piece());
            action(here(), n);
            advance(n);
            size -= n;
        }
    }

    std::span<const iovec> all_;
    std::size_t offset_ = 0;
    std::size_t left_;
};

}  // namespace cryptmpi::channel
