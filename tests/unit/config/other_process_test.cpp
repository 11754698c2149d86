#include "config/other_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace cryptmpi::config {
namespace {

TEST(OtherProcess, HasAnEnvironment) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
        const char* const line[] = {"sleep", "60", nullptr};
        const char* const variables[] = {"PMI_RANK=3", "EMPTY=", nullptr};
        execve("/bin/sleep", const_cast<char* const*>(line), const_cast<char* const*>(variables));
        _exit(1);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 0);  // the program has begun
    close(ready[0]);
    auto environment = environment_of(child);
    for (int i = 0; i < 10000 && !environment; ++i) {
        usleep(1000);
        environment = environment_of(child);
    }
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(environment.has_value());
    EXPECT_EQ(environment->variables().size(), 2U);
    EXPECT_EQ((*environment)("EMPTY"), "");
    EXPECT_EQ(identify(*environment).rank, 3);
    EXPECT_EQ(environment_of(child), std::nullopt);
}

}  // namespace
}  // namespace cryptmpi::config
