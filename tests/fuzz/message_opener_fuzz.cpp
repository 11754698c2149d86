// Messages, announcements and segments of arbitrary bytes, opened as a receiver does.
//
// Input, again and again: what comes (1 byte) | lane (1) | its size (2, little endian) | its bytes
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "seal/message.hpp"
#include "toy_crypto.hpp"

using namespace cryptmpi;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kRoom = 4096;  // in the user's buffer for a large message
constexpr std::uint8_t kUntouched = 0xee;

void require(bool holds) {
    if (!holds) std::abort();
}

bool all_zero(const std::uint8_t* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

/// One receiver, and the large message that is on its way to it.
class Receiver {
public:
    void whole(std::uint32_t lane, const Bytes& wire) {
        Bytes plain(wire.size() < seal::kMessageOverhead ? 8 : wire.size() - seal::kMessageOverhead, kUntouched);
        const std::size_t cut = plain.size() / 3;
        const iovec out[] = {{plain.data(), cut}, {plain.data() + cut, plain.size() - cut}};
        const auto peeked = peek(lane, wire);
        const auto header = opener_.open(lane, wire.data(), wire.size(), out);
        if (!header) {
            require(all_zero(plain.data(), plain.size()));
            return;
        }
        require(wire.size() >= seal::kMessageOverhead && header->form == seal::Form::whole);
        require(!seal::announces(wire.data(), wire.size()));
        require(header->number < seal::kMostMessages && header->epoch < seal::kMostEpochs);
        require(wire.size() != seal::kAnnouncedWire || peeked == plain.size());
        count(plain.size());
    }

    void announcement(std::uint32_t lane, const Bytes& wire) {
        const auto peeked = peek(lane, wire);
        auto segments = opener_.open_announcement(lane, wire.data(), wire.size());
        if (!segments) return;
        require(wire.size() == seal::kAnnouncedWire && segments->number() < seal::kMostMessages);
        require(!seal::announces(wire.data(), wire.size()) || peeked == segments->announcement().length);
        count(segments->announcement().length);
        check_positions(*segments);
        coming_.emplace(std::move(*segments));
        next_ = 0;
        in_.assign(coming_->announcement().length <= kRoom ? coming_->announcement().length : 0, kUntouched);
    }

    void segment(const Bytes& wire) {
        if (!coming_ || next_ == coming_->count() || in_.empty()) return;
        const std::uint64_t at = coming_->offset(next_);
        const std::size_t size = coming_->size(next_);
        // Exactly as large as the segment, so that a write past it is seen.
        Bytes plain(size, kUntouched);
        const auto opened = coming_->open(next_, wire.data(), wire.size(), plain.data());
        require(!opened || wire.size() == size + seal::kSegmentOverhead);
        require(opened || all_zero(plain.data(), size));
        std::copy(plain.begin(), plain.end(), in_.begin() + static_cast<std::ptrdiff_t>(at));
        ++next_;
    }

private:
    /// What a probe is told of it, which counts nothing.
    std::optional<std::uint64_t> peek(std::uint32_t lane, const Bytes& wire) {
        if (wire.size() != seal::kAnnouncedWire) return std::nullopt;
        const auto length = opener_.peek(lane, wire.data());
        require(opener_.counters().messages == messages_ && opener_.counters().bytes == bytes_);
        if (!length) return std::nullopt;
        return *length;
    }

    void count(std::uint64_t bytes) {
        ++messages_;
        bytes_ += bytes;
        require(opener_.counters().messages == messages_ && opener_.counters().bytes == bytes_);
    }

    /// The segments are the whole message, and no byte of it is in two. (Not all of them: there may be 65535.)
    static void check_positions(const seal::Segments& segments) {
        const std::uint64_t length = segments.announcement().length;
        const std::uint32_t count = segments.count();
        require(length > 0 && count > 0 && count <= seal::kMostSegments && segments.offset(0) == 0);
        for (const std::uint32_t i : {0U, count / 2, count - 1}) {
            require(segments.size(i) > 0);
            require(segments.offset(i) + segments.size(i) == (i + 1 == count ? length : segments.offset(i + 1)));
        }
    }

    const Bytes secret_ = Bytes(seal::kSecretSize, 7);
    seal::MessageOpener opener_{fuzz::toy_crypto(), secret_.data()};
    std::uint64_t messages_ = 0;
    std::uint64_t bytes_ = 0;
    std::optional<seal::Segments> coming_;
    std::uint32_t next_ = 0;
    Bytes in_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t kBefore = 4;
    Receiver receiver;
    while (size >= kBefore) {
        const std::size_t said = data[2] | std::size_t{data[3]} << 8;
        const std::size_t length = said < size - kBefore ? said : size - kBefore;
        // Exactly as large as what came, so that a read past it is seen.
        const Bytes wire(data + kBefore, data + kBefore + length);
        switch (data[0] % 3) {
            case 0:
                receiver.whole(data[1], wire);
                break;
            case 1:
                receiver.announcement(data[1], wire);
                break;
            default:
                receiver.segment(wire);
        }
        data += kBefore + length;
        size -= kBefore + length;
    }
    return 0;
}
