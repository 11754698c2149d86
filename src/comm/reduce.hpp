#pragma once

#include "comm/reduction.hpp"

namespace cryptmpi::comm {

/// `in` of the root gets the result.
int reduce(const Reduction& what, const UserBuffer* in, int root);

}  // namespace cryptmpi::comm
