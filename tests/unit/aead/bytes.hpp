// What the tests of this room share: bytes, pieces, and modules with a context.
#pragma once

#include <cryptmpi/module.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "aead/registry.hpp"

namespace cryptmpi::aead::test {

using Bytes = std::vector<std::uint8_t>;

Bytes from_hex(std::string_view hex);
Bytes random_bytes(std::mt19937& random, std::size_t size);

/// The folder of the modules under test: the build's, or CRYPTMPI_TEST_MODULES for somebody who tests a module of their
/// own.
std::string module_folder();
Module loaded_module(const std::string& name);

/// Cuts `bytes` into pieces at random places, empty pieces included. The pieces point into `bytes`.
std::vector<iovec> random_pieces(std::mt19937& random, Bytes& bytes);
/// One piece.
std::vector<iovec> whole(Bytes& bytes);

/// One key in one module.
class Cipher {
public:
    Cipher(const Module& module, Suite suite, const Bytes& key);

    struct Sealed {
        int status;
        Bytes text;
        Bytes tag;
    };
    Sealed seal(const Bytes& nonce, const Bytes& aad, const std::vector<iovec>& in);
    int open(const Bytes& nonce, const Bytes& aad, const Bytes& text, const Bytes& tag, const std::vector<iovec>& out);

private:
    const cryptmpi_aead* aead_;
    std::unique_ptr<void, void (*)(void*)> context_;
};

}  // namespace cryptmpi::aead::test
