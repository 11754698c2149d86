#include "seal/key_schedule.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/pieces.hpp"

namespace cryptmpi::seal {
namespace {

constexpr std::size_t kHashSize = 32;

tl::unexpected<Error> cannot_start(aead::Suite suite) {
    return fail(EIO, "key schedule: the crypto module could not start " + std::string(aead::name(suite)));
}

}  // namespace

// protocol: S1
Result<void> expand(const cryptmpi_kex& kex, const std::uint8_t secret[kSecretSize], std::string_view label,
                    std::uint8_t* out, std::size_t size) {
    if (size > 2 * kHashSize) {
        return fail(EINVAL, "key schedule: more than 64 bytes were asked of one expansion");
    }
    Secret<kHashSize> block;
    std::size_t done = 0;
    for (std::uint8_t number = 1; done < size; ++number) {
        Secret<kHashSize> previous;
        std::memcpy(previous.data(), block.data(), kHashSize);
        const iovec in[] = {piece(previous.data(), number == 1 ? 0 : kHashSize),
                            piece(kLabelPrefix.data(), kLabelPrefix.size()), piece(label.data(), label.size()),
                            piece(&number, 1)};
        if (kex.hmac_sha256(block.data(), secret, kSecretSize, in, std::size(in)) != CRYPTMPI_OK) {
            wipe(out, size);
            return fail(EIO, "key schedule: the crypto module's HMAC-SHA-256 failed");
        }
        const std::size_t part = std::min(kHashSize, size - done);
        std::memcpy(out + done, block.data(), part);
        done += part;
    }
    return {};
}

RecordKey::RecordKey(RecordKey&& other) noexcept : RecordKey() {
    *this = std::move(other);
}

RecordKey& RecordKey::operator=(RecordKey&& other) noexcept {
    std::swap(aead_, other.aead_);
    std::swap(context_, other.context_);
    std::swap(others_, other.others_);
    std::swap(key_, other.key_);
    std::swap(threads_, other.threads_);
    std::swap(suite_, other.suite_);
    std::swap(nonce_size_, other.nonce_size_);
    std::swap(base_, other.base_);
    return *this;
}

RecordKey::~RecordKey() {
    if (context_ != nullptr) {
        aead_->destroy(context_);
    }
    for (void* const other : others_) aead_->destroy(other);
    wipe(base_, kNonceRoom);
}

Result<RecordKey> RecordKey::derive(const Crypto& crypto, const std::uint8_t secret[kSecretSize]) {
    CipherKey key;
    RecordKey made;
    made.suite_ = crypto.suite;
    made.threads_ = crypto.threads;
    made.nonce_size_ = aead::nonce_size(crypto.suite);
    if (auto done = expand(*crypto.kex, secret, "key", key.data(), aead::key_size(crypto.suite)); !done) {
        return tl::unexpected(done.error());
    }
    if (auto done = expand(*crypto.kex, secret, "nonce", made.base_, made.nonce_size_); !done) {
        return tl::unexpected(done.error());
    }
    made.aead_ = crypto.aead;
    made.context_ = crypto.aead->create(static_cast<int>(crypto.suite), key.data());
    if (made.context_ == nullptr) return cannot_start(crypto.suite);
    if (crypto.threads > 1) {
        made.key_ = std::make_unique<CipherKey>();
        std::memcpy(made.key_->data(), key.data(), CipherKey::size());
    }
    return made;
}

Result<void> RecordKey::share_among_threads() {
    if (!key_) return {};
    while (others_.size() + 1 < threads_) {
        void* const made = aead_->create(static_cast<int>(suite_), key_->data());
        if (made == nullptr) return cannot_start(suite_);
        others_.push_back(made);
    }
    key_.reset();
    return {};
}

BriefContexts::~BriefContexts() {
    for (void* const other : others_) key_.aead_->destroy(other);
}

void* BriefContexts::of(std::size_t thread) {
    if (thread == 0) return key_.context();
    void*& own = others_[thread - 1];
    if (own == nullptr) own = key_.aead_->create(static_cast<int>(key_.suite_), key_.key_->data());
    return own;
}

Result<void> ratchet(const cryptmpi_kex& kex, std::uint8_t secret[kSecretSize]) {
    Secret<kSecretSize> next;
    if (auto done = expand(kex, secret, "next", next.data(), kSecretSize); !done) {
        return done;
    }
    std::memcpy(secret, next.data(), kSecretSize);
    return {};
}

}  // namespace cryptmpi::seal
