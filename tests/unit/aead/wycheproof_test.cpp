// Wycheproof's AES-GCM vectors on every module, in one piece and cut up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "bytes.hpp"

namespace cryptmpi::aead::test {
namespace {

struct Vector {
    int id;
    Bytes key, nonce, aad, text, sealed, tag;
    bool valid;
};

// Those with our nonce, tag and key sizes, by suite.
std::map<Suite, std::vector<Vector>> vectors() {
    std::ifstream file(CRYPTMPI_WYCHEPROOF "/aes_gcm_test.json");
    std::map<Suite, std::vector<Vector>> by_suite;
    const auto all = nlohmann::json::parse(file);
    for (const auto& group : all["testGroups"]) {
        if (group["ivSize"] != 96 || group["tagSize"] != 128 || group["keySize"] == 192) continue;
        const Suite suite = group["keySize"] == 128 ? Suite::aes_128_gcm : Suite::aes_256_gcm;
        for (const auto& t : group["tests"])
            by_suite[suite].push_back({t["tcId"], from_hex(t["key"].get<std::string>()),
                                       from_hex(t["iv"].get<std::string>()), from_hex(t["aad"].get<std::string>()),
                                       from_hex(t["msg"].get<std::string>()), from_hex(t["ct"].get<std::string>()),
                                       from_hex(t["tag"].get<std::string>()), t["result"] == "valid"});
    }
    return by_suite;
}

void check(Cipher& cipher, const Vector& v, bool cut, std::mt19937& random) {
    SCOPED_TRACE("vector " + std::to_string(v.id) + (cut ? ", cut" : ", whole"));
    Bytes text = v.text;
    const auto sealed = cipher.seal(v.nonce, v.aad, cut ? random_pieces(random, text) : whole(text));
    EXPECT_EQ(sealed.status, CRYPTMPI_OK);
    EXPECT_EQ(sealed.text == v.sealed && sealed.tag == v.tag, v.valid);

    Bytes opened(v.sealed.size(), 0xaa);
    const auto pieces = cut ? random_pieces(random, opened) : whole(opened);
    EXPECT_EQ(cipher.open(v.nonce, v.aad, v.sealed, v.tag, pieces), v.valid ? CRYPTMPI_OK : CRYPTMPI_FORGED);
    EXPECT_EQ(opened, v.valid ? v.text : Bytes(v.sealed.size(), 0));
}

class Wycheproof : public testing::TestWithParam<std::string> {};

TEST_P(Wycheproof, AesGcm) {
    const Module module = loaded_module(GetParam());
    std::mt19937 random(1);
    const auto by_suite = vectors();
    EXPECT_EQ(by_suite.at(Suite::aes_128_gcm).size(), 67U);
    EXPECT_EQ(by_suite.at(Suite::aes_256_gcm).size(), 66U);
    bool any = false;
    for (const auto& [suite, of_suite] : by_suite) {
        if (!module.offers(suite)) continue;
        any = true;
        for (const Vector& v : of_suite) {
            Cipher cipher(module, suite, v.key);
            check(cipher, v, false, random);
            for (int i = 0; i < 8; ++i) check(cipher, v, true, random);
        }
    }
    EXPECT_TRUE(any);
}

std::string test_name(const testing::TestParamInfo<std::string>& module) {
    std::string name = module.param;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(Modules, Wycheproof, testing::ValuesIn(installed(module_folder())), test_name);

}  // namespace
}  // namespace cryptmpi::aead::test
