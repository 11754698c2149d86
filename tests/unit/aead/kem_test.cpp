// ML-KEM-768 of every module that has it: Wycheproof's vectors, and each against each other.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bytes.hpp"

namespace cryptmpi::aead::test {
namespace {

/// With OpenSSL 3.5 there are two, before it one.
const std::vector<Module>& modules() {
    static const std::vector<Module> all = [] {
        std::vector<Module> found;
        for (const Module& module : inspect(CRYPTMPI_MODULE_FOLDER).usable)
            if (module.kem != nullptr && module.kem->start() == nullptr) found.push_back(module);
        return found;
    }();
    return all;
}

nlohmann::json groups(const std::string& file) {
    std::ifstream stream(CRYPTMPI_TEST_DATA "/wycheproof/" + file);
    return nlohmann::json::parse(stream)["testGroups"];
}

Bytes hex(const nlohmann::json& object, const char* key) {
    return from_hex(object.value(key, ""));
}

TEST(Kem, IsOfferedByOneModuleAtLeast) {
    const auto module = load_kem(CRYPTMPI_MODULE_FOLDER);
    ASSERT_TRUE(module) << module.error().line;
    EXPECT_FALSE(modules().empty());
    EXPECT_EQ(module->path, modules().back().path) << "openssl comes last by name, and first where it has ML-KEM";
}

TEST(Kem, WycheproofKeysAndDecapsulations) {
    for (const Module& module : modules()) {
        int ran = 0;
        for (const auto& group : groups("mlkem_768_test.json")) {
            for (const auto& t : group["tests"]) {
                SCOPED_TRACE(std::string(module.api->name) + " " + t["tcId"].dump());
                const Bytes seed = hex(t, "seed"), ciphertext = hex(t, "c");
                // The interface has no other sizes.
                if (seed.size() != CRYPTMPI_KEM_SEED_SIZE || ciphertext.size() != CRYPTMPI_KEM_CIPHERTEXT_SIZE)
                    continue;
                Bytes key(CRYPTMPI_KEM_PUBLIC_SIZE), shared(CRYPTMPI_KEM_SHARED_SIZE);
                EXPECT_EQ(module.kem->public_key(key.data(), seed.data()), CRYPTMPI_OK);
                EXPECT_EQ(key, hex(t, "ek"));
                EXPECT_EQ(module.kem->decapsulate(shared.data(), seed.data(), ciphertext.data()), CRYPTMPI_OK);
                EXPECT_EQ(shared, hex(t, "K"));
                ++ran;
            }
        }
        EXPECT_EQ(ran, 161);
    }
}

TEST(Kem, WycheproofEncapsulations) {
    for (const Module& module : modules()) {
        int ran = 0, refused = 0;
        for (const auto& group : groups("mlkem_768_encaps_test.json")) {
            for (const auto& t : group["tests"]) {
                SCOPED_TRACE(std::string(module.api->name) + " " + t["tcId"].dump());
                const Bytes key = hex(t, "ek");
                if (key.size() != CRYPTMPI_KEM_PUBLIC_SIZE) continue;
                Bytes ciphertext(CRYPTMPI_KEM_CIPHERTEXT_SIZE), shared(CRYPTMPI_KEM_SHARED_SIZE);
                const int status =
                    module.kem->encapsulate(ciphertext.data(), shared.data(), key.data(), hex(t, "m").data());
                if (t["result"] == "valid") {
                    EXPECT_EQ(status, CRYPTMPI_OK);
                    EXPECT_EQ(ciphertext, hex(t, "c"));
                    EXPECT_EQ(shared, hex(t, "K"));
                } else {
                    EXPECT_EQ(status, CRYPTMPI_FORGED);
                    ++refused;
                }
                ++ran;
            }
        }
        EXPECT_EQ(ran, 245);
        EXPECT_EQ(refused, 112);
    }
}

TEST(Kem, EachModuleOpensWhatAnotherSends) {
    for (const Module& one : modules()) {
        for (const Module& other : modules()) {
            SCOPED_TRACE(std::string(one.api->name) + " to " + other.api->name);
            Bytes seed(CRYPTMPI_KEM_SEED_SIZE, 7), coins(CRYPTMPI_KEM_COINS_SIZE, 9), key(CRYPTMPI_KEM_PUBLIC_SIZE);
            Bytes ciphertext(CRYPTMPI_KEM_CIPHERTEXT_SIZE), sent(32), received(32);
            ASSERT_EQ(other.kem->public_key(key.data(), seed.data()), CRYPTMPI_OK);
            ASSERT_EQ(one.kem->encapsulate(ciphertext.data(), sent.data(), key.data(), coins.data()), CRYPTMPI_OK);
            ASSERT_EQ(other.kem->decapsulate(received.data(), seed.data(), ciphertext.data()), CRYPTMPI_OK);
            EXPECT_EQ(sent, received);

            // Implicit rejection: another secret, and no error.
            ciphertext[100] ^= 1;
            ASSERT_EQ(other.kem->decapsulate(received.data(), seed.data(), ciphertext.data()), CRYPTMPI_OK);
            EXPECT_NE(sent, received);
            EXPECT_NE(received, Bytes(32, 0));
        }
    }
}

}  // namespace
}  // namespace cryptmpi::aead::test
