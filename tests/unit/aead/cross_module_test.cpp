// What one module seals, each other opens; what has been tampered with, none.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
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

// protocol: L3
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
        for (int suite : {0, 10, -1, 1000}) EXPECT_EQ(module.api->aead->create(suite, key.data()), nullptr);
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

// Sanitizers change the stack's frames, and without optimization everything is in them.
#if defined(NDEBUG) && !defined(CRYPTMPI_SANITIZED)

constexpr std::size_t kStack = 16384;
constexpr std::size_t kRegister = 16;
#if defined(__x86_64__)
#define COPY_REGISTERS(to)                                                                                      \
    asm volatile(                                                                                               \
        "movdqu %%xmm0, (%0)\n movdqu %%xmm1, 16(%0)\n movdqu %%xmm2, 32(%0)\n movdqu %%xmm3, 48(%0)\n"         \
        "movdqu %%xmm4, 64(%0)\n movdqu %%xmm5, 80(%0)\n movdqu %%xmm6, 96(%0)\n movdqu %%xmm7, 112(%0)\n"      \
        "movdqu %%xmm8, 128(%0)\n movdqu %%xmm9, 144(%0)\n movdqu %%xmm10, 160(%0)\n movdqu %%xmm11, 176(%0)\n" \
        "movdqu %%xmm12, 192(%0)\n movdqu %%xmm13, 208(%0)\n movdqu %%xmm14, 224(%0)\n movdqu %%xmm15, 240(%0)" \
        :                                                                                                       \
        : "r"(to)                                                                                               \
        : "memory")
#else
#define COPY_REGISTERS(to)
#endif

[[gnu::noinline]] void clear_stack() {
    std::uint8_t below[kStack];
    explicit_bzero(below, sizeof below);
}

// What the program's next functions, MPI's among them, would find in their frames; or the loader, when it binds them,
// in vector registers, which it writes there.
TEST(CrossModule, NoKeyIsLeftBehind) {
    std::mt19937 random(10);
    Bytes left(16 * kRegister + kStack);
    std::uint8_t* const copy = left.data();
    for (const Suite suite : kAllSuites) {
        for (const Module& module : modules(suite)) {
            const cryptmpi_aead& aead = *module.api->aead;
            const Bytes key = random_bytes(random, key_size(suite));
            const std::unique_ptr<void, void (*)(void*)> context(aead.create(static_cast<int>(suite), key.data()),
                                                                 aead.destroy);
            for (const std::size_t size : {1U, 5U, 100U, 1000U, 3000U, 60000U}) {
                for (const bool sealing : {true, false}) {
                    for (const std::size_t count : {1U, 2U}) {
                        SCOPED_TRACE(std::string(module.api->name) + ", " + std::string(name(suite)) + ", " +
                                     std::to_string(size) + " bytes in " + std::to_string(count) +
                                     (sealing ? ", sealed" : ", opened"));
                        Bytes text = random_bytes(random, size), other(size), tag(CRYPTMPI_TAG_SIZE);
                        const Bytes nonce = random_bytes(random, nonce_size(suite));
                        const std::size_t first = count == 1 ? size : size / 2;
                        const iovec pieces[] = {{text.data(), first}, {text.data() + first, size - first}};
                        std::uint8_t* const out = other.data();
                        std::uint8_t* const out_tag = tag.data();
                        const std::uint8_t* const with = nonce.data();
                        void* const cipher = context.get();
                        clear_stack();
                        if (sealing)
                            aead.seal(cipher, with, nullptr, 0, pieces, count, out, out_tag);
                        else
                            aead.open(cipher, with, nullptr, 0, out, size, pieces, count, out_tag);
                        // No call, and no vector, before this is done.
                        COPY_REGISTERS(copy);
                        const volatile std::uint8_t* const below =
                            static_cast<const std::uint8_t*>(__builtin_frame_address(0)) - kStack;
                        for (std::size_t i = 0; i < kStack; ++i) copy[16 * kRegister + i] = below[i];
                        for (std::size_t at = 0; at < key.size(); at += 8)
                            EXPECT_EQ(std::search(left.begin(), left.end(), key.begin() + at, key.begin() + at + 8),
                                      left.end());
                    }
                }
            }
        }
    }
}

