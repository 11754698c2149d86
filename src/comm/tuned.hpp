// The plans of large messages, and how collective operations go, that suit this machine, if somebody measured it
// (cryptmpi tune); else the default ones.
#pragma once

#include <string>

#include "base/result.hpp"
#include "comm/native.hpp"
#include "config/settings.hpp"
#include "cryptmpi/module.h"
#include "engine/collectives.hpp"
#include "engine/plan.hpp"
#include "keys/agreement.hpp"
#include "report/part.hpp"

namespace cryptmpi::comm {

struct Tuned {
    engine::Plans plans;
    engine::CollectivePlan collectives;
};

/// Makes `tuned` what the profile says that the settings name, if it is one of this machine, this cipher and this MPI,
/// else the MPI's default, and tells the report. `part` has the suite and the module. Returns the line that has to be
/// said; empty: none.
std::string load_profile(const config::Settings& settings, const Native& mpi, const cryptmpi_kex& kex,
                         report::Part& part, Tuned& tuned);

/// How Bcast and reductions go, on its way from rank 0, whose profile counts for all: it decides which messages there
/// are.
keys::Terms terms_of(const engine::CollectivePlan& plan);
/// Errors (EPROTO): it says what no profile can.
Result<engine::CollectivePlan> plan_of(const keys::Terms& terms);

}  // namespace cryptmpi::comm
