// An attestation: a job's report, what a canary showed, and who says so, signed so that anybody who knows the signer's
// public key can check it later, without the job's key.
//
//   {"statement": {"kind", "made", "by": {"user", "host"}, "verified", "verdict", "report", "canary"?},
//    "signatures": [{"key", "signature"}, ...]}
//
// A signature is over the statement as this module writes it (compact, in the order of its entries), so that another
// spelling of the same file does not matter, and another value does. Who signed is named by the reader's own list: a
// name beside the key, which files of before have, is left out.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "report/summary.hpp"

namespace cryptmpi::report {

struct Attester {
    std::string user;
    std::string host;
};

/// What `of` says of a job: its report as it was read, whether its signature was looked at, and the canary's result.
struct Attested {
    nlohmann::ordered_json report;
    bool verified = false;
    std::string verdict;  // the line that `cryptmpi report` printed
    std::optional<nlohmann::ordered_json> canary;
};

// nlohmann's own move is noexcept; clang-tidy 14 takes what it asserts for something that throws.
class Attestation {  // NOLINT(bugprone-exception-escape)
public:
    /// Makes one, not signed yet.
    static Attestation of(const Attested& what, const Attester& by, std::int64_t made);
    /// Reads one. Errors: no JSON, not an attestation of this version, or with entries that nobody has signed.
    static Result<Attestation> parse(const std::string& text);

    /// The bytes that are signed.
    std::string signed_bytes() const;

    struct Signed {
        std::string key;        // 64 hexadecimal digits
        std::string signature;  // 128 hexadecimal digits
    };
    void add(const Signed& signature);
    std::vector<Signed> signatures() const;

    /// The file's text.
    std::string text() const;

    /// What it says, as of a report. `vouchers`: the members of the reader's list whose signatures are good; without
    /// any, nothing looks good. Its verdict is that of the report inside; a canary that did not hold, or is of another
    /// layer, cipher or node than the job, spoils it.
    Summary summary(const std::vector<std::string>& vouchers) const;

private:
    nlohmann::ordered_json json_;
};

}  // namespace cryptmpi::report
