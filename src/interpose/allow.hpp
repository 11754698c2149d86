// Is what the setting allow names refused at all? A name that is misspelt, or of a procedure that passes or is sealed
// anyway, means that its author expects something else than will happen.
#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"
#include "config/settings.hpp"

namespace cryptmpi::interpose {

/// `mpi_has` tells whether the program's MPI has a procedure that the table does not know: those are refused, so they
/// can be allowed. Error: one line with the setting's place, the name, and what it may have been meant to be.
Result<void> check_allow(const config::Settings& settings, const std::function<bool(const std::string&)>& mpi_has);

}  // namespace cryptmpi::interpose
