// What cryptmpi top shows of what it has read.
#include "report/live_view.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace cryptmpi::report {
namespace {

LiveProcess rank_of(int rank, std::uint64_t sealed) {
    LiveProcess process;
    process.id = "0." + std::to_string(100 + rank) + ".1.channel";
    process.pid = 100 + rank;
    process.rank = rank;
    process.ranks = 2;
    process.began = 1000;
    process.job_id = "seven";
    process.layer = process.library = "channel";
    process.role = "rank";
    process.node = "node1";
    process.suite = "AES-256-GCM";
    process.program = "/opt/solver";
    process.sealed_bytes = sealed;
    process.sealed_records = 3;
    return process;
}

LiveLook look_at(std::vector<LiveProcess> processes, int seconds) {
    LiveLook look;
    look.found.processes = std::move(processes);
    look.when = std::chrono::steady_clock::time_point(std::chrono::seconds(seconds));
    look.time = 1000 + seconds;
    return look;
}

TEST(LiveViewTest, ATableOfEachJobWithRates) {
    const auto before = look_at({rank_of(0, 1'000'000), rank_of(1, 0)}, 10);
    auto other = rank_of(0, 7);
    other.job_id = "eight";
    other.id = "another";
    const auto now = look_at({other, rank_of(0, 5'000'000), rank_of(1, 2'000'000)}, 12);
    const std::string text = live_table(now, &before);
    EXPECT_NE(text.find("job seven: layer channel, AES-256-GCM; sealed 3.00 MB/s, opened 0 B/s\n"), std::string::npos)
        << text;
    EXPECT_NE(text.find("job eight: "), std::string::npos) << text;
    EXPECT_NE(text.find("5.00 MB  2.00 MB/s"), std::string::npos) << text;
    EXPECT_NE(text.find("0:00:12  node1  solver\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("ALARM"), std::string::npos) << text;
}

TEST(LiveViewTest, SaysWhatAlarms) {
    auto process = rank_of(0, 1);
    process.failed_opens = 2;
    process.unsealed_connections = 1;
    const std::string text = live_table(look_at({process}, 1), nullptr);
    EXPECT_NE(text.find("ALARM: rank 0 (process 100): 2 did not open"), std::string::npos) << text;
    EXPECT_NE(text.find("1 of its connections are not sealed"), std::string::npos) << text;
}

TEST(LiveViewTest, OneLineWhereNothingRuns) {
    LiveLook nothing = look_at({}, 1);
    nothing.found.of_other_versions = 2;
    const std::string text = live_table(nothing, nullptr);
    EXPECT_NE(text.find("no process of a sealed job runs on this node"), std::string::npos);
    EXPECT_NE(text.find("2 processes run under another version"), std::string::npos);
    EXPECT_TRUE(live_json(nothing, nullptr).at("processes").empty());
}

TEST(LiveViewTest, CountsThatGoBackwardsAndTimesThatCannotBeAreNone) {
    auto process = rank_of(0, 5);
    process.began = std::numeric_limits<std::int64_t>::min();
    const auto before = look_at({rank_of(0, 1000)}, 1);
    const auto json = live_json(look_at({process}, 2), &before).at("processes").at(0);
    EXPECT_EQ(json.at("per_second").at("sealed_bytes_sent"), 0.0);
    EXPECT_EQ(json.at("seconds"), 0);
}

TEST(LiveViewTest, JsonHasTheNamesOfAPart) {
    const auto before = look_at({rank_of(0, 1000)}, 1);
    const auto json = live_json(look_at({rank_of(0, 3000)}, 2), &before);
    EXPECT_EQ(json.at("interval_seconds"), 1.0);
    const auto& process = json.at("processes").at(0);
    EXPECT_EQ(process.at("rank"), 0);
    EXPECT_EQ(process.at("sealed_bytes_sent"), 3000);
    EXPECT_EQ(process.at("per_second").at("sealed_bytes_sent"), 2000.0);
    EXPECT_EQ(process.at("failed_opens"), 0);
    EXPECT_TRUE(live_json(look_at({rank_of(0, 1)}, 1), nullptr).at("processes").at(0).at("per_second").empty());
}

TEST(LiveViewTest, SocketsBelowAnotherLayerAreNotAddedToItsRates) {
    auto above = rank_of(0, 1000);
    above.layer = above.library = "mpi";
    auto below = rank_of(0, 9000);
    below.layer = "mpi";
    below.id += "below";
    const auto before = look_at({above, below}, 1);
    above.sealed_bytes += 100;
    below.sealed_bytes += 500;
    const std::string text = live_table(look_at({above, below}, 2), &before);
    EXPECT_NE(text.find("; sealed 100 B/s"), std::string::npos) << text;
}

TEST(LiveViewTest, PrometheusReadsLabelsWhateverTheyHold) {
    auto process = rank_of(0, 12);
    process.job_id = "a\"b\\c";
    const std::string text = live_metrics(look_at({process}, 1));
    EXPECT_NE(text.find("cryptmpi_live_processes 1\n"), std::string::npos) << text;
    EXPECT_NE(text.find("# TYPE cryptmpi_live_sealed_sent_bytes_total counter\n"), std::string::npos) << text;
    EXPECT_NE(text.find("cryptmpi_live_sealed_sent_bytes_total{job=\"a\\\"b\\\\c\",group=\"\",rank=\"0\",role=\"rank\","
                        "pid=\"100\",node=\"node1\",library=\"channel\"} 12\n"),
              std::string::npos)
        << text;
    EXPECT_NE(live_metrics(look_at({}, 1)).find("cryptmpi_live_processes 0\n"), std::string::npos);
}

}  // namespace
}  // namespace cryptmpi::report
