#include "command/contexts.hpp"

#include <gtest/gtest.h>

namespace cryptmpi::command {
namespace {

using Words = std::vector<std::string>;

std::string refusal(const Words& words) {
    auto contexts = contexts_of(words);
    return contexts ? "" : contexts.error().line;
}

TEST(ContextsTest, OneProgram) {
    auto contexts = contexts_of({"./a", "-n", "2"});
    ASSERT_TRUE(contexts);
    ASSERT_EQ(contexts->size(), 1U);
    EXPECT_EQ(contexts->front().program, (Words{"./a", "-n", "2"}));
    EXPECT_EQ(contexts->front().ranks, 0);
}

TEST(ContextsTest, SeveralProgramsWithTheirOptions) {
    auto contexts = contexts_of(
        {"./a", "x", ":", "-host", "b", "-np", "2", "-env", "N", "V", "./b", "-n", "7", ":", "--np", "1", "./c"});
    ASSERT_TRUE(contexts) << contexts.error().line;
    ASSERT_EQ(contexts->size(), 3U);
    EXPECT_EQ(contexts->at(1).ranks, 2);
    EXPECT_EQ(contexts->at(1).options, (Words{"-host", "b", "-env", "N", "V"}));
    EXPECT_EQ(contexts->at(1).program, (Words{"./b", "-n", "7"}));
    EXPECT_EQ(contexts->at(2).ranks, 1);
    EXPECT_EQ(contexts->at(2).program, (Words{"./c"}));
}

TEST(ContextsTest, WhatIsNotKnownIsRefused) {
    EXPECT_NE(refusal({"./a", ":", "-n", "2", "--bind-to", "core", "./b"}).find("--bind-to"), std::string::npos);
    EXPECT_NE(refusal({"./a", ":", "./b"}).find("how many ranks of ./b"), std::string::npos);
    EXPECT_NE(refusal({"./a", ":"}).find("no program"), std::string::npos);
    EXPECT_NE(refusal({":", "-n", "1", "./b"}).find("no program"), std::string::npos);
    EXPECT_NE(refusal({"./a", ":", "-n"}).find("lacks its value"), std::string::npos);
    EXPECT_NE(refusal({"./a", ":", "-n", "x", "./b"}).find("no number"), std::string::npos);
}

}  // namespace
}  // namespace cryptmpi::command
