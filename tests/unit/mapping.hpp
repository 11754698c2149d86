// What the kernel says of this process's memory.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace cryptmpi {

/// Does the mapping that holds `at` have this flag of /proc/PID/smaps ("dd": in no core dump)?
inline bool has_flag(const void* at, const std::string& flag) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    std::ifstream smaps("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(smaps, line);) {
        std::uintptr_t from = 0;
        std::uintptr_t to = 0;
        char dash = 0;
        std::istringstream words(line);
        if (words >> std::hex >> from >> dash >> to && dash == '-') here = from <= address && address < to;
        if (here && line.starts_with("VmFlags:")) return (line + " ").find(" " + flag + " ") != std::string::npos;
    }
    return false;
}

/// What stands in memory that is not ours to look at any more; empty: it is not mapped.
inline std::vector<std::uint8_t> bytes_at(const void* at, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    const ssize_t got = pread(memory, bytes.data(), size, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(at)));
    close(memory);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
}

}  // namespace cryptmpi
