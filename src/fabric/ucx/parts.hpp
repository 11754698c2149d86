// Long active messages go in parts, each a sealed message of its own: the first travel while others are sealed, and are
// opened while others travel. UCX promises no order among them, so that each says where it belongs, in a header of
// UCX's that is bound to it.
//
//   header: number of the message among the long ones of its sender's worker | first byte | size of the whole
//           (8 bytes each, little endian)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/buffer_pool.hpp"
#include "fabric/flows.hpp"

namespace cryptmpi::fabric::ucx {

// Of plaintext, all but the last one. UCX takes 64 KB at once over TCP (door.cpp), so that it need not put parts
// together.
inline constexpr std::size_t kPart = std::size_t{48} << 10;
inline constexpr std::size_t kPlaceSize = 24;

/// Where a part belongs.
struct Place {
    std::uint64_t message = 0;
    std::uint64_t begin = 0;
    std::uint64_t whole = 0;

    void write(std::uint8_t to[kPlaceSize]) const;
    static Place read(const std::uint8_t from[kPlaceSize]);
    /// How many bytes such a part has. Nothing: no long message has a part there.
    std::optional<std::size_t> size() const;
};

/// The long messages of which parts are missing.
class Gathering {
public:
    explicit Gathering(engine::BufferPool& pool) : pool_(pool) {}
    bool is_empty() const { return all_.empty(); }

    /// Where the part of a message goes of which others have opened, or null. A header is not authentic before its part
    /// has opened: until then nobody gets memory for the size that it says.
    std::uint8_t* room_for(const Share& from, const Place& place);
    /// A part of the message to this handler has opened, at `part`. Gives all of the message where it is complete.
    /// Errors: EBADMSG, it is no part of that message, or came before; ENOMEM.
    Result<std::optional<engine::Buffer>> add(const Share& from, std::uint16_t handler, const Place& place,
                                              std::span<const std::uint8_t> part);

private:
    using Name = std::pair<Share, std::uint64_t>;
    struct Message {
        std::uint16_t handler;
        engine::Buffer bytes;
        std::vector<bool> has_come;  // of each part
        std::size_t missing;         // parts
    };

    engine::BufferPool& pool_;
    std::map<Name, Message> all_;
};

}  // namespace cryptmpi::fabric::ucx
