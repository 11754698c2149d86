// What the tests of seal and keys share: primitives from the built modules, random bytes, a pair of ends.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "aead/registry.hpp"
#include "seal/stream.hpp"

namespace cryptmpi::test {

using Bytes = std::vector<std::uint8_t>;

inline const aead::Module& loaded(const Result<aead::Module>& module) {
    if (!module) {
        ADD_FAILURE() << module.error().line;
        std::abort();
    }
    return *module;
}

inline seal::Crypto crypto(aead::Suite suite = aead::Suite::aes_256_gcm) {
    static const auto openssl = loaded(aead::load(CRYPTMPI_MODULE_FOLDER, "openssl"));
    if (openssl.offers(suite)) return {openssl.api->aead, openssl.api->kex, suite};
    static const auto aegis = loaded(aead::load(CRYPTMPI_MODULE_FOLDER, "aegis"));
    if (aegis.offers(suite)) return {aegis.api->aead, openssl.api->kex, suite};
    static const auto legacy = loaded(aead::load(CRYPTMPI_MODULE_FOLDER, "legacy"));
    return {legacy.api->aead, openssl.api->kex, suite};
}

/// All suites, but for the legacy one where its module could not be built.
inline std::vector<aead::Suite> suites() {
    const std::vector<std::string> modules = aead::installed(CRYPTMPI_MODULE_FOLDER);
    const bool legacy = std::find(modules.begin(), modules.end(), "legacy") != modules.end();
    std::vector<aead::Suite> all;
    std::copy_if(std::begin(aead::kAllSuites), std::end(aead::kAllSuites), std::back_inserter(all),
                 [&](aead::Suite suite) { return legacy || !aead::is_legacy(suite); });
    return all;
}

/// A suite's name as GoogleTest takes it: "AES_256_GCM".
inline std::string test_name(const testing::TestParamInfo<aead::Suite>& suite) {
    std::string text(aead::name(suite.param));
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
}

inline Bytes random_bytes(std::size_t size) {
    Bytes bytes(size);
    if (size != 0) {
        EXPECT_EQ(crypto().kex->random(bytes.data(), size), CRYPTMPI_OK);
    }
    return bytes;
}

inline std::size_t random_below(std::size_t end) {
    std::uint64_t number = 0;
    EXPECT_EQ(crypto().kex->random(reinterpret_cast<std::uint8_t*>(&number), sizeof number), CRYPTMPI_OK);
    return number % end;
}

inline Bytes from_hex(const std::string& text) {
    Bytes bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

inline bool all_zero(const void* at, std::size_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(at);
    for (std::size_t i = 0; i < size; ++i) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/// `at` cut into pieces at random places, some of them empty.
inline std::vector<iovec> random_pieces(std::uint8_t* at, std::size_t size) {
    std::vector<iovec> pieces;
    while (size > 0 && pieces.size() < 6) {
        const std::size_t part = random_below(size + 1);
        pieces.push_back({at, part});
        at += part;
        size -= part;
    }
    pieces.push_back({at, size});
    return pieces;
}

/// Seals one data record and expects that it works; returns what goes on the wire.
inline Bytes seal_data(seal::StreamSealer& sealer, Bytes plain) {
    Bytes wire(plain.size() + 2 * seal::kRecordOverhead);
    const iovec in = {plain.data(), plain.size()};
    const auto written = sealer.seal({&in, 1}, plain.size(), wire.data());
    EXPECT_TRUE(written.has_value()) << written.error().line;
    wire.resize(written.value_or(0));
    return wire;
}

inline Bytes seal_control(seal::StreamSealer& sealer, seal::RecordType type) {
    Bytes wire(2 * seal::kRecordOverhead);
    const auto written = sealer.seal_control(type, wire.data());
    EXPECT_TRUE(written.has_value()) << written.error().line;
    wire.resize(written.value_or(0));
    return wire;
}

struct Opened {
    Result<seal::RecordType> type;
    Bytes plain;  // of as many bytes as the header says, filled with 0xee before

    std::string line() const { return type ? "opened" : type.error().line; }
    int code() const { return type ? 0 : type.error().code; }
    bool is(seal::RecordType expected) const { return type && *type == expected; }
};

/// Opens one record, which must be whole.
inline Opened open_record(seal::StreamOpener& opener, const Bytes& record) {
    Bytes plain(record.size() - seal::kRecordOverhead, 0xee);
    const iovec out = {plain.data(), plain.size()};
    auto type = opener.open(record.data(), {&out, 1});
    return {std::move(type), std::move(plain)};
}

/// Cuts what was sealed into its records.
inline std::vector<Bytes> records_of(const Bytes& wire) {
    std::vector<Bytes> records;
    for (std::size_t at = 0; at < wire.size();) {
        const auto header = seal::parse_header(wire.data() + at);
        if (!header || at + seal::kRecordOverhead + header->size > wire.size()) {
            ADD_FAILURE() << "no whole record at " << at;
            break;
        }
        const std::size_t size = seal::kRecordOverhead + header->size;
        records.emplace_back(wire.begin() + static_cast<std::ptrdiff_t>(at),
                             wire.begin() + static_cast<std::ptrdiff_t>(at + size));
        at += size;
    }
    return records;
}

/// One direction: both ends start from the same fresh secret.
struct Direction {
    seal::DirectionState sending{};
    seal::DirectionState receiving{};
    seal::StreamSealer sealer;
    seal::StreamOpener opener;

    explicit Direction(seal::Crypto with = crypto()) : Direction(seal::limits_of(with.suite), with) {}
    explicit Direction(seal::Limits limits, seal::Crypto with = crypto())
        : sealer(with, sending, limits), opener(with, receiving, limits) {
        const Bytes secret = random_bytes(seal::kSecretSize);
        std::memcpy(sending.secret, secret.data(), secret.size());
        std::memcpy(receiving.secret, secret.data(), secret.size());
    }
};

}  // namespace cryptmpi::test
