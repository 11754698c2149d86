// A folder in which a test lets ranks and a launcher write parts of a report, and reads what becomes of them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "report/job_report.hpp"
#include "report/part.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::report {

namespace fs = std::filesystem;

/// Stands in for keys::ReportKey.
inline Sign signing(const std::string& key) {
    return [key](std::string_view text) -> Result<std::string> {
        return key + std::to_string(std::hash<std::string_view>()(text));
    };
}
inline const Sign kSign = signing("right");

class ReportTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "cryptmpi-report-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        file_ = folder_ / "job.json";
    }
    void TearDown() override { fs::remove_all(folder_); }

    static Part rank(int number, int of) {
        Part part;
        part.job_id = "job";
        part.layer = "channel";
        part.node = number < 2 ? "node1" : "node2";
        part.pid = 100 + number;
        part.role = "rank";
        part.launcher_here = true;
        part.mpi_initialized = true;
        part.rank = number;
        part.ranks = of;
        part.suite = "AES-256-GCM";
        part.module = "openssl 3";
        part.handshake_module = "libsodium 1";
        part.scope = "between-nodes";
        part.sealed_connections = 2;
        part.sealed_bytes_sent = 1000;
        part.sealed_records_sent = 10;
        return part;
    }
    void write_launcher(const char* layer = "channel") const {
        Part part = rank(0, -1);
        part.layer = layer;
        part.library = "channel";
        part.role = "launcher";
        part.rank = -1;
        part.mpi_initialized = false;
        part.pid = 99;
        part.sealed_bytes_sent = part.sealed_records_sent = 0;
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    /// Of the first process of a PID namespace of its own, as in a container.
    void write_first_process(Part part, std::uint64_t pid_namespace) const {
        part.pid = 1;
        part.pid_namespace = pid_namespace;
        part.node = "node1";
        ASSERT_TRUE(write_part(file_, part, kSign));
        for (const auto& entry : fs::directory_iterator(parts_folder(file_))) {
            if (!entry.path().filename().string().starts_with("node1.1.")) continue;
            fs::rename(entry.path(), parts_folder(file_) / (std::to_string(pid_namespace) + part.library + ".json"));
        }
    }
    void write_ranks(int count, int of) const {
        for (int i = 0; i < count; ++i) ASSERT_TRUE(write_part(file_, rank(i, of), kSign));
    }
    std::string verdict(const Sign& sign = kSign) const {
        auto reading = Reading::of(file_, sign);
        return reading ? reading->verdict().line : reading.error().line;
    }
    std::string summary() const {
        auto reading = Reading::of(file_, kSign);
        return reading ? reading->summary() : reading.error().line;
    }
    Result<Verdict> finish(int ranks = -1, int status = 0) const {
        return finish_job(file_, {"job", ranks, status}, kSign, kSign);
    }
    /// What the parts and the launcher's side amount to.
    Verdict finished(int ranks, int status = 0) const {
        EXPECT_TRUE(finish(ranks, status));
        auto reading = Reading::of(file_, kSign);
        return reading ? reading->verdict() : Verdict{};
    }
    std::string content() const { return content(file_); }
    static std::string content(const fs::path& file) {
        std::ifstream stream(file);
        return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    }

    fs::path folder_;
    fs::path file_;
};

}  // namespace cryptmpi::report
