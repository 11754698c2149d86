// fi_getinfo, fi_fabric, fi_fabric2 and fi_open, as programs call them. libfabric calls them, too: its utility
// providers open the providers beneath them, its loadable ones are bound to us; what comes from there goes on as it
// came.
#include "fabric/libfabric/entries.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "fabric/libfabric/information.hpp"
#include "fabric/libfabric/lookups.hpp"
#include "fabric/libfabric/objects.hpp"
#include "fabric/opening.hpp"
#include "fabric/process.hpp"
#include "loader/loaded.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

Surroundings& surroundings_of_process() {
    return Process::get();
}

constexpr const char* kLibrary = "libfabric.so.1";

using GetInfo = decltype(&fi_getinfo);
using FreeInfo = decltype(&fi_freeinfo);
using DuplicateInfo = decltype(&fi_dupinfo);
using MakeFabric = decltype(&fi_fabric);
using MakeFabric2 = int (*)(fi_info*, fid_fabric**, std::uint64_t, void*);
using Open = decltype(&fi_open);

/// The process's libfabric: two of them cannot be told apart by who calls.
void expect_one() {
    int count = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* counter) {
            const std::string_view file = object->dlpi_name;
            const auto name = file.substr(file.rfind('/') + 1);
            if (name.starts_with("libfabric.so") || name.starts_with("libfabric-")) ++*static_cast<int*>(counter);
            return 0;
        },
        &count);
    if (count > 1)
        surroundings_of_process().give_up("this process has loaded two different libfabric.so.1; let it have one");
}

/// That of libfabric itself.
void* look_up_in_library(const char* name, const char* version) {
    void* const library = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    return version == nullptr ? real_dlsym(library, name) : real_dlvsym(library, name, version);
}

template <class Function>
Function real(const char* name, const char* version) {
    void* const found = function_without_us(name, version);
    if (found == nullptr) {
        surroundings_of_process().give_up("no " + std::string(name) + " of version " + version +
                                          " in this process's libfabric");
    }
    return reinterpret_cast<Function>(found);
}

void* base_of(const void* address) {
    Dl_info information = {};
    return dladdr(address, &information) != 0 ? information.dli_fbase : nullptr;
}

/// Does the object itself define it, and not another that it needs?
bool defines(void* object, const void* base, const char* name) {
    void* const found = real_dlsym(object, name);
    return found != nullptr && base_of(found) == base;
}

