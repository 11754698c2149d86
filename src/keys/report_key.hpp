// Who wrote a job's report, or a part of it: somebody who holds the job key.
#pragma once

#include <cryptmpi/module.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/secret.hpp"
#include "keys/job_key.hpp"

namespace cryptmpi::keys {

/// Expanded from the job key under a label of its own; the job key cannot be computed from it, so that a process may
/// keep it when the job key is gone.
class ReportKey {
public:
    static Result<ReportKey> derive(const cryptmpi_kex& kex, const JobKey& job_key);

    /// HMAC-SHA-256 of the text, 64 hexadecimal digits.
    Result<std::string> sign(std::string_view text) const;

private:
    static constexpr std::size_t kSize = 32;

    const cryptmpi_kex* kex_ = nullptr;
    std::unique_ptr<Secret<kSize>> key_;  // in memory for secrets
};

}  // namespace cryptmpi::keys
