#include "keys/report_key.hpp"

#include <array>
#include <cerrno>

#include "base/hex.hpp"
#include "base/pieces.hpp"
#include "seal/key_schedule.hpp"

namespace cryptmpi::keys {

// protocol: P1
Result<ReportKey> ReportKey::derive(const cryptmpi_kex& kex, const JobKey& job_key) {
    static_assert(kJobKeySize == seal::kSecretSize);
    ReportKey made;
    made.kex_ = &kex;
    made.key_ = std::make_unique<Secret<kSize>>();
    if (auto done = seal::expand(kex, job_key.data(), "report", made.key_->data(), kSize); !done)
        return tl::unexpected<Error>(done.error());
    return made;
}

Result<std::string> ReportKey::sign(std::string_view text) const {
    std::array<std::uint8_t, 32> tag{};
    const iovec in = piece(text.data(), text.size());
    if (kex_->hmac_sha256(tag.data(), key_->data(), kSize, &in, 1) != CRYPTMPI_OK)
        return fail(EIO, "the crypto module's HMAC-SHA-256 failed");
    return hex(tag);
}

}  // namespace cryptmpi::keys
