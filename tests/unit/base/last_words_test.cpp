#include "base/last_words.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

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

TEST(LastWords, AreReadBeforeTheEnd) {
    const Pipe pipe;
    ASSERT_EQ(write(pipe.ends[1], "why", 3), 3);
    std::atomic<bool> has_read = false;
    std::thread reader([&] {
        constexpr timespec kLate{0, 20'000'000};
        nanosleep(&kLate, nullptr);
        has_read = true;
        std::array<char, 8> text{};
        EXPECT_EQ(read(pipe.ends[0], text.data(), text.size()), 3);
    });
    let_be_read(pipe.ends[1]);
    EXPECT_TRUE(has_read);
    reader.join();
}

TEST(LastWords, DoNotWaitForWhoNeverReads) {
    const Pipe pipe;
    ASSERT_EQ(write(pipe.ends[1], "why", 3), 3);
    let_be_read(pipe.ends[1]);  // the test would not end
    let_be_read(-1);
}

}  // namespace
}  // namespace cryptmpi
