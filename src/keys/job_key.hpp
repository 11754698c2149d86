// The pre-shared job key: its file, its checks.
//
// The file is one line of text:  cryptmpi-job-key-1 <64 hexadecimal digits>
#pragma once

#include <cryptmpi/module.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/key_readers.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"

namespace cryptmpi::keys {

inline constexpr std::size_t kJobKeySize = 32;
using JobKey = Secret<kJobKeySize>;

/// "cryptmpi-job-key-1 ", the digits, a newline.
inline constexpr std::size_t kJobKeyLineSize = 19 + 2 * kJobKeySize + 1;

/// A fresh one. Error: the module's random generator failed.
Result<std::unique_ptr<JobKey>> draw_job_key(const cryptmpi_kex& kex);

/// What parse_job_key reads.
void write_key_line(const JobKey& key, Secret<kJobKeyLineSize>& line);

/// The content of a key file. Errors complete the sentence "job key file NAME ...".
Result<void> parse_job_key(std::span<const std::uint8_t> content, JobKey& key);

/// Reads and checks the key file. Each error is one line with its mend: missing (cryptmpi keygen), not a regular file,
/// unreadable, owned by somebody else (neither us nor root), mode open to group or others (chmod 600), malformed (what
/// was expected). With KeyReaders::group a file of root's may be readable for a group of this process: a Secret of
/// Kubernetes is such a file, and nobody in its container can run chmod on it.
Result<std::unique_ptr<JobKey>> read_job_key(const std::filesystem::path& file, KeyReaders readers = KeyReaders::owner);

/// Writes a fresh random key, mode 0600, atomically, folders made as 0700. Error when the file exists and `replace` is
/// false.
Result<void> write_job_key(const std::filesystem::path& file, const cryptmpi_kex& kex, bool replace);

}  // namespace cryptmpi::keys
