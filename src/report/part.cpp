#include "report/part.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "report/guarded.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json to_json(const Sizes& sizes) {
    Json classes = Json::array();
    for (std::size_t i = 0; i < Sizes::kClasses; ++i) {
        const auto& [messages, bytes] = sizes.classes()[i];
        if (messages != 0) classes.push_back({{"up_to", Sizes::up_to(i)}, {"messages", messages}, {"bytes", bytes}});
    }
    return classes;
}

/// Which process it was, and with what it sealed.
Json identity_to_json(const Part& part) {
    Json profile = {{"file", part.profile.file}, {"digest", part.profile.digest}, {"unused", part.profile.unused}};
    return {{"job_id", part.job_id},
            {"report_token", part.report_token},
            {"folder_token", part.folder_token},
            {"parts_wait", parts_wait(part.report_token)},
            {"version", CRYPTMPI_VERSION},
            {"user", part.user},
            {"user_namespace", part.user_namespace},
            {"began", part.began},
            {"until", seconds_now()},
            {"layer", part.layer},
            {"layer_reason", part.layer_reason},
            {"library", part.library.empty() ? part.layer : part.library},
            {"node", part.node},
            {"kernel", part.kernel},
            {"pid", part.pid},
            {"pid_namespace", part.pid_namespace},
            {"role", part.role},
            {"rank", part.rank},
            {"ranks", part.ranks},
            {"launch", part.launch},
            {"group", part.group},
            {"slurm_step", part.slurm_step},
            {"launcher_here", part.launcher_here},
            {"seals_sockets", part.seals_sockets},
            {"spawned", part.spawned},
            {"mpi_initialized", part.mpi_initialized},
            {"mpi_finalized", part.mpi_finalized},
            {"mpi_aborted", part.mpi_aborted},
            {"ended", part.ended},
            {"program", part.program},
            {"program_sha256", part.program_sha256},
            {"settings", part.settings},
            {"suite", part.suite},
            {"module", part.module},
            {"handshake_module", part.handshake_module},
            {"kem_module", part.kem_module},
            {"padding", part.padding},
            {"key_exchange", part.key_exchange},
            {"scope", part.scope},
            {"member", part.member},
            {"peer_members", part.peer_members},
            {"clear_packets", part.clear_packets},
            {"processor", part.processor},
            {"processors", part.processors},
            {"mpi", part.mpi},
            {"abi", part.abi},
            {"profile", std::move(profile)}};
}

/// What it sealed, and what it did not.
Json counts_to_json(const Part& part) {
    Json not_sealed = Json::array();
    for (const auto& entry : part.not_sealed) not_sealed.push_back(json_of(entry));
    return {{"sealed_connections", part.sealed_connections},
            {"sealed_bytes_sent", part.sealed_bytes_sent},
            {"sealed_bytes_received", part.sealed_bytes_received},
            {"padding_bytes_sent", part.padding_bytes_sent},
            {"padding_bytes_received", part.padding_bytes_received},
            {"sealed_records_sent", part.sealed_records_sent},
            {"sealed_records_received", part.sealed_records_received},
            {"records_by_workers", part.records_by_workers},
            {"sizes_sent", to_json(part.sizes_sent)},
            {"sizes_received", to_json(part.sizes_received)},
            {"native_connections", part.native_connections},
            {"rekeys", part.rekeys},
            {"failed_opens", part.failed_opens},
            {"cut_off", part.cut_off},
            {"refused_handshakes", part.refused_handshakes},
            {"refused_roads", part.refused_roads},
            {"not_sealed", std::move(not_sealed)},
            {"errors", part.errors}};
}

Json to_json(const Part& part) {
    Json json = identity_to_json(part);
    json.update(counts_to_json(part));
    return json;
}

/// Tells what a process runs from what it ran before an exec, which keeps its number: a part of a shell that has
/// something to tell must outlive the program that takes its place. A number: parts are also written after the
/// destructors of static objects have run.
std::int64_t image_of_program() {
    static const std::int64_t image = new_image();
    return image;
}

}  // namespace

Json json_of(const Unsealed& entry) {
    return {{"reason", entry.reason},
            {"connections", entry.connections},
            {"bytes", entry.bytes},
            {"allowed", entry.allowed}};
}

std::int64_t seconds_now() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::int64_t new_image() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

KnownFolder known_folder(const Part& part) {
    return {part.report_token.empty() ? part.folder_token : part.report_token, part.seen_folder};
}

Result<void> write_part(const fs::path& report_file, const Part& part, const Sign& sign) {
    return guarded(report_file, [&]() -> Result<void> {
        std::string name =
            fmt::format("{}.{}.{}.{}-{}.json", part.node, part.pid, part.library.empty() ? part.layer : part.library,
                        part.pid_namespace, part.image != 0 ? part.image : image_of_program());
        std::replace(name.begin(), name.end(), '/', '_');
        auto text = signed_text(kPartKind, to_json(part), sign);
        if (!text) return tl::unexpected<Error>(text.error());
        return write_among_parts(report_file, known_folder(part), name, *text);
    });
}

}  // namespace cryptmpi::report
