#include "keys/interchange.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <optional>
#include <sstream>

#include "base/hex.hpp"
#include "base/secret.hpp"
#include "keys/public_list.hpp"
#include "keys/secret_file.hpp"

namespace cryptmpi::keys {
namespace {

constexpr std::string_view kAlgorithm = "rsa-3072";
constexpr std::size_t kLongestPem = 8192;
constexpr SecretFile kFile = {"interchange key file", "cryptmpi keygen --interchange", "",
                              "whoever has this node in a list would have to be told the new public key"};

int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/// Nothing secret: a public key.
std::optional<Modulus> modulus_of(std::string_view digits) {
    if (digits.size() != 2 * kModulusSize) return std::nullopt;
    Modulus modulus{};
    for (std::size_t i = 0; i < kModulusSize; ++i) {
        const int high = digit(digits[2 * i]);
        const int low = digit(digits[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        modulus[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    const bool full = (modulus.front() & 0x80) != 0 && (modulus.back() & 1) != 0;
    return full ? std::optional(modulus) : std::nullopt;
}

}  // namespace

Result<RsaPair> RsaPair::generate(const cryptmpi_rsa& rsa) {
    RsaPair pair(rsa, rsa.generate(kRsaBits));
    if (pair.key_ == nullptr || !pair.find_modulus()) return fail(EIO, "the crypto module's RSA key generation failed");
    return pair;
}

// protocol: W3
Result<RsaPair> RsaPair::read(const cryptmpi_rsa& rsa, const std::filesystem::path& file, KeyReaders readers) {
    Secret<kLongestPem> text;
    const auto size = read_secret_file(kFile, file, {text.data(), text.size()}, readers);
    if (!size) return tl::unexpected<Error>(size.error());
    RsaPair pair(rsa, rsa.read(text.data(), *size));
    if (pair.key_ == nullptr)
        return wrong(kFile, file, EINVAL,
                     std::string("is no RSA private key in PEM (PKCS #8, without a passphrase): make one with `") +
                         kFile.maker + "`");
    if (!pair.find_modulus())
        return wrong(
            kFile, file, EINVAL,
            "is no key of 3072 bits with the exponent 65537: make one with `" + std::string(kFile.maker) + "`");
    return pair;
}

Result<void> RsaPair::write(const std::filesystem::path& file) const {
    Secret<kLongestPem> text;
    std::size_t size = text.size();
    if (rsa_->write(key_.get(), text.data(), &size) != CRYPTMPI_OK)
        return fail(EIO, "the crypto module could not write an RSA key");
    return write_secret_file(kFile, file, {text.data(), size}, false);
}

std::string interchange_line(std::string_view host, const Modulus& modulus) {
    return std::string(host) + " " + std::string(kAlgorithm) + " " + hex(modulus);
}

Result<InterchangeList> InterchangeList::parse(std::string_view text) {
    InterchangeList list;
    std::istringstream lines{std::string(text)};
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        const auto first = line.find_first_not_of(" \t\r");
        if (first == std::string::npos || line[first] == '#') continue;
        const std::string where = fmt::format("line {} ", number);
        std::istringstream words(line);
        std::string host, algorithm, digits, more;
        words >> host >> algorithm >> digits;
        const auto modulus = modulus_of(digits);
        if (algorithm != kAlgorithm || !modulus || words >> more)
            return fail(EINVAL, where + "is not HOST rsa-3072 <768 hexadecimal digits of a key of 3072 bits>");
        if (!list.hosts_.emplace(host, *modulus).second)
            return fail(EINVAL, where + "has a host that an earlier line has");
    }
    return list;
}

Result<InterchangeList> InterchangeList::read(const std::filesystem::path& file) {
    const std::string what = "list of interchange keys " + file.string() + " ";
    const auto text = read_public_list(file);
    if (!text)
        return fail(text.error().code, what + text.error().line +
                                           (text.error().code == ENOENT ? ": put the line into it that cryptmpi keygen "
                                                                          "--interchange prints on each node"
                                                                        : ""));
    auto list = parse(*text);
    if (!list) return fail(list.error().code, what + list.error().line);
    return list;
}

const Modulus* InterchangeList::find(const std::string& host) const {
    const auto found = hosts_.find(host);
    return found == hosts_.end() ? nullptr : &found->second;
}

}  // namespace cryptmpi::keys
