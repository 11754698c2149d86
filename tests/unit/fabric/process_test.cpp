// The process under the fabric layer writes its part of the report.
#include "fabric/process.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "report/parts_folder.hpp"

namespace cryptmpi::fabric {
namespace {

TEST(Process, CountsInItsPartWhatWasCutOff) {
    const std::string folder = testing::TempDir() + "cryptmpi-process-" + std::to_string(getpid());
    std::filesystem::create_directories(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    std::ofstream(folder + "/job.key") << "cryptmpi-job-key-1 " + std::string(64, '1') + "\n";
    std::filesystem::permissions(folder + "/job.key", std::filesystem::perms::owner_read);
    std::ofstream(folder + "/config.toml");
    set("CRYPTMPI_CONFIG", folder + "/config.toml");
    set("CRYPTMPI_KEY_FILE", folder + "/job.key");
    set("CRYPTMPI_REPORT_FILE", folder + "/job.json");
    set("CRYPTMPI_MODULE_FOLDER", CRYPTMPI_MODULE_FOLDER);
    set("CRYPTMPI_LIVE", "false");

    testing::internal::CaptureStderr();
    Process& process = Process::get();
    process.say_cut_off("a message");
    process.say_cut_off("another message");
    process.refuse("something", "so that there is a part, though there is no MPI");
    process.finish();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("another message was cut off, since it is longer than its receive"), std::string::npos) << said;

    const auto parts = report::raw_parts(folder + "/job.json");
    ASSERT_EQ(parts.size(), 1U) << said;
    EXPECT_NE(parts.begin()->second.find("\"cut_off\": 2"), std::string::npos) << parts.begin()->second;
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cryptmpi::fabric
