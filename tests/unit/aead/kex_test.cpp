// The key-agreement primitives: Wycheproof's vectors, the RFCs' examples, and what must fail.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bytes.hpp"

namespace cryptmpi::aead::test {
namespace {

/// Of each module that has the primitives.
class Kex : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        const Result<Module> module = load(CRYPTMPI_MODULE_FOLDER, GetParam());
        if (!module && GetParam() != "openssl") GTEST_SKIP() << module.error().line;
        ASSERT_TRUE(module) << module.error().line;
        kex_ = module->api->kex;
        ASSERT_NE(kex_, nullptr);
    }

    const cryptmpi_kex& kex() const { return *kex_; }

private:
    const cryptmpi_kex* kex_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Modules, Kex, testing::Values("openssl", "libsodium"),
                         [](const auto& one) { return one.param; });

nlohmann::json groups(const std::string& file) {
    std::ifstream stream(CRYPTMPI_TEST_DATA "/wycheproof/" + file);
    return nlohmann::json::parse(stream)["testGroups"];
}

Bytes hex(const nlohmann::json& field) {
    return from_hex(field.get<std::string>());
}

TEST_P(Kex, WycheproofX25519) {
    int ran = 0, refused = 0;
    for (const auto& group : groups("x25519_test.json")) {
        for (const auto& t : group["tests"]) {
            SCOPED_TRACE(t["tcId"].dump());
            const Bytes expected = hex(t["shared"]);
            Bytes shared(32);
            const int status = kex().x25519_shared(shared.data(), hex(t["private"]).data(), hex(t["public"]).data());
            if (expected == Bytes(32, 0)) {
                EXPECT_EQ(status, CRYPTMPI_FAILED);
                ++refused;
            } else {
                EXPECT_EQ(status, CRYPTMPI_OK);
                EXPECT_EQ(shared, expected);
            }
            ++ran;
        }
    }
    EXPECT_EQ(ran, 518);
    EXPECT_GT(refused, 10);
}

TEST_P(Kex, WycheproofEd25519) {
    int ran = 0, valid = 0;
    for (const auto& group : groups("ed25519_test.json")) {
        const Bytes key = hex(group["publicKey"]["pk"]);
        for (const auto& t : group["tests"]) {
            SCOPED_TRACE(t["tcId"].dump());
            const Bytes message = hex(t["msg"]), signature = hex(t["sig"]);
            if (signature.size() != 64) continue;  // the interface has no other lengths
            const int status = kex().ed25519_verify(signature.data(), key.data(), message.data(), message.size());
            EXPECT_EQ(status == CRYPTMPI_OK, t["result"] == "valid");
            valid += status == CRYPTMPI_OK;
            ++ran;
        }
    }
    EXPECT_EQ(ran, 139);
    EXPECT_EQ(valid, 88);
}

// RFC 8032, 7.1, tests 1 and 3.
TEST_P(Kex, Ed25519OfTheRfc) {
    const struct {
        const char *secret, *open, *message, *signature;
    } examples[] = {{"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
                     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd"
                     "25bf5f0595bbe"
                     "24655141438e7a100b"},
                    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
                     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
                     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594"
                     "a7c15e9716ed2"
                     "8dc027beceea1ec40a"}};
    for (const auto& example : examples) {
        const Bytes secret = from_hex(example.secret), message = from_hex(example.message);
        Bytes open(32), signature(64);
        ASSERT_EQ(kex().ed25519_public(open.data(), secret.data()), CRYPTMPI_OK);
        EXPECT_EQ(open, from_hex(example.open));
        ASSERT_EQ(kex().ed25519_sign(signature.data(), secret.data(), message.data(), message.size()), CRYPTMPI_OK);
        EXPECT_EQ(signature, from_hex(example.signature));
        EXPECT_EQ(kex().ed25519_verify(signature.data(), open.data(), message.data(), message.size()), CRYPTMPI_OK);
        open[0] ^= 1U;
        EXPECT_NE(kex().ed25519_verify(signature.data(), open.data(), message.data(), message.size()), CRYPTMPI_OK);
    }
}

