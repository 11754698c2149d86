// Interchange keys, as E12 has them: each node has an RSA key pair of its own, and the configuration has the public
// ones.
//
// A node's private key is a PEM file (PKCS #8, without a passphrase). The list has a line for each node:
//     HOST rsa-3072 <768 hexadecimal digits of the modulus>
// Empty lines, and lines that begin with #, are left out.
#pragma once

#include <cryptmpi/module.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/key_readers.hpp"
#include "base/result.hpp"

namespace cryptmpi::keys {

inline constexpr std::size_t kRsaBits = 3072;  // what NIST SP 800-57 puts beside AES-128
inline constexpr std::size_t kModulusSize = kRsaBits / 8;
using Modulus = std::array<std::uint8_t, kModulusSize>;

/// An RSA private key and its public one; wiped with it.
class RsaPair {
public:
    /// A fresh one. Error: the module failed.
    static Result<RsaPair> generate(const cryptmpi_rsa& rsa);
    /// Reads and checks a file. Errors: as read_secret_file; no such key; of another size or exponent.
    static Result<RsaPair> read(const cryptmpi_rsa& rsa, const std::filesystem::path& file, KeyReaders readers);
    /// Writes it to the file, mode 0600, folders made as 0700. Error when the file exists.
    Result<void> write(const std::filesystem::path& file) const;

    const Modulus& modulus() const { return modulus_; }
    void* key() const { return key_.get(); }

private:
    RsaPair(const cryptmpi_rsa& rsa, void* key) : rsa_(&rsa), key_(key, rsa.destroy) {}
    bool find_modulus() { return rsa_->modulus(key_.get(), modulus_.data(), modulus_.size()) == CRYPTMPI_OK; }

    const cryptmpi_rsa* rsa_;
    std::unique_ptr<void, void (*)(void*)> key_;
    Modulus modulus_{};
};

/// The line of a list, without a newline.
std::string interchange_line(std::string_view host, const Modulus& modulus);

class InterchangeList {
public:
    /// The text of a list. Errors name the line: no three words, another algorithm, no 768 digits, no key of 3072
    /// bits, a host twice.
    static Result<InterchangeList> parse(std::string_view text);
    /// The same of a file, which nobody but its owner (the user or root) may write. Each error is one line.
    static Result<InterchangeList> read(const std::filesystem::path& file);

    /// nullptr: the list has no such node.
    const Modulus* find(const std::string& host) const;

private:
    std::map<std::string, Modulus> hosts_;
};

}  // namespace cryptmpi::keys
