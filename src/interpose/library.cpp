#include "interpose/library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include "base/exit_status.hpp"
#include "base/say_line.hpp"

namespace cryptmpi::interpose {

void end(const std::string& line) {
    say_line(write, STDERR_FILENO, "", line);
    _exit(kExitRefused);
}

std::string own_folder() {
    Dl_info information{};
    dladdr(reinterpret_cast<const void*>(own_folder), &information);
    const std::string file = information.dli_fname;
    return file.substr(0, file.rfind('/') + 1);
}

bool is_ours(const std::string& file) {
    return file.starts_with(own_folder() + "cryptmpi-mpi-");
}

bool is_called_as_mpi(const std::string& file) {
    const auto name = file.substr(file.rfind('/') + 1);
    return name.starts_with("libmpi") || name.starts_with("libpmpi");
}

const char* MpiLibrary::abi() const {
    // An MPI library of another ABI may answer MPI_Abi_get_version, too: the standard fixes the file's name.
    const auto name = file.substr(file.rfind('/') + 1);
    if (name.starts_with("libmpi_abi") && find("MPI_Abi_get_version") != nullptr) return "standard";
    return find("ompi_mpi_comm_world") != nullptr ? "openmpi" : "mpich";
}

std::vector<MpiLibrary> mpi_libraries(const std::vector<LoadedObject>& objects) {
    std::vector<MpiLibrary> found;
    for (const auto& object : objects) {
        // A library may be loaded for one module of the program only: its own handle finds it, the global scope does
        // not.
        void* handle = object.is_program() ? nullptr : dlopen(object.file().c_str(), RTLD_LAZY | RTLD_NOLOAD);
        if (handle == nullptr) continue;
        const void* send = real_dlsym(handle, "PMPI_Send");
        if (send != nullptr && LoadedObject::holding(objects, send) == &object) {
            found.push_back({object.file(), handle});
        } else {
            dlclose(handle);
        }
    }
    return found;
}

}  // namespace cryptmpi::interpose
