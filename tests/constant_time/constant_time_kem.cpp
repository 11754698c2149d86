// The module mlkem-native on secrets that memcheck takes to be undefined, as constant_time.cpp does. mlkem-native
// itself says which of its values are public although they come of the seed: the seed of the matrix.
#include <cryptmpi/module.h>
#include <valgrind/memcheck.h>

#include <array>
#include <cstdint>
#include <cstdio>

extern "C" {
extern const struct cryptmpi_module cryptmpi_module;
extern const struct cryptmpi_kem cryptmpi_kem;
}

namespace {

template <std::size_t kSize>
using Bytes = std::array<std::uint8_t, kSize>;

template <std::size_t kSize>
void make_secret(Bytes<kSize>& bytes) {
    VALGRIND_MAKE_MEM_UNDEFINED(bytes.data(), kSize);
}
template <std::size_t kSize>
void make_public(Bytes<kSize>& bytes) {
    VALGRIND_MAKE_MEM_DEFINED(bytes.data(), kSize);
}

bool right() {
    Bytes<CRYPTMPI_KEM_SEED_SIZE> seed;
    Bytes<CRYPTMPI_KEM_COINS_SIZE> coins;
    Bytes<CRYPTMPI_KEM_PUBLIC_SIZE> key;
    Bytes<CRYPTMPI_KEM_CIPHERTEXT_SIZE> ciphertext;
    Bytes<CRYPTMPI_KEM_SHARED_SIZE> sent, received, rejected;
    seed.fill(1);
    coins.fill(2);
    make_secret(seed);
    make_secret(coins);
    if (cryptmpi_kem.public_key(key.data(), seed.data()) != CRYPTMPI_OK) return false;
    make_public(key);
    if (cryptmpi_kem.encapsulate(ciphertext.data(), sent.data(), key.data(), coins.data()) != CRYPTMPI_OK) return false;
    make_public(ciphertext);
    if (cryptmpi_kem.decapsulate(received.data(), seed.data(), ciphertext.data()) != CRYPTMPI_OK) return false;
    ciphertext[5] ^= 1;
    if (cryptmpi_kem.decapsulate(rejected.data(), seed.data(), ciphertext.data()) != CRYPTMPI_OK) return false;
    make_public(sent);
    make_public(received);
    make_public(rejected);
    return sent == received && sent != rejected;
}

}  // namespace

int main() {
    const bool good = cryptmpi_module.start() == nullptr && right();
    std::printf("kem: %s\n", good ? "right" : "wrong");
    return good ? 0 : 1;
}
