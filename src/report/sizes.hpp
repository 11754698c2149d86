// How many messages there were of which size: what a model needs to say what sealing costs an application.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cryptmpi::report {

class Sizes {
public:
    /// Empty messages, and those of up to 1, 2, 4, ... 2^63 bytes: nothing in memory is larger.
    static constexpr std::size_t kClasses = 65;
    struct Class {
        std::uint64_t messages = 0;
        std::uint64_t bytes = 0;
    };

    // HOT PATH
    void count(std::size_t size) {
        Class& of_size = classes_[size == 0 ? 0 : 1 + static_cast<std::size_t>(std::bit_width(size - 1))];
        ++of_size.messages;
        of_size.bytes += size;
    }

    const std::array<Class, kClasses>& classes() const { return classes_; }
    static std::uint64_t up_to(std::size_t place) { return place == 0 ? 0 : std::uint64_t{1} << (place - 1); }

private:
    std::array<Class, kClasses> classes_ = {};
};

}  // namespace cryptmpi::report
