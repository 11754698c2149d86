// dlopen, dlmopen and dlsym, by which a program would find libc's calls and not ours: RTLD_DEEPBIND binds a library to
// what it was linked with, a namespace of its own has a C library of its own, and dlsym looks into libc itself, as
// Python's ctypes, Julia's ccall and Java's JNA have it do. dlvsym is left alone.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "channel/calls.hpp"
#include "channel/real.hpp"

using namespace cryptmpi::channel;

namespace {

using Dlsym = void* (*)(void*, const char*);
using Dlopen = void* (*)(const char*, int);
using Dlmopen = void* (*)(Lmid_t, const char*, int);

// No guarded initializations here: TSan's runtime looks up symbols before its own guards work.

/// The first dlsym behind ours, which may be another layer's. Asked for by a way that is not dlsym.
Dlsym next_dlsym() {
    static constinit std::atomic<Dlsym> found = nullptr;
    if (Dlsym known = found.load(std::memory_order_relaxed)) return known;
    void* libcs = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
#if defined(__x86_64__)
    if (libcs == nullptr) libcs = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#elif defined(__aarch64__)
    if (libcs == nullptr) libcs = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
#endif
    const auto made = reinterpret_cast<Dlsym>(reinterpret_cast<Dlsym>(libcs)(RTLD_NEXT, "dlsym"));
    found.store(made, std::memory_order_relaxed);
    return made;
}

template <class Function>
Function next(const char* name) {
    static constinit std::atomic<Function> found = nullptr;
    Function known = found.load(std::memory_order_relaxed);
    if (known == nullptr) {
        known = reinterpret_cast<Function>(next_dlsym()(RTLD_NEXT, name));
        found.store(known, std::memory_order_relaxed);
    }
    return known;
}

Dlopen next_dlopen() {
    return next<Dlopen>("dlopen");
}

const void* base_of(const void* address) {
    Dl_info information{};
    return dladdr(address, &information) != 0 ? information.dli_fbase : nullptr;
}

std::string_view file_of(const void* address) {
    Dl_info information{};
    const bool known = dladdr(address, &information) != 0 && information.dli_fname != nullptr;
    return known ? information.dli_fname : "";
}

/// All that is installed with this library: modules of ciphers are bound deeply.
bool is_ours(const void* caller) {
    const std::string_view own = file_of(reinterpret_cast<const void*>(&file_of));
    const auto folder = own.substr(0, own.rfind('/') + 1);
    return !folder.empty() && file_of(caller).starts_with(folder);
}

/// Of a library whose calls we stand before: libc, which was several libraries before glibc 2.34, and liburing.
bool is_libcs(const void* function) {
    const std::string_view file = file_of(function);
    const auto name = file.substr(file.rfind('/') + 1);
    for (const std::string_view one : {"libc.so.", "libc-2.", "libpthread", "libdl", "librt", "liburing"}) {
        if (name.starts_with(one)) return true;
    }
    return false;
}

/// The object's own function of this name; null: it has none.
void* own_function(void* object, const void* inside, const char* name) {
    void* const function = object == nullptr ? nullptr : next_dlsym()(object, name);
    return function != nullptr && base_of(function) == base_of(inside) ? function : nullptr;
}

/// One that is loaded.
void* object_of(const void* inside) {
    return next_dlopen()(std::string(file_of(inside)).c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

void* our_function(const char* name) {
    static constinit std::atomic<void*> object = nullptr;
    const auto* const inside = reinterpret_cast<const void*>(&our_function);
    if (object.load(std::memory_order_relaxed) == nullptr) object.store(object_of(inside), std::memory_order_relaxed);
    return own_function(object.load(std::memory_order_relaxed), inside, name);
}

bool has(const void* inside, const char* name) {
    void* const object = object_of(inside);
    const bool found = own_function(object, inside, name) != nullptr;
    if (object != nullptr) dlclose(object);
    return found;
}

bool is_switched_off() {
    const Process* process = Process::made();
    return process != nullptr && !process->enabled();
}

}  // namespace

/// The caller stands before libc for the calls that it has itself, as tools do, and may be called by us: it gets what
/// it asks for.
extern "C" void* cryptmpi_before_dlsym(std::uintptr_t (&arguments)[2], const void* caller) {
    auto* const handle = reinterpret_cast<void*>(arguments[0]);
    const auto* const name = reinterpret_cast<const char*>(arguments[1]);
    void* const go_on = reinterpret_cast<void*>(next_dlsym());
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || name == nullptr || is_switched_off()) return go_on;
    void* const ours = our_function(name);
    if (ours == nullptr) return go_on;
    void* const libcs = next_dlsym()(handle, name);
    if (libcs == nullptr || !is_libcs(libcs) || has(caller, name)) return go_on;
    arguments[0] = reinterpret_cast<std::uintptr_t>(ours);
    return nullptr;
}

extern "C" void* cryptmpi_before_dlopen(std::uintptr_t (&arguments)[2], const void* caller) {
    const bool is_deep = (arguments[1] & RTLD_DEEPBIND) != 0;
    if (is_deep && !is_switched_off() && !is_ours(caller)) arguments[1] &= ~static_cast<std::uintptr_t>(RTLD_DEEPBIND);
    return reinterpret_cast<void*>(next_dlopen());
}

CRYPTMPI_CALL void* dlmopen(Lmid_t name_space, const char* file, int flags) {
    Process& process = Process::get();
    const auto go_on = next<Dlmopen>("dlmopen");
    if (!process.enabled()) return go_on(name_space, file, flags);
    if (name_space == LM_ID_BASE) return go_on(name_space, file, flags & ~RTLD_DEEPBIND);
    const std::string name = file == nullptr ? "the program" : file;
    if (file != nullptr && process.covering().allows(file)) {
        process.count_unsealed("allow_programs: " + name + " ran without CryptMPI", true);
        return go_on(name_space, file, flags);
    }
    process.refuse_road("namespace for " + name,
                        name +
                            " in a namespace of its own (dlmopen) is refused: it would have a C library of its own, "
                            "whose connections nobody seals; load it by dlopen, or name it in allow_programs if it "
                            "talks to no other node");
    return next_dlopen()((name + " (refused by cryptmpi)").c_str(), RTLD_LAZY);  // for dlerror's sake
}