/// Is the caller libfabric itself, or a provider that it loads? Asked when something is opened, never for a message.
bool is_inside(const void* caller) {
    Dl_info information = {};
    if (dladdr(caller, &information) == 0 || information.dli_fname == nullptr) return false;
    void* const object = dlopen(information.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (object == nullptr) return false;
    const void* const base = information.dli_fbase;
    const bool is_inside = defines(object, base, "fi_getinfo") || defines(object, base, "fi_prov_ini");
    if (is_inside && defines(object, base, "PMPI_Init")) {
        surroundings_of_process().give_up(
            "libfabric is a part of " + std::string(information.dli_fname) +
            ": MPI's calls of it cannot be told from its own; take an MPI with libfabric.so.1");
    }
    dlclose(object);
    return is_inside;
}

/// The functions of one version of fi_info.
struct Version {
    const char* name;
    GetInfo get_info;
    DuplicateInfo duplicate;
    FreeInfo release;
};

template <std::size_t Length>
struct Name {
    constexpr Name(const char (&text)[Length]) { std::copy_n(text, Length, value); }
    char value[Length];
};

template <Name Text>
const Version& version() {
    static const Version found = {Text.value, real<GetInfo>("fi_getinfo", Text.value),
                                  real<DuplicateInfo>("fi_dupinfo", Text.value),
                                  real<FreeInfo>("fi_freeinfo", Text.value)};
    return found;
}

/// Of which providers the program was shown no more than a part of their immediate data.
class PartlyShown {
public:
    void note(const char* provider, bool is_part) {
        const std::lock_guard guard(lock_);
        const auto [known, is_new] = all_.try_emplace(provider != nullptr ? provider : "", is_part);
        known->second = known->second && is_part;
    }
    bool has(const char* provider) const {
        const std::lock_guard guard(lock_);
        const auto known = all_.find(provider != nullptr ? provider : "");
        return known != all_.end() && known->second;
    }

private:
    mutable std::mutex lock_;
    std::map<std::string, bool> all_;
};

PartlyShown& partly_shown() {
    static auto& one = *new PartlyShown;
    return one;
}

/// Leaves what a sealed endpoint can use, as the program may see it.
fi_info* adapted(fi_info* answers, const Version& version, const fi_info* hints) {
    fi_info** place = &answers;
    while (*place != nullptr) {
        fi_info* const answer = *place;
        if (unusable(*answer) == nullptr) {
            adapt_answer(*answer, memory_wish(hints) == MemoryWish::can_be_kept);
            partly_shown().note(answer->fabric_attr->prov_name, keep_data_for_lengths(*answer, hints));
            place = &answer->next;
            continue;
        }
        *place = answer->next;
        answer->next = nullptr;
        version.release(answer);
    }
    return answers;
}

int get_info(const Version& version, std::uint32_t api, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** answers, const void* caller) {
    if (is_inside(caller)) {
        return version.get_info(api, node, service, flags, hints, answers);
    }
    expect_one();
    take_calls();
    if (memory_wish(hints) == MemoryWish::cannot_be_kept) return -FI_ENODATA;
    fi_info* const wishes = hints != nullptr ? version.duplicate(hints) : nullptr;
    if (hints != nullptr && wishes == nullptr) return -FI_ENOMEM;
    if (wishes != nullptr) adapt_hints(*wishes);
    const Opening opening;
    const int code = version.get_info(api, node, service, flags, wishes, answers);
    if (wishes != nullptr) version.release(wishes);
    if (code != 0 || (flags & FI_PROV_ATTR_ONLY) != 0) return code;
    *answers = adapted(*answers, version, hints);
    return *answers != nullptr ? 0 : -FI_ENODATA;
}

int make_fabric(MakeFabric make, fi_fabric_attr* attributes, fid_fabric** made, void* context, const void* caller) {
    const bool inside = is_inside(caller);
    if (!inside) {
        take_calls();
        attributes->fabric = nullptr;
    }
    const Opening opening;
    fid_fabric* fabric = nullptr;
    const int code = make(attributes, &fabric, context);
    if (code != 0) return code;
    const char* const provider = attributes->prov_name;
    *made = inside ? fabric : show(fabric, surroundings_of_process(), context, provider, partly_shown().has(provider));
    return 0;
}

}  // namespace
}  // namespace cryptmpi::fabric::libfabric

using namespace cryptmpi::fabric::libfabric;

