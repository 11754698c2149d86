#include "keys/job_key.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "base/hex.hpp"
#include "keys/secret_file.hpp"
#include "seal/key_schedule.hpp"

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

Result<JobKeys> parse_job_keys(std::span<const std::uint8_t> content) {
    JobKeys keys;
    do {
        const auto end = std::find(content.begin(), content.end(), '\n');
        const auto size = static_cast<std::size_t>(end - content.begin()) + (end == content.end() ? 0 : 1);
        const std::string where = keys.empty() ? "" : fmt::format("line {} ", keys.size() + 1);
        if (keys.size() == kMostJobKeys)
            return fail(EINVAL, fmt::format("has more than {} keys: take old ones out (cryptmpi keygen --revoke ID)",
                                            kMostJobKeys));
        auto key = std::make_unique<JobKey>();
        if (auto done = parse_job_key(content.first(size), *key); !done)
            return fail(done.error().code, where + done.error().line);
        const bool twice = std::any_of(keys.begin(), keys.end(), [&](const auto& other) {
            return std::equal(key->bytes, key->bytes + kJobKeySize, other->bytes);
        });
        if (twice) return fail(EINVAL, where + "has a key that stands above it already: take one of them out");
        keys.push_back(std::move(key));
        content = content.subspan(size);
    } while (!content.empty());
    return keys;
}

Result<KeyId> id_of(const cryptmpi_kex& kex, const JobKey& key) {
    KeyId id;
    if (auto done = seal::expand(kex, key.data(), "key id", id.data(), id.size()); !done)
        return tl::unexpected<Error>(done.error());
    return id;
}

std::string key_id_text(const KeyId& id) {
    return hex(id);
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

Result<JobKeys> read_job_keys(const std::filesystem::path& file, KeyReaders readers) {
    Secret<kMostJobKeys * kJobKeyLineSize + 1> content;  // room for one byte too many
    const auto size = read_secret_file(kFile, file, {content.data(), content.size()}, readers);
    if (!size) return tl::unexpected<Error>(size.error());
    auto keys = parse_job_keys({content.data(), *size});
    if (!keys) return wrong(kFile, file, keys.error().code, keys.error().line);
    return keys;
}

Result<std::unique_ptr<JobKey>> read_job_key(const std::filesystem::path& file, KeyReaders readers) {
    auto keys = read_job_keys(file, readers);
    if (!keys) return tl::unexpected<Error>(keys.error());
    return std::move(keys->front());
}

Result<void> write_job_key(const std::filesystem::path& file, const cryptmpi_kex& kex, bool replace,
                           KeyReaders readers) {
    JobKeys keys;
    auto key = draw_job_key(kex);
    if (!key) return wrong(kFile, file, EIO, "was not written: " + key.error().line);
    keys.push_back(std::move(*key));
    return write_job_keys(file, keys, replace, readers);
}

Result<void> write_job_keys(const std::filesystem::path& file, const JobKeys& keys, bool replace, KeyReaders readers) {
    Secret<kMostJobKeys * kJobKeyLineSize> content;
    std::size_t size = 0;
    for (const auto& key : keys) {
        if (size == content.size()) return wrong(kFile, file, EINVAL, "was not written: it would have too many keys");
        Secret<kJobKeyLineSize> line;
        write_key_line(*key, line);
        std::memcpy(content.data() + size, line.data(), line.size());
        size += line.size();
    }
    return write_secret_file(kFile, file, {content.data(), size}, replace, readers);
}

}  // namespace cryptmpi::keys