// The same of the key agreement: what it was given in secret, and what it made of it.
TEST(CrossModule, NoSecretOfTheKeyAgreementIsLeftBehind) {
    std::mt19937 random(12);
    Bytes left(16 * kRegister + kStack);
    std::uint8_t* const copy = left.data();
    for (const char* name : {"openssl", "libsodium"}) {
        const auto module = load(CRYPTMPI_MODULE_FOLDER, name);
        if (!module && name != std::string("openssl")) continue;  // of a library that is not there
        ASSERT_TRUE(module) << module.error().line;
        const cryptmpi_kex& kex = *module->api->kex;
        const Bytes peer = random_bytes(random, 32), message = random_bytes(random, 50);
        const iovec piece{const_cast<std::uint8_t*>(message.data()), message.size()};
        Bytes secret = random_bytes(random, 32), made(64);
        std::uint8_t *const own = secret.data(), *const out = made.data();
        const std::uint8_t *const theirs = peer.data(), *const text = message.data();
        for (int round = 0; round < 2; ++round) {  // first calls bind functions
            for (int what = 0; what < 5; ++what) {
                SCOPED_TRACE(std::string(name) + ", " + std::to_string(what));
                int status = CRYPTMPI_FAILED;
                clear_stack();
                if (what == 0) status = kex.x25519_public(out, own);
                if (what == 1) status = kex.x25519_shared(out, own, theirs);
                if (what == 2) status = kex.ed25519_public(out, own);
                if (what == 3) status = kex.ed25519_sign(out, own, text, 50);
                if (what == 4) status = kex.hmac_sha256(out, own, 32, &piece, 1);
                COPY_REGISTERS(copy);
                const volatile std::uint8_t* const below =
                    static_cast<const std::uint8_t*>(__builtin_frame_address(0)) - kStack;
                for (std::size_t i = 0; i < kStack; ++i) copy[16 * kRegister + i] = below[i];
                EXPECT_EQ(status, CRYPTMPI_OK);
                for (std::size_t at = 8; at < 24; at += 8) {  // the ends of a key are changed before it is used
                    EXPECT_EQ(std::search(left.begin(), left.end(), own + at, own + at + 8), left.end());
                    if (what == 1 || what == 4) {
                        EXPECT_EQ(std::search(left.begin(), left.end(), out + at, out + at + 8), left.end());
                    }
                }
            }
        }
    }
}

/// Whether eight bytes stand anywhere in this process' memory, at a multiple of four; given inverted, or they always
/// do.
bool in_memory(std::uint64_t inverted) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        char access[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) != 3 || std::string(access, 2) != "rw")
            continue;
        for (std::uintptr_t at = begin; at + sizeof inverted <= end; at += 4) {
            std::uint64_t word = 0;
            std::memcpy(&word, reinterpret_cast<const void*>(at), sizeof word);
            if ((word ^ inverted) == ~std::uint64_t{0}) return true;
        }
    }
    return false;
}

[[gnu::noinline]] void* context_for(const cryptmpi_aead& aead, Suite suite, std::uint64_t inverted) {
    std::uint64_t key[4];
    for (std::uint64_t& word : key) word = ~inverted;
    void* const context = aead.create(static_cast<int>(suite), reinterpret_cast<const std::uint8_t*>(key));
    explicit_bzero(key, sizeof key);
    return context;
}

TEST(CrossModule, AContextsEndIsItsKeysEnd) {
    std::mt19937_64 random(11);
    for (const Suite suite : {Suite::aes_256_gcm, Suite::aegis_256, Suite::legacy_3des}) {
        for (const Module& module : modules(suite)) {
            SCOPED_TRACE(module.api->name);
            const std::uint64_t inverted = random();
            void* const context = context_for(*module.api->aead, suite, inverted);
            clear_stack();
            ASSERT_NE(context, nullptr);
            EXPECT_EQ(in_memory(inverted), !is_legacy(suite));  // that one keeps only what it made of the key
            module.api->aead->destroy(context);
            clear_stack();
            EXPECT_FALSE(in_memory(inverted));
        }
    }
}

#endif

}  // namespace
}  // namespace cryptmpi::aead::test
