// What becomes of each MPI procedure: all that the MPI layer knows, or those that one MPI library exports.
#include "command/coverage.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "command/elf.hpp"
#include "command/process.hpp"
#include "command/subcommands.hpp"
#include "interpose/table.hpp"

namespace cryptmpi::command {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kClasses = {"sealed", "local", "refused", "unclassified"};

struct Options {
    std::string library;
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

Json as_json(const std::string& mpi, const std::vector<Row>& rows) {
    Json json = {{"mpi", mpi}, {"counts", Json::object()}, {"procedures", Json::array()}};
    for (const auto* group : kClasses) json["counts"][group] = 0;
    for (const auto& row : rows) {
        json["counts"][row.group] = json["counts"][row.group].get<int>() + 1;
        json["procedures"].push_back({{"name", row.name}, {"class", row.group}, {"reason", row.reason}});
    }
    return json;
}

void print(const Json& json) {
    for (const auto& row : json["procedures"]) {
        const auto text = [&](const char* key) { return row[key].get<std::string>(); };
        const std::string reason = text("reason");
        std::printf("%-44s%s%s%s\n", text("name").c_str(), text("class").c_str(), reason.empty() ? "" : ": ",
                    reason.c_str());
    }
    std::printf("\n%s:", json["mpi"].get<std::string>().c_str());
    for (const auto* group : kClasses) {
        std::printf("%s %d %s", group == kClasses.front() ? "" : ",", json["counts"][group].get<int>(), group);
    }
    std::puts("");
}

int coverage(const Options& options) {
    auto rows = whole_table();
    if (!options.library.empty()) {
        auto names = procedures_in(options.library);
        if (!names) return complain(names.error().line, 2);
        rows = rows_of(std::move(*names));
    }
    const Json json = as_json(options.library.empty() ? "MPI 5.0" : options.library, rows);
    if (options.as_json) {
        std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
        print(json);
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
    auto* sub = app.add_subcommand("coverage", "Every MPI procedure: sealed, local or refused by the MPI layer");
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
