#include <gtest/gtest.h>

#include "programs.hpp"

namespace cryptmpi::channel::fake {
namespace {

TEST(Connections, Smoke) {
    for (int i = 0; i < 200; ++i) {
        Options options;
        options.seed = i;
        Job job(options);
        Read read, back;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            read = read_from(fd, 1000);
            send_all(fd, clear(500));
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            send_all(fd, clear(1000));
            back = read_from(fd);
        });
        const Ending ending = job.run();
        ASSERT_TRUE(ending.went_well()) << ending.told();
        ASSERT_EQ(read.bytes, clear(1000));
        ASSERT_EQ(back.bytes, clear(500));
        ASSERT_TRUE(back.ended);
        ASSERT_EQ(ending.said.size(), 0u) << ending.told();
        if (i < 3) std::printf("%zu %zu calls %lu\n", ending.moved[0], ending.moved[1], ending.calls);
    }
}

}  // namespace
}  // namespace cryptmpi::channel::fake
