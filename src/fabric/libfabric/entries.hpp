// libfabric's functions that a program calls by name, each under the versions that programs may be bound to.
#pragma once

namespace cryptmpi::fabric::libfabric {

/// Our function in the place of libfabric's `name` at `found`, for a program that asks dlsym; nullptr: it has none.
void* entry_for(const char* name, void* found);
/// The function that would have been called without us: of a libfabric that is loaded for all, or for its caller alone.
/// `version` null: the one that programs get which name none.
void* function_without_us(const char* name, const char* version);
/// libfabric's calls of itself are its own affair, and its providers'. Whoever else refers to it, past us by whatever
/// means, is led to the door.
void take_calls();

}  // namespace cryptmpi::fabric::libfabric
