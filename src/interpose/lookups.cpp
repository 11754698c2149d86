// dlsym, as a program asks for MPI's procedures itself: Python's ctypes, Julia's ccall. It gets our entry where it
// would have got MPI's procedure, and nothing where there would have been none.
#include <dlfcn.h>

#include "interpose/dispatch.hpp"
#include "interpose/library.hpp"
#include "interpose/table.hpp"

namespace cryptmpi::interpose {
namespace {

using Dlsym = void* (*)(void*, const char*);

Dlsym real() {
    static Dlsym const found = [] {
        void* newest = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
#if defined(__x86_64__)
        if (newest == nullptr) newest = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#elif defined(__aarch64__)
        if (newest == nullptr) newest = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
#endif
        return reinterpret_cast<Dlsym>(newest);
    }();
    return found;
}

}  // namespace

void* real_dlsym(void* handle, const char* name) {
    return real()(handle, name);
}

}  // namespace cryptmpi::interpose

/// Called by dlsym in trampolines.S: what to answer, or in `go_on` the dlsym to go on to.
extern "C" void* cryptmpi_find_symbol(void* handle, const char* name, void** go_on) {
    using namespace cryptmpi::interpose;
    *go_on = reinterpret_cast<void*>(real());
    if (name == nullptr || !is_c_procedure(name) || handle == RTLD_NEXT) return nullptr;
    *go_on = nullptr;
    void* const found = real_dlsym(handle, name);
    if (found == nullptr) return nullptr;
    const auto objects = LoadedObject::all();
    const auto libraries = mpi_libraries(objects);
    const LoadedObject* owner = LoadedObject::holding(objects, found);
    const bool is_mpis = owner != nullptr && !libraries.empty() && owner->file() == libraries.front().file;
    if (owner != nullptr && !is_mpis) return found;
    // The answer was MPI's procedure, or our own entry.
    const auto procedure = procedure_named(name);
    if (!procedure) return entry_of_unknown(name, found);
    const bool exists = !libraries.empty() && libraries.front().find(name) != nullptr;
    if (exists) return entry_of(*procedure);
    return real_dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name);  // for dlerror's sake
}
