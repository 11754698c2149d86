#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

#include "command/process.hpp"
#include "command/subcommands.hpp"
#include "report/part.hpp"

namespace cryptmpi::command {
namespace {

struct Options {
    std::string file;
    bool json = false;
};

Result<std::string> as_json(const std::string& file) {
    std::ifstream merged(file, std::ios::binary);
    if (!merged) return report::merge_parts(file);
    return std::string{std::istreambuf_iterator<char>(merged), std::istreambuf_iterator<char>()};
}

int show(const Options& options) {
    // The summary is made in both cases: it tells whether the file is a report at all.
    auto text = report::summarize(options.file);
    if (text && options.json) text = as_json(options.file);
    if (!text) return complain(text.error().line, 1);
    std::fputs(text->c_str(), stdout);
    return 0;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("report", "Show a job's report");
    sub->add_option("FILE", options->file, "The report file, as --report or report_file named it")->required();
    sub->add_flag("--json", options->json, "The whole report as JSON");
    sub->callback([options, &status] { status = show(*options); });
}

}  // namespace cryptmpi::command
