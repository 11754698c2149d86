// What the system says of a process.
#include "base/process_stat.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace cryptmpi {
namespace {

/// A program names itself as it likes, with blanks and brackets, too.
TEST(ProcessStat, FindsTheFieldsBehindAnyName) {
    char before[16] = {};
    prctl(PR_GET_NAME, before);
    for (const char* const name : {"plain", "a) Z 1 (b", ") ) )"}) {
        prctl(PR_SET_NAME, name);
        const ProcessStat own(getpid());
        EXPECT_EQ(own[ProcessStat::kState], "R") << name;
        EXPECT_EQ(own[ProcessStat::kParent], std::to_string(getppid())) << name;
        EXPECT_TRUE(own[ProcessStat::kStart].has_value()) << name;
    }
    prctl(PR_SET_NAME, before);
}

TEST(ProcessStat, HasNothingOfAProcessThatIsNotThere) {
    EXPECT_EQ(ProcessStat(-1)[ProcessStat::kState], std::nullopt);
}

}  // namespace
}  // namespace cryptmpi
