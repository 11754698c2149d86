// The door of an MPI ABI's library: which address each procedure has.
#include "interpose/binding.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "interpose/allow.hpp"
#include "interpose/clearing.hpp"
#include "interpose/entries.hpp"
#include "interpose/refuse.hpp"
#include "interpose/resolve.hpp"
#include "interpose/this_process.hpp"

namespace cryptmpi::interpose {
namespace {

void* (*lookup)(const char* name);
/// What stands for MPI's own code, where something is done before it.
auto& preceded = *new std::map<std::string_view, void*>;

/// A procedure's own code is under its profiling name; a few have only the other.
void* own_code(const char* name) {
    if (const auto found = preceded.find(name); found != preceded.end()) return found->second;
    const std::string profiling = std::string("P") + name;
    void* address = lookup(profiling.c_str());
    return address != nullptr ? address : lookup(name);
}

bool enabled() {
    return layer().settings().enabled;
}

/// The user takes it in clear.
bool allowed(std::string_view name) {
    const auto& allow = layer().settings().allow;
    return std::find(allow.begin(), allow.end(), name) != allow.end();
}

void* address(const char* name) {
    void* const own = own_code(name);
    if (own == nullptr || !enabled()) return own;
    const auto all = entries();
    const auto found = std::lower_bound(all.begin(), all.end(), name, [](const Entry& entry, const char* wanted) {
        return std::strcmp(entry.name, wanted) < 0;
    });
    const bool direct = found->entry == nullptr || (found->refused && allowed(name));
    return direct ? own : found->entry;
}

int passes(const char* name) {
    return !enabled() || allowed(name) ? 1 : 0;
}

void* refuse(const char* name) {
    refuse_to_anyone(name, "this CryptMPI does not know it");
    return reinterpret_cast<void*>(refused_code);
}

void complain(const char* line) {
    layer().complain(line);
}

std::string library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text = {};
    int length = 0;
    if (native().Get_library_version != nullptr) native().Get_library_version(text.data(), &length);
    return text.data();
}

/// cryptmpi run and exec have looked already where they knew the program's MPI: not of a script, nor a preload by hand.
void check_settings() {
    if (!enabled()) return;
    auto& mine = layer();
    auto checked =
        check_allow(mine.settings(), [](const std::string& name) { return own_code(name.c_str()) != nullptr; });
    if (checked) return;
    mine.complain(checked.error().line);
    _exit(kExitRefused);
}

constexpr cryptmpi_binding kBinding{CRYPTMPI_BINDING_VERSION, address, passes, refuse, complain};

}  // namespace
}  // namespace cryptmpi::interpose

extern "C" [[gnu::visibility("default")]] const cryptmpi_binding* cryptmpi_bind(void* (*lookup)(const char* name)) {
    using namespace cryptmpi::interpose;
    cryptmpi::interpose::lookup = lookup;
    resolve(resolved, lookup);
    if (enabled() && !seen_clean(library_version())) preceded = clear_before_calls(resolved);
    if (enabled()) {
        for (const auto& [name, function] : act_before_waits(resolved)) preceded[name] = function;
    }
    check_settings();
    return &kBinding;
}
