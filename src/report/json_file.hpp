#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/result.hpp"

namespace cryptmpi::report {

/// A part, a note or a report: one JSON object. Error: one line.
Result<nlohmann::ordered_json> read_json(const std::filesystem::path& file);

}  // namespace cryptmpi::report
