// What the door of UCX stands on: the process, and UCX itself. Tests put their own in place of both.
#pragma once

#include "fabric/surroundings.hpp"

namespace cryptmpi::fabric::ucx {

Surroundings& around();

}  // namespace cryptmpi::fabric::ucx
