#include "keys/key_ring.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cryptmpi::keys {

Result<std::unique_ptr<KeyRing>> KeyRing::read(const cryptmpi_kex& kex, const std::filesystem::path& file,
                                               KeyReaders readers, std::string_view begun_with) {
    std::unique_ptr<KeyRing> ring(new KeyRing(kex, file, readers));
    // Before the file is read: what changes in between is read again.
    ring->read_ = ring->stamp();
    auto keys = read_job_keys(file, readers);
    if (!keys) return tl::unexpected<Error>(keys.error());
    if (auto taken = ring->take(std::move(*keys)); !taken) return tl::unexpected<Error>(taken.error());
    const auto own = std::find_if(ring->held_.begin(), ring->held_.end(), [&](const Held& held) {
        return begun_with.empty() || key_id_text(held.id) == begun_with;
    });
    if (own == ring->held_.end()) {
        return fail(ENOKEY,
                    "job key file " + file.string() + " has no key " + std::string(begun_with) +
                        ", with which this job began: it was revoked, or this node's file was not brought up to "
                        "date (cryptmpi key install)");
    }
    ring->own_ = own->key.get();
    ring->own_id_ = own->id;
    return ring;
}

Result<void> KeyRing::take(JobKeys keys) {
    for (auto& held : held_) held.in_file = false;
    for (auto& key : keys) {
        auto id = id_of(kex_, *key);
        if (!id) return tl::unexpected<Error>(id.error());
        const auto known = std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.id == *id; });
        if (known != held_.end()) {
            known->in_file = true;
        } else {
            held_.push_back({std::move(key), *id, true});
        }
    }
    return {};
}

KeyRing::Stamp KeyRing::stamp() const {
    struct stat found {};
    if (::stat(file_.c_str(), &found) != 0) return {};
    return {found.st_dev, found.st_ino, static_cast<std::uint64_t>(found.st_size),
            found.st_ctim.tv_sec * std::int64_t{1'000'000'000} + found.st_ctim.tv_nsec};
}

/// A file that cannot be read has no keys.
void KeyRing::look_again() {
    const Stamp now = stamp();
    if (now == read_) return;
    auto keys = read_job_keys(file_, readers_);
    if (auto taken = take(keys ? std::move(*keys) : JobKeys()); !taken) (void)take({});
    read_ = now;
}

// protocol: K4
const JobKey* KeyRing::find(const KeyId& id) {
    if (id == own_id()) return &own();
    const std::lock_guard guard(lock_);
    look_again();
    const auto found =
        std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.in_file && held.id == id; });
    return found == held_.end() ? nullptr : found->key.get();
}

std::vector<const JobKey*> KeyRing::all() {
    const std::lock_guard guard(lock_);
    look_again();
    std::vector<const JobKey*> keys = {&own()};
    for (const auto& held : held_) {
        if (held.in_file && held.key.get() != own_) keys.push_back(held.key.get());
    }
    return keys;
}

}  // namespace cryptmpi::keys
