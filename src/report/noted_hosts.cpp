#include "report/noted_hosts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/guarded.hpp"
#include "report/json_file.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::report {

namespace fs = std::filesystem;

Result<void> note_host(const fs::path& report_file, const std::string& host, const std::string& job_id,
                       const Sign& sign) {
    return guarded(report_file, [&]() -> Result<void> {
        std::string name = host + kNote;
        std::replace(name.begin(), name.end(), '/', '_');
        auto text = signed_text(kNoteKind, {{"job_id", job_id}, {"host", host}}, sign);
        if (!text) return tl::unexpected<Error>(text.error());
        return write_among_parts(report_file, {}, name, *text);
    });
}

// protocol: P3
std::set<std::string> noted_hosts(const fs::path& report_file, const std::string& job_id, const Sign& sign) {
    std::set<std::string> hosts;
    std::error_code error;
    for (fs::directory_iterator entry(parts_folder(report_file), error), end; !error && entry != end;
         entry.increment(error)) {
        if (entry->path().extension() != kNote) continue;
        const auto host = guarded(report_file, [&]() -> Result<std::string> {
            const auto note = read_json(entry->path());
            if (!note || !is_signed(kNoteKind, *note, sign) || note->value("job_id", "") != job_id) return "";
            return note->value("host", "");
        });
        if (host && !host->empty() && !host->starts_with('-')) hosts.insert(*host);
    }
    return hosts;
}

}  // namespace cryptmpi::report
