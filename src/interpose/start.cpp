// What is made sure of before the program's own code runs: that its MPI calls, where it makes any, lead to us. A
// program that is covered by half sends the other half in clear.
#include <dlfcn.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/own_names.hpp"
#include "interpose/contained.hpp"
#include "interpose/dispatch.hpp"
#include "interpose/library.hpp"
#include "interpose/table.hpp"
#include "loader/loaded.hpp"

namespace cryptmpi::interpose {
namespace {

constexpr const char* kMend = "; link it with MPI's shared library, or use the channel layer (--layer channel)";

void expect_no_mpi_inside(const std::vector<LoadedObject>& objects) {
    for (const auto& object : objects) {
        if (!object.is_program() && is_called_as_mpi(object.file())) continue;
        const std::string file = object.is_program() ? "/proc/self/exe" : object.file();
        if (!contains_mpi(file, object.is_program())) continue;
        const std::string name = object.is_program() ? "the program " + program_name() : "the library " + object.file();
        end(name + " has an MPI library inside (PMPI_Init): its calls of MPI, as MPI_Send, do not reach CryptMPI" +
            kMend);
    }
}

/// Whoever looks for PMPI_Send in the usual order must find ours.
void expect_to_be_found(const std::vector<LoadedObject>& objects) {
    const LoadedObject* before_us = LoadedObject::holding(objects, real_dlsym(RTLD_DEFAULT, "PMPI_Send"));
    if (before_us == nullptr) return;
    end(before_us->file() +
        " is found before libcryptmpi-mpi.so by who calls PMPI_Send; name it after that in LD_PRELOAD");
}

/// A tool that the program is linked with (the profiling interface: it defines MPI_Send, which calls PMPI_Send) would
/// get no call, because a preloaded library comes before all linked ones. Calls of MPI_Send go to the tool; its calls
/// of PMPI_Send come to us.
void lead_to_tools(const std::vector<LoadedObject>& objects) {
    std::unordered_map<std::string_view, void*> tools;
    const auto libraries = mpi_libraries(objects);
    const auto is_mpis = [&](const LoadedObject& object) {
        for (const auto& library : libraries) {
            if (library.file == object.file()) return true;
        }
        return false;
    };
    for (const auto& object : objects) {
        if (object.is_program() || is_mpis(object)) continue;
        object.each_exported([&](const char* name, void* function) {
            if (name[0] == 'M' && is_c_procedure(name) && procedure_named(name)) tools.emplace(name, function);
        });
    }
    if (tools.empty()) return;
    for (const auto& object : objects) {
        if (is_mpis(object)) continue;
        object.bind([&](const Reference& reference) {
            const auto tool = reference.own == nullptr ? tools.find(reference.name) : tools.end();
            return tool == tools.end() ? *reference.place : tool->second;
        });
    }
}

[[gnu::constructor]] void make_sure() {
    const auto objects = LoadedObject::all();
    expect_no_mpi_inside(objects);
    expect_to_be_found(objects);
    lead_to_tools(objects);
}

}  // namespace
}  // namespace cryptmpi::interpose
