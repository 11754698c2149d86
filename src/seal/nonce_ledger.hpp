// Debug builds only: remembers the last counter of every key, and of each of its lanes, that sealed in this process or
// in one that was forked from it, and every segment, and aborts when a counter does not increase or a segment is sealed
// again.
#pragma once

#include <cstdint>

#include "seal/key_schedule.hpp"

namespace cryptmpi::seal {

#ifdef NDEBUG
inline void note_nonce(const RecordKey&, std::uint32_t, std::uint64_t, std::uint64_t = 0) {}
inline void leave_nonce_ledger() {}
#else
/// `within`: what tells lanes of one number apart, where the nonce has room for it.
void note_nonce(const RecordKey& key, std::uint32_t lane, std::uint64_t counter, std::uint64_t within = 0);
/// For a test that seals the same twice on purpose, to compare: this process notes nothing any more.
void leave_nonce_ledger();
#endif

}  // namespace cryptmpi::seal
