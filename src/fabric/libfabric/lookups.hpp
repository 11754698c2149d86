// libc's own dlsym and dlvsym, past ours.
#pragma once

namespace cryptmpi::fabric::libfabric {

using Dlsym = void* (*)(void* handle, const char* name);
using Dlvsym = void* (*)(void* handle, const char* name, const char* version);

Dlsym libcs_dlsym();
Dlvsym libcs_dlvsym();

void* real_dlsym(void* handle, const char* name);
void* real_dlvsym(void* handle, const char* name, const char* version);

}  // namespace cryptmpi::fabric::libfabric
