#include "fabric/libfabric/lookups.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "loader/loaded.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

/// By the symbols that libc has in memory: each other way is one of those that we stand in.
Dlvsym find_dlvsym() {
    for (const auto& object : loader::LoadedObject::all()) {
        const std::string& file = object.file();
        const bool is_libc = file.ends_with("/libc.so.6") || file.ends_with("/libdl.so.2");
        void* const found = is_libc ? object.exported("dlvsym") : nullptr;
        if (found != nullptr) return reinterpret_cast<Dlvsym>(found);
    }
    std::abort();  // no C library
}

}  // namespace

Dlvsym libcs_dlvsym() {
    static const Dlvsym found = find_dlvsym();
    return found;
}

Dlsym libcs_dlsym() {
    static void* const found = [] {
        void* newest = real_dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
#if defined(__x86_64__)
        if (newest == nullptr) newest = real_dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#elif defined(__aarch64__)
        if (newest == nullptr) newest = real_dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
#endif
        return newest;
    }();
    return reinterpret_cast<Dlsym>(found);
}

void* real_dlsym(void* handle, const char* name) {
    return libcs_dlsym()(handle, name);
}

void* real_dlvsym(void* handle, const char* name, const char* version) {
    return libcs_dlvsym()(handle, name, version);
}

}  // namespace cryptmpi::fabric::libfabric
