// The plans of large messages that suit this machine, if somebody measured it (cryptmpi tune); else the default one.
#pragma once

#include <string>

#include "config/settings.hpp"
#include "cryptmpi/module.h"
#include "engine/plan.hpp"
#include "native.hpp"
#include "report/part.hpp"

namespace cryptmpi::comm {

/// Makes `plans` those of the profile that the settings name, if it is one of this machine, this cipher and this MPI,
/// else the MPI's default ones, and tells the report. `part` has the suite and the module. Returns the line that has to
/// be said; empty: none.
std::string load_profile(const config::Settings& settings, const interpose::Native& mpi, const cryptmpi_kex& kex,
                         report::Part& part, engine::Plans& plans);

}  // namespace cryptmpi::comm
