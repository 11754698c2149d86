#pragma once

#include <cerrno>
#include <exception>
#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::report {

/// Runs `work`, turning an exception (out of memory, a report with values of other kinds) into an error line.
template <class Work>
auto guarded(const std::filesystem::path& report_file, Work work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::exception& error) {
        return fail(EINVAL, "report " + report_file.string() + ": " + error.what());
    }
}

}  // namespace cryptmpi::report
