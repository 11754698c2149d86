// What the door needs from the process around it.
#pragma once

#include "fabric/surroundings.hpp"

namespace cryptmpi::fabric::libfabric {

using fabric::Surroundings;

}  // namespace cryptmpi::fabric::libfabric
