#include "seal/nonce_ledger.hpp"

#ifndef NDEBUG

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cryptmpi::seal {
namespace {

// A key is known here by its nonce base: derived from the same secret, as unique, and no key.
using KeyName = std::array<std::uint8_t, kNonceRoom>;

constexpr unsigned kPositionShift = 48;  // the upper bits of a counter are the segment's position; 0: no segment

/// A lane of a key with its last counter, or a segment, of which those on their way together come in any order.
struct Entry {
    KeyName name;
    std::uint64_t segment;  // 0: a lane
    std::uint64_t last;
    bool taken;
};

/// Shared with forked children, so that a child that uses its parent's numbers is seen. When it is full, what is new is
/// not noted any more.
class Ledger {
public:
    static Ledger* make() {
        void* const at =
            mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return nullptr;
        auto* const made = static_cast<Ledger*>(at);  // all zeros
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);  // a process may be killed while it has it
        pthread_mutex_init(&made->lock_, &kind);
        pthread_mutexattr_destroy(&kind);
        return made;
    }

    /// False: it was there before.
    bool note(const KeyName& name, std::uint64_t counter) {
        if (pthread_mutex_lock(&lock_) != 0) pthread_mutex_consistent(&lock_);
        const bool good = note_locked(name, counter);
        pthread_mutex_unlock(&lock_);
        return good;
    }

private:
    bool note_locked(const KeyName& name, std::uint64_t counter) {
        const std::uint64_t segment = counter >> kPositionShift != 0 ? counter : 0;
        Entry* const entry = find(name, segment);
        if (entry == nullptr) return true;
        const bool good = !entry->taken || (segment == 0 && counter > entry->last);
        *entry = {name, segment, counter, true};
        return good;
    }

    Entry* find(const KeyName& name, std::uint64_t segment) {
        std::uint64_t hash = segment;
        for (const std::uint8_t byte : name) hash = (hash ^ byte) * 0x100000001b3;
        hash ^= hash >> 32;
        for (std::size_t step = 0; step < kMostSteps; ++step) {
            Entry& entry = entries_[(hash + step) % entries_.size()];
            if (!entry.taken || (entry.name == name && entry.segment == segment)) return &entry;
        }
        return nullptr;
    }

    static constexpr std::size_t kEntries = std::size_t{1} << 21;
    static constexpr std::size_t kMostSteps = 64;
    pthread_mutex_t lock_;
    std::array<Entry, kEntries> entries_;
};

/// Made before any child can be forked that seals.
Ledger* ledger = Ledger::make();

}  // namespace

void note_nonce(const RecordKey& key, std::uint32_t lane, std::uint64_t counter, std::uint64_t within) {
    KeyName name;
    key.nonce(lane, within, name.data());
    if (ledger == nullptr || ledger->note(name, counter)) return;
    std::fprintf(stderr, "cryptmpi: seal: counter %llu was about to be used twice under one key\n",
                 static_cast<unsigned long long>(counter));
    std::abort();
}

void leave_nonce_ledger() {
    ledger = nullptr;
}

}  // namespace cryptmpi::seal

#endif
