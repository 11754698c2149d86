// Members: their key files, the lists of them, and what a signature is good for.
#include "keys/member_key.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "aead/registry.hpp"

namespace cryptmpi::keys {
namespace {

namespace fs = std::filesystem;

const cryptmpi_kex& kex() {
    static const Result<aead::Module> module = aead::load_kex(CRYPTMPI_MODULE_FOLDER, "auto");
    if (!module) throw std::runtime_error(module.error().line);
    return *module->api->kex;
}

class Members : public ::testing::Test {
protected:
    Members() {
        std::string name = (fs::temp_directory_path() / "members.XXXXXX").string();
        folder = ::mkdtemp(name.data());
    }
    ~Members() override { fs::remove_all(folder); }

    fs::path write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
        std::ofstream(folder / name) << text;
        ::chmod((folder / name).c_str(), mode);
        return folder / name;
    }

    fs::path folder;
};

std::string why(const Result<MemberList>& list) {
    return list ? "nothing" : list.error().line;
}

const std::string kDigits(64, 'a');

TEST_F(Members, AKeyIsTheSameWhenItIsReadAgain) {
    const auto made = MemberKey::make(kex(), folder / "new" / "member");
    ASSERT_TRUE(made) << made.error().line;
    const auto again = MemberKey::read(kex(), folder / "new" / "member");
    ASSERT_TRUE(again) << again.error().line;
    EXPECT_EQ(made->public_key(), again->public_key());
    struct stat found {};
    ASSERT_EQ(::stat((folder / "new" / "member").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777U, 0600U);
    const auto second = MemberKey::make(kex(), folder / "new" / "member");
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().line.find("exists: "), std::string::npos) << second.error().line;
}

TEST_F(Members, AKeyThatOthersMayReadIsRefused) {
    const auto file = write("member", "cryptmpi-member-key-1 " + kDigits + "\n", 0640);
    const auto key = MemberKey::read(kex(), file);
    ASSERT_FALSE(key);
    EXPECT_NE(key.error().line.find("member key file " + file.string() + " is open to others"), std::string::npos)
        << key.error().line;
}

TEST_F(Members, AJobKeyIsNoMemberKey) {
    const auto key = MemberKey::read(kex(), write("member", "cryptmpi-job-key-1 " + kDigits + "\n"));
    ASSERT_FALSE(key);
    EXPECT_NE(key.error().line.find("does not begin with \"cryptmpi-member-key-1 \""), std::string::npos);
}

TEST_F(Members, ASignatureIsOfOneMemberAndOneText) {
    const auto one = MemberKey::make(kex(), folder / "one");
    const auto other = MemberKey::make(kex(), folder / "other");
    ASSERT_TRUE(one && other);
    auto signature = one->sign(Purpose::attestation, "text");
    ASSERT_TRUE(signature);
    EXPECT_TRUE(verify(kex(), one->public_key(), Purpose::attestation, "text", *signature));
    EXPECT_FALSE(verify(kex(), other->public_key(), Purpose::attestation, "text", *signature));
    EXPECT_FALSE(verify(kex(), one->public_key(), Purpose::attestation, "texT", *signature));
    EXPECT_FALSE(verify(kex(), one->public_key(), Purpose::attestation, "", *signature));
    for (auto& byte : *signature) {
        byte ^= 1U;
        EXPECT_FALSE(verify(kex(), one->public_key(), Purpose::attestation, "text", *signature));
        byte ^= 1U;
    }
}

TEST_F(Members, AListNamesThoseItHas) {
    const auto one = MemberKey::make(kex(), folder / "one");
    ASSERT_TRUE(one);
    const auto list = MemberList::read(write(
        "list", "# who may\n\n" + line_of({"node7.site", one->public_key()}) + "\nb@c ed25519 " + kDigits + "\n"));
    ASSERT_TRUE(list) << list.error().line;
    ASSERT_NE(list->find(one->public_key()), nullptr);
    EXPECT_EQ(list->find(one->public_key())->name, "node7.site");
    MemberPublicKey unknown{};
    EXPECT_EQ(list->find(unknown), nullptr);
}

TEST_F(Members, WhatIsWrongWithALineIsSaid) {
    EXPECT_EQ(why(MemberList::parse("a ed25519\n")), "line 1 is not NAME ed25519 <64 hexadecimal digits>");
    EXPECT_EQ(why(MemberList::parse("\na ed25519 " + kDigits + " b\n")),
              "line 2 is not NAME ed25519 <64 hexadecimal digits>");
    EXPECT_EQ(why(MemberList::parse("a rsa " + kDigits)), "line 1 is of another algorithm than ed25519");
    for (const auto& digits : {kDigits.substr(1), kDigits + "a", "g" + kDigits.substr(1)})
        EXPECT_EQ(why(MemberList::parse("a ed25519 " + digits)), "line 1 has no key of 64 hexadecimal digits");
    EXPECT_EQ(why(MemberList::parse("a/b ed25519 " + kDigits)),
              "line 1 has a name of other characters than letters, digits and ._@-, of none, or of more than 64");
    EXPECT_EQ(why(MemberList::parse("a ed25519 " + kDigits + "\na ed25519 " + std::string(64, 'b'))),
              "line 2 has a name or a key that an earlier line has");
    EXPECT_EQ(why(MemberList::parse("a ed25519 " + kDigits + "\nb ed25519 " + kDigits)),
              "line 2 has a name or a key that an earlier line has");
}

TEST_F(Members, AListThatOthersMayWriteIsRefused) {
    const auto list = MemberList::read(write("list", "a ed25519 " + kDigits + "\n", 0664));
    ASSERT_FALSE(list);
    EXPECT_NE(list.error().line.find("nobody else may write"), std::string::npos) << list.error().line;
    const auto missing = MemberList::read(folder / "none");
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().line.find("cannot be read: No such file"), std::string::npos) << missing.error().line;
}

}  // namespace
}  // namespace cryptmpi::keys
