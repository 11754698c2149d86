// Arbitrary files where reports are read: a part of a job, a merged report, an attestation, a note of a host, a page
// for cryptmpi top. The first byte chooses which.
//
// Two keys sign: one whose every signature is "s", so that the fuzzer has the code behind a good signature; and one
// that he cannot know, under which nothing of his may look good.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/hex.hpp"
#include "report/attestation.hpp"
#include "report/job_report.hpp"
#include "report/live.hpp"
#include "report/live_reader.hpp"
#include "report/noted_hosts.hpp"
#include "scratch.hpp"

using namespace cryptmpi;
using fuzz::require;

namespace {

/// The marks by which a reader's terminal or browser would be misled.
void require_shown_safely(const std::string& text, bool is_html) {
    for (const char c : text) require(static_cast<unsigned char>(c) >= ' ' || c == '\n' || (is_html && c == '\t'));
    require(text.find("<fuzz>") == std::string::npos || !is_html);
}

Result<std::string> known(std::string_view) {
    return "s";
}
Result<std::string> unknown(std::string_view text) {
    std::uint64_t hash = 0x6a09e667f3bcc908;
    for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
    return "k" + std::to_string(hash);
}

void show(const report::Reading& reading) {
    require_shown_safely(reading.summary(), false);
    require_shown_safely(reading.html(), true);
    require_shown_safely(reading.metrics(), false);
    require_shown_safely(reading.json(), false);
    fuzz::require_one_line(reading.verdict().line);
}

Result<report::Reading> read(const std::filesystem::path& report_file, const report::Sign& sign) {
    auto reading = report::Reading::of(report_file, sign);
    if (reading) {
        show(*reading);
    } else {
        fuzz::require_one_line(reading.error().line);
    }
    return reading;
}

void read(const std::filesystem::path& report_file) {
    (void)read(report_file, known);
    (void)read(report_file, nullptr);
    const auto reading = read(report_file, unknown);
    require(!reading || !report::is_good(reading->verdict()));
}

class Files {
public:
    void part(const std::string& content) const {
        std::filesystem::remove(report_);
        put("report.json.parts/a.json", content);
        read(report_);
        const report::Started started{"job", 2};
        // A part that nobody has signed must not end in a good verdict.
        const auto forged = report::finish_job(report_, started, unknown, unknown);
        require(!forged || !report::is_good(*forged));
        put("report.json.parts/a.json", content);
        if (const auto done = report::finish_job(report_, started, known, unknown)) {
            const auto again = report::Reading::of(report_, report::Sign(unknown));
            require(again && again->verified() && again->verdict().outcome == done->outcome);
            show(*again);
        } else {
            fuzz::require_one_line(done.error().line);
        }
    }

    void merged(const std::string& content) const {
        std::filesystem::remove_all(scratch_.file("report.json.parts"));
        put("report.json", content);
        read(report_);
        std::filesystem::remove(report_);
    }

    void note(const std::string& content) const {
        put("report.json.parts/a.host", content);
        for (const auto& host : report::noted_hosts(report_, "job", known)) require(!host.empty() && host[0] != '-');
        require(report::noted_hosts(report_, "job", unknown).empty());
        std::filesystem::remove(scratch_.file("report.json.parts/a.host"));
    }

    void page(const std::string& content) const {
        report::LivePage page{};
        std::memcpy(static_cast<void*>(&page), content.data(), std::min(content.size(), sizeof page));
        // Of a process that is there, and of this version: else nothing more of it is looked at.
        page.magic = report::kLiveMagic;
        page.version = report::kLiveVersion;
        page.size = sizeof page;
        page.pid_namespace = report::own_pid_namespace();
        page.pid = ::getpid();
        page.started = report::start_of(page.pid).value_or(0);
        page.sequence = page.sequence & ~std::uint64_t{1};
        put("live/page", {reinterpret_cast<const char*>(&page), sizeof page});
        ::chmod(scratch_.file("live").c_str(), 0700);
        const auto found = report::read_live({{scratch_.file("live"), ::geteuid()}});
        require(found.processes.size() == 1);
        for (const auto* text : {&found.processes[0].job_id, &found.processes[0].node, &found.processes[0].program})
            for (const char c : *text) require(static_cast<unsigned char>(c) >= ' ');
    }

private:
    void put(const std::string& name, std::string_view content) const { scratch_.write(name, content); }

    fuzz::Scratch scratch_;
    std::filesystem::path report_ = scratch_.file("report.json");
};

void attestation(const std::string& text) {
    const auto parsed = report::Attestation::parse(text);
    if (!parsed) return fuzz::require_one_line(parsed.error().line);
    for (const auto& one : parsed->signatures()) {
        (void)from_hex<32>(one.key);
        (void)from_hex<64>(one.signature);
    }
    const auto summary = parsed->summary({});
    require(!report::is_good(summary.verdict));
    require_shown_safely(report::text_of(summary), false);
    require_shown_safely(report::html_of(parsed->summary({"alice"})), true);
    // What is signed does not change when it is written and read again.
    const auto again = report::Attestation::parse(parsed->text());
    require(again && again->signed_bytes() == parsed->signed_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    static const Files files;
    const std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 5) {
        case 0:
            files.part(content);
            break;
        case 1:
            files.merged(content);
            break;
        case 2:
            attestation(content);
            break;
        case 3:
            files.note(content);
            break;
        default:
            files.page(content);
    }
    return 0;
}
