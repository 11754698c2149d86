#include "engine/profile.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "base/printable.hpp"

namespace cryptmpi::engine {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "cryptmpi-profile-1";
constexpr std::size_t kLargestFile = std::size_t{1} << 20;  // bytes; a profile has some ten thousand

// Nothing here throws: a value is looked at before it is taken.
const Json* member(const Json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? &*found : nullptr;
}

// Texts are shown in lines of ours, whatever stands in the file.
std::string text_of(const Json& object, const char* key) {
    const Json* value = member(object, key);
    return value != nullptr && value->is_string() ? printable(value->get_ref<const std::string&>()) : "";
}

tl::unexpected<Error> refuse(const std::string& what) {
    return fail(EINVAL, what);
}

/// A whole number of `object`, within bounds. `where` is the object's name.
Result<std::size_t> number(const Json& object, const std::string& where, const char* key, std::size_t least,
                           std::size_t most) {
    const Json* value = member(object, key);
    if (value == nullptr) return refuse("it has no " + where + "." + key);
    if (value->is_number_unsigned()) {
        const auto found = value->get<std::uint64_t>();
        if (found >= least && found <= most) return static_cast<std::size_t>(found);
    }
    return refuse(fmt::format("{}.{} must be a whole number from {} to {}", where, key, least, most));
}

Result<Fingerprint> read_fingerprint(const Json& json) {
    const Json* found = member(json, "fingerprint");
    if (found == nullptr || !found->is_object()) return refuse("it has no fingerprint");
    Fingerprint fingerprint{text_of(*found, "processor"), 0,
                            text_of(*found, "cipher"),    text_of(*found, "module"),
                            text_of(*found, "mpi"),       text_of(*found, "abi")};
    constexpr std::size_t kMostProcessors = std::size_t{1} << 20;
    const auto processors = number(*found, "fingerprint", "processors", 1, kMostProcessors);
    if (!processors) return tl::unexpected(processors.error());
    fingerprint.processors = static_cast<int>(*processors);
    for (const auto* text :
         {&fingerprint.processor, &fingerprint.cipher, &fingerprint.module, &fingerprint.mpi, &fingerprint.abi}) {
        if (text->empty()) {
            return refuse("its fingerprint lacks one of processor, cipher, module, mpi, abi");
        }
    }
    return fingerprint;
}

/// The length up to which a row holds; null in the last one.
Result<std::size_t> read_up_to(const Json& row, const std::string& where, bool last, std::size_t before) {
    const Json* value = member(row, "up_to");
    if (value != nullptr && value->is_null() && last) return SIZE_MAX;
    if (value == nullptr || last) return refuse(where + ".up_to must be a number of bytes, in the last row null");
    return number(row, where, "up_to", before + 1, SIZE_MAX - 1);
}

Result<Plans::Row> read_row(const Json& json, const std::string& where, std::size_t largest_whole) {
    if (!json.is_object()) return refuse(where + " is no object");
    Plans::Row row{};
    row.plan.largest_whole = largest_whole;
    const std::pair<std::size_t*, Result<std::size_t>> numbers[] = {
        {&row.plan.edge, number(json, where, "edge", Profile::kLeastEdge, Plan::kAlwaysWhole)},
        {&row.plan.segment, number(json, where, "segment", Profile::kLeastSegment, Profile::kMostSegment)},
        {&row.plan.in_flight, number(json, where, "in_flight", 1, Profile::kMostInFlight)}};
    for (const auto& [target, found] : numbers) {
        if (!found) return tl::unexpected(found.error());
        *target = *found;
    }
    if (row.plan.segment < row.plan.edge) return refuse(where + ".segment must not be less than its edge");
    return row;
}

Result<Plans> read_plans(const Json& json) {
    const Json* plan = member(json, "plan");
    if (plan == nullptr || !plan->is_object()) return refuse("it has no plan");
    const auto whole = number(*plan, "plan", "largest_whole", Plan::kAlwaysWhole, Plan::kLargestWhole);
    if (!whole) return tl::unexpected(whole.error());
    const Json* list = member(*plan, "rows");
    if (list == nullptr || !list->is_array() || list->empty() || list->size() > Profile::kMostRows) {
        return refuse(fmt::format("plan.rows must be a list of 1 to {} rows", Profile::kMostRows));
    }
    std::vector<Plans::Row> rows;
    for (std::size_t at = 0; at < list->size(); ++at) {
        const std::string where = fmt::format("plan.rows[{}]", at);
        auto row = read_row((*list)[at], where, *whole);
        if (!row) return tl::unexpected(row.error());
        const auto up_to = read_up_to((*list)[at], where, at + 1 == list->size(), rows.empty() ? 0 : rows.back().up_to);
        if (!up_to) return tl::unexpected(up_to.error());
        row->up_to = *up_to;
        rows.push_back(*row);
    }
    return Plans(std::move(rows));
}

/// A profile of an earlier `cryptmpi tune` does not say what reductions cost.
Result<CollectivePlan> read_collectives(const Json& json, const Plans& plans) {
    constexpr std::size_t kLarge = std::size_t{1} << 20;  // bytes; such messages were measured
    CollectivePlan plan{{}, static_cast<std::uint32_t>(plans.of(kLarge).segment)};
    const Json* found = member(json, "reductions");
    if (found == nullptr) return plan;
    ReductionCosts& costs = plan.costs;
    const std::tuple<std::uint32_t*, const char*, std::uint32_t> numbers[] = {
        {&costs.message_ns, "message_ns", ReductionCosts::kMostOfMessage},
        {&costs.kib_ns, "kib_ns", ReductionCosts::kMostOfKib},
        {&costs.combine_kib_ns, "combine_kib_ns", ReductionCosts::kMostOfKib}};
    for (const auto& [target, key, most] : numbers) {
        const auto value = number(*found, "reductions", key, 0, most);
        if (!value) return tl::unexpected(value.error());
        *target = static_cast<std::uint32_t>(*value);
    }
    return plan;
}

}  // namespace

