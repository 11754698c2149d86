#include "seal/nonce_ledger.hpp"

#ifndef NDEBUG

#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace cryptmpi::seal {
namespace {

// A key is known here by its nonce base: derived from the same secret, as unique, and no key.
using KeyName = std::array<std::uint8_t, kNonceRoom>;

struct Ledger {
    std::mutex lock;
    std::map<KeyName, std::uint64_t> last;
    std::set<std::pair<KeyName, std::uint64_t>> segments;  // of messages on their way together, in any order
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
    // The upper bits are the segment's position; 0: no segment.
    constexpr unsigned kPositionShift = 48;
    KeyName name;
    key.nonce(lane, 0, name.data());
    Ledger& book = ledger();
    const std::lock_guard hold(book.lock);
    bool good = false;
    if (counter >> kPositionShift != 0) {
        good = book.segments.emplace(name, counter).second;
    } else {
        const auto [entry, fresh] = book.last.try_emplace(name, counter);
        good = fresh || counter > entry->second;
        entry->second = counter;
    }
    if (good) return;
    std::fprintf(stderr, "cryptmpi: seal: counter %llu was about to be used twice under one key\n",
                 static_cast<unsigned long long>(counter));
    std::abort();
}

}  // namespace cryptmpi::seal

#endif
