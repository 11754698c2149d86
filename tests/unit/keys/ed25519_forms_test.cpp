// Signatures that Ed25519 libraries answer differently: each module says the same of them here.
#include "keys/ed25519_forms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "aead/registry.hpp"
#include "keys/member_key.hpp"

namespace cryptmpi::keys {
namespace {

template <std::size_t kSize>
std::array<std::uint8_t, kSize> from_hex(const std::string& digits) {
    if (digits.size() != 2 * kSize) throw std::runtime_error("not that many bytes: " + digits);
    std::array<std::uint8_t, kSize> bytes{};
    for (std::size_t i = 0; i < kSize; ++i)
        bytes[i] = static_cast<std::uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
    return bytes;
}

nlohmann::json edges() {
    std::ifstream stream(CRYPTMPI_TEST_DATA "/ed25519/edges.json");
    return nlohmann::json::parse(stream);
}

class Ed25519Edges : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Modules, Ed25519Edges, testing::Values("openssl", "libsodium"),
                         [](const auto& one) { return std::string(one.param); });

// protocol: H22
TEST_P(Ed25519Edges, EachModuleSaysTheSame) {
    const auto module = aead::load(CRYPTMPI_MODULE_FOLDER, GetParam());
    if (!module && GetParam() != std::string("openssl")) GTEST_SKIP() << module.error().line;
    ASSERT_TRUE(module) << module.error().line;
    int ran = 0, valid = 0;
    for (const auto& edge : edges()) {
        SCOPED_TRACE(edge["what"].get<std::string>());
        const auto key = from_hex<32>(edge["key"]);
        const auto signature = from_hex<64>(edge["signature"]);
        const auto answer =
            verify(*module->api->kex, key, Purpose::attestation, edge["text"].get<std::string>(), signature);
        EXPECT_EQ(answer.has_value(), edge["valid"].get<bool>());
        valid += answer.has_value() ? 1 : 0;
        ++ran;
    }
    EXPECT_EQ(ran, 30);
    EXPECT_EQ(valid, 2);
}

const auto kPoint = from_hex<32>("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");

Signature signature_of(const std::array<std::uint8_t, 32>& r, const std::string& s) {
    Signature signature{};
    const auto number = from_hex<32>(s);
    std::copy(r.begin(), r.end(), signature.begin());
    std::copy(number.begin(), number.end(), signature.begin() + 32);
    return signature;
}

TEST(Ed25519Forms, SIsBelowTheOrderOfTheGroup) {
    const auto takes = [](const std::string& s) { return has_strict_form(kPoint, signature_of(kPoint, s)); };
    EXPECT_TRUE(takes(std::string(64, '0')));
    EXPECT_TRUE(takes("ecd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010"));
    EXPECT_FALSE(takes("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010"));
    EXPECT_FALSE(takes("00d4f55c1a631258d69cf7a2def9de1400000000000000000000000000000010"));
    EXPECT_FALSE(takes(std::string(64, 'f')));
}

TEST(Ed25519Forms, KeysAndPointsAreBelowThePrimeAndOfNoSmallOrder) {
    const auto expect = [](const std::string& digits, bool taken) {
        SCOPED_TRACE(digits);
        const auto point = from_hex<32>(digits);
        EXPECT_EQ(has_strict_form(point, signature_of(kPoint, std::string(64, '0'))), taken);
        EXPECT_EQ(has_strict_form(kPoint, signature_of(point, std::string(64, '0'))), taken);
    };
    const std::string many = std::string(60, 'f');
    for (const char* const last : {"7f", "ff"}) {
        expect("eb" + many + last, true);
        for (const char* const first : {"ec", "ed", "ee", "ff"}) expect(first + many + last, false);
    }
    for (const char* const last : {"00", "80"}) {
        for (const char* const first : {"00", "01"}) expect(first + std::string(60, '0') + last, false);
        expect("02" + std::string(60, '0') + last, true);
    }
    // Two of order 8, and what has their first bytes.
    const std::string low = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc";
    const std::string high = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03";
    for (const char* const last : {"05", "85"}) {
        expect(low + last, false);
        expect(high + last, true);
    }
    for (const char* const last : {"7a", "fa"}) {
        expect(low + last, true);
        expect(high + last, false);
    }
}

}  // namespace
}  // namespace cryptmpi::keys
