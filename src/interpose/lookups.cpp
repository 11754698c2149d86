// dlsym, as a program asks for MPI's procedures itself: Python's ctypes, Julia's ccall. It gets our entry where it
// would have got MPI's procedure, and nothing where there would have been none. And dlopen, whose RTLD_DEEPBIND would
// lead what it loads past us.
#include <dlfcn.h>

#include <atomic>
#include <string>

#include "interpose/dispatch.hpp"
#include "interpose/library.hpp"
#include "interpose/table.hpp"

namespace cryptmpi::interpose {
namespace {

using Dlsym = void* (*)(void*, const char*);

/// libc's own function, by a way that is not dlsym.
void* libcs(const char* name) {
    void* newest = dlvsym(RTLD_NEXT, name, "GLIBC_2.34");
#if defined(__x86_64__)
    if (newest == nullptr) newest = dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
#elif defined(__aarch64__)
    if (newest == nullptr) newest = dlvsym(RTLD_NEXT, name, "GLIBC_2.17");
#endif
    return newest;
}

Dlsym real() {
    // No guarded initialization: TSan's runtime looks up symbols before its own guards work.
    static constinit std::atomic<Dlsym> found = nullptr;
    Dlsym known = found.load(std::memory_order_relaxed);
    if (known == nullptr) {
        known = reinterpret_cast<Dlsym>(libcs("dlsym"));
        found.store(known, std::memory_order_relaxed);
    }
    return known;
}

/// What RTLD_NEXT means to a tool: the first one behind the caller, us in MPI's place. Null: nobody there has it.
void* behind(const void* caller, const std::string& name, const std::vector<LoadedObject>& objects,
             const std::vector<MpiLibrary>& libraries) {
    const auto procedure = procedure_named(name);
    bool behind_caller = false;
    for (const auto& object : objects) {
        void* const function = behind_caller ? object.exported(name) : nullptr;
        const bool is_mpis = !libraries.empty() && object.file() == libraries.front().file;
        if (function != nullptr && !is_mpis) return function;
        if (function != nullptr) break;
        behind_caller = behind_caller || object.holds(caller);
    }
    void* const mpis = libraries.empty() ? nullptr : libraries.front().find(name.c_str());
    if (mpis == nullptr) return nullptr;
    return procedure ? entry_of(*procedure) : entry_of_unknown(name, mpis);
}

}  // namespace

void* real_dlsym(void* handle, const char* name) {
    return real()(handle, name);
}

}  // namespace cryptmpi::interpose

/// Called by dlopen in trampolines.S: takes RTLD_DEEPBIND from everybody but us, who load modules of ciphers by it; the
/// dlopen to go on to.
extern "C" void* cryptmpi_prepare_dlopen(int* flags, const void* caller) {
    static void* const found = cryptmpi::interpose::libcs("dlopen");
    Dl_info by = {};
    const bool is_deep = (*flags & RTLD_DEEPBIND) != 0;
    if (is_deep && (dladdr(caller, &by) == 0 || !cryptmpi::interpose::is_ours(by.dli_fname))) *flags &= ~RTLD_DEEPBIND;
    return found;
}

/// Called by dlsym in trampolines.S: what to answer, or in `go_on` the dlsym to go on to.
extern "C" void* cryptmpi_find_symbol(void* handle, const char* name, void** go_on, const void* caller) {
    using namespace cryptmpi::interpose;
    *go_on = reinterpret_cast<void*>(real());
    if (name == nullptr || !is_c_procedure(name)) return nullptr;
    const auto objects = LoadedObject::all();
    const auto libraries = mpi_libraries(objects);
    if (handle == RTLD_NEXT) {
        void* const next = behind(caller, name, objects, libraries);
        if (next != nullptr) *go_on = nullptr;
        return next;
    }
    *go_on = nullptr;
    void* const found = real_dlsym(handle, name);
    if (found == nullptr) return nullptr;
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

extern "C" [[gnu::visibility("default")]] void* dlmopen(Lmid_t name_space, const char* file, int flags) {
    using namespace cryptmpi::interpose;
    static auto* const found = reinterpret_cast<void* (*)(Lmid_t, const char*, int)>(libcs("dlmopen"));
    void* const handle = found(name_space, file, name_space == LM_ID_BASE ? flags & ~RTLD_DEEPBIND : flags);
    link_map* map = nullptr;
    if (handle == nullptr || name_space == LM_ID_BASE || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return handle;
    while (map->l_prev != nullptr) map = map->l_prev;
    for (; map != nullptr; map = map->l_next) {
        if (!is_called_as_mpi(map->l_name)) continue;
        end(std::string(map->l_name) + " was loaded into a namespace of its own (dlmopen of " + file +
            "), where its MPI_Send and all others do not reach CryptMPI; load it by dlopen");
    }
    return handle;
}
