#include "report/signature.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSignature = "signature";
// Names a key, and tells nothing of it: an HMAC under a key that is expanded from it.
constexpr std::string_view kFingerprintKind = "fingerprint of a key\n";

/// Names and lines come from programs and hosts, so they may hold bytes that are not UTF-8.
std::string to_text(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Takes as long for tags that differ early as for those that differ late, or somebody could find one byte by byte.
bool is_same_tag(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
    return difference == 0;
}

}  // namespace

Result<std::string> signed_text(std::string_view kind, Json json, const Sign& sign) {
    json.erase(kSignature);
    auto tag = sign(std::string(kind) + to_text(json));
    if (!tag) return tl::unexpected<Error>(tag.error());
    json[kSignature] = *tag;
    return to_text(json);
}

// protocol: P5
Result<std::string> fingerprint(const Sign& sign) {
    constexpr std::size_t kDigits = 32;
    auto tag = sign(std::string(kFingerprintKind));
    if (tag && tag->size() > kDigits) tag->resize(kDigits);
    return tag;
}

// protocol: P2
bool is_signed(std::string_view kind, Json json, const Sign& sign) {
    const std::string claimed = json.value(kSignature, "");
    json.erase(kSignature);
    const auto tag = sign(std::string(kind) + to_text(json));
    return tag && is_same_tag(*tag, claimed);
}

bool is_signed(std::string_view kind, const Json& json, const std::vector<Sign>& signers) {
    return std::any_of(signers.begin(), signers.end(), [&](const Sign& sign) { return is_signed(kind, json, sign); });
}

}  // namespace cryptmpi::report
