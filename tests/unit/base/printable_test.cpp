#include "base/printable.hpp"

#include <gtest/gtest.h>

namespace cryptmpi {
namespace {

TEST(PrintableTest, LeavesWordsOfAnyLanguage) {
    for (const char* text : {"", "node 1", "M\u00fcller", "\u8a08\u7b97", "\U0001f600"})
        EXPECT_EQ(printable(text), text);
}

TEST(PrintableTest, ReplacesWhatATerminalObeysAndWhatMisleadsAReader) {
    for (const char* text :
         {"\x1b", "\n", "\r", "\t", "\x7f", "\u009b", "\u2028", "\u202e", "\u2066", "\u200b", "\ufeff"})
        EXPECT_EQ(printable(text), "\ufffd") << text;
    EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\ufffdb");
}

TEST(PrintableTest, ReplacesBytesThatAreNoUtf8OneByOne) {
    EXPECT_EQ(printable("\xff"), "\ufffd");
    EXPECT_EQ(printable("\xc3"), "\ufffd") << "cut off";
    EXPECT_EQ(printable("\xc0\xbc"), "\ufffd\ufffd") << "a long form of '<'";
    EXPECT_EQ(printable("\xc2\x3c"), "\ufffd<");
    EXPECT_EQ(printable("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "half a pair";
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd") << "beyond Unicode";
}

}  // namespace
}  // namespace cryptmpi