TEST(Rsa, WycheproofOaep) {
    const Result<Module> module = load_rsa(CRYPTMPI_MODULE_FOLDER);
    ASSERT_TRUE(module) << module.error().line;
    const cryptmpi_rsa& rsa = *module->rsa;
    int opened = 0, refused = 0;
    for (const auto& group : groups("rsa_oaep_3072_sha256_mgf1sha256_test.json")) {
        const auto pem = group["privateKeyPem"].get<std::string>();
        void* const key = rsa.read(reinterpret_cast<const std::uint8_t*>(pem.data()), pem.size());
        ASSERT_NE(key, nullptr);
        Bytes modulus(384), expected = hex(group["privateKey"]["modulus"]);
        EXPECT_EQ(rsa.modulus(key, modulus.data(), modulus.size()), CRYPTMPI_OK);
        if (expected.size() == 385) expected.erase(expected.begin());  // a sign
        EXPECT_EQ(modulus, expected);
        for (const auto& t : group["tests"]) {
            SCOPED_TRACE(t["tcId"].dump());
            const Bytes message = hex(t["msg"]), wrapped = hex(t["ct"]), label = hex(t["label"]);
            Bytes secret(message.size() + 1, 0xee);
            const int status = rsa.unwrap(secret.data(), message.size(), key, label.data(), label.size(),
                                          wrapped.data(), wrapped.size());
            const bool valid = t["result"] == "valid";
            EXPECT_EQ(status, valid ? CRYPTMPI_OK : CRYPTMPI_FORGED);
            secret.resize(message.size());
            EXPECT_EQ(secret, valid ? message : Bytes(message.size(), 0));
            ++(valid ? opened : refused);
        }
        rsa.destroy(key);
    }
    EXPECT_EQ(opened, 18);
    EXPECT_EQ(refused, 19);
}

TEST(Rsa, WhatIsWrappedOpensUnderItsLabelAndLengthOnly) {
    const Result<Module> module = load_rsa(CRYPTMPI_MODULE_FOLDER);
    ASSERT_TRUE(module) << module.error().line;
    const cryptmpi_rsa& rsa = *module->rsa;
    void* const key = rsa.generate(3072);
    ASSERT_NE(key, nullptr);
    Bytes modulus(384), wrapped(384), again(384), other(384), secret(32, 7), label = {1, 2, 3};
    EXPECT_EQ(rsa.modulus(key, modulus.data(), 256), CRYPTMPI_FAILED);
    ASSERT_EQ(rsa.modulus(key, modulus.data(), 384), CRYPTMPI_OK);
    const auto wrap = [&](Bytes& to) {
        return rsa.wrap(to.data(), modulus.data(), 384, label.data(), label.size(), secret.data(), secret.size());
    };
    ASSERT_EQ(wrap(wrapped), CRYPTMPI_OK);
    ASSERT_EQ(wrap(again), CRYPTMPI_OK);
    EXPECT_NE(wrapped, again);
    Bytes found(32);
    EXPECT_EQ(rsa.unwrap(found.data(), 32, key, label.data(), 3, wrapped.data(), 384), CRYPTMPI_OK);
    EXPECT_EQ(found, secret);
    EXPECT_EQ(rsa.unwrap(found.data(), 32, key, label.data(), 2, wrapped.data(), 384), CRYPTMPI_FORGED);
    EXPECT_EQ(found, Bytes(32, 0));
    EXPECT_EQ(rsa.unwrap(found.data(), 31, key, label.data(), 3, wrapped.data(), 384), CRYPTMPI_FORGED);
    wrapped[100] ^= 1;
    EXPECT_EQ(rsa.unwrap(found.data(), 32, key, label.data(), 3, wrapped.data(), 384), CRYPTMPI_FORGED);
    std::size_t size = 8192;
    Bytes pem(size);
    ASSERT_EQ(rsa.write(key, pem.data(), &size), CRYPTMPI_OK);
    void* const read = rsa.read(pem.data(), size);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(rsa.modulus(read, other.data(), 384), CRYPTMPI_OK);
    EXPECT_EQ(other, modulus);
    EXPECT_EQ(rsa.read(pem.data(), size / 2), nullptr);
    size = 10;
    EXPECT_EQ(rsa.write(key, pem.data(), &size), CRYPTMPI_FAILED);
    rsa.destroy(read);
    rsa.destroy(key);
    rsa.destroy(nullptr);
}

TEST_P(Kex, WycheproofHmacSha256) {
    int ran = 0;
    std::mt19937 random(3);
    for (const auto& group : groups("hmac_sha256_test.json")) {
        for (const auto& t : group["tests"]) {
            SCOPED_TRACE(t["tcId"].dump());
            const Bytes key = hex(t["key"]), tag = hex(t["tag"]);
            Bytes message = hex(t["msg"]), mac(32);
            for (const auto& pieces : {whole(message), random_pieces(random, message)}) {
                ASSERT_EQ(kex().hmac_sha256(mac.data(), key.data(), key.size(), pieces.data(), pieces.size()),
                          CRYPTMPI_OK);
                EXPECT_EQ(std::equal(tag.begin(), tag.end(), mac.begin()), t["result"] == "valid");
            }
            ++ran;
        }
    }
    EXPECT_EQ(ran, 174);
}

