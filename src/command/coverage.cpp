// What becomes of each MPI procedure under a layer: all that the MPI layer knows, or those that one MPI library
// exports; and of each function of UCX and libfabric by which the fabric layer seals them.
#include "command/coverage.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "command/elf.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "interpose/table.hpp"

namespace cryptmpi::command {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kClasses = {"sealed", "local", "refused", "unclassified"};

struct Options {
    std::string library;
    std::string layer = "mpi";
    bool as_json = false;
};

struct Row {
    std::string name, group, reason;
};

Result<std::set<std::string>> procedures_in(const std::string& library) {
    auto functions = exported_functions(library);
    if (!functions) return tl::unexpected<Error>(functions.error());
    std::set<std::string> names;
    for (const auto& name : *functions) {
        if (interpose::is_c_procedure(name)) names.emplace(interpose::without_profiling(name));
    }
    if (names.empty()) return fail(ENOEXEC, library + " exports no MPI procedure");
    return names;
}

std::vector<Row> whole_table() {
    std::vector<Row> rows;
    for (const auto& procedure : interpose::kTable) rows.push_back({procedure.name, procedure.group, procedure.reason});
    return rows;
}

/// The table's rows of these procedures, then those that it does not have.
std::vector<Row> rows_of(std::set<std::string> names) {
    std::vector<Row> rows;
    for (auto& row : whole_table()) {
        if (names.erase(row.name) > 0) rows.push_back(std::move(row));
    }
    for (const auto& name : names) rows.push_back({name, "unclassified", "this CryptMPI does not know it: refused"});
    return rows;
}

/// The layers below MPI know no procedures: whatever MPI sends for one of them is sealed.
std::vector<Row> below_mpi(std::vector<Row> rows) {
    for (auto& row : rows) {
        if (row.group != "local") row = {row.name, "sealed", ""};
    }
    return rows;
}

std::vector<Row> functions_of_ucx() {
    return {
#define FUNCTION(name, kind, reason) {#name, kind, reason},
#include "ucp_functions.inc"
#undef FUNCTION
    };
}

std::vector<Row> operations_of_libfabric() {
    return {
#define OPERATION(name, kind) {name, kind, ""},
#include "ofi_operations.inc"
#undef OPERATION
    };
}

Json as_json(const char* key, const std::string& name, const std::vector<Row>& rows, const char* list) {
    Json json = {{key, name}, {"counts", Json::object()}, {list, Json::array()}};
    for (const auto* group : kClasses) json["counts"][group] = 0;
    for (const auto& row : rows) {
        json["counts"][row.group] = json["counts"][row.group].get<int>() + 1;
        json[list].push_back({{"name", row.name}, {"class", row.group}, {"reason", row.reason}});
    }
    return json;
}

void print(const Json& json, const char* key, const char* list) {
    for (const auto& row : json[list]) {
        const auto text = [&](const char* column) { return row[column].get<std::string>(); };
        const std::string reason = text("reason");
        std::printf("%-44s%s%s%s\n", text("name").c_str(), text("class").c_str(), reason.empty() ? "" : ": ",
                    reason.c_str());
    }
    std::printf("\n%s:", json[key].get<std::string>().c_str());
    for (const auto* group : kClasses) {
        std::printf("%s %d %s", group == kClasses.front() ? "" : ",", json["counts"][group].get<int>(), group);
    }
    std::puts("");
}

Json doors() {
    return Json::array({as_json("door", "UCX", functions_of_ucx(), "functions"),
                        as_json("door", "libfabric", operations_of_libfabric(), "functions")});
}

int coverage(const Options& options) {
    auto rows = whole_table();
    if (!options.library.empty()) {
        auto names = procedures_in(options.library);
        if (!names) return complain(names.error().line, 2);
        rows = rows_of(std::move(*names));
    }
    if (options.layer != "mpi") rows = below_mpi(std::move(rows));
    Json json = as_json("mpi", options.library.empty() ? "MPI 5.0" : options.library, rows, "procedures");
    json["layer"] = options.layer;
    if (options.layer == "fabric") json["doors"] = doors();
    if (options.as_json) {
        std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
        if (json.contains("doors")) {
            for (const auto& door : json["doors"]) {
                print(door, "door", "functions");
                std::puts("");
            }
        }
        print(json, "mpi", "procedures");
    }
    return json["counts"]["unclassified"].get<int>() == 0 ? 0 : 1;
}

}  // namespace

Result<Counts> count_procedures(const std::filesystem::path& library) {
    auto names = procedures_in(library.string());
    if (!names) return tl::unexpected<Error>(names.error());
    Counts counts;
    for (const auto& row : rows_of(std::move(*names))) ++counts[row.group];
    return counts;
}

void add_coverage(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("coverage", "Every MPI procedure: sealed, local or refused by a layer");
    sub->add_option("--layer", options->layer,
                    "mpi; or fabric, with every function of UCX and libfabric; or channel (default: mpi)")
        ->check(CLI::IsMember({"mpi", "fabric", "channel"}));
    sub->add_flag("--json", options->as_json, "As JSON");
    sub->add_option("--mpi", options->library, "Only what this MPI library exports (libmpi.so), unknown ones included")
        ->type_name("FILE");
    sub->footer(
        "sealed: its data is encrypted. local: moves no user data between processes. refused: an MPI error, unless "
        "the\n"
        "setting allow names it.\n"
        "Exit status: 0; 1 the library exports a procedure without a class; 2 the library cannot be read.");
    sub->callback([options, &status] { status = coverage(*options); });
}

}  // namespace cryptmpi::command
