// A folder of the test's own, with the files that it writes.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace cryptmpi::command {

class FolderTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "cryptmpi-command-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    const std::filesystem::path& folder() const { return folder_; }
    void write(const std::filesystem::path& file, const std::string& text) const {
        std::filesystem::create_directories((folder_ / file).parent_path());
        std::ofstream(folder_ / file) << text;
    }

private:
    std::filesystem::path folder_;
};

}  // namespace cryptmpi::command
