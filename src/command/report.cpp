#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "aead/registry.hpp"
#include "command/job.hpp"
#include "command/reports.hpp"
#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "config/loading.hpp"
#include "report/job_report.hpp"

namespace cryptmpi::command {
namespace {

struct Options {
    std::string file;
    bool json = false;
    bool html = false;
    bool metrics = false;
    bool check = false;
    bool allow_exceptions = false;
};

/// Without settings and the job key a report can be shown, but not believed. Error: the module that would verify it
/// cannot be used.
Result<std::vector<report::Sign>> signers(const Options& options) {
    const auto settings = config::load(config::process_environment());
    std::optional<Error> why;
    if (!settings) {
        why = settings.error();
    } else {
        const auto kex = aead::load_kex(settings->module_folder.string(), settings->module);
        if (!kex) return tl::unexpected<Error>(kex.error());
        auto made = report_signers(*settings, *kex->api->kex);
        if (made) return made;
        why = made.error();
    }
    if (options.check) complain(why->line, 0);
    return std::vector<report::Sign>{};
}

int show(const Options& options) {
    const int failure = options.check ? kNotSealed : 1;
    const auto keys = signers(options);
    if (!keys) return complain(keys.error().line, failure);
    const auto reading = report::Reading::of(options.file, *keys);
    if (!reading) return complain(reading.error().line, failure);
    const std::string& text = options.json      ? reading->json()
                              : options.html    ? reading->html()
                              : options.metrics ? reading->metrics()
                                                : reading->summary();
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        return complain("report: it could not be written: " + std::string(std::strerror(errno)), failure);
    if (!options.check) return 0;
    const auto& verdict = reading->verdict();
    const bool exceptions = verdict.outcome == report::Outcome::exceptions;
    const bool good = !keys->empty() && report::is_good(verdict) && (!exceptions || options.allow_exceptions);
    return good ? 0 : kNotSealed;
}

}  // namespace

void add_report(CLI::App& app, int& status) {
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("report", "Show a job's report");
    sub->add_option("FILE", options->file, "The report file, as --report or report_file named it")->required();
    auto* json = sub->add_flag("--json", options->json, "The whole report as JSON");
    auto* html = sub->add_flag("--html", options->html, "One page to show or to print, which needs no other file");
    auto* metrics =
        sub->add_flag("--metrics", options->metrics, "Its numbers for Prometheus, as node_exporter reads a file");
    html->excludes(json);
    metrics->excludes(json)->excludes(html);
    sub->add_flag("--check", options->check,
                  "Exit status 0 only if the verdict is SEALED or NOTHING TO SEAL, else 123");
    sub->add_flag("--allow-exceptions", options->allow_exceptions,
                  "With --check: exceptions that the job's settings allowed pass, too");
    sub->callback([options, &status] { status = show(*options); });
}

}  // namespace cryptmpi::command
