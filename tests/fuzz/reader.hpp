// Takes an input apart, byte by byte: behind its end there are zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cryptmpi::fuzz {

using Bytes = std::vector<std::uint8_t>;

class Reader {
public:
    Reader(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
    bool is_empty() const { return left_ == 0; }
    std::uint8_t byte() {
        if (left_ == 0) return 0;
        --left_;
        return *at_++;
    }
    /// Little endian.
    std::uint64_t number(unsigned bytes) {
        std::uint64_t number = 0;
        for (unsigned i = 0; i < bytes; ++i) number |= std::uint64_t{byte()} << (8 * i);
        return number;
    }
    Bytes bytes(std::size_t size) {
        size = size < left_ ? size : left_;
        Bytes taken(at_, at_ + size);
        at_ += size;
        left_ -= size;
        return taken;
    }

private:
    const std::uint8_t* at_;
    std::size_t left_;
};

}  // namespace cryptmpi::fuzz
