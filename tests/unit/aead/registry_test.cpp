// Finding, refusing and choosing modules.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bytes.hpp"

namespace cryptmpi::aead::test {
namespace {

const std::string kBroken = CRYPTMPI_ODD_MODULES "/broken";
const std::string kKeys = CRYPTMPI_ODD_MODULES "/keys";
const std::string kSpeeds = CRYPTMPI_ODD_MODULES "/speeds";

class EmptyFolder {
public:
    EmptyFolder() {
        static int made = 0;  // what was loaded from one stays loaded, so that none has another's name
        path_ = testing::TempDir() + "cryptmpi-modules-" + std::to_string(getpid()) + "-" + std::to_string(++made);
        std::filesystem::create_directory(path_);
    }
    ~EmptyFolder() { std::filesystem::remove_all(path_); }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

std::string load_error(const std::string& folder, const std::string& name) {
    const auto module = load(folder, name);
    return module ? "no error" : module.error().line;
}

bool is_installed(const std::string& name) {
    const auto names = installed(CRYPTMPI_MODULE_FOLDER);
    return std::binary_search(names.begin(), names.end(), name);
}

void expect_line(const std::string& line, const std::string& part) {
    EXPECT_NE(line.find(part), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
}

TEST(Suites, ByNameAndNumber) {
    EXPECT_EQ(suite_by_name("AES-256-GCM"), Suite::aes_256_gcm);
    EXPECT_EQ(suite_by_name("aes-128-gcm"), Suite::aes_128_gcm);
    EXPECT_EQ(suite_by_name("AEGIS-128L"), Suite::aegis_128l);
    EXPECT_EQ(suite_by_name("aegis-256x4"), Suite::aegis_256x4);
    for (const char* unknown : {"", "AES", "AES-256-GCM ", "AES-192-GCM", "AES-256-GCMx", "AEGIS-128", "AEGIS-128X"})
        EXPECT_EQ(suite_by_name(unknown), std::nullopt) << unknown;
    EXPECT_EQ(suite_by_number(1), Suite::aes_128_gcm);
    EXPECT_EQ(suite_by_number(2), Suite::aes_256_gcm);
    EXPECT_EQ(suite_by_number(5), Suite::aegis_128x4);
    EXPECT_EQ(suite_by_number(9), Suite::legacy_3des);
    for (unsigned unknown : {0U, 10U, 257U}) EXPECT_EQ(suite_by_number(unknown), std::nullopt);
    for (const Suite suite : kAllSuites) {
        EXPECT_EQ(suite_by_name(name(suite)), suite);
        EXPECT_EQ(suite_by_number(static_cast<unsigned>(suite)), suite);
        EXPECT_TRUE(key_size(suite) == 16 || key_size(suite) == 32);
        EXPECT_LE(nonce_size(suite), std::size_t{CRYPTMPI_MAX_NONCE_SIZE});
    }
}

TEST(Registry, ListsWhatIsInstalled) {
    EXPECT_EQ(installed(kSpeeds), (std::vector<std::string>{"quick", "slow"}));
    EXPECT_TRUE(installed("/nonexistent").empty());
    EmptyFolder folder;
    for (const char* name : {"cryptmpi-module-.so", "cryptmpi-module-b.so", "cryptmpi-module-a.so.1", "libfoo.so"})
        std::ofstream(folder.path() + "/" + name) << "text";
    EXPECT_EQ(installed(folder.path()), std::vector<std::string>{"b"});
}

TEST(Registry, UnknownModuleNamesThoseThatExist) {
    EXPECT_EQ(load_error(kSpeeds, "foo"), "unknown module 'foo' (module=...): installed are quick, slow");
    EXPECT_EQ(load_error(kSpeeds, "../speeds/quick"),
              "unknown module '../speeds/quick' (module=...): installed are quick, slow");
    EXPECT_EQ(load_error(kSpeeds, ""), "unknown module '' (module=...): installed are quick, slow");
}

TEST(Registry, NoModulesAtAll) {
    EmptyFolder folder;
    expect_line(load_error(folder.path(), "openssl"),
                "no crypto module (cryptmpi-module-NAME.so) in '" + folder.path());
    const auto chosen = choose(folder.path(), "auto", Suite::aes_256_gcm);
    ASSERT_FALSE(chosen);
    expect_line(chosen.error().line, "set module_folder");
    const auto kex = load_kex(folder.path(), "auto");
    ASSERT_FALSE(kex);
    expect_line(kex.error().line, "no crypto module");
}

TEST(Registry, RefusesABrokenModuleAndSaysWhy) {
    expect_line(load_error(kBroken, "wrong-abi"), "it speaks module ABI 99, this CryptMPI 2: rebuild it");
    expect_line(load_error(kBroken, "no-symbol"), "it exports no symbol cryptmpi_module");
    expect_line(load_error(kBroken, "no-open"), "its table of functions is incomplete");
    expect_line(load_error(kBroken, "misnamed"), "it calls itself 'other'");
    expect_line(load_error(kBroken, "wrong-cpu"), "module 'wrong-cpu' cannot be used here: this CPU lacks everything");
    expect_line(load_error(kBroken, "needs-library"), "libodd-absent.so: cannot open shared object file");
    EmptyFolder folder;
    std::ofstream(folder.path() + "/cryptmpi-module-text.so") << "not a shared object";
    expect_line(load_error(folder.path(), "text"), "module 'text' cannot be used here: ");
}

TEST(Registry, AModuleThatRefusedIsNotStartedAgain) {
    for (int i = 0; i < 3; ++i) expect_line(load_error(kBroken, "wrong-cpu"), "this CPU lacks everything");
}

TEST(Registry, InspectTellsTheReasons) {
    const Inventory inventory = inspect(kBroken);
    ASSERT_EQ(inventory.usable.size(), 1U);
    EXPECT_STREQ(inventory.usable.front().api->name, "no-suite");
    ASSERT_EQ(inventory.unusable.size(), 6U);
    EXPECT_EQ(inventory.unusable.back().name, "wrong-cpu");
    EXPECT_EQ(inventory.unusable.back().reason, "this CPU lacks everything");
}

TEST(Registry, NoUsableModuleListsEachWithItsReason) {
    const auto chosen = choose(kBroken, "auto", Suite::aes_256_gcm);
    ASSERT_FALSE(chosen);
    expect_line(chosen.error().line, "offers AES-256-GCM");
    expect_line(chosen.error().line, "; wrong-abi: it speaks module ABI 99");
    const auto kex = load_kex(kBroken, "auto");
    ASSERT_FALSE(kex);
    expect_line(kex.error().line, "offers key agreement and AES-256-GCM (the module openssl does)");
    expect_line(kex.error().line, "; wrong-cpu: this CPU lacks everything");
}

TEST(Registry, TheKeyAgreementsModuleSealsHellosToo) {
    ASSERT_TRUE(load(kKeys, "only-128"));
    const auto kex = load_kex(kKeys, "auto");
    ASSERT_FALSE(kex);
    expect_line(kex.error().line, "offers key agreement and AES-256-GCM");
}

TEST(Registry, OnlyTheModuleAegisOffersAegis) {
    const auto aegis = load(CRYPTMPI_MODULE_FOLDER, "aegis");
    ASSERT_TRUE(aegis) << aegis.error().line;
    EXPECT_EQ(aegis->api->kex, nullptr);
    for (const Suite suite : kAllSuites) {
        const bool of_aegis = name(suite).starts_with("AEGIS");
        EXPECT_EQ(aegis->offers(suite), of_aegis);
        const auto chosen = choose(CRYPTMPI_MODULE_FOLDER, "auto", suite);
        EXPECT_EQ(chosen && std::string(chosen->api->name) == "aegis", of_aegis) << name(suite);
    }
    const auto named = choose(CRYPTMPI_MODULE_FOLDER, "openssl", Suite::aegis_128l);
    ASSERT_FALSE(named);
    expect_line(named.error().line, "module 'openssl' does not offer AEGIS-128L here");
}

TEST(Registry, AModuleWithoutTheSuiteIsRefusedByNameAndSkippedByAuto) {
    const auto named = choose(kSpeeds, "quick", Suite::aes_128_gcm);
    ASSERT_FALSE(named);
    expect_line(named.error().line, "module 'quick' does not offer AES-128-GCM here");
    EXPECT_FALSE(choose(kSpeeds, "auto", Suite::aes_128_gcm));
}

TEST(Registry, AutoTakesTheFastest) {
    const auto chosen = choose(kSpeeds, "auto", Suite::aes_256_gcm);
    ASSERT_TRUE(chosen) << chosen.error().line;
    EXPECT_STREQ(chosen->api->name, "quick");
    const auto named = choose(kSpeeds, "slow", Suite::aes_256_gcm);
    ASSERT_TRUE(named);
    EXPECT_STREQ(named->api->name, "slow");
}

TEST(Registry, AutoChoosesAmongTheRealModules) {
    for (Suite suite : kAllSuites) {
        const auto chosen = choose(CRYPTMPI_MODULE_FOLDER, "auto", suite);
        if (is_legacy(suite) && !is_installed("legacy")) {  // it needs a library that may be missing
            EXPECT_FALSE(chosen);
            continue;
        }
        ASSERT_TRUE(chosen) << chosen.error().line;
        EXPECT_TRUE(chosen->offers(suite));
        EXPECT_EQ(std::string(chosen->api->name) == "legacy", is_legacy(suite));
    }
}

TEST(Registry, TheKeyAgreementIsOfTheModuleNamedOrTheOneThatLoadsSoonest) {
    const auto of = [](const std::string& named) {
        const auto kex = load_kex(CRYPTMPI_MODULE_FOLDER, named);
        return kex ? std::string(kex->api->name) : kex.error().line;
    };
    const bool soonest = is_installed("libsodium") && load(CRYPTMPI_MODULE_FOLDER, "libsodium");
    EXPECT_EQ(of("auto"), soonest ? "libsodium" : "openssl");
    EXPECT_EQ(of("openssl"), "openssl");
    EXPECT_EQ(of("aegis"), of("auto"));  // which has no key agreement
}

TEST(Registry, AModuleThatIsNamedAndCannotBeUsedIsNotReplacedForHandshakes) {
    EmptyFolder folder;
    for (const auto& [from, name] : {std::pair(std::string(CRYPTMPI_MODULE_FOLDER), "openssl"),
                                     std::pair(kBroken, "needs-library"), std::pair(kBroken, "wrong-cpu")}) {
        const std::string file = "/cryptmpi-module-" + std::string(name) + ".so";
        std::filesystem::copy(from + file, folder.path() + file);
    }
    ASSERT_TRUE(load_kex(folder.path(), "auto"));
    const auto error_of = [&](const std::string& named) {
        const auto kex = load_kex(folder.path(), named);
        return kex ? std::string("no error: ") + kex->api->name : kex.error().line;
    };
    for (const char* named : {"needs-library", "wrong-cpu", "none"})
        EXPECT_EQ(error_of(named), load_error(folder.path(), named));
    expect_line(error_of("needs-library"), "module 'needs-library' cannot be used here: libodd-absent.so");
    expect_line(error_of("wrong-cpu"), "this CPU lacks everything (module=auto takes one that can)");
    expect_line(error_of("none"),
                "unknown module 'none' (module=...): installed are needs-library, openssl, wrong-cpu");
}

TEST(Registry, AModuleWithKeyAgreementAndWithoutItsCipherIsNotReplacedForHandshakes) {
    const auto kex = load_kex(kKeys, "only-128");
    ASSERT_FALSE(kex);
    EXPECT_EQ(kex.error().line,
              "module 'only-128' has key agreement, but not the AES-256-GCM that handshakes are sealed with: set "
              "module=auto, or name one that has both (openssl)");
}

TEST(Registry, TheDigestIsOfOpensslWhateverMakesTheHandshakes) {
    const auto digest = load_sha256(CRYPTMPI_MODULE_FOLDER);
    ASSERT_TRUE(digest) << digest.error().line;
    EXPECT_STREQ(digest->api->name, "openssl");
    const auto none = load_sha256(kSpeeds);
    ASSERT_FALSE(none);
    expect_line(none.error().line, "offers SHA-256 (the module openssl does)");
}

TEST(Registry, RsaIsOfOpensslThoughTheKeyAgreementIsOfAnother) {
    const auto rsa = load_rsa(CRYPTMPI_MODULE_FOLDER);
    ASSERT_TRUE(rsa) << rsa.error().line;
    EXPECT_STREQ(rsa->api->name, "openssl");
    const auto none = load_rsa(kKeys);
    ASSERT_FALSE(none);
    expect_line(none.error().line, "offers RSA-OAEP (the module openssl does)");
}

bool is_loaded(const std::string& folder, const std::string& name) {
    const std::string path = std::filesystem::canonical(folder + "/cryptmpi-module-" + name + ".so");
    void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) dlclose(handle);
    return handle != nullptr;
}

/// Of the build's modules, at other paths, so that no other test has loaded them.
std::string copies_of(const EmptyFolder& folder, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        const std::string file = "/cryptmpi-module-" + name + ".so";
        std::filesystem::copy(CRYPTMPI_MODULE_FOLDER + file, folder.path() + file);
    }
    return folder.path();
}

TEST(Registry, AutoDoesNotLoadWhatCannotWin) {
    EmptyFolder folder;
    const std::string path = copies_of(folder, installed(CRYPTMPI_MODULE_FOLDER));
    const auto chosen = choose(path, "auto", Suite::aes_256_gcm);
    ASSERT_TRUE(chosen) << chosen.error().line;
    for (const char* name : {"aegis", "legacy", "cryptopp", "libsodium", "mbedtls"})
        if (is_installed(name)) {
            EXPECT_FALSE(is_loaded(path, name)) << name;
        }
    const bool quickest = is_installed("ipsec-mb") && load(path, "ipsec-mb");
    for (const char* name : {"boringssl", "openssl"})
        if (is_installed(name)) {
            EXPECT_EQ(is_loaded(path, name), !quickest) << name;
        }
}

TEST(Registry, AutoTakesWhatCannotWinWhereThereIsNothingElse) {
    for (const char* name : {"cryptopp", "libsodium", "mbedtls", "boringssl"}) {
        if (!is_installed(name)) continue;
        EmptyFolder folder;
        const std::string path = copies_of(folder, {name, "aegis"});
        const bool usable = load(path, name).has_value();
        const auto chosen = choose(path, "auto", Suite::aes_256_gcm);
        EXPECT_EQ(chosen && chosen->api->name == std::string(name), usable) << name;
    }
}

TEST(Registry, AModuleSaysWhatItHasWhereItLacksTheCipher) {
    if (!is_installed("libsodium") || !load(CRYPTMPI_MODULE_FOLDER, "libsodium")) GTEST_SKIP() << "libsodium missing";
    const auto chosen = choose(CRYPTMPI_MODULE_FOLDER, "libsodium", Suite::aes_128_gcm);
    ASSERT_FALSE(chosen);
    EXPECT_EQ(
        chosen.error().line,
        "module 'libsodium' does not offer AES-128-GCM here, only AES-256-GCM: set another cipher or module=auto");
}

TEST(Registry, MeasureGivesPositiveTimes) {
    const auto module = load(CRYPTMPI_MODULE_FOLDER, "openssl");
    ASSERT_TRUE(module);
    for (std::size_t size : {0UL, 1UL, 64UL, 16384UL, 1048576UL}) {
        const auto speed = measure(*module, Suite::aes_256_gcm, size, 3);
        ASSERT_TRUE(speed);
        EXPECT_GT(speed->seal_s, 0);
        EXPECT_GT(speed->open_s, 0);
    }
    EXPECT_FALSE(measure(*load(kBroken, "no-suite"), Suite::aes_256_gcm, 64, 0)->seal_s < 0);
}

TEST(Registry, ThreadsLoadAModuleOnce) {
    // Under a name of its own, so that no other test has loaded it yet; the odd module refuses a second start.
    EmptyFolder folder;
    std::filesystem::copy(kSpeeds + "/cryptmpi-module-quick.so", folder.path() + "/cryptmpi-module-quick.so");
    std::vector<const cryptmpi_module*> found(16);
    std::vector<std::thread> threads;
    for (auto& slot : found)
        threads.emplace_back([&] {
            if (const auto module = load(folder.path(), "quick")) slot = module->api;
        });
    for (auto& thread : threads) thread.join();
    for (const auto* api : found) {
        EXPECT_NE(api, nullptr);
        EXPECT_EQ(api, found.front());
    }
}

}  // namespace
}  // namespace cryptmpi::aead::test
