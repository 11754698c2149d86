#include "base/printable.hpp"

#include <cstdint>

namespace cryptmpi {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

struct Character {
    std::uint32_t code = 0;
    std::size_t size = 0;  // 0: the bytes are no character
};

/// The shortest form only, no surrogates, nothing beyond Unicode.
Character first_of(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {lead, 1};
    const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {};
    std::uint32_t code = lead & (0xffU >> (size + 1));
    for (std::size_t i = 1; i < size; ++i) {
        if ((byte(i) & 0xc0U) != 0x80) return {};
        code = code << 6U | (byte(i) & 0x3fU);
    }
    constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (code < kLeast[size] || code > 0x10ffff || surrogate) return {};
    return {code, size};
}

bool misleads(std::uint32_t code) {
    const bool control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
    const bool line_break = code == 0x2028 || code == 0x2029;
    const bool direction = code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                           (code >= 0x2066 && code <= 0x2069);
    const bool invisible = code == 0x200b || code == 0x2060 || code == 0xfeff || (code >= 0xe0000 && code <= 0xe007f);
    return control || line_break || direction || invisible;
}

}  // namespace

std::string printable(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
        const auto [code, size] = first_of(text);
        shown += size == 0 || misleads(code) ? kReplacement : text.substr(0, size);
        text.remove_prefix(size == 0 ? 1 : size);
    }
    return shown;
}

}  // namespace cryptmpi
