// The settings, from defaults, then the file (TOML), then the environment.
#pragma once

#include "base/result.hpp"
#include "config/environment.hpp"
#include "config/settings.hpp"

namespace cryptmpi::config {

/// Reads CRYPTMPI_CONFIG or <config folder>/config.toml (which may be missing), then CRYPTMPI_*. Unknown keys, unknown
/// values and unknown CRYPTMPI_* variables (but for the internal CRYPTMPI_INTERNAL_*) are errors of one line:
/// file:line, what, and what is allowed. So is a legacy cipher that allow_legacy_cipher does not allow.
Result<Settings> load(const Environment& environment);

}  // namespace cryptmpi::config
