// What one module seals, each other opens; what has been tampered with, none.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "bytes.hpp"

namespace cryptmpi::aead::test {
namespace {

std::vector<Module> modules(Suite suite) {
    std::vector<Module> all = inspect(module_folder()).usable;
    std::erase_if(all, [&](const Module& module) { return !module.offers(suite); });
    return all;
}

// Small sizes often, around the cipher's block and bulk strides; now and then up to 200 KB.
std::size_t random_size(std::mt19937& random) {
    switch (random() % 4) {
        case 0:
            return random() % 40;
        case 1:
            return random() % 1100;
        case 2:
            return random() % 20000;
        default:
            return random() % 200001;
    }
}

TEST(CrossModule, EachOpensWhatTheOthersSeal) {
    std::mt19937 random(7);
    for (Suite suite : kAllSuites) {
        const auto all = modules(suite);
        for (const Module& sealer : all) {
            for (const Module& opener : all) {
                SCOPED_TRACE(std::string(sealer.api->name) + " to " + opener.api->name);
                const Bytes key = random_bytes(random, key_size(suite));
                Cipher seals(sealer, suite, key), opens(opener, suite, key);
                for (int i = 0; i < 120; ++i) {
                    Bytes text = random_bytes(random, i == 0 ? 0 : i == 1 ? 200000 : random_size(random));
                    const Bytes nonce = random_bytes(random, nonce_size(suite)),
                                aad = random_bytes(random, random() % 70);
                    const auto sealed =
                        seals.seal(nonce, aad, random() % 3 == 0 ? whole(text) : random_pieces(random, text));
                    ASSERT_EQ(sealed.status, CRYPTMPI_OK);
                    Bytes opened(text.size(), 0xaa);
                    ASSERT_EQ(opens.open(nonce, aad, sealed.text, sealed.tag,
                                         random() % 3 == 0 ? whole(opened) : random_pieces(random, opened)),
                              CRYPTMPI_OK);
                    ASSERT_EQ(opened, text);
                }
            }
        }
    }
}

TEST(CrossModule, ATamperedByteAnywhereLeavesZerosAndTheNextStillOpens) {
    std::mt19937 random(8);
    for (Suite suite : kAllSuites) {
        for (const Module& module : modules(suite)) {
            SCOPED_TRACE(module.api->name);
            Cipher cipher(module, suite, random_bytes(random, key_size(suite)));
            for (int i = 0; i < 100; ++i) {
                Bytes text = random_bytes(random, 1 + random_size(random));
                const Bytes nonce = random_bytes(random, nonce_size(suite)),
                            aad = random_bytes(random, 1 + random() % 40);
                const auto sealed = cipher.seal(nonce, aad, whole(text));
                Bytes bad_nonce = nonce, bad_aad = aad, bad_text = sealed.text, bad_tag = sealed.tag;
                Bytes& victim = std::vector<Bytes*>{&bad_nonce, &bad_aad, &bad_text, &bad_tag}[random() % 4][0];
                victim[random() % victim.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);

                const auto pieces = [&](Bytes& out) { return i % 2 == 0 ? whole(out) : random_pieces(random, out); };
                Bytes opened(text.size(), 0xaa);
                ASSERT_EQ(cipher.open(bad_nonce, bad_aad, bad_text, bad_tag, pieces(opened)), CRYPTMPI_FORGED);
                ASSERT_EQ(opened, Bytes(text.size(), 0));
                ASSERT_EQ(cipher.open(nonce, aad, sealed.text, sealed.tag, pieces(opened)), CRYPTMPI_OK);
                ASSERT_EQ(opened, text);
            }
        }
    }
}

TEST(CrossModule, NothingAtAllCanBeSealed) {
    std::mt19937 random(9);
    for (Suite suite : kAllSuites) {
        std::vector<Bytes> tags;
        const Bytes key = random_bytes(random, key_size(suite)), nonce = random_bytes(random, nonce_size(suite));
        for (const Module& module : modules(suite)) {
            SCOPED_TRACE(module.api->name);
            Cipher cipher(module, suite, key);
            for (const std::vector<iovec>& nothing : {std::vector<iovec>{}, std::vector<iovec>{{nullptr, 0}},
                                                      std::vector<iovec>{{nullptr, 0}, {nullptr, 0}}}) {
                const auto sealed = cipher.seal(nonce, {}, nothing);
                EXPECT_EQ(sealed.status, CRYPTMPI_OK);
                EXPECT_EQ(cipher.open(nonce, {}, {}, sealed.tag, nothing), CRYPTMPI_OK);
                Bytes other = sealed.tag;
                other[0] ^= 1;
                EXPECT_EQ(cipher.open(nonce, {}, {}, other, nothing), CRYPTMPI_FORGED);
                tags.push_back(sealed.tag);
            }
        }
        for (const Bytes& tag : tags) EXPECT_EQ(tag, tags.front());
    }
}

TEST(CrossModule, AnUnknownSuiteHasNoContextAndNoContextCanBeDestroyed) {
    const Bytes key(32);
    for (const Module& module : inspect(module_folder()).usable) {
        for (int suite : {0, 9, -1, 1000}) EXPECT_EQ(module.api->aead->create(suite, key.data()), nullptr);
        for (const Suite suite : kAllSuites) {
            void* const context = module.api->aead->create(static_cast<int>(suite), key.data());
            EXPECT_EQ(context != nullptr, module.offers(suite));
            module.api->aead->destroy(context);
        }
        module.api->aead->destroy(nullptr);
    }
}

TEST(CrossModule, ThreadsWithContextsOfTheirOwnDoNotDisturbEachOther) {
    std::map<Suite, std::vector<Module>> of_suite;
    for (const Suite suite : kAllSuites)
        if (auto all = modules(suite); !all.empty()) of_suite[suite] = std::move(all);
    ASSERT_FALSE(of_suite.empty());
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 12; ++seed) {
        threads.emplace_back([&, seed] {
            std::mt19937 random(seed);
            for (const auto& [suite, all] : of_suite) {
                const Bytes key = random_bytes(random, key_size(suite));
                Cipher seals(all[seed % all.size()], suite, key), opens(all[random() % all.size()], suite, key);
                for (int i = 0; i < 20; ++i) {
                    Bytes text = random_bytes(random, random() % 3000), opened(text.size());
                    const Bytes nonce = random_bytes(random, nonce_size(suite));
                    const auto sealed = seals.seal(nonce, {}, random_pieces(random, text));
                    if (opens.open(nonce, {}, sealed.text, sealed.tag, whole(opened)) != CRYPTMPI_OK || opened != text)
                        ++wrong;
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cryptmpi::aead::test