std::string difference(const Fingerprint& there, const Fingerprint& here) {
    std::string text;
    const auto compare = [&](const char* what, const std::string& one, const std::string& other) {
        if (one != other) text += (text.empty() ? "" : "; ") + (what + (": " + one)) + " there, " + other + " here";
    };
    compare("processor", there.processor, here.processor);
    compare("processors", std::to_string(there.processors), std::to_string(here.processors));
    compare("cipher", there.cipher, here.cipher);
    compare("module", there.module, here.module);
    compare("MPI", there.mpi, here.mpi);
    compare("MPI's ABI", there.abi, here.abi);
    return text;
}

Result<std::optional<std::string>> profile_text(const std::filesystem::path& file, bool must_be_there) {
    std::error_code error;
    const auto status = std::filesystem::status(file, error);
    if (!std::filesystem::exists(status)) {
        if (!must_be_there) return std::nullopt;
        return fail(ENOENT, "there is no such file");
    }
    if (!std::filesystem::is_regular_file(status)) return fail(EINVAL, "it is no file");
    errno = 0;
    std::ifstream stream(file, std::ios::binary);
    std::string text(kLargestFile + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!stream.eof() && !stream.good()) {
        const int code = errno != 0 ? errno : EIO;
        return fail(code, std::string("it cannot be read: ") + std::strerror(code));
    }
    text.resize(static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kLargestFile) return fail(EINVAL, "it is too long for one");
    return text;
}

Result<Profile> read_profile(std::string_view text) {
    const auto json = parse_json<Json>(text, Numbers::any);  // what else it tells is nothing to us
    if (json.is_discarded()) return refuse("it is not JSON, or was cut off");
    const std::string format = text_of(json, "format");
    if (format != kFormat) {
        return refuse(format.starts_with("cryptmpi-profile-")
                          ? "it is of version " + format + ", and this CryptMPI reads " + std::string(kFormat)
                          : "it is no profile of cryptmpi tune");
    }
    auto fingerprint = read_fingerprint(json);
    if (!fingerprint) return tl::unexpected(fingerprint.error());
    auto plans = read_plans(json);
    if (!plans) return tl::unexpected(plans.error());
    const auto collectives = read_collectives(json, *plans);
    if (!collectives) return tl::unexpected(collectives.error());
    return Profile{std::move(*fingerprint), text_of(json, "made"), std::move(*plans), *collectives};
}

}  // namespace cryptmpi::engine
