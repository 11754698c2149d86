// Wycheproof's vectors, the AEGIS draft's and those of the legacy suite on every module, in one piece and cut up.
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
    std::string name;
    Bytes key, nonce, aad, text, sealed, tag;
    bool valid;
};
using Vectors = std::map<Suite, std::vector<Vector>>;

nlohmann::json read(const std::string& file) {
    std::ifstream stream(CRYPTMPI_TEST_DATA "/" + file);
    return nlohmann::json::parse(stream);
}

Bytes hex(const nlohmann::json& object, const char* key) {
    return from_hex(object.value(key, ""));
}

/// Wycheproof's of one algorithm: those with our nonce, tag and key sizes.
void add_wycheproof(const std::string& file, const std::vector<Suite>& suites, Vectors& to) {
    const auto all = read("wycheproof/" + file);
    for (const auto& group : all["testGroups"]) {
        for (const Suite suite : suites) {
            if (group["ivSize"] != 8 * nonce_size(suite) || group["tagSize"] != 8 * CRYPTMPI_TAG_SIZE ||
                group["keySize"] != 8 * key_size(suite))
                continue;
            for (const auto& t : group["tests"])
                to[suite].push_back({file + " " + t["tcId"].dump(), hex(t, "key"), hex(t, "iv"), hex(t, "aad"),
                                     hex(t, "msg"), hex(t, "ct"), hex(t, "tag"), t["result"] == "valid"});
        }
    }
}

/// Those without a message must not open.
void add_draft(Vectors& to) {
    for (const auto& t : read("aegis/draft-irtf-cfrg-aegis-aead-17.json"))
        to[suite_by_name(t["suite"].get<std::string>()).value()].push_back(
            {t["section"], hex(t, "key"), hex(t, "nonce"), hex(t, "ad"), hex(t, "msg"), hex(t, "ct"), hex(t, "tag"),
             t.contains("msg")});
}

/// Of an implementation of our own in Python: tests/interop.
void add_legacy(Vectors& to) {
    for (const auto& t : read("legacy/3des-cbc-hmac-sha-256.json"))
        to[Suite::legacy_3des].push_back({t["name"], hex(t, "key"), hex(t, "nonce"), hex(t, "ad"), hex(t, "msg"),
                                          hex(t, "ct"), hex(t, "tag"), true});
}

const Vectors& vectors() {
    static const Vectors all = [] {
        Vectors read;
        add_wycheproof("aes_gcm_test.json", {Suite::aes_128_gcm, Suite::aes_256_gcm}, read);
        add_wycheproof("aegis128L_test.json", {Suite::aegis_128l}, read);
        add_wycheproof("aegis256_test.json", {Suite::aegis_256}, read);
        add_draft(read);
        add_legacy(read);
        return read;
    }();
    return all;
}

void check(Cipher& cipher, const Vector& v, bool cut, std::mt19937& random) {
    SCOPED_TRACE("vector " + v.name + (cut ? ", cut" : ", whole"));
    if (v.text.size() == v.sealed.size()) {
        Bytes text = v.text;
        const auto sealed = cipher.seal(v.nonce, v.aad, cut ? random_pieces(random, text) : whole(text));
        EXPECT_EQ(sealed.status, CRYPTMPI_OK);
        EXPECT_EQ(sealed.text == v.sealed && sealed.tag == v.tag, v.valid);
    }
    Bytes opened(v.sealed.size(), 0xaa);
    const auto pieces = cut ? random_pieces(random, opened) : whole(opened);
    EXPECT_EQ(cipher.open(v.nonce, v.aad, v.sealed, v.tag, pieces), v.valid ? CRYPTMPI_OK : CRYPTMPI_FORGED);
    EXPECT_EQ(opened, v.valid ? v.text : Bytes(v.sealed.size(), 0));
}

TEST(Vectors, AreAllThere) {
    const std::map<Suite, std::size_t> expected = {
        {Suite::aes_128_gcm, 67},    {Suite::aes_256_gcm, 66}, {Suite::aegis_128l, 479 + 9},
        {Suite::aegis_256, 472 + 9}, {Suite::aegis_128x2, 2},  {Suite::aegis_128x4, 2},
        {Suite::aegis_256x2, 2},     {Suite::aegis_256x4, 2},  {Suite::legacy_3des, 28}};
    std::map<Suite, std::size_t> found;
    for (const auto& [suite, of_suite] : vectors()) found[suite] = of_suite.size();
    EXPECT_EQ(found, expected);
}

class EveryModule : public testing::TestWithParam<std::string> {};

// protocol: L1, L2
TEST_P(EveryModule, GivesTheVectors) {
    const Module module = loaded_module(GetParam());
    std::mt19937 random(1);
    bool any = false;
    for (const auto& [suite, of_suite] : vectors()) {
        if (!module.offers(suite)) continue;
        any = true;
        for (const Vector& v : of_suite) {
            Cipher cipher(module, suite, v.key);
            check(cipher, v, false, random);
            for (int i = 0; i < 8; ++i) check(cipher, v, true, random);
        }
    }
    EXPECT_TRUE(any || module.kem != nullptr) << "it is for nothing";
}

std::string test_name(const testing::TestParamInfo<std::string>& module) {
    std::string name = module.param;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(Modules, EveryModule, testing::ValuesIn(installed(module_folder())), test_name);

}  // namespace
}  // namespace cryptmpi::aead::test
