#include "keys/report_key.hpp"

#include <gtest/gtest.h>

#include "aead/registry.hpp"

namespace cryptmpi::keys {
namespace {

TEST(ReportKeyTest, TagsDependOnTheKeyAndTheText) {
    auto kex = aead::load_kex(CRYPTMPI_MODULE_FOLDER);
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