TEST_P(Kex, HmacWithAnEmptyKey) {
    Bytes mac(32);
    ASSERT_EQ(kex().hmac_sha256(mac.data(), nullptr, 0, nullptr, 0), CRYPTMPI_OK);
    EXPECT_EQ(mac, from_hex("b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"));
}

TEST_P(Kex, PublicKeyIsTheBasePointTimesThePrivateKey) {
    std::mt19937 random(4);
    Bytes base_point(32), expected(32), key(32);
    base_point[0] = 9;
    for (int i = 0; i < 20; ++i) {
        const Bytes own = random_bytes(random, 32);
        ASSERT_EQ(kex().x25519_shared(expected.data(), own.data(), base_point.data()), CRYPTMPI_OK);
        ASSERT_EQ(kex().x25519_public(key.data(), own.data()), CRYPTMPI_OK);
        EXPECT_EQ(key, expected);
    }
}

TEST_P(Kex, Sha256OfFips180) {
    Bytes digest(32);
    ASSERT_EQ(kex().sha256(digest.data(), nullptr, 0), CRYPTMPI_OK);
    EXPECT_EQ(digest, from_hex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    char a[] = "a", bc[] = "bc";
    const iovec pieces[] = {{a, 1}, {nullptr, 0}, {bc, 2}};
    ASSERT_EQ(kex().sha256(digest.data(), pieces, 3), CRYPTMPI_OK);
    EXPECT_EQ(digest, from_hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}

TEST_P(Kex, RandomBytesDifferAlsoInAForkedChild) {
    Bytes first(32), second(32), childs(32);
    ASSERT_EQ(kex().random(first.data(), 32), CRYPTMPI_OK);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool ok = kex().random(childs.data(), 32) == CRYPTMPI_OK && write(ends[1], childs.data(), 32) == 32;
        _exit(ok ? 0 : 1);
    }
    ASSERT_EQ(kex().random(second.data(), 32), CRYPTMPI_OK);
    ASSERT_EQ(read(ends[0], childs.data(), 32), 32);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    close(ends[0]);
    close(ends[1]);
    EXPECT_NE(first, second);
    EXPECT_NE(second, childs);
    EXPECT_EQ(kex().random(nullptr, 0), CRYPTMPI_OK);
}

/// From now on the kernel gives this process no random bytes by the call for them.
bool without_random_bytes() {
    std::array<sock_filter, 4> filter = {{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
                                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
    const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// What `child` returns, in a child that gets no random bytes; -1: it did not come to its end.
template <class Child>
int status_without_random_bytes(Child child) {
    const pid_t pid = fork();
    if (pid == 0) _exit(without_random_bytes() ? child() : 77);
    int status = -1;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

// libsodium's own generator ends the process.
TEST(Libsodium, RandomBytesThatThereAreNotAreAnError) {
    const auto module = load(CRYPTMPI_MODULE_FOLDER, "libsodium");
    if (!module) GTEST_SKIP() << module.error().line;
    const int status = status_without_random_bytes([&] {
        Bytes drawn(32);
        return module->api->kex->random(drawn.data(), drawn.size()) == CRYPTMPI_FAILED ? 0 : 1;
    });
    if (status == 77) GTEST_SKIP() << "no seccomp filters here";
    EXPECT_EQ(status, 0);
}

TEST(Libsodium, IsNotStartedWithoutRandomBytes) {
    if (!load(CRYPTMPI_MODULE_FOLDER, "libsodium")) GTEST_SKIP() << "libsodium missing";
    // At a path of its own, so that it is not started yet.
    const std::filesystem::path folder = testing::TempDir() + "cryptmpi-random-" + std::to_string(getpid());
    std::filesystem::create_directory(folder);
    std::filesystem::copy(CRYPTMPI_MODULE_FOLDER "/cryptmpi-module-libsodium.so", folder);
    const int status = status_without_random_bytes([&] {
        const auto module = load(folder, "libsodium");
        return !module && module.error().line.find("the kernel gives no random bytes") != std::string::npos ? 0 : 1;
    });
    std::filesystem::remove_all(folder);
    if (status == 77) GTEST_SKIP() << "no seccomp filters here";
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cryptmpi::aead::test
