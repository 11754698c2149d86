// Sizes that an observer sees, rounded up to buckets: many sizes look like one.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cryptmpi {

struct Padding {
    enum class Scheme {
        none,
        padme,         // Padmé (Nikitin et al., PETS 2019): at most 12 % more
        power_of_two,  // the next power of two: less than twice as much
    };

    Scheme scheme = Scheme::none;
    std::size_t least = 1;  // no bucket is smaller

    // A bucket that is larger would not fill one record with a byte of data in it.
    static constexpr std::size_t kMostLeast = 16384;

    bool is_on() const { return scheme != Scheme::none; }

    /// As the setting has it.
    std::string name() const {
        const std::string number = least > 1 ? fmt::format(":{}", least) : "";
        return is_on() ? (scheme == Scheme::padme ? "padme" : "power-of-two") + number : "none";
    }

    /// What `size` bytes (not 0) are padded to.
    std::size_t bucket(std::size_t size) const {
        switch (scheme) {
            case Scheme::none:
                return size;
            case Scheme::padme:
                return std::max(padme(size), least);
            case Scheme::power_of_two:
                return std::max(std::bit_ceil(size), least);
        }
        return size;
    }

private:
    /// A size in binary has an exponent; as many bits of the mantissa are kept as the exponent itself is long.
    static std::size_t padme(std::size_t size) {
        if (size < 2) return size;
        const auto exponent = static_cast<unsigned>(std::bit_width(size)) - 1;
        const unsigned kept = static_cast<unsigned>(std::bit_width(exponent));
        if (exponent <= kept) return size;
        const std::size_t mask = (std::size_t{1} << (exponent - kept)) - 1;
        return (size + mask) & ~mask;
    }
};

/// The bytes of one write, spread evenly over the records of its bucket: each has one of them at least, so that the
/// last byte never goes before the bucket is full.
class Spread {
public:
    struct Share {
        std::size_t data;
        std::size_t room;  // data and zeros
    };

    /// `bucket` is at least `data`, and not more than twice `data` unless it is one record's.
    Spread(std::size_t data, std::size_t bucket) : data_(data), room_(bucket) {}

    /// Of the next record, which has room for `most` bytes.
    Share next(std::size_t most) {
        const std::size_t room = std::min(room_, most);
        const std::size_t data = room == room_ ? data_ : data_ * room / room_;
        data_ -= data;
        room_ -= room;
        return {data, room};
    }

private:
    std::size_t data_;
    std::size_t room_;
};

}  // namespace cryptmpi
