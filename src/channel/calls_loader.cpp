// dlopen, dlmopen, dlsym and dlvsym, by which a program would find libc's calls and not ours: RTLD_DEEPBIND binds a
// library to what it was linked with, a namespace of its own has a C library of its own, and the other two look into
// libc itself, as Python's ctypes, Julia's ccall and Java's JNA have them do.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "channel/calls.hpp"
#include "channel/go_libraries.hpp"
#include "channel/real.hpp"
#include "loader/loaded.hpp"

using namespace cryptmpi::channel;
namespace loader = cryptmpi::loader;

namespace {

using Dlsym = void* (*)(void*, const char*);
using Dlvsym = void* (*)(void*, const char*, const char*);
using Dlopen = void* (*)(const char*, int);
using Dlmopen = void* (*)(Lmid_t, const char*, int);
/// As lookups.S has them: at most three.
using Arguments = std::uintptr_t (&)[3];

// No guarded initializations here, and no memory of the heap before dlsym is left: TSan's runtime looks up symbols
// before its own guards work.

const link_map& own_object() {
    static constinit std::atomic<const link_map*> found = nullptr;
    const link_map* known = found.load(std::memory_order_relaxed);
    if (known == nullptr) {
        known = loader::object_with(reinterpret_cast<const void*>(&own_object));
        found.store(known, std::memory_order_relaxed);
    }
    return *known;
}

/// The first one behind ours, which may be another layer's. Not asked for by dlsym, nor by dlvsym, which are ours.
template <class Function>
Function behind_us(const char* name) {
    static constinit std::atomic<Function> found = nullptr;
    Function known = found.load(std::memory_order_relaxed);
    if (known == nullptr) {
        known = reinterpret_cast<Function>(loader::function_behind(own_object(), name));
        found.store(known, std::memory_order_relaxed);
    }
    return known;
}

Dlsym next_dlsym() {
    return behind_us<Dlsym>("dlsym");
}

Dlvsym next_dlvsym() {
    return behind_us<Dlvsym>("dlvsym");
}

Dlopen next_dlopen() {
    return behind_us<Dlopen>("dlopen");
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

/// Of a library whose calls we stand before: libc, which was several libraries before glibc 2.34, liburing, and libaio.
bool is_libcs(const void* function) {
    const std::string_view file = file_of(function);
    const auto name = file.substr(file.rfind('/') + 1);
    for (const std::string_view one : {"libc.so.", "libc-2.", "libpthread", "libdl", "librt", "liburing", "libaio"}) {
        if (name.starts_with(one)) return true;
    }
    return false;
}

void* our_function(const char* name) {
    return name == nullptr ? nullptr : loader::function_of(own_object(), name);
}

/// The caller stands before libc for the calls that it has itself, as tools do, and may be called by us: it gets what
/// it asks for. So does who stands before us, whose next one we are.
bool goes_on(const void* handle, const char* name, const void* caller) {
    const link_map* const object = loader::object_with(caller);
    if (object == nullptr) return handle == RTLD_NEXT;
    if (handle == RTLD_NEXT && !loader::comes_behind(*object, own_object())) return true;
    return loader::function_of(*object, name) != nullptr;
}

void* look_up(void* handle, const char* name, const char* version) {
    return version == nullptr ? next_dlsym()(handle, name) : next_dlvsym()(handle, name, version);
}

/// Is it libc's that is found, at last? Between us and it there may be a tool's, which we call.
bool leads_to_libc(void* handle, const char* name, const char* version) {
    if (is_libcs(look_up(handle, name, version))) return true;
    void* const libc = handle == RTLD_NEXT ? next_dlopen()("libc.so.6", RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    return libc != nullptr && look_up(libc, name, version) != nullptr;
}

bool is_switched_off() {
    const Process* process = Process::made();
    return process != nullptr && !process->enabled();
}

/// Where to go on to; null: the first argument is our function, which is found in the place of libc's.
void* before(Arguments arguments, const char* version, void* go_on, const void* caller) {
    auto* const handle = reinterpret_cast<void*>(arguments[0]);
    const auto* const name = reinterpret_cast<const char*>(arguments[1]);
    void* const ours = our_function(name);
    if (ours == nullptr || is_switched_off() || goes_on(handle, name, caller)) return go_on;
    if (!leads_to_libc(handle, name, version)) return go_on;
    arguments[0] = reinterpret_cast<std::uintptr_t>(ours);
    return nullptr;
}

/// What dlopen loads is seen at the next of these calls, by which its functions are found, or at the end: dlopen goes
/// on as its caller's, and does not come back here. We ask under locks of our own, and load nothing of Go's.
void look_at_loaded(const void* caller) {
    Process* const process = Process::made();
    if (process == nullptr || !process->enabled() || process->finishing() || !is_something_loaded()) return;
    if (loader::object_with(caller) != &own_object() && process->is_me())
        look_for_go(process->report(), process->covering());
}

}  // namespace

extern "C" void* cryptmpi_before_dlsym(Arguments arguments, const void* caller) {
    look_at_loaded(caller);
    void* const go_on = reinterpret_cast<void*>(next_dlsym());
    if (reinterpret_cast<void*>(arguments[0]) == RTLD_DEFAULT) return go_on;
    return before(arguments, nullptr, go_on, caller);
}

/// Ours have no versions: by one, libc's are found behind RTLD_DEFAULT, too.
extern "C" void* cryptmpi_before_dlvsym(Arguments arguments, const void* caller) {
    look_at_loaded(caller);
    const auto* const version = reinterpret_cast<const char*>(arguments[2]);
    void* const go_on = reinterpret_cast<void*>(next_dlvsym());
    return version == nullptr ? go_on : before(arguments, version, go_on, caller);
}

extern "C" void* cryptmpi_before_dlopen(Arguments arguments, const void* caller) {
    look_at_loaded(caller);
    const bool is_deep = (arguments[1] & RTLD_DEEPBIND) != 0;
    if (is_deep && !is_switched_off() && !is_ours(caller)) arguments[1] &= ~static_cast<std::uintptr_t>(RTLD_DEEPBIND);
    return reinterpret_cast<void*>(next_dlopen());
}

CRYPTMPI_CALL void* dlmopen(Lmid_t name_space, const char* file, int flags) {
    Process& process = this_process();
    const auto go_on = behind_us<Dlmopen>("dlmopen");
    if (!process.enabled()) return go_on(name_space, file, flags);
    if (name_space == LM_ID_BASE) return go_on(name_space, file, flags & ~RTLD_DEEPBIND);
    const std::string name = file == nullptr ? "the program" : file;
    if (file != nullptr && process.covering().allows(file)) {
        if (process.report().count_unsealed("allow_programs: " + name + " ran without CryptMPI", true))
            return go_on(name_space, file, flags);
        return next_dlopen()((name + " (refused by cryptmpi)").c_str(), RTLD_LAZY);  // for dlerror's sake
    }
    process.report().tell_of_refused(
        "namespace for " + name,
        name +
            " in a namespace of its own (dlmopen) is refused: it would have a C library of its own, "
            "whose connections nobody seals; load it by dlopen, or name it in allow_programs if it "
            "talks to no other node");
    return next_dlopen()((name + " (refused by cryptmpi)").c_str(), RTLD_LAZY);  // for dlerror's sake
}
