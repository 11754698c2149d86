// dlsym and dlvsym, as Intel MPI asks for libfabric's functions: it gets ours where it would have got libfabric's.
#include "fabric/libfabric/lookups.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "fabric/libfabric/entries.hpp"
#include "loader/loaded.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

using Dlsym = void* (*)(void*, const char*);
using Dlvsym = void* (*)(void*, const char*, const char*);

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

/// RTLD_NEXT and RTLD_DEFAULT find us by themselves, if they find libfabric at all.
bool concerns_us(const void* handle, const char* name) {
    return name != nullptr && std::strncmp(name, "fi_", 3) == 0 && handle != RTLD_NEXT && handle != RTLD_DEFAULT;
}

/// What to answer where libc answers `found`; `go_on` is null when that is the answer.
void* answer(const char* name, void* found, void** go_on) {
    void* const ours = found != nullptr ? entry_for(name, found) : nullptr;
    if (ours != nullptr) *go_on = nullptr;
    return ours;
}

}  // namespace

void* real_dlsym(void* handle, const char* name) {
    return libcs_dlsym()(handle, name);
}

void* real_dlvsym(void* handle, const char* name, const char* version) {
    return libcs_dlvsym()(handle, name, version);
}

}  // namespace cryptmpi::fabric::libfabric

using namespace cryptmpi::fabric::libfabric;

/// Called by dlsym in lookups.S: what to answer, or in `go_on` the dlsym to go on to.
extern "C" void* cryptmpi_find_fabric_symbol(void* handle, const char* name, void*, void** go_on) {
    *go_on = reinterpret_cast<void*>(libcs_dlsym());
    if (!concerns_us(handle, name)) return nullptr;
    return answer(name, libcs_dlsym()(handle, name), go_on);
}

extern "C" void* cryptmpi_find_fabric_version(void* handle, const char* name, const char* version, void** go_on) {
    *go_on = reinterpret_cast<void*>(libcs_dlvsym());
    if (!concerns_us(handle, name)) return nullptr;
    return answer(name, real_dlvsym(handle, name, version), go_on);
}
