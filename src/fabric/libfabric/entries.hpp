// libfabric's functions that a program calls by name, each under the versions that programs may be bound to.
#pragma once

namespace cryptmpi::fabric::libfabric {

/// Our function in the place of libfabric's `name` at `found`, for a program that asks dlsym; nullptr: it has none.
void* entry_for(const char* name, void* found);

}  // namespace cryptmpi::fabric::libfabric
