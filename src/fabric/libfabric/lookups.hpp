// libc's own dlsym and dlvsym, past ours.
#pragma once

namespace cryptmpi::fabric::libfabric {

void* real_dlsym(void* handle, const char* name);
void* real_dlvsym(void* handle, const char* name, const char* version);

}  // namespace cryptmpi::fabric::libfabric
