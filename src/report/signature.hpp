// Who signs what, so that nobody without the job key makes or changes a part, a report or a note.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace cryptmpi::report {

/// A tag of the text that only who holds the job key can make (keys::ReportKey).
using Sign = std::function<Result<std::string>(std::string_view text)>;

/// 32 hexadecimal digits by which people tell keys apart. They tell nothing of the key.
Result<std::string> fingerprint(const Sign& sign);

// What is signed begins with what it is, so that a part is no report.
inline constexpr std::string_view kPartKind = "part of a report\n";
inline constexpr std::string_view kReportKind = "report\n";
inline constexpr std::string_view kNoteKind = "host of a job\n";

/// The text with the signature of all the rest as its last entry.
Result<std::string> signed_text(std::string_view kind, nlohmann::ordered_json json, const Sign& sign);

/// What is verified is what was parsed, written again: nothing that a parser may overlook goes unsigned.
bool is_signed(std::string_view kind, nlohmann::ordered_json json, const Sign& sign);
/// By any of these.
bool is_signed(std::string_view kind, const nlohmann::ordered_json& json, const std::vector<Sign>& signers);

}  // namespace cryptmpi::report
