// A secret that gives each of its leaves once: the tree of Goldreich, Goldwasser and Micali, punctured as in Green and
// Miers' forward-secure encryption.
//
// A leaf's secret comes from the root's along a path of bits. When it is given, what lies on the way is erased, and the
// siblings of the way stay: they give every other leaf, and nothing gives this one again. Leaves are given in any
// order, so two ends that hold the same root need not agree on one.
#pragma once

#include <cryptmpi/module.h>

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <optional>

#include "base/result.hpp"
#include "base/secret.hpp"
#include "seal/constants.hpp"

namespace cryptmpi::seal {

/// From the root to a leaf: the first bit is the highest, those after `length` are zeros. No leaf's path begins with
/// another's.
struct Path {
    std::uint64_t bits = 0;
    unsigned length = 0;  // at most 64
};

/// Used by one thread at a time.
class Puncturable {
public:
    /// Of siblings, 64 bytes each. Leaves whose siblings find no more room are given, but can be given again.
    static constexpr std::size_t kMostNodes = 4096;

    Puncturable(const cryptmpi_kex& kex, const std::uint8_t root[kSecretSize], std::size_t most = kMostNodes);
    Puncturable(const Puncturable&) = delete;
    Puncturable& operator=(const Puncturable&) = delete;

    /// Gives the leaf at `path`, and erases what would give it again. Errors: EEXIST, it was given or left behind; EIO,
    /// the crypto module failed, and nothing has changed.
    Result<void> derive(const Path& path, Secret<kSecretSize>& out);
    /// Gives it and changes nothing: for what is not known to be authentic yet.
    Result<void> peek(const Path& path, Secret<kSecretSize>& out) const;
    /// Erases what would give any leaf before `path`, in the order of paths.
    void leave_behind_before(const Path& path);

    std::size_t nodes() const { return count_; }

private:
    /// The secret of all leaves whose paths begin with `path`.
    struct Node {
        Path path;
        std::uint8_t secret[kSecretSize];
    };
    // All of its functions are inline: none is looked up by the loader, which would save registers on the stack.
    using Nodes = std::forward_list<Node, SecretAllocator<Node>>;

    /// The one before it, so that it can be taken out; null: there is none.
    std::optional<Nodes::const_iterator> find_before(const Path& path) const;
    Result<void> walk(const Node& from, const Path& path, Nodes* siblings, Secret<kSecretSize>& out) const;

    const cryptmpi_kex& kex_;
    std::size_t most_;
    std::size_t count_ = 1;
    Nodes nodes_;  // none is another's descendant
};

}  // namespace cryptmpi::seal
