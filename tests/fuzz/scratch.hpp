// A folder in memory for what a parser reads from files, gone with the process; and what every line of ours has to be.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace cryptmpi::fuzz {

inline void require(bool holds) {
    if (!holds) std::abort();
}

/// Lines of errors are shown in terminals and in logs: one line, which no byte of an attacker's breaks or steers.
inline void require_one_line(std::string_view line) {
    require(!line.empty());
    for (const char c : line) require(static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
}

class Scratch {
public:
    Scratch() {
        std::string name = "/dev/shm/cryptmpi-fuzz.XXXXXX";
        require(::mkdtemp(name.data()) != nullptr);
        folder_ = name;
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    const std::filesystem::path& folder() const { return folder_; }
    std::filesystem::path file(const std::string& name) const { return folder_ / name; }
    /// Nobody but its owner may read it.
    std::filesystem::path write(const std::string& name, std::string_view content) const {
        const auto at = file(name);
        std::filesystem::create_directories(at.parent_path());
        std::ofstream(at, std::ios::binary) << content;
        ::chmod(at.c_str(), 0600);
        return at;
    }

private:
    std::filesystem::path folder_;
};

}  // namespace cryptmpi::fuzz
