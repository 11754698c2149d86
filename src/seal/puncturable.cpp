#include "seal/puncturable.hpp"

#include <cerrno>
#include <cstring>
#include <iterator>

#include "seal/key_schedule.hpp"

namespace cryptmpi::seal {
namespace {

constexpr std::string_view kBranch = "mpi branch";  // its first half is the secret of bit 0, its second that of bit 1
constexpr std::uint64_t kHighest = std::uint64_t{1} << 63;

std::uint64_t bit_at(const Path& path, unsigned depth) {
    return path.bits >> (63 - depth) & 1;
}

bool begins_with(const Path& path, const Path& start) {
    if (start.length > path.length) return false;
    return start.length == 0 || (path.bits ^ start.bits) >> (64 - start.length) == 0;
}

/// Of the node on the way to `path` after `depth` bits, the one beside its child there.
Path sibling_of(const Path& path, unsigned depth) {
    const std::uint64_t bit = kHighest >> depth;
    const std::uint64_t before = depth == 0 ? 0 : path.bits & ~(~std::uint64_t{0} >> depth);
    return {before | (~path.bits & bit), depth + 1};
}

}  // namespace

Puncturable::Puncturable(const cryptmpi_kex& kex, const std::uint8_t root[kSecretSize], std::size_t most)
    : kex_(kex), most_(most) {
    std::memcpy(nodes_.emplace_front().secret, root, kSecretSize);
}

std::optional<Puncturable::Nodes::const_iterator> Puncturable::find_before(const Path& path) const {
    auto before = nodes_.before_begin();
    for (auto at = nodes_.begin(); at != nodes_.end(); before = at++) {
        if (begins_with(path, at->path)) return before;
    }
    return std::nullopt;
}

Result<void> Puncturable::walk(const Node& from, const Path& path, Nodes* siblings, Secret<kSecretSize>& out) const {
    std::memcpy(out.data(), from.secret, kSecretSize);
    for (unsigned depth = from.path.length; depth < path.length; ++depth) {
        Secret<2 * kSecretSize> both;
        if (auto done = expand(kex_, out.data(), kBranch, both.data(), both.size()); !done) return done;
        const bool right = bit_at(path, depth) != 0;
        std::memcpy(out.data(), both.data() + (right ? kSecretSize : 0), kSecretSize);
        if (siblings == nullptr) continue;
        Node& sibling = siblings->emplace_front();
        sibling.path = sibling_of(path, depth);
        std::memcpy(sibling.secret, both.data() + (right ? 0 : kSecretSize), kSecretSize);
    }
    return {};
}

namespace {

/// The last hash is still in the processor's registers, which the loader puts on the stack when it looks a function up:
/// another one takes its place.
void clear_registers(const cryptmpi_kex& kex) {
    const Secret<kSecretSize> zeros;
    Secret<kSecretSize> out;
    static_cast<void>(expand(kex, zeros.data(), kBranch, out.data(), out.size()));
}

auto given() {
    return fail(EEXIST, "key schedule: a secret was asked for a second time");
}

}  // namespace

// protocol: M7
Result<void> Puncturable::derive(const Path& path, Secret<kSecretSize>& out) {
    const auto before = find_before(path);
    if (!before) return given();
    const auto from = std::next(*before);
    const std::size_t more = path.length - from->path.length;
    // protocol: M15
    if (count_ + more > most_) return walk(*from, path, nullptr, out);
    Nodes siblings;
    if (auto done = walk(*from, path, &siblings, out); !done) {
        wipe(out.data(), out.size());
        return done;
    }
    nodes_.erase_after(*before);
    nodes_.splice_after(nodes_.before_begin(), siblings);
    count_ += more - 1;
    clear_registers(kex_);
    return {};
}

Result<void> Puncturable::peek(const Path& path, Secret<kSecretSize>& out) const {
    const auto before = find_before(path);
    return before ? walk(*std::next(*before), path, nullptr, out) : given();
}

void Puncturable::leave_behind_before(const Path& path) {
    count_ -=
        nodes_.remove_if([&](const Node& node) { return node.path.bits < path.bits && !begins_with(path, node.path); });
}

}  // namespace cryptmpi::seal
