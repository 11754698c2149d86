#include "keys/report_key.hpp"

#include <gtest/gtest.h>

#include "aead/registry.hpp"

namespace cryptmpi::keys {
namespace {

// protocol: P1
TEST(ReportKeyTest, IsExpandedFromTheJobKeyAsDescribed) {
    auto kex = aead::load_kex(CRYPTMPI_MODULE_FOLDER, "auto");
    ASSERT_TRUE(kex) << kex.error().line;
    const auto hmac = [&](const std::vector<std::uint8_t>& key, std::string text) {
        std::vector<std::uint8_t> tag(32);
        const iovec in{text.data(), text.size()};
        EXPECT_EQ(kex->api->kex->hmac_sha256(tag.data(), key.data(), key.size(), &in, 1), CRYPTMPI_OK);
        return tag;
    };
    JobKey job_key;
    job_key.data()[31] = 7;
    const auto key = hmac({job_key.data(), job_key.data() + 32}, "cryptmpi 1 report\x01");
    std::string expected;
    for (const unsigned byte : hmac(key, "text")) {
        expected += "0123456789abcdef"[byte >> 4U];
        expected += "0123456789abcdef"[byte & 15U];
    }
    EXPECT_EQ(*ReportKey::derive(*kex->api->kex, job_key)->sign("text"), expected);
}

TEST(ReportKeyTest, TagsDependOnTheKeyAndTheText) {
    auto kex = aead::load_kex(CRYPTMPI_MODULE_FOLDER, "auto");
    ASSERT_TRUE(kex) << kex.error().line;
    JobKey one;
    JobKey other;
    other.data()[31] = 1;
    auto first = ReportKey::derive(*kex->api->kex, one);
    auto second = ReportKey::derive(*kex->api->kex, other);
    ASSERT_TRUE(first && second);
    const auto tag = first->sign("text");
    ASSERT_TRUE(tag);
    EXPECT_EQ(tag->size(), 64U);
    EXPECT_EQ(*tag, *first->sign("text"));
    EXPECT_NE(*tag, *first->sign("texts"));
    EXPECT_NE(*tag, *second->sign("text"));
}

}  // namespace
}  // namespace cryptmpi::keys
