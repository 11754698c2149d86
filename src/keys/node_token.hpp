// How the ranks of one node show each other that one kernel runs them: by random bytes in a file that lives in that
// kernel's memory.
//
// The file's name is derived from the job key and the job's id. The first rank makes it, the others read it, and it is
// gone when the ranks have agreed. What a job that died left behind is written anew: nobody holds its lock. Whoever
// cannot have the token, or finds somebody else's file, gets random bytes of its own: it is a node by itself, and all
// that it sends is sealed.
#pragma once

#include <cryptmpi/module.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "keys/job_key.hpp"

namespace cryptmpi::keys {

class NodeToken {
public:
    using Bytes = std::array<std::uint8_t, 32>;

    /// Errors: the crypto module failed.
    static Result<NodeToken> find(const cryptmpi_kex& kex, const JobKey& job_key, const std::string& job_id,
                                  const std::filesystem::path& folder = "/dev/shm");

    NodeToken(NodeToken&& other) noexcept;
    NodeToken& operator=(NodeToken&&) = delete;
    ~NodeToken();

    const Bytes& bytes() const { return bytes_; }
    /// Why no other process has the same; empty: those of this kernel that share the folder have.
    const std::string& alone() const { return alone_; }

private:
    NodeToken() = default;
    /// Returns why it cannot be had.
    std::string share(const std::filesystem::path& file, const Bytes& fresh);

    Bytes bytes_{};
    std::string alone_;
    std::filesystem::path file_;  // empty: none
    int fd_ = -1;
};

/// What the system says of this process's kernel and network. They are the same on virtual machines that were copied
/// while they ran, so the token, which only this kernel has, belongs to a node, too.
struct Surroundings {
    std::string boot_id;
    std::uint64_t network_device = 0;  // of the network namespace
    std::uint64_t network_inode = 0;

    /// Where the system does not say: what no other process has, so that this one is a node by itself.
    static Surroundings of_this_process(const std::string& host);
};

/// Ranks share a node if they share a running kernel and its network: what passes between them then stays there.
/// Errors: EIO, the crypto module failed.
Result<std::array<std::uint8_t, 32>> node_id(const cryptmpi_kex& kex, const Surroundings& surroundings,
                                             const NodeToken::Bytes& token);

}  // namespace cryptmpi::keys
