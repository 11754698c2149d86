#include "base/last_words.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace cryptmpi {
namespace {

struct Pipe {
    Pipe() {
        if (pipe(ends.data()) != 0) ADD_FAILURE();
    }
    ~Pipe() {
        for (const int end : ends) close(end);
    }
    std::array<int, 2> ends{};
};

TEST(LastWords, AreWaitedForUntilTheyAreRead) {
    const Pipe pipe;
    ASSERT_EQ(write(pipe.ends[1], "why", 3), 3);
    int waits = 0;
    let_be_read(pipe.ends[1], [&] {
        std::array<char, 8> text{};
        if (++waits < 3) return;
        EXPECT_EQ(read(pipe.ends[0], text.data(), text.size()), 3);
    });
    EXPECT_EQ(waits, 3);
}

TEST(LastWords, AreGivenUpWhereNobodyReads) {
    const Pipe pipe;
    ASSERT_EQ(write(pipe.ends[1], "why", 3), 3);
    int waits = 0;
    let_be_read(pipe.ends[1], [&] { ++waits; });
    EXPECT_EQ(waits, 50);
}

TEST(LastWords, AreOfPipesOnly) {
    let_be_read(-1, [] { ADD_FAILURE(); });
}

}  // namespace
}  // namespace cryptmpi
