#include "base/processor.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace cryptmpi {

std::string processor_model() {
    std::ifstream stream("/proc/cpuinfo");
    for (std::string line; std::getline(stream, line);) {
        const auto value = line.find_first_not_of(" \t", line.find(':') + 1);
        if (line.starts_with("model name") && value != std::string::npos) return line.substr(value);
    }
    utsname machine{};  // ARM's kernels name no model
    return uname(&machine) == 0 && machine.machine[0] != '\0' ? machine.machine : "unknown";
}

int processor_count() {
    const long found = sysconf(_SC_NPROCESSORS_ONLN);
    return found > 0 ? static_cast<int>(found) : 1;
}

}  // namespace cryptmpi
