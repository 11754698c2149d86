// A profile gives its plans where it is whole and within bounds; whatever else it is, it says so in one line.
#include "engine/profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "seal/segments.hpp"

namespace cryptmpi::engine {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kKB = 1024;

Json row(const Json& up_to, std::size_t edge, std::size_t segment, std::size_t in_flight) {
    return {{"up_to", up_to}, {"edge", edge}, {"segment", segment}, {"in_flight", in_flight}};
}

Json good() {
    return {{"format", "cryptmpi-profile-1"},
            {"made", "2024-05-06T07:08:09Z"},
            {"fingerprint",
             {{"processor", "P"}, {"processors", 8}, {"cipher", "C"}, {"module", "M 1"}, {"mpi", "I 2"}, {"abi", "A"}}},
            {"plan",
             {{"largest_whole", 128 * kKB},
              {"rows", {row(512 * kKB, 16 * kKB, 128 * kKB, 2), row(nullptr, 32 * kKB, 512 * kKB, 8)}}}},
            {"model", {{"alpha", 1.5}}}};
}

Fingerprint fingerprint() {
    return {"P", 8, "C", "M 1", "I 2", "A"};
}

/// What is wrong with a good profile of which the value at `place` is another; empty: nothing.
std::string wrong_with(const std::string& place, const Json& value) {
    Json json = good();
    json[Json::json_pointer(place)] = value;
    const auto profile = read_profile(json.dump());
    return profile ? "" : profile.error().line;
}

std::string wrong_without(const std::string& parent, const std::string& key) {
    Json json = good();
    json[Json::json_pointer(parent)].erase(key);
    const auto profile = read_profile(json.dump());
    return profile ? "" : profile.error().line;
}

TEST(Profile, GivesThePlanOfEachLength) {
    const auto profile = read_profile(good().dump());
    ASSERT_TRUE(profile) << profile.error().line;
    EXPECT_EQ(profile->made, "2024-05-06T07:08:09Z");
    EXPECT_EQ(difference(profile->fingerprint, fingerprint()), "");
    const Plans& plans = profile->plans;
    EXPECT_FALSE(plans.in_segments(1));
    EXPECT_FALSE(plans.in_segments(128 * kKB));
    EXPECT_TRUE(plans.in_segments(128 * kKB + 1));
    for (const std::size_t length : {128 * kKB + 1, 512 * kKB}) {
        EXPECT_EQ(plans.of(length).edge, 16 * kKB);
        EXPECT_EQ(plans.of(length).segment, 128 * kKB);
        EXPECT_EQ(plans.of(length).in_flight, 2U);
    }
    for (const std::size_t length : {512 * kKB + 1, SIZE_MAX}) {
        EXPECT_EQ(plans.of(length).edge, 32 * kKB);
        EXPECT_EQ(plans.of(length).segment, 512 * kKB);
        EXPECT_EQ(plans.of(length).in_flight, 8U);
    }
    // What no profile says anything of stays as it is.
    EXPECT_EQ(plans.of(SIZE_MAX).all_in_flight, Plan().all_in_flight);
    EXPECT_EQ(plans.of(SIZE_MAX).patience, Plan().patience);
}

TEST(Profile, IsNotNeeded) {
    const Plans plans;
    EXPECT_FALSE(plans.in_segments(Plan::kLargestWhole));
    EXPECT_TRUE(plans.in_segments(Plan::kLargestWhole + 1));
    EXPECT_EQ(plans.of(SIZE_MAX).segment, Plan().segment);
}

TEST(Profile, CutOffAnywhereIsNone) {
    const std::string text = good().dump();
    for (std::size_t length = 0; length < text.size(); ++length) {
        const auto profile = read_profile(text.substr(0, length));
        ASSERT_FALSE(profile) << length;
        EXPECT_EQ(profile.error().line, "it is not JSON, or was cut off") << length;
    }
}

TEST(Profile, OfOtherJsonIsNone) {
    for (const char* text :
         {"{}", "[]", "null", "1", "\"cryptmpi-profile-1\"", R"({"format": 1})", R"({"format": {}})"}) {
        const auto profile = read_profile(text);
        ASSERT_FALSE(profile) << text;
        EXPECT_EQ(profile.error().line, "it is no profile of cryptmpi tune") << text;
    }
    EXPECT_EQ(wrong_with("/format", "cryptmpi-model-1"), "it is no profile of cryptmpi tune");
}

TEST(Profile, OfAnotherVersionIsNone) {
    EXPECT_EQ(wrong_with("/format", "cryptmpi-profile-2"),
              "it is of version cryptmpi-profile-2, and this CryptMPI reads cryptmpi-profile-1");
}

TEST(Profile, ShowsNoControlCharacterOfTheFile) {
    EXPECT_EQ(wrong_with("/format", "cryptmpi-profile-2\n\x7f"),
              "it is of version cryptmpi-profile-2\ufffd\ufffd, and this CryptMPI reads cryptmpi-profile-1");
}

TEST(Profile, LackingAnythingIsNone) {
    for (const char* key : {"format", "fingerprint", "plan"}) EXPECT_NE(wrong_without("", key), "") << key;
    for (const char* key : {"processor", "processors", "cipher", "module", "mpi", "abi"}) {
        EXPECT_NE(wrong_without("/fingerprint", key).find("fingerprint"), std::string::npos) << key;
        EXPECT_NE(wrong_with(std::string("/fingerprint/") + key, Json::array()), "") << key;
    }
    for (const char* key : {"largest_whole", "rows"}) EXPECT_NE(wrong_without("/plan", key), "") << key;
    for (const char* key : {"up_to", "edge", "segment", "in_flight"}) {
        for (const char* place : {"/plan/rows/0", "/plan/rows/1"}) {
            EXPECT_NE(wrong_without(place, key).find(key), std::string::npos) << key << place;
        }
    }
    EXPECT_EQ(wrong_without("", "made"), "");
    EXPECT_EQ(wrong_without("", "model"), "");
}

TEST(Profile, OutOfBoundsIsNone) {
    const auto bounds = [](const std::string& key, std::size_t least, std::size_t most) {
        const std::string place = key == "largest_whole" ? "/plan/" + key : "/plan/rows/1/" + key;
        EXPECT_EQ(wrong_with(place, least), "") << key;
        EXPECT_EQ(wrong_with(place, most), "") << key;
        for (const Json& value :
             {Json(least - 1), Json(most + 1), Json(-1), Json(0), Json(1.5 * static_cast<double>(least)), Json("64"),
              Json(nullptr), Json(UINT64_MAX), Json(1e300), Json(true), Json::array()}) {
            const std::string wrong = wrong_with(place, value);
            EXPECT_NE(wrong.find(key + " must be a whole number from"), std::string::npos) << key << value << wrong;
        }
    };
    bounds("largest_whole", 64 * kKB, 256 * kKB);
    bounds("edge", 1 * kKB, 64 * kKB);
    bounds("in_flight", 1, 16);
}

TEST(Profile, SaysWhatReductionsCost) {
    // Those of before do not say it. Pieces are as the segments of messages of 1 MB.
    EXPECT_EQ(read_profile(good().dump())->collectives, (CollectivePlan{{}, 512 * kKB}));
    const Json costs = {{"message_ns", 7}, {"kib_ns", 8}, {"combine_kib_ns", 0}};
    Json json = good();
    json["reductions"] = costs;
    EXPECT_EQ(read_profile(json.dump())->collectives, (CollectivePlan{{7, 8, 0}, 512 * kKB}));
    for (const auto& [key, most] : {std::pair("message_ns", 100'000'000), std::pair("kib_ns", 1'000'000),
                                    std::pair("combine_kib_ns", 1'000'000)}) {
        Json changed = costs;
        changed[key] = most;
        EXPECT_EQ(wrong_with("/reductions", changed), "") << key;
        for (const Json& value : {Json(most + 1), Json(-1), Json(0.5), Json("7"), Json(nullptr)}) {
            changed[key] = value;
            EXPECT_NE(wrong_with("/reductions", changed).find(std::string("reductions.") + key), std::string::npos);
        }
        changed.erase(key);
        EXPECT_NE(wrong_with("/reductions", changed).find(std::string("reductions.") + key), std::string::npos);
    }
    EXPECT_NE(wrong_with("/reductions", nullptr), "");
}

TEST(Profile, OfSegmentsOutOfBoundsIsNone) {
    for (const std::size_t edge : {Profile::kLeastEdge, 16 * kKB}) {
        for (const std::size_t segment : {16 * kKB, 1024 * kKB})
            EXPECT_EQ(wrong_with("/plan/rows/1", row(nullptr, edge, segment, 1)), "") << segment;
        for (const std::size_t segment : {std::size_t{0}, 16 * kKB - 1, 1024 * kKB + 1, SIZE_MAX})
            EXPECT_NE(wrong_with("/plan/rows/1", row(nullptr, edge, segment, 1)), "") << segment;
    }
}

TEST(Profile, HasRowsThatAscend) {
    EXPECT_NE(wrong_with("/plan/rows", Json::array()), "");
    EXPECT_NE(wrong_with("/plan/rows", Json::object()), "");
    EXPECT_NE(wrong_with("/plan/rows/0", nullptr), "");
    EXPECT_NE(wrong_with("/plan/rows/0/up_to", nullptr), "") << "a limit is lacking before the last row";
    EXPECT_NE(wrong_with("/plan/rows/1/up_to", 1024 * kKB), "") << "the last row has a limit";
    EXPECT_NE(wrong_with("/plan/rows/0/up_to", 0), "");
    Json rows = Json::array();
    for (int number = 0; number < 15; ++number) rows.push_back(row(number + 1, 16 * kKB, 128 * kKB, 2));
    rows.push_back(row(nullptr, 16 * kKB, 128 * kKB, 2));
    EXPECT_EQ(wrong_with("/plan/rows", rows), "");
    rows[7]["up_to"] = 7;
    EXPECT_NE(wrong_with("/plan/rows", rows), "") << "two rows end at 7";
    rows[7]["up_to"] = 8;
    rows.insert(rows.begin(), row(0, 16 * kKB, 128 * kKB, 2));
    EXPECT_NE(wrong_with("/plan/rows", rows), "") << "too many rows";
}

TEST(Profile, HasNoSegmentShorterThanItsEdge) {
    EXPECT_EQ(wrong_with("/plan/rows/0", row(512 * kKB, 32 * kKB, 32 * kKB, 1)), "");
    EXPECT_NE(wrong_with("/plan/rows/0", row(512 * kKB, 32 * kKB, 32 * kKB - 1, 1)), "");
}

/// The worst that a profile may say: such messages can be announced, in segments that are worth their while.
TEST(Profile, WithinBoundsKeepsTheProtocol) {
    for (const std::size_t edge : {Profile::kLeastEdge, Profile::kLeastSegment - 1, Plan::kAlwaysWhole}) {
        for (const std::size_t segment :
             {std::max(edge, Profile::kLeastSegment), edge + 65 * kKB, Profile::kMostSegment}) {
            Plan plan;
            plan.edge = edge;
            plan.segment = segment;
            const std::uint64_t most = std::uint64_t{Plan::kMostSegments} * segment;
            std::set<std::uint64_t> lengths = {std::uint64_t{1} << 20, std::uint64_t{1} << 32, std::uint64_t{1} << 40};
            for (std::uint64_t length = Plan::kAlwaysWhole + 1; length < 8 * Plan::kAlwaysWhole; length += 251)
                lengths.insert(length);
            for (const std::size_t size : {edge, segment}) {
                for (const std::uint64_t many : {2, 3, 4})
                    lengths.insert({many * size, many * size + 1, many * size + 64});
                for (std::uint64_t beside = 0; beside < 8 * size; beside += size / 4)
                    lengths.insert(most - 4 * size + beside);
            }
            for (const std::uint64_t length : lengths) {
                if (!Plan::may_be_in_segments(length)) continue;
                const auto [first, others] = plan.segments_of(length);
                std::uint8_t payload[seal::kAnnouncementSize];
                seal::write_announcement({length, first, others, 0}, payload);
                ASSERT_TRUE(seal::read_announcement(payload)) << edge << " " << segment << " " << length;
                ASSERT_LT(first, length);
                ASSERT_GE(others, std::min<std::uint64_t>(edge, segment / 2))
                    << edge << " " << segment << " " << length;
            }
        }
    }
    EXPECT_LE(Profile::kMostInFlight * Profile::kMostSegment, Plan().all_in_flight);
}

TEST(Fingerprint, ThatDiffersIsNamed) {
    const Fingerprint here = fingerprint();
    EXPECT_EQ(difference(here, here), "");
    Fingerprint there = here;
    there.mpi = "I 3";
    EXPECT_EQ(difference(there, here), "MPI: I 3 there, I 2 here");
    there.processors = 4;
    EXPECT_EQ(difference(there, here), "processors: 4 there, 8 here; MPI: I 3 there, I 2 here");
    std::set<std::string> texts;
    for (std::string Fingerprint::*member :
         {&Fingerprint::processor, &Fingerprint::cipher, &Fingerprint::module, &Fingerprint::mpi, &Fingerprint::abi}) {
        Fingerprint other = here;
        other.*member = "X";
        texts.insert(difference(other, here));
    }
    EXPECT_EQ(texts.size(), 5U);
    EXPECT_FALSE(texts.contains(""));
}

TEST(ProfileFile, IsReadOrSaysWhyNot) {
    std::string pattern = (fs::temp_directory_path() / "cryptmpi-profile-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    const fs::path folder = pattern;
    const fs::path file = folder / "profile.json";
    const auto missing = profile_text(file, false);
    ASSERT_TRUE(missing);
    EXPECT_FALSE(*missing);
    const auto named = profile_text(file, true);
    ASSERT_FALSE(named);
    EXPECT_EQ(named.error().line, "there is no such file");
    EXPECT_FALSE(profile_text(folder, false)) << "a folder is no file";
    std::ofstream(file) << "text\n";
    const auto there = profile_text(file, true);
    ASSERT_TRUE(there && *there);
    EXPECT_EQ(**there, "text\n");
    std::ofstream(file) << std::string((std::size_t{1} << 20) + 1, ' ');
    EXPECT_FALSE(profile_text(file, true)) << "as long as no profile is";
    fs::remove_all(folder);
}

}  // namespace
}  // namespace cryptmpi::engine