#define CRYPTMPI_EXPORT extern "C" [[gnu::visibility("default")]]
// The layouts that fi_info had before 1.3 (of 2015 to 2017) are not known to us.
#define CRYPTMPI_GET_INFO(function, text, binding)                                                                \
    CRYPTMPI_EXPORT int function(std::uint32_t api, const char* node, const char* service, std::uint64_t flags,   \
                                 const fi_info* hints, fi_info** answers) {                                       \
        return get_info(version<text>(), api, node, service, flags, hints, answers, __builtin_return_address(0)); \
    }                                                                                                             \
    __asm__(".symver " #function ",fi_getinfo" binding text)
#define CRYPTMPI_REFUSED_GET_INFO(function, text)                                                                     \
    CRYPTMPI_EXPORT int function(std::uint32_t, const char*, const char*, std::uint64_t, const fi_info*, fi_info**) { \
        surroundings_of_process().refuse("fi_getinfo of version " text, "programs bound to it are not known");        \
        return -FI_ENOSYS;                                                                                            \
    }                                                                                                                 \
    __asm__(".symver " #function ",fi_getinfo@" text)

CRYPTMPI_REFUSED_GET_INFO(cryptmpi_fi_getinfo_1_0, "FABRIC_1.0");
CRYPTMPI_REFUSED_GET_INFO(cryptmpi_fi_getinfo_1_1, "FABRIC_1.1");
CRYPTMPI_REFUSED_GET_INFO(cryptmpi_fi_getinfo_1_2, "FABRIC_1.2");
CRYPTMPI_GET_INFO(cryptmpi_fi_getinfo_1_3, "FABRIC_1.3", "@");
CRYPTMPI_GET_INFO(cryptmpi_fi_getinfo_1_7, "FABRIC_1.7", "@");
CRYPTMPI_GET_INFO(cryptmpi_fi_getinfo_1_8, "FABRIC_1.8", "@");
CRYPTMPI_GET_INFO(cryptmpi_fi_getinfo_1_9, "FABRIC_1.9", "@@");
CRYPTMPI_GET_INFO(cryptmpi_fi_getinfo_1_10, "FABRIC_1.10", "@");

CRYPTMPI_EXPORT int cryptmpi_fi_fabric_1_0(fi_fabric_attr* attributes, fid_fabric** made, void* context) {
    static const auto make = real<MakeFabric>("fi_fabric", "FABRIC_1.0");
    return make_fabric(make, attributes, made, context, __builtin_return_address(0));
}
__asm__(".symver cryptmpi_fi_fabric_1_0,fi_fabric@FABRIC_1.0");

CRYPTMPI_EXPORT int cryptmpi_fi_fabric_1_1(fi_fabric_attr* attributes, fid_fabric** made, void* context) {
    static const auto make = real<MakeFabric>("fi_fabric", "FABRIC_1.1");
    return make_fabric(make, attributes, made, context, __builtin_return_address(0));
}
__asm__(".symver cryptmpi_fi_fabric_1_1,fi_fabric@@FABRIC_1.1");

CRYPTMPI_EXPORT int cryptmpi_fi_fabric2(fi_info* info, fid_fabric** made, std::uint64_t flags, void* context) {
    static const auto make = real<MakeFabric2>("fi_fabric2", "FABRIC_1.8");
    if (is_inside(__builtin_return_address(0))) {
        return make(info, made, flags, context);
    }
    take_calls();
    info->fabric_attr->fabric = nullptr;
    const cryptmpi::fabric::Opening opening;
    fid_fabric* fabric = nullptr;
    const int code = make(info, &fabric, flags, context);
    const char* const provider = info->fabric_attr->prov_name;
    if (code == 0) *made = show(fabric, surroundings_of_process(), context, provider, partly_shown().has(provider));
    return code;
}
__asm__(".symver cryptmpi_fi_fabric2,fi_fabric2@@FABRIC_1.8");

/// Opens what moves no data (the cache of registrations, by which Open MPI tells libfabric of freed memory).
CRYPTMPI_EXPORT int cryptmpi_fi_open(std::uint32_t api, const char* name, void* attributes, std::size_t size,
                                     std::uint64_t flags, fid** made, void* context) {
    static const auto open = real<Open>("fi_open", "FABRIC_1.5");
    const bool inside = is_inside(__builtin_return_address(0));
    if (inside || std::strcmp(name, "mr_cache") == 0) return open(api, name, attributes, size, flags, made, context);
    surroundings_of_process().refuse("fi_open of " + std::string(name), "what it opens is not sealed");
    return -FI_ENOSYS;
}
__asm__(".symver cryptmpi_fi_open,fi_open@@FABRIC_1.5");

namespace cryptmpi::fabric::libfabric {
namespace {

struct Entry {
    const char* name;
    const char* version;
    void* ours;
};
constexpr std::size_t kEntries = 12;

const std::array<Entry, kEntries>& entries() {
    static const std::array<Entry, kEntries> all = {{
        {"fi_getinfo", "FABRIC_1.0", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_0)},
        {"fi_getinfo", "FABRIC_1.1", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_1)},
        {"fi_getinfo", "FABRIC_1.2", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_2)},
        {"fi_getinfo", "FABRIC_1.3", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_3)},
        {"fi_getinfo", "FABRIC_1.7", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_7)},
        {"fi_getinfo", "FABRIC_1.8", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_8)},
        {"fi_getinfo", "FABRIC_1.9", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_9)},
        {"fi_getinfo", "FABRIC_1.10", reinterpret_cast<void*>(&cryptmpi_fi_getinfo_1_10)},
        {"fi_fabric", "FABRIC_1.0", reinterpret_cast<void*>(&cryptmpi_fi_fabric_1_0)},
        {"fi_fabric", "FABRIC_1.1", reinterpret_cast<void*>(&cryptmpi_fi_fabric_1_1)},
        {"fi_fabric2", "FABRIC_1.8", reinterpret_cast<void*>(&cryptmpi_fi_fabric2)},
        {"fi_open", "FABRIC_1.5", reinterpret_cast<void*>(&cryptmpi_fi_open)},
    }};
    return all;
}

