// Arbitrary lists of public keys: of members, and of nodes' interchange keys. The first byte chooses which.
#include <sstream>
#include <string>

#include "keys/interchange.hpp"
#include "keys/member_key.hpp"
#include "scratch.hpp"

using namespace cryptmpi;
using fuzz::require;

namespace {

struct Line {
    std::string name, algorithm, digits;
};

/// By another way than the parsers: words between spaces.
template <class Look>
void each_line(const std::string& text, const Look& look) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        Line one;
        if (!(words >> one.name) || one.name[0] == '#') continue;
        words >> one.algorithm >> one.digits;
        look(one);
    }
}

std::string lowered(std::string digits) {
    for (char& c : digits) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    return digits;
}

void members(const std::string& text) {
    const auto list = keys::MemberList::parse(text);
    if (!list) return fuzz::require_one_line(list.error().line);
    each_line(text, [&](const Line& line) {
        keys::MemberPublicKey key{};
        const std::span digits(reinterpret_cast<const std::uint8_t*>(line.digits.data()), line.digits.size());
        require(keys::parse_key_line("", digits, key).has_value());
        const keys::Member* const found = list->find(key);
        require(found != nullptr && found->name == line.name && keys::check_member_name(line.name));
        require(keys::line_of(*found) == line.name + " ed25519 " + lowered(line.digits));
    });
}

void interchange(const std::string& text) {
    const auto list = keys::InterchangeList::parse(text);
    if (!list) return fuzz::require_one_line(list.error().line);
    each_line(text, [&](const Line& line) {
        const keys::Modulus* const found = list->find(line.name);
        require(found != nullptr && (found->front() & 0x80) != 0);
        require(keys::interchange_line(line.name, *found) == line.name + " rsa-3072 " + lowered(line.digits));
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (data[0] % 2 == 0) {
        members(text);
    } else {
        interchange(text);
    }
    return 0;
}
