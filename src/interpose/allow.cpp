#include "interpose/allow.hpp"

#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.hpp"
#include "interpose/table.hpp"

namespace cryptmpi::interpose {
namespace {

constexpr std::string_view kRefused = "refused";

std::vector<std::string> refused_procedures() {
    std::vector<std::string> names;
    for (const auto& procedure : kTable) {
        if (procedure.group == kRefused) names.emplace_back(procedure.name);
    }
    return names;
}

/// Why allowing `name` does nothing, and what to do; empty when it does something.
std::string objection(const std::string& name, const std::function<bool(const std::string&)>& mpi_has) {
    const auto* known = std::find_if(std::begin(kTable), std::end(kTable),
                                     [&](const Procedure& procedure) { return name == procedure.name; });
    if (known == std::end(kTable)) {
        if (mpi_has(name)) return {};
        return "is no procedure that the MPI layer or this MPI knows; did you mean \"" +
               nearest(name, refused_procedures()) + "\"? (cryptmpi coverage lists the names, in MPI's own spelling)";
    }
    if (known->group == kRefused) return {};
    const bool sealed = known->group == std::string_view("sealed");
    return std::string("is not refused (") + (sealed ? "its data is sealed" : "it moves no data") +
           "), so allow changes nothing; leave it out";
}

}  // namespace

Result<void> check_allow(const config::Settings& settings, const std::function<bool(const std::string&)>& mpi_has) {
    for (const auto& name : settings.allow) {
        const auto problem = objection(name, mpi_has);
        if (problem.empty()) continue;
        std::string line = settings.allow_where;
        line.append(": \"").append(name).append("\" ").append(problem);
        return fail(EINVAL, std::move(line));
    }
    return {};
}

}  // namespace cryptmpi::interpose
