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

/// RTLD_DEFAULT finds us by itself, if it finds libfabric at all, and RTLD_NEXT does for who stands before us. For who
/// stands behind us it would go past us, and should where he has the function himself: we call him, and he calls on.
bool concerns_us(const void* handle, const char* name, const void* caller) {
    if (name == nullptr || std::strncmp(name, "fi_", 3) != 0 || handle == RTLD_DEFAULT) return false;
    if (handle != RTLD_NEXT) return true;
    const link_map* const object = loader::object_with(caller);
    const link_map* const own = loader::object_with(reinterpret_cast<const void*>(&libcs_dlsym));
    return object != nullptr && own != nullptr && loader::comes_behind(*object, *own) &&
           loader::function_of(*object, name) == nullptr;
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
extern "C" void* cryptmpi_find_fabric_symbol(void* handle, const char* name, void*, void** go_on, const void* caller) {
    *go_on = reinterpret_cast<void*>(libcs_dlsym());
    if (!concerns_us(handle, name, caller)) return nullptr;
    void* const found = handle == RTLD_NEXT ? function_without_us(name, nullptr) : real_dlsym(handle, name);
    return answer(name, found, go_on);
}

extern "C" void* cryptmpi_find_fabric_version(void* handle, const char* name, const char* version, void** go_on,
                                              const void* caller) {
    *go_on = reinterpret_cast<void*>(libcs_dlvsym());
    if (!concerns_us(handle, name, caller)) return nullptr;
    void* const found = handle == RTLD_NEXT ? function_without_us(name, version) : real_dlvsym(handle, name, version);
    return answer(name, found, go_on);
}
