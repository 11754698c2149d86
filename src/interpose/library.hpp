// The MPI library that the program uses, and the library of ours that fits it.
#pragma once

#include <string>
#include <vector>

#include "loader/loaded.hpp"

namespace cryptmpi::interpose {

using loader::LoadedObject;
using loader::Reference;

/// libc's own, behind ours (lookups.cpp).
void* real_dlsym(void* handle, const char* name);

struct MpiLibrary {
    std::string file;
    void* handle;

    void* find(const char* name) const { return real_dlsym(handle, name); }
    /// "standard", "openmpi" or "mpich": whose mpi.h its handles and structures follow.
    const char* abi() const;
};

/// Ends the process: one line, and the status of what is refused.
[[noreturn]] void end(const std::string& line);

/// The folder with all libraries of ours, and whether this file is one of them.
std::string own_folder();
bool is_ours(const std::string& file);

/// Is this what an MPI library's file is called? Some have the PMPI procedures in a libpmpi of their own.
bool is_called_as_mpi(const std::string& file);

/// The objects among these that are an MPI library: those that define PMPI_Send.
std::vector<MpiLibrary> mpi_libraries(const std::vector<LoadedObject>& objects);

}  // namespace cryptmpi::interpose
