// Binds the program's MPI calls at the first of them: finds the MPI library that the program uses, loads the library of
// ours that was built for its ABI, and points every slot of trampolines.S at what that one says.
#include "interpose/dispatch.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "interpose/binding.h"
#include "interpose/library.hpp"
#include "interpose/table.hpp"
#include "loader/loaded.hpp"

namespace cryptmpi::interpose {
namespace {

constexpr std::size_t kProcedures = std::size(kTable);
constexpr std::size_t kSpares = 64;  // as in trampolines.S

}  // namespace
}  // namespace cryptmpi::interpose

// In trampolines.S: where each entry jumps, and the entries themselves.
extern "C" {
extern std::atomic<void*> cryptmpi_slots[cryptmpi::interpose::kProcedures + cryptmpi::interpose::kSpares];
extern void* const cryptmpi_entries[cryptmpi::interpose::kProcedures + cryptmpi::interpose::kSpares];
}

namespace cryptmpi::interpose {
namespace {

MpiLibrary the_library(const std::vector<LoadedObject>& objects) {
    const auto libraries = mpi_libraries(objects);
    if (libraries.empty()) end("the program calls MPI, and no MPI library is loaded");
    const MpiLibrary& library = libraries.front();
    if (libraries.size() > 1)
        end("two MPI libraries in one process: " + library.file + " and " + libraries[1].file +
            "; which one the program means cannot be told");
    // Its calls of itself are left alone, so a Fortran program's would be, too.
    const LoadedObject* fortran = LoadedObject::holding(objects, library.find("mpi_send_"));
    if (fortran != nullptr && fortran->file() == library.file)
        end(library.file + " has the Fortran procedures in the same file as C's: the MPI layer cannot cover it");
    return library;
}

class Dispatcher {
public:
    static Dispatcher& get() {
        static auto& one = *new Dispatcher;
        return one;
    }

    /// Where a call through this entry goes.
    void* address(std::size_t index) {
        if (index >= kProcedures) return binding_->refuse(unknown_name(index - kProcedures).c_str());
        const char* name = kTable[index].name;
        void* const bound = binding_->address(name);
        if (bound != nullptr) return bound;
        const auto line = std::string(name) + " is not in " + library_.file + ": the program was built for another MPI";
        binding_->complain(line.c_str());
        std::abort();
    }

    void* address_of_unknown(const std::string& name, void* own) {
        if (library_.find(name.c_str()) == nullptr || binding_->passes(name.c_str()) != 0) return own;
        const std::lock_guard guard(lock_);
        const auto known = std::find(unknown_.begin(), unknown_.end(), name);
        const auto spare = static_cast<std::size_t>(known - unknown_.begin());
        if (spare == kSpares)
            end(fmt::format("{} has more than {} procedures that this CryptMPI does not know; install a newer one",
                            library_.file, kSpares));
        if (known == unknown_.end()) unknown_.push_back(name);
        return cryptmpi_entries[kProcedures + spare];
    }

private:
    Dispatcher() : library_(the_library(objects_)) {
        looked_up_ = &library_;
        load_below();
        const std::string file = own_folder() + "cryptmpi-mpi-" + library_.abi() + ".so";
        void* ours = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (ours == nullptr) end("the MPI layer for " + library_.file + " cannot be loaded: " + dlerror());
        auto* bind = reinterpret_cast<cryptmpi_bind_function*>(real_dlsym(ours, CRYPTMPI_BIND_NAME));
        binding_ = bind == nullptr ? nullptr : bind(look_up);
        if (binding_ == nullptr || binding_->version != CRYPTMPI_BINDING_VERSION)
            end(file + " is of another version of CryptMPI; install CryptMPI again");
        for (std::size_t i = 0; i < kProcedures; ++i) {
            if (void* bound = binding_->address(kTable[i].name)) cryptmpi_slots[i].store(bound);
        }
        for (const auto& object : objects_) {
            object.bind([&](const Reference& reference) { return address_for(object, reference); });
        }
    }

    /// What the tests put between us and MPI, to change what travels: a library whose cryptmpi_below gives its own
    /// function for a name, or null. Only the library that is built for them does so.
    void load_below() {
#ifdef CRYPTMPI_TESTED
        const char* file = std::getenv("CRYPTMPI_INTERNAL_BELOW");
        if (file == nullptr) return;
        void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) end(std::string("CRYPTMPI_INTERNAL_BELOW: ") + dlerror());
        below_ = reinterpret_cast<Below*>(real_dlsym(library, "cryptmpi_below"));
#endif
    }

    static void* look_up_in_mpi(const char* name) {
        return looked_up_->find(name);
    }
    static void* look_up(const char* name) {
        void* const below = below_ == nullptr ? nullptr : below_(name, look_up_in_mpi);
        return below != nullptr ? below : look_up_in_mpi(name);
    }

    /// Where an object's reference should lead.
    void* address_for(const LoadedObject& object, const Reference& reference) {
        void* const as_it_is = *reference.place;
        if (!is_c_procedure(reference.name)) return as_it_is;
        // MPI's calls of itself are its own affair: they go where they went without us. (Who calls cannot be told from
        // the return address: a user's callback may end in a jump to MPI_Send.)
        const auto procedure = procedure_named(reference.name);
        if (object.file() == library_.file) {
            const bool changed = reference.variable && !(procedure && as_it_is == entry_of(*procedure));
            return reference.own != nullptr && !changed ? reference.own : as_it_is;
        }
        if (reference.own != nullptr) return as_it_is;
        if (!procedure) return address_of_unknown(std::string(without_profiling(reference.name)), as_it_is);
        // A weak reference asks whether MPI has it; that we have an entry for it is no answer.
        const bool missing = reference.weak && binding_->address(kTable[*procedure].name) == nullptr;
        if (missing) return nullptr;
        // Bound past us, by whatever means.
        return mpi_->holds(as_it_is) ? entry_of(*procedure) : as_it_is;
    }

    std::string unknown_name(std::size_t spare) {
        const std::lock_guard guard(lock_);
        return unknown_[spare];
    }

    using Below = void*(const char* name, void* (*lookup)(const char*));
    inline static Below* below_ = nullptr;
    inline static const MpiLibrary* looked_up_ = nullptr;
    const std::vector<LoadedObject> objects_ = LoadedObject::all();
    const MpiLibrary library_;
    const LoadedObject* mpi_ = LoadedObject::holding(objects_, library_.find("PMPI_Send"));
    const cryptmpi_binding* binding_ = nullptr;
    std::mutex lock_;
    std::vector<std::string> unknown_;  // by the number of the spare entry
};

}  // namespace

std::optional<std::size_t> procedure_named(std::string_view name) {
    static const auto& numbers = *[] {
        auto* all = new std::unordered_map<std::string_view, std::size_t>;
        for (std::size_t i = 0; i < kProcedures; ++i) all->emplace(kTable[i].name, i);
        return all;
    }();
    const auto found = numbers.find(without_profiling(name));
    return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

void* entry_of(std::size_t procedure) {
    return cryptmpi_entries[procedure];
}

void* entry_of_unknown(std::string_view name, void* own) {
    return Dispatcher::get().address_of_unknown(std::string(without_profiling(name)), own);
}

}  // namespace cryptmpi::interpose

/// Called by an entry whose slot is not bound; returns where the call goes.
extern "C" void* cryptmpi_resolve(std::size_t index) {
    return cryptmpi::interpose::Dispatcher::get().address(index);
}
