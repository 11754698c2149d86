#include "interpose/allow.hpp"

#include <gtest/gtest.h>

namespace cryptmpi::interpose {
namespace {

std::string line_about(const std::vector<std::string>& names) {
    config::Settings settings;
    settings.allow = names;
    settings.allow_where = "config.toml:3: allow";
    const auto checked = check_allow(settings, [](const std::string& name) { return name == "MPIX_Of_tomorrow"; });
    return checked ? "" : checked.error().line;
}

void expect_line_with(const std::string& line, std::initializer_list<const char*> pieces) {
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    for (const char* piece : pieces) EXPECT_NE(line.find(piece), std::string::npos) << line << " lacks " << piece;
}

TEST(Allow, TakesWhatIsRefused) {
    EXPECT_EQ(line_about({}), "");
    EXPECT_EQ(line_about({"MPI_Put", "MPI_Accumulate"}), "");
    EXPECT_EQ(line_about({"MPIX_Of_tomorrow"}), "");  // the MPI has it, the table does not
}

TEST(Allow, NamesWhatIsMisspelt) {
    expect_line_with(line_about({"MPI_Put", "MPI_Acumulate"}),
                     {"config.toml:3: allow: \"MPI_Acumulate\"", "\"MPI_Accumulate\""});
    expect_line_with(line_about({"MPI_PUT"}), {"\"MPI_PUT\"", "spelling"});
}

TEST(Allow, NamesWhatIsNotRefusedAnyway) {
    expect_line_with(line_about({"MPI_Send"}), {"config.toml:3: allow: \"MPI_Send\"", "sealed", "leave it out"});
    expect_line_with(line_about({"MPI_Comm_rank"}), {"\"MPI_Comm_rank\"", "moves no data", "leave it out"});
}

}  // namespace
}  // namespace cryptmpi::interpose
