// A message too large to be sealed in one piece: an announcement in its lane, and segments that travel by another way.
//
// Wire format (docs/protocol.md):
//   announcement  a message of the form `announced`; its payload: length of the whole (8) | length of the first segment
//                 (4) | length of those after it (4) | mark (4) | is it in synchronous mode? (1), little endian. The
//                 last segment has the rest. The mark says by which way the segments come.
//   segment       ciphertext | tag (16)
//     nonce:           as the announcement's, with the segment's position, from 1, in the upper 16 bits of the number
//     associated data: the announcement's header (8) | length of the whole (8) | position (4) | is it the last? (1)
//
// The receiver learns all of that from the announcement, which is authenticated first: nothing of it is sent again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "seal/constants.hpp"
#include "seal/key_schedule.hpp"

namespace cryptmpi::seal {

// An odd number of bytes: few programs send messages of this size, which a probe has to look into.
inline constexpr std::size_t kAnnouncementSize = 21;
inline constexpr std::size_t kSegmentOverhead = kTagSize;
inline constexpr std::uint32_t kMostSegments = (1U << 16) - 1;

struct Announcement {
    std::uint64_t length = 0;   // bytes of the whole message, at least 1
    std::uint32_t first = 0;    // bytes of the first segment
    std::uint32_t segment = 0;  // bytes of each one after it but the last
    std::uint32_t mark = 0;
    bool synchronous = false;  // its send ends only when a receive has begun to take it
};

void write_announcement(const Announcement& announcement, std::uint8_t out[kAnnouncementSize]);
/// Errors (EBADMSG): it describes no message.
Result<Announcement> read_announcement(const std::uint8_t in[kAnnouncementSize]);

/// The segments of one message, at either end. Keeps the key of its epoch alive.
class Segments {
public:
    Segments(const cryptmpi_aead& aead, std::shared_ptr<const RecordKey> key, std::uint32_t lane, std::uint64_t number,
             const std::uint8_t header[8], const Announcement& announcement);

    const Announcement& announcement() const { return announcement_; }
    /// Of the message in its lane.
    std::uint64_t number() const { return number_; }
    std::uint32_t count() const { return count_; }
    /// In the message, of the segment at `position`, from 0.
    std::uint64_t offset(std::uint32_t position) const {
        return position == 0 ? 0 : announcement_.first + std::uint64_t{position - 1} * announcement_.segment;
    }
    /// Bytes of plaintext in the segment at `position`, from 0.
    std::size_t size(std::uint32_t position) const;

    // Several threads may seal or open segments at the same time, each with its number `thread`, below the flow's
    // number of threads (Crypto).

    /// Seals size(position) bytes to kSegmentOverhead more of them. Each position once. Errors: EIO, the module failed.
    Result<void> seal(std::uint32_t position, const void* in, std::uint8_t* out, std::size_t thread = 0) const;
    /// Opens the segment that came as the one at `position` into size(position) bytes. Errors (EBADMSG): it is not that
    /// segment; `out` then holds zeros.
    Result<void> open(std::uint32_t position, const std::uint8_t* wire, std::size_t wire_size, void* out,
                      std::size_t thread = 0) const;

private:
    static constexpr std::size_t kAssociatedSize = 8 + 8 + 4 + 1;
    void associate(std::uint32_t position, std::uint8_t out[kAssociatedSize]) const;
    std::uint64_t counter(std::uint32_t position) const;

    const cryptmpi_aead* aead_;
    std::shared_ptr<const RecordKey> key_;
    std::uint32_t lane_;
    std::uint64_t number_;
    std::uint8_t header_[8];
    Announcement announcement_;
    std::uint32_t count_;
};

}  // namespace cryptmpi::seal
