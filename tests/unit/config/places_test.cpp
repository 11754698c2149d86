#include "config/places.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace cryptmpi::config {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

TEST(ConfigFolder, FollowsXdgThenHome) {
    EXPECT_EQ(config_folder(Environment(Variables{{"XDG_CONFIG_HOME", "/x"}, {"HOME", "/h"}})), "/x/cryptmpi");
    EXPECT_EQ(config_folder(Environment(Variables{{"HOME", "/h"}})), "/h/.config/cryptmpi");
}

}  // namespace
}  // namespace cryptmpi::config
