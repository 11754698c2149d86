// Finds UCX, leads its calls of itself back to it, and everybody else's to the door.
#include "fabric/ucx/real.hpp"

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fabric/process.hpp"
#include "fabric/ucx/around.hpp"
#include "loader/loaded.hpp"

namespace cryptmpi::fabric::ucx {

Surroundings& around() {
    return Process::get();
}

namespace {

using loader::LoadedObject;
using loader::Reference;

struct Taken {
    const char* name;
    void* entry;
};

}  // namespace
}  // namespace cryptmpi::fabric::ucx

// The entries, whatever their types are: in door.cpp and refused.cpp.
namespace cryptmpi::fabric::ucx::entries {
#define TAKEN(name) extern "C" void cryptmpi_entry_##name() __asm__(#name);
#include "ucp_taken.inc"
#undef TAKEN
}  // namespace cryptmpi::fabric::ucx::entries

namespace cryptmpi::fabric::ucx {
namespace {

const std::unordered_map<std::string_view, void*>& entries_by_name() {
    static const auto& all = *new std::unordered_map<std::string_view, void*>{
#define TAKEN(name) {#name, reinterpret_cast<void*>(&entries::cryptmpi_entry_##name)},
#include "ucp_taken.inc"
#undef TAKEN
    };
    return all;
}

bool is_local(std::string_view name) {
    static const auto& known = *new std::set<std::string_view>{
#define FUNCTION(name, kind, reason) #name,
#include "ucp_functions.inc"
#undef FUNCTION
    };
    return known.contains(name);
}

std::string& unknown_names() {
    static auto& names = *new std::string;
    return names;
}

[[gnu::used]] void call_of_unknown() {
    around().end("MPI called a function of UCX that this CryptMPI does not know, one of: " + unknown_names() +
                 "; install a newer CryptMPI");
}

const LoadedObject& the_library(const std::vector<LoadedObject>& objects) {
    const LoadedObject* found = nullptr;
    for (const auto& object : objects) {
        if (object.exported("ucp_init_version") == nullptr || object.exported("ucp_worker_create") == nullptr) continue;
        if (object.is_program()) around().end("the program has UCX inside (ucp_init_version): link it with libucp.so");
        if (found != nullptr) {
            around().end("two UCX libraries in one process: " + found->file() + " and " + object.file() +
                         "; which one MPI means cannot be told");
        }
        found = &object;
    }
    if (found == nullptr) around().end("UCX is called, and no libucp is loaded");
    return *found;
}

/// UCX's calls of itself are its own affair. Whoever else refers to it, past us by whatever means, is led here.
void lead(const std::vector<LoadedObject>& objects, const LoadedObject& ucx) {
    for (const auto& object : objects) {
        const bool own = object.file() == ucx.file();
        object.bind([&](const Reference& reference) -> void* {
            void* const as_it_is = *reference.place;
            if (std::strncmp(reference.name, "ucp_", 4) != 0) return as_it_is;
            if (own) return reference.own != nullptr ? reference.own : as_it_is;
            const auto entry = entries_by_name().find(reference.name);
            if (entry != entries_by_name().end()) return reference.own == nullptr ? entry->second : as_it_is;
            if (is_local(reference.name) || reference.own != nullptr) return as_it_is;
            if (unknown_names().find(reference.name) == std::string::npos) {
                unknown_names() += std::string(unknown_names().empty() ? "" : ", ") + reference.name;
            }
            return reinterpret_cast<void*>(&call_of_unknown);
        });
    }
}

struct Found {
    Real real;
    std::mutex lock;

    Found() {
        const auto objects = LoadedObject::all();
        const LoadedObject& ucx = the_library(objects);
#define CALLED(name) real.name = reinterpret_cast<decltype(real.name)>(ucx.exported(#name));
        CRYPTMPI_UCP_CALLED(CALLED)
#undef CALLED
        lead(objects, ucx);
    }
};

Found& found() {
    static auto& one = *new Found;
    return one;
}

}  // namespace

const Real& real() {
    return found().real;
}

void take_calls() {
    Found& now = found();
    const std::lock_guard guard(now.lock);
    const auto objects = LoadedObject::all();
    lead(objects, the_library(objects));
}

}  // namespace cryptmpi::fabric::ucx
