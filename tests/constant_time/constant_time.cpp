// Works on secrets that memcheck takes to be undefined: it then complains of each branch and each index that depends on
// one. `branch` and `index` are two such, to show that it does.
//
//   constant_time CASE [SIZE]
#include <cryptmpi/module.h>
#include <valgrind/memcheck.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "keys/secret_file.hpp"
#include "one_piece.hpp"

extern "C" {
extern const struct cryptmpi_module cryptmpi_module;
}

namespace {

using namespace cryptmpi;
using Bytes = std::vector<std::uint8_t>;

void make_secret(Bytes& bytes) {
    VALGRIND_MAKE_MEM_UNDEFINED(bytes.data(), bytes.size());
}

volatile int sink;

int branch(std::size_t) {
    Bytes secret(1, 5);
    make_secret(secret);
    if (secret[0] == 5) sink = 1;
    return 0;
}

int index(std::size_t) {
    static const int table[256] = {1, 2, 3};
    Bytes secret(1, 2);
    make_secret(secret);
    sink = table[secret[0]];
    return 0;
}

int tag(std::size_t) {
    Bytes one(16, 7);
    Bytes other(16, 7);
    other[15] = 8;
    make_secret(one);
    return !modules::equal_in_constant_time(one.data(), other.data()) &&
                   modules::equal_in_constant_time(one.data(), one.data())
               ? 0
               : 1;
}

int key_line(std::size_t) {
    constexpr std::string_view kLead = "cryptmpi-job-key-1 ";
    const std::string digits = "00112233445566778899aabbccddeeffAABBCCDDEEFF0099fedcba9876543210";
    Bytes line(kLead.begin(), kLead.end());
    line.insert(line.end(), digits.begin(), digits.end());
    line.push_back('\n');
    VALGRIND_MAKE_MEM_UNDEFINED(line.data() + kLead.size(), digits.size());
    std::array<std::uint8_t, keys::kKeySize> key{};
    if (!keys::parse_key_line(kLead, line, key)) return 1;
    Bytes written(line.size());
    keys::write_key_line(kLead, key, written);
    VALGRIND_MAKE_MEM_DEFINED(written.data(), written.size());
    return std::string(written.begin(), written.end()) ==
                   std::string(kLead) + "00112233445566778899aabbccddeeffaabbccddeeff0099fedcba9876543210\n"
               ? 0
               : 1;
}

/// Seals and opens so many bytes; Mbed TLS's own tables are not ours to change (they are suppressed).
int legacy(std::size_t size) {
    const cryptmpi_aead& aead = *cryptmpi_module.aead;
    Bytes key(32, 3);
    Bytes plain(size, 9);
    Bytes text(size);
    Bytes opened(size);
    const Bytes nonce(12, 1);
    std::uint8_t seal_tag[CRYPTMPI_TAG_SIZE];
    make_secret(key);
    make_secret(plain);
    void* const context = aead.create(CRYPTMPI_3DES_CBC_HMAC_SHA_256, key.data());
    if (context == nullptr) return 1;
    const iovec in{plain.data(), size};
    const iovec out{opened.data(), size};
    if (aead.seal(context, nonce.data(), nullptr, 0, &in, 1, text.data(), seal_tag) != CRYPTMPI_OK) return 1;
    // On the wire.
    VALGRIND_MAKE_MEM_DEFINED(text.data(), size);
    VALGRIND_MAKE_MEM_DEFINED(seal_tag, sizeof seal_tag);
    if (aead.open(context, nonce.data(), nullptr, 0, text.data(), size, &out, 1, seal_tag) != CRYPTMPI_OK) return 1;
    seal_tag[0] ^= 1;
    Bytes nothing(size);
    const iovec room{nothing.data(), size};
    if (aead.open(context, nonce.data(), nullptr, 0, text.data(), size, &room, 1, seal_tag) != CRYPTMPI_FORGED)
        return 1;
    aead.destroy(context);
    VALGRIND_MAKE_MEM_DEFINED(opened.data(), size);
    return opened == Bytes(size, 9) ? 0 : 1;
}

constexpr struct {
    const char* name;
    int (*run)(std::size_t size);
} kCases[] = {{"branch", branch}, {"index", index}, {"tag", tag}, {"key line", key_line}, {"legacy", legacy}};

}  // namespace

int main(int count, char** arguments) {
    for (const auto& one : kCases) {
        if (count < 2 || std::strcmp(one.name, arguments[1]) != 0) continue;
        const int failed = one.run(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0);
        std::printf("%s: %s\n", one.name, failed == 0 ? "right" : "wrong");
        return failed;
    }
    std::fprintf(stderr, "constant_time CASE [SIZE]\n");
    return 2;
}
