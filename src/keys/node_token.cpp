#include "keys/node_token.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/endian.hpp"
#include "base/hex.hpp"
#include "base/own_names.hpp"
#include "base/pieces.hpp"
#include "keys/memory_file.hpp"
#include "seal/key_schedule.hpp"

namespace cryptmpi::keys {
namespace {

constexpr std::size_t kNameBytes = 16;

Result<std::string> name_of(const cryptmpi_kex& kex, const JobKey& job_key, const std::string& job_id) {
    std::array<std::uint8_t, 32> job{};
    const iovec in = piece(job_id.data(), job_id.size());
    if (kex.sha256(job.data(), &in, 1) != CRYPTMPI_OK) return fail(EIO, "SHA-256 failed");
    const std::string label = "mpi node" + std::string(reinterpret_cast<const char*>(job.data()), job.size());
    std::array<std::uint8_t, kNameBytes> name{};
    if (auto done = seal::expand(kex, job_key.data(), label, name.data(), name.size()); !done) {
        return tl::unexpected(done.error());
    }
    return "cryptmpi-" + hex(name);
}

/// Another one writes it for a moment, no longer.
bool lock_with_others(int fd) {
    constexpr int kTries = 5000;
    constexpr useconds_t kPause = 1000;
    for (int i = 0; i < kTries; ++i) {
        if (flock(fd, LOCK_SH | LOCK_NB) == 0) return true;
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        usleep(kPause);
    }
    return false;
}

}  // namespace

// protocol: A8
std::string NodeToken::share(const std::filesystem::path& file, const Bytes& fresh) {
    fd_ = open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd_ < 0) return std::strerror(errno);
    if (std::string why = unfit(fd_, "another machine's, too"); !why.empty()) return why;
    file_ = file;
    const auto size = static_cast<ssize_t>(fresh.size());
    // Nobody else is there who could have read it.
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0 && pwrite(fd_, fresh.data(), fresh.size(), 0) != size) {
        return "it cannot be written";
    }
    // Between the two locks another one may have written it; under this one nobody does.
    if (!lock_with_others(fd_)) return "it cannot be locked";
    if (pread(fd_, bytes_.data(), bytes_.size(), 0) != size) return "it cannot be read";
    return {};
}

Result<NodeToken> NodeToken::find(const cryptmpi_kex& kex, const JobKey& job_key, const std::string& job_id,
                                  const std::filesystem::path& folder) {
    NodeToken token;
    Bytes fresh{};
    if (kex.random(fresh.data(), fresh.size()) != CRYPTMPI_OK) return fail(EIO, "no random bytes");
    auto name = name_of(kex, job_key, job_id);
    if (!name) return tl::unexpected(name.error());
    const auto file = folder / *name;
    const std::string why = token.share(file, fresh);
    if (why.empty()) return token;
    // protocol: A9
    token.bytes_ = fresh;
    token.alone_ =
        "this rank cannot show which others are on its node, so all that it sends is sealed: " + file.string() + ": " +
        why;
    return token;
}

NodeToken::NodeToken(NodeToken&& other) noexcept
    : bytes_(other.bytes_),
      alone_(std::move(other.alone_)),
      file_(std::exchange(other.file_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

NodeToken::~NodeToken() {
    if (!file_.empty()) unlink(file_.c_str());
    if (fd_ >= 0) close(fd_);
}

Surroundings Surroundings::of_this_process(const std::string& host) {
    const auto network = own_network();
    Surroundings found{cryptmpi::boot_id(), network ? network->device : 0, network ? network->inode : 0};
    if (found.boot_id.empty() || !network) found.boot_id += fmt::format("{}{}", host, getpid());
    return found;
}

// protocol: A8
Result<std::array<std::uint8_t, 32>> node_id(const cryptmpi_kex& kex, const Surroundings& surroundings,
                                             const NodeToken::Bytes& token) {
    std::array<std::uint8_t, 16> network{};
    store_little(surroundings.network_device, network.data());
    store_little(surroundings.network_inode, network.data() + 8);
    const iovec in[] = {piece(surroundings.boot_id.data(), surroundings.boot_id.size()),
                        piece(network.data(), network.size()), piece(token.data(), token.size())};
    std::array<std::uint8_t, 32> id{};
    if (kex.sha256(id.data(), in, std::size(in)) != CRYPTMPI_OK) return fail(EIO, "SHA-256 failed");
    return id;
}

}  // namespace cryptmpi::keys
