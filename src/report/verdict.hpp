// What a job's report amounts to.
#pragma once

#include <string>

namespace cryptmpi::report {

enum class Outcome {
    sealed,
    nothing_to_seal,
    exceptions,  // sealed, but for what `Verdict::line` names
    incomplete,
    failed,
};

struct Verdict {
    Outcome outcome = Outcome::failed;
    bool by_settings = false;  // every exception was allowed by a setting, or comes with the layer that was chosen
    std::string line;
};

/// How a line ends about a block that does not open and may have been sealed by a rank that disagrees with the others
/// in its size: the verdict must call that no attack.
inline constexpr const char* kOrOtherSizes = ", or the ranks disagree in its size";

/// Nothing went wrong that nobody has allowed.
inline bool is_good(const Verdict& verdict) {
    return verdict.outcome == Outcome::sealed || verdict.outcome == Outcome::nothing_to_seal ||
           (verdict.outcome == Outcome::exceptions && verdict.by_settings);
}

}  // namespace cryptmpi::report
