// What the system says of a process in one line, /proc/PID/stat: number (name) state parent ...
#pragma once

#include <fmt/core.h>
#include <sys/types.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace cryptmpi {

class ProcessStat {
public:
    /// Fields by their place after the name, in which the program has whatever it wants.
    static constexpr std::size_t kState = 0, kParent = 1, kStart = 19;

    explicit ProcessStat(pid_t process) {
        std::ifstream file(fmt::format("/proc/{}/stat", process));
        const std::string line{std::istreambuf_iterator<char>(file), {}};
        const auto name_end = line.rfind(')');
        if (name_end == std::string::npos) return;
        std::istringstream rest(line.substr(name_end + 1));
        for (std::string field; rest >> field;) fields_.push_back(field);
    }

    /// nullopt: there is no such process.
    std::optional<std::string> operator[](std::size_t place) const {
        return place < fields_.size() ? std::optional(fields_[place]) : std::nullopt;
    }

private:
    std::vector<std::string> fields_;
};

}  // namespace cryptmpi
