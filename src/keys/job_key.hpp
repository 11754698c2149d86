// The pre-shared job key: its file, its checks.
//
// The file is one line of text for each key:  cryptmpi-job-key-1 <64 hexadecimal digits>
//
// The first is what its reader uses for what it begins; the others are taken from peers, too (keys/key_ring.hpp). A key
// is told apart from others by its id, which says nothing of the key.
#pragma once

#include <cryptmpi/module.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/key_readers.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"

namespace cryptmpi::keys {

inline constexpr std::size_t kJobKeySize = 32;
using JobKey = Secret<kJobKeySize>;

/// "cryptmpi-job-key-1 ", the digits, a newline.
inline constexpr std::size_t kJobKeyLineSize = 19 + 2 * kJobKeySize + 1;

inline constexpr std::size_t kMostJobKeys = 8;  // of one file

inline constexpr std::size_t kKeyIdSize = 8;
/// Of a job key: what a hello names it by, in clear.
using KeyId = std::array<std::uint8_t, kKeyIdSize>;
/// Error: the module's HMAC failed.
Result<KeyId> id_of(const cryptmpi_kex& kex, const JobKey& key);
/// 16 hexadecimal digits.
std::string key_id_text(const KeyId& id);

/// A fresh one. Error: the module's random generator failed.
Result<std::unique_ptr<JobKey>> draw_job_key(const cryptmpi_kex& kex);

/// What parse_job_key reads.
void write_key_line(const JobKey& key, Secret<kJobKeyLineSize>& line);

/// One line of a key file, with or without its line feed. Errors complete the sentence "job key file NAME ...".
Result<void> parse_job_key(std::span<const std::uint8_t> content, JobKey& key);

/// Of one file, at least one and no two the same; the first is the owner's.
using JobKeys = std::vector<std::unique_ptr<JobKey>>;

/// The content of a key file. Errors as above.
Result<JobKeys> parse_job_keys(std::span<const std::uint8_t> content);

/// Reads and checks the key file. Each error is one line with its mend: missing (cryptmpi keygen), not a regular file,
/// unreadable, owned by somebody else (neither us nor root), mode open to group or others (chmod 600), malformed (what
/// was expected). With KeyReaders::group a file of root's may be readable for a group of this process: a Secret of
/// Kubernetes is such a file, and nobody in its container can run chmod on it.
Result<JobKeys> read_job_keys(const std::filesystem::path& file, KeyReaders readers = KeyReaders::owner);
/// The first of them.
Result<std::unique_ptr<JobKey>> read_job_key(const std::filesystem::path& file, KeyReaders readers = KeyReaders::owner);

/// Writes a fresh random key, mode 0600, atomically, folders made as 0700. Error when the file exists and `replace` is
/// false. With KeyReaders::group a group that may read what is replaced may read the new file.
Result<void> write_job_key(const std::filesystem::path& file, const cryptmpi_kex& kex, bool replace,
                           KeyReaders readers = KeyReaders::owner);
/// The same with these keys.
Result<void> write_job_keys(const std::filesystem::path& file, const JobKeys& keys, bool replace,
                            KeyReaders readers = KeyReaders::owner);

}  // namespace cryptmpi::keys
