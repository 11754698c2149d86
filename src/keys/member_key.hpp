// Members: users and nodes that are told apart by Ed25519 keys of their own.
//
// A member's key file is one line:           cryptmpi-member-key-1 <64 hexadecimal digits>
// A list of members has a line for each:     NAME ed25519 <64 hexadecimal digits of the public key>
// Empty lines, and lines that begin with #, are left out.
#pragma once

#include <cryptmpi/module.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/secret.hpp"
#include "keys/secret_file.hpp"

namespace cryptmpi::keys {

using MemberPublicKey = std::array<std::uint8_t, kKeySize>;
using Signature = std::array<std::uint8_t, 64>;

/// What a signature is for: one that was made for one purpose is good for no other.
enum class Purpose : std::uint8_t { attestation, handshake };

inline constexpr std::size_t kMemberNameSize = 64;  // at most

class MemberKey {
public:
    /// Reads and checks the file. Errors: as read_secret_file, and malformed.
    static Result<MemberKey> read(const cryptmpi_kex& kex, const std::filesystem::path& file);
    /// Writes a fresh one to the file, mode 0600, folders made as 0700. Error when the file exists.
    static Result<MemberKey> make(const cryptmpi_kex& kex, const std::filesystem::path& file);

    const MemberPublicKey& public_key() const { return public_; }
    Result<Signature> sign(Purpose purpose, std::string_view text) const;

private:
    const cryptmpi_kex* kex_ = nullptr;
    std::unique_ptr<Secret<kKeySize>> private_;
    MemberPublicKey public_{};
};

/// Error: the signature is not of this member, purpose and text, or it or the key has a form that not every library
/// takes (ed25519_forms.hpp).
Result<void> verify(const cryptmpi_kex& kex, const MemberPublicKey& key, Purpose purpose, std::string_view text,
                    const Signature& signature);

struct Member {
    std::string name;
    MemberPublicKey key;
};

/// Error: of other characters than letters, digits and `._@-`, of none, or of more than 64.
Result<void> check_member_name(std::string_view name);

/// The line of a list, without a newline.
std::string line_of(const Member& member);

class MemberList {
public:
    /// The text of a list. Errors name the line: no three words, a name that check_member_name refuses, another
    /// algorithm, no 64 digits, a name or a key twice.
    static Result<MemberList> parse(std::string_view text);
    /// The same of a file, which nobody but its owner (the user or root) may write. Each error is one line.
    static Result<MemberList> read(const std::filesystem::path& file);

    /// The member that has this key; nullptr: none of the list.
    const Member* find(const MemberPublicKey& key) const;

private:
    std::vector<Member> members_;
};

}  // namespace cryptmpi::keys