bool is_taken(std::string_view name) {
    return std::any_of(entries().begin(), entries().end(), [&](const Entry& entry) { return entry.name == name; });
}

/// Ours of the version that was found, which tells the layout that the caller knows; null: we have none of that.
void* ours_for(std::string_view name, const void* found) {
    const auto one = std::find_if(entries().begin(), entries().end(), [&](const Entry& entry) {
        return entry.name == name && (found == entry.ours || found == function_without_us(entry.name, entry.version) ||
                                      found == look_up_in_library(entry.name, entry.version));
    });
    return one == entries().end() ? nullptr : one->ours;
}

/// Of a version that we do not have: the loader would find libfabric's, now or when it is called first.
bool is_newer(const loader::Reference& reference) {
    const char* const asked = reference.version();
    const std::string_view version = asked != nullptr ? asked : "";
    return version.starts_with("FABRIC_") && std::none_of(entries().begin(), entries().end(), [&](const Entry& entry) {
               return entry.name == std::string_view(reference.name) && entry.version == version;
           });
}

[[gnu::used]] void call_of_unknown() {
    surroundings_of_process().give_up(
        "a program calls libfabric by a version of its functions that CryptMPI does not know; install a newer "
        "CryptMPI");
}

using loader::LoadedObject;

/// Its providers, too, and who has its functions himself, to stand before it.
bool is_of_libfabric(const LoadedObject& object) {
    return object.exported("fi_getinfo") != nullptr || object.exported("fi_prov_ini") != nullptr;
}

bool is_the_library(const LoadedObject& object) {
    return object.exported("fi_fabric") != nullptr && object.exported("fi_param_define") != nullptr;
}

}  // namespace

void* function_without_us(const char* name, const char* version) {
    void* const next = version == nullptr ? real_dlsym(RTLD_NEXT, name) : real_dlvsym(RTLD_NEXT, name, version);
    return next != nullptr ? next : look_up_in_library(name, version);
}

void take_calls() {
    static std::mutex lock;
    const std::lock_guard guard(lock);
    const auto objects = LoadedObject::all();
    const auto library = std::find_if(objects.begin(), objects.end(), is_the_library);
    if (library == objects.end()) return;
    for (const auto& object : objects) {
        if (is_of_libfabric(object)) continue;
        object.bind([&](const loader::Reference& reference) -> void* {
            void* const as_it_is = *reference.place;
            if (reference.own != nullptr || !is_taken(reference.name)) return as_it_is;
            if (is_newer(reference)) return reinterpret_cast<void*>(&call_of_unknown);
            // What is not bound yet finds us by itself.
            if (!library->holds(as_it_is)) return as_it_is;
            void* const ours = ours_for(reference.name, as_it_is);
            return ours != nullptr ? ours : reinterpret_cast<void*>(&call_of_unknown);
        });
    }
}

namespace {

/// A program may have no call that comes to us.
[[gnu::constructor]] void take_calls_of_newer() {
    if (dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD) != nullptr) take_calls();
}

}  // namespace

void* entry_for(const char* name, void* found) {
    if (!is_taken(name)) return nullptr;
    void* const ours = ours_for(name, found);
    if (ours == nullptr) {
        surroundings_of_process().give_up("a program asks dlsym for " + std::string(name) +
                                          " of a version of libfabric that CryptMPI does not know");
    }
    return ours;
}

}  // namespace cryptmpi::fabric::libfabric
