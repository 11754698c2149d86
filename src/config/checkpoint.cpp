#include "config/checkpoint.hpp"

#include <link.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "config/loading.hpp"

namespace cryptmpi::config {
namespace {

constexpr std::string_view kVariables = "DMTCP_";
constexpr const char* kLibrary = "/libdmtcp";

bool is_loaded() {
    const auto look = [](dl_phdr_info* information, std::size_t, void*) {
        return information->dlpi_name != nullptr && std::strstr(information->dlpi_name, kLibrary) != nullptr ? 1 : 0;
    };
    return dl_iterate_phdr(look, nullptr) != 0;
}

/// Why a process under one of them must not start; empty: there is none that shows.
std::string refuse_checkpoints(const Environment& environment) {
    const auto found = environment.variables().lower_bound(kVariables);
    const bool named = found != environment.variables().end() && found->first.starts_with(kVariables);
    if (!named && !is_loaded()) return {};
    return "this process runs under DMTCP (" +
           (named ? "variable " + found->first : std::string("libdmtcp is loaded")) +
           "): restarted from a checkpoint it would seal other data under numbers that were used before; start it "
           "without dmtcp_launch and its variables";
}

}  // namespace

Result<Settings> load_unless_checkpointed(const Environment& environment) {
    auto loaded = load(environment);
    if (!loaded) return loaded;
    if (auto reason = refuse_checkpoints(environment); !reason.empty()) return fail(EPERM, std::move(reason));
    return loaded;
}

}  // namespace cryptmpi::config
