#include "config/places.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "config/internal_variables.hpp"

namespace cryptmpi::config {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

TEST(ConfigFolder, FollowsXdgThenHome) {
    EXPECT_EQ(config_folder(Environment(Variables{{"XDG_CONFIG_HOME", "/x"}, {"HOME", "/h"}})), "/x/cryptmpi");
    EXPECT_EQ(config_folder(Environment(Variables{{"HOME", "/h"}})), "/h/.config/cryptmpi");
}

/// A copy, as an overlay, shows the token and is another folder.
TEST(ReportPlace, IsWhereTheFolderWasSeen) {
    namespace fs = std::filesystem;
    std::string pattern = (fs::temp_directory_path() / "cryptmpi-places-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    const fs::path report = fs::path(pattern) / "job.json";
    const fs::path parts = report.string() + ".parts";
    const std::string token(32, 'a');
    fs::create_directory(parts);
    std::ofstream(parts / "token") << token << "\n";
    const std::string seen = seen_folder(report, token);
    const auto place = [&](const std::string& told) {
        return report_place(report, Environment(Variables{{kReportTokenVariable, token}, {kSeenFolderVariable, told}}));
    };
    const fs::path waiting = local_report_folder(token) / "job.json";
    EXPECT_EQ(compare_seen(report, token, seen), Seen::same);
    EXPECT_EQ(compare_seen(report, std::string(32, 'b'), seen), Seen::unknown);
    EXPECT_EQ(compare_seen(report, token, token + " another-machine 1.2.3"), Seen::unknown);
    EXPECT_EQ(compare_seen(report, token, ""), Seen::unknown);
    EXPECT_EQ(place(seen), report);
    EXPECT_EQ(place(""), report);
    fs::rename(parts, parts.string() + ".moved");
    fs::copy(parts.string() + ".moved", parts);
    EXPECT_EQ(token_there(report, token), TokenThere::same);
    EXPECT_EQ(compare_seen(report, token, seen), Seen::another);
    EXPECT_EQ(place(seen), waiting);
    fs::remove_all(parts);
    EXPECT_EQ(place(seen), waiting);
    fs::remove_all(pattern);
}

}  // namespace
}  // namespace cryptmpi::config
