#include "seal/nonce_ledger.hpp"

#ifndef NDEBUG

#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace cryptmpi::seal {
namespace {

// A key is known here by its nonce base: derived from the same secret, as unique, and no key.
using KeyName = std::array<std::uint8_t, kNonceRoom>;

struct Ledger {
    std::mutex lock;
    std::map<KeyName, std::uint64_t> last;
};

Ledger& ledger() {
    // Never destroyed: exit handlers still seal close records.
    static Ledger* const only = [] {
        auto* made = new Ledger;
        // A child must not inherit the lock held by a thread that it does not have.
        pthread_atfork([] { ledger().lock.lock(); }, [] { ledger().lock.unlock(); }, [] { ledger().lock.unlock(); });
        return made;
    }();
    return *only;
}

}  // namespace

void note_nonce(const RecordKey& key, std::uint32_t lane, std::uint64_t counter) {
    // The upper bits are the segment's position: each position of a lane counts its messages by itself.
    constexpr unsigned kPositionShift = 48;
    KeyName name;
    key.nonce(lane, counter >> kPositionShift << kPositionShift, name.data());
    Ledger& book = ledger();
    const std::lock_guard hold(book.lock);
    const auto [entry, fresh] = book.last.try_emplace(name, counter);
    if (!fresh) {
        if (counter <= entry->second) {
            std::fprintf(stderr, "cryptmpi: seal: counter %llu was about to be used twice under one key\n",
                         static_cast<unsigned long long>(counter));
            std::abort();
        }
        entry->second = counter;
    }
}

}  // namespace cryptmpi::seal

#endif
