#include "keys/job_key.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "keys/secret_file.hpp"

namespace cryptmpi::keys {
namespace {

constexpr std::string_view kLead = "cryptmpi-job-key-1 ";
static_assert(kJobKeySize == kKeySize && kJobKeyLineSize == key_line_size(kLead));

constexpr SecretFile kFile = {"job key file", "cryptmpi keygen", ", and copy it to every node",
                              "replace it only if no job uses it any more (cryptmpi keygen --force)"};

}  // namespace

Result<void> parse_job_key(std::span<const std::uint8_t> content, JobKey& key) {
    return parse_key_line(kLead, content, std::span<std::uint8_t, kKeySize>(key.data(), kKeySize));
}

Result<std::unique_ptr<JobKey>> draw_job_key(const cryptmpi_kex& kex) {
    auto key = std::make_unique<JobKey>();
    if (kex.random(key->data(), kJobKeySize) != CRYPTMPI_OK) {
        return fail(EIO, "the crypto module's random generator failed");
    }
    return key;
}

void write_key_line(const JobKey& key, Secret<kJobKeyLineSize>& line) {
    write_key_line(kLead, std::span<const std::uint8_t, kKeySize>(key.data(), kKeySize), {line.data(), line.size()});
}

Result<std::unique_ptr<JobKey>> read_job_key(const std::filesystem::path& file, KeyReaders readers) {
    Secret<kJobKeyLineSize + 1> content;  // room for one byte too many
    const auto size = read_secret_file(kFile, file, {content.data(), content.size()}, readers);
    if (!size) {
        return tl::unexpected<Error>(size.error());
    }
    auto key = std::make_unique<JobKey>();
    if (auto done = parse_job_key({content.data(), *size}, *key); !done) {
        return wrong(kFile, file, done.error().code, done.error().line);
    }
    return key;
}

Result<void> write_job_key(const std::filesystem::path& file, const cryptmpi_kex& kex, bool replace) {
    const auto key = draw_job_key(kex);
    if (!key) {
        return wrong(kFile, file, EIO, "was not written: " + key.error().line);
    }
    Secret<kJobKeyLineSize> content;
    write_key_line(**key, content);
    return write_secret_file(kFile, file, {content.data(), content.size()}, replace);
}

}  // namespace cryptmpi::keys
