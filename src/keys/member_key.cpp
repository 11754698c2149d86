#include "keys/member_key.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sstream>

#include "keys/ed25519_forms.hpp"
#include "keys/public_list.hpp"

namespace cryptmpi::keys {
namespace {

constexpr std::string_view kLead = "cryptmpi-member-key-1 ";
constexpr SecretFile kFile = {"member key file", "cryptmpi keygen --member", "",
                              "whoever lists this member would have to be told the new public key"};
constexpr std::string_view kAlgorithm = "ed25519";

/// The text that is signed: no purpose's begins another's.
std::string bound(Purpose purpose, std::string_view text) {
    std::string whole = "cryptmpi member ";
    switch (purpose) {
        case Purpose::attestation:
            whole += "attestation\n";
            break;
        case Purpose::handshake:
            whole += "handshake\n";
            break;
    }
    return whole.append(text);
}

bool may_be_in_a_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '@' || c == '-';
}

std::optional<MemberPublicKey> key_of(std::string_view digits) {
    MemberPublicKey key{};
    // The rest of a key line's rules are about lines, which the caller has taken apart.
    const std::span content(reinterpret_cast<const std::uint8_t*>(digits.data()), digits.size());
    return parse_key_line("", content, key) ? std::optional(key) : std::nullopt;
}

Result<Member> parse_line(const std::string& line) {
    std::istringstream words(line);
    Member member;
    std::string algorithm, digits, more;
    words >> member.name >> algorithm >> digits;
    if (digits.empty() || words >> more) return fail(EINVAL, "is not NAME ed25519 <64 hexadecimal digits>");
    if (auto checked = check_member_name(member.name); !checked) return tl::unexpected<Error>(checked.error());
    if (algorithm != kAlgorithm) return fail(EINVAL, "is of another algorithm than ed25519");
    const auto key = key_of(digits);
    if (!key) return fail(EINVAL, "has no key of 64 hexadecimal digits");
    member.key = *key;
    return member;
}

}  // namespace

Result<MemberKey> MemberKey::read(const cryptmpi_kex& kex, const std::filesystem::path& file) {
    Secret<key_line_size(kLead) + 1> content;  // room for one byte too many
    const auto size = read_secret_file(kFile, file, {content.data(), content.size()});
    if (!size) return tl::unexpected<Error>(size.error());
    MemberKey member;
    member.kex_ = &kex;
    member.private_ = std::make_unique<Secret<kKeySize>>();
    if (auto done = parse_key_line(kLead, {content.data(), *size},
                                   std::span<std::uint8_t, kKeySize>(member.private_->data(), kKeySize));
        !done)
        return wrong(kFile, file, done.error().code, done.error().line);
    if (kex.ed25519_public(member.public_.data(), member.private_->data()) != CRYPTMPI_OK)
        return fail(EIO, "the crypto module's Ed25519 failed");
    return member;
}

Result<MemberKey> MemberKey::make(const cryptmpi_kex& kex, const std::filesystem::path& file) {
    Secret<kKeySize> drawn;
    if (kex.random(drawn.data(), kKeySize) != CRYPTMPI_OK)
        return fail(EIO, "the crypto module's random generator failed");
    Secret<key_line_size(kLead)> line;
    write_key_line(kLead, std::span<const std::uint8_t, kKeySize>(drawn.data(), kKeySize), {line.data(), line.size()});
    if (auto done = write_secret_file(kFile, file, {line.data(), line.size()}, false); !done)
        return tl::unexpected<Error>(done.error());
    return read(kex, file);
}

Result<Signature> MemberKey::sign(Purpose purpose, std::string_view text) const {
    const std::string whole = bound(purpose, text);
    Signature signature{};
    const auto* message = reinterpret_cast<const std::uint8_t*>(whole.data());
    if (kex_->ed25519_sign(signature.data(), private_->data(), message, whole.size()) != CRYPTMPI_OK)
        return fail(EIO, "the crypto module's Ed25519 failed");
    return signature;
}

Result<void> verify(const cryptmpi_kex& kex, const MemberPublicKey& key, Purpose purpose, std::string_view text,
                    const Signature& signature) {
    const std::string whole = bound(purpose, text);
    const auto* message = reinterpret_cast<const std::uint8_t*>(whole.data());
    // protocol: H22
    if (!has_strict_form(key, signature) ||
        kex.ed25519_verify(signature.data(), key.data(), message, whole.size()) != CRYPTMPI_OK)
        return fail(EBADMSG, "the signature is not of this key and text");
    return {};
}

Result<void> check_member_name(std::string_view name) {
    if (name.empty() || name.size() > kMemberNameSize || !std::all_of(name.begin(), name.end(), may_be_in_a_name))
        return fail(EINVAL,
                    "has a name of other characters than letters, digits and ._@-, of none, or of more than 64");
    return {};
}

std::string line_of(const Member& member) {
    std::string digits(key_line_size(""), '\0');
    write_key_line("", member.key, {reinterpret_cast<std::uint8_t*>(digits.data()), digits.size()});
    digits.pop_back();  // the newline
    return member.name + " " + std::string(kAlgorithm) + " " + digits;
}

Result<MemberList> MemberList::parse(std::string_view text) {
    MemberList list;
    std::istringstream lines{std::string(text)};
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        if (line.find_first_not_of(" \t") == std::string::npos || line[line.find_first_not_of(" \t")] == '#') continue;
        const std::string where = fmt::format("line {} ", number);
        auto member = parse_line(line);
        if (!member) return fail(EINVAL, where + member.error().line);
        const auto same = [&](const Member& other) { return other.name == member->name || other.key == member->key; };
        if (std::any_of(list.members_.begin(), list.members_.end(), same))
            return fail(EINVAL, where + "has a name or a key that an earlier line has");
        list.members_.push_back(std::move(*member));
    }
    return list;
}

Result<MemberList> MemberList::read(const std::filesystem::path& file) {
    const std::string what = "member list " + file.string() + " ";
    const auto text = read_public_list(file);
    if (!text) return fail(text.error().code, what + text.error().line);
    auto list = parse(*text);
    if (!list) return fail(list.error().code, what + list.error().line);
    return list;
}

const Member* MemberList::find(const MemberPublicKey& key) const {
    const auto found =
        std::find_if(members_.begin(), members_.end(), [&](const Member& member) { return member.key == key; });
    return found == members_.end() ? nullptr : &*found;
}

}  // namespace cryptmpi::keys
