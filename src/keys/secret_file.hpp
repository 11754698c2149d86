// A file that holds a secret key in one line: its text, who may have touched it, and how it is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/key_readers.hpp"
#include "base/result.hpp"

namespace cryptmpi::keys {

inline constexpr std::size_t kKeySize = 32;

/// Of a line "LEAD<64 hexadecimal digits>", with its newline.
constexpr std::size_t key_line_size(std::string_view lead) {
    return lead.size() + 2 * kKeySize + 1;
}

/// `content` is such a line, whose newline may be missing. Errors complete the sentence "job key file NAME ...".
Result<void> parse_key_line(std::string_view lead, std::span<const std::uint8_t> content,
                            std::span<std::uint8_t, kKeySize> key);

/// Writes one; `line` has key_line_size(lead) bytes.
void write_key_line(std::string_view lead, std::span<const std::uint8_t, kKeySize> key, std::span<std::uint8_t> line);

/// What the error lines say of a kind of file.
struct SecretFile {
    const char* noun;      // "job key file"
    const char* maker;     // the command that makes one: "cryptmpi keygen"
    const char* and_then;  // after it has made one: ", and copy it to every node"
    const char* taken;     // what to think of before one is replaced
};

/// "NOUN FILE WHAT"
tl::unexpected<Error> wrong(const SecretFile& kind, const std::filesystem::path& file, int code,
                            const std::string& what);

/// Reads the file, or its beginning if it is longer than `content`; returns how many bytes. Errors: missing, not a
/// regular file, unreadable, owned by somebody else (neither us nor root), open to group or others. With
/// KeyReaders::group a file of root's may be readable for a group of this process.
Result<std::size_t> read_secret_file(const SecretFile& kind, const std::filesystem::path& file,
                                     std::span<std::uint8_t> content, KeyReaders readers = KeyReaders::owner);

/// Writes it with mode 0600, atomically, folders made as 0700. Error when the file exists and `replace` is false. With
/// KeyReaders::group the group that may read what is replaced may read what replaces it.
Result<void> write_secret_file(const SecretFile& kind, const std::filesystem::path& file,
                               std::span<const std::uint8_t> content, bool replace,
                               KeyReaders readers = KeyReaders::owner);

}  // namespace cryptmpi::keys
