#include "fabric/libfabric/remote.hpp"

#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "base/endian.hpp"
#include "base/pieces.hpp"
#include "fabric/libfabric/objects.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

// How many messages of ours may wait in the provider; how many later ones may overtake one there, which is less than
// what a flow allows; and how many notes may wait for the provider before the program has to.
constexpr std::size_t kMostUnderWay = 64;
constexpr std::uint64_t kMostOvertaking = kMostEarly / 4;
constexpr std::size_t kMostNotes = 1024;
// Of a long message: nothing travels while the first piece is sealed, and while the last one is opened.
constexpr std::size_t kShortPiece = std::size_t{64} << 10;

}  // namespace

/// No piece's tag is that of notes.
std::uint64_t Remote::next_id() {
    if ((++last_id_ & kIdBits) == 0) ++last_id_;
    return last_id_;
}

std::int64_t Remote::read(const Wish& wish) {
    if (endpoint_.peer_of(wish.peer) == nullptr) return -FI_EINVAL;
    if (transfers_.size() >= kMostNotes) return -FI_EAGAIN;
    const std::size_t size = total(wish.parts);
    if (size == 0) {
        endpoint_.tell(FI_READ, wish.context, wish.wanted);
        return 0;
    }
    begin({.peer = wish.peer,
           .what = What::read,
           .key = wish.key,
           .address = wish.address,
           .size = size,
           .into = {wish.parts.begin(), wish.parts.end()},
           .context = wish.context,
           .wanted = wish.wanted});
    go_on();
    return 0;
}

std::int64_t Remote::write(const Wish& wish) {
    if (endpoint_.peer_of(wish.peer) == nullptr) return -FI_EINVAL;
    if (notes_.size() >= kMostNotes) return -FI_EAGAIN;
    const std::size_t size = total(wish.parts);
    if (size == 0) {
        endpoint_.tell(FI_WRITE, wish.context, wish.wanted);
        return 0;
    }
    Note note = {wish.peer, What::write, next_id(), wish.key, wish.address, size};
    Write write = {wish.peer, {}, wish.context, wish.wanted};
    if (size <= std::min(kShort, endpoint_.message_size - kNoteSize)) {
        note.bytes.reserve(size);
        for (const iovec& part : wish.parts) {
            const auto* const at = static_cast<const std::uint8_t*>(part.iov_base);
            note.bytes.insert(note.bytes.end(), at, at + part.iov_len);
        }
    } else {
        write.parts.assign(wish.parts.begin(), wish.parts.end());
    }
    writes_.emplace(note.id, std::move(write));
    notes_.push_back(std::move(note));
    go_on();
    return 0;
}

std::uint64_t Remote::offer(const Wish& message) {
    const std::uint64_t id = next_id();
    writes_.emplace(
        id, Write{message.peer, {message.parts.begin(), message.parts.end()}, message.context, message.wanted, true});
    return id;
}

void Remote::fetch(std::uint64_t peer, std::uint64_t id, std::size_t size, std::vector<iovec> into,
                   Operation& receive) {
    begin({.peer = peer,
           .what = What::fetch,
           .key = id,
           .address = 0,
           .size = size,
           .into = std::move(into),
           .receive = &receive});
    go_on();
}

void Remote::drop(std::uint64_t peer, std::uint64_t id) {
    notes_.push_back({peer, What::done, id, 0, 0, 1});
    go_on();
}

void Remote::take_note(const Peer* peer, std::span<const std::uint8_t> note) {
    if (note.size() < kNoteSize) endpoint_.end("a note about memory is shorter than any");
    const std::uint64_t from = endpoint_.address_of(peer);
    if (from == FI_ADDR_NOTAVAIL) endpoint_.end("a peer whose address is not known asks for memory");
    const auto number = [&](std::size_t place) { return load_little(note.data() + place * sizeof(std::uint64_t)); };
    Note one = {from,      static_cast<What>(number(0)),          number(1), number(2), number(3),
                number(4), {note.begin() + kNoteSize, note.end()}};
    if (!one.bytes.empty() && one.what != What::write) endpoint_.end("a note about memory is longer than it may be");
    switch (one.what) {
        case What::read:
        case What::fetch:
            questions_.push_back(std::move(one));
            break;
        case What::write:
            take_write(one);
            break;
        case What::done:
            take_done(one);
            break;
        default:
            endpoint_.end("a note about memory is of no kind that is known");
    }
    go_on();
}

// protocol: F9
/// The region is looked for when bytes have come for it, since the program may have closed it in the meantime.
bool Remote::put(std::uint64_t key, std::uint64_t address, std::span<const std::uint8_t> bytes) {
    const Region* const region = endpoint_.domain->region_of(key, address, bytes.size(), FI_REMOTE_WRITE);
    if (region == nullptr) return false;
    // A member may write nothing, which is nowhere.
    if (!bytes.empty()) std::memcpy(region->at(address), bytes.data(), bytes.size());
    return true;
}

void Remote::take_write(const Note& note) {
    const bool is_whole = note.bytes.size() == note.size;
    if (!is_whole && !note.bytes.empty()) endpoint_.end("a short write has another length than it says");
    if (is_whole) {
        const bool done = put(note.key, note.address, note.bytes);
        notes_.push_back({note.peer, What::done, note.id, 0, 0, done ? 1U : 0U});
    } else if (endpoint_.domain->region_of(note.key, note.address, note.size, FI_REMOTE_WRITE) == nullptr) {
        notes_.push_back({note.peer, What::done, note.id, 0, 0, 0});
    } else {
        begin({.peer = note.peer,
               .what = What::fetch,
               .key = note.id,
               .address = 0,
               .size = note.size,
               .own_key = note.key,
               .own_address = note.address});
    }
}

// protocol: F8
/// Is the note from the peer whose memory it is? Each may have several addresses.
bool Remote::is_for(const Write& write, const Note& note) const {
    const Peer* const peer = endpoint_.peer_of(write.peer);
    return peer != nullptr && peer == endpoint_.peer_of(note.peer);
}

// protocol: F10
void Remote::take_done(const Note& note) {
    const auto found = writes_.find(note.id);
    if (found == writes_.end() || !is_for(found->second, note))
        endpoint_.end("a peer ends a write that it was not asked for");
    if (note.size != 1) endpoint_.around().give_up("MPI writes memory that the peer has not registered for it");
    const Write ended = std::move(found->second);
    writes_.erase(found);
    endpoint_.tell(ended.is_message ? FI_SEND : FI_WRITE, ended.context, ended.wanted);
}

void Remote::begin(Transfer transfer) {
    const std::uint64_t id = next_id();
    transfers_.emplace(id, std::move(transfer));
    asking_.push_back(id);
}

std::size_t Remote::next_piece(const Transfer& transfer) const {
    const std::size_t most = std::min(kLongestPiece, endpoint_.message_size - kPieceHeader);
    const std::size_t left = transfer.size - transfer.asked;
    if (transfer.receive == nullptr || most <= kShortPiece) return std::min(most, left);
    if (transfer.asked == 0 || left <= kShortPiece) return std::min(kShortPiece, left);
    return std::min(most, left - std::min(kShortPiece, left / 2));
}

void Remote::ask_for_pieces() {
    while (!asking_.empty() && pieces_ < endpoint_.domain->fabric->most_pieces) {
        Transfer& transfer = transfers_.at(asking_.front());
        const std::size_t size = next_piece(transfer);
        const std::uint64_t id = next_id();
        const auto code = endpoint_.expect_piece(asking_.front(), transfer.asked, size, id);
        if (code == -FI_EAGAIN) return;
        if (code != 0) endpoint_.end("a receive for memory cannot be posted: " + text_of(code));
        notes_.push_back({transfer.peer, transfer.what, id, transfer.key, transfer.address + transfer.asked, size});
        ++pieces_;
        transfer.asked += size;
        if (transfer.asked == transfer.size) asking_.pop_front();
    }
}

std::vector<iovec> Remote::room_for(std::uint64_t transfer, std::size_t at, std::size_t size,
                                    std::uint8_t* scratch) const {
    const Transfer& one = transfers_.at(transfer);
    if (one.what == What::read || one.receive != nullptr) return slice(one.into, at, size);
    return {{scratch, size}};
}

void Remote::take_piece(std::uint64_t transfer, std::size_t at, std::span<const std::uint8_t> scratch) {
    Transfer& one = transfers_.at(transfer);
    --pieces_;
    one.come += scratch.size();
    if (one.what == What::fetch && one.receive == nullptr && !put(one.own_key, one.own_address + at, scratch))
        one.is_open = false;
    if (one.come == one.size) end(transfer);
    go_on();
}

void Remote::end(std::uint64_t transfer) {
    const Transfer one = std::move(transfers_.at(transfer));
    transfers_.erase(transfer);
    if (one.what == What::read) {
        endpoint_.tell(FI_READ, one.context, one.wanted);
    } else {
        notes_.push_back({one.peer, What::done, one.key, 0, 0, one.is_open ? 1U : 0U});
        if (one.receive != nullptr) endpoint_.end_fetching(*one.receive);
    }
}

bool Remote::may_say() const {
    return under_way_.size() < kMostUnderWay &&
           (under_way_.empty() || last_number_ - *under_way_.begin() < kMostOvertaking);
}

std::int64_t Remote::send(std::uint64_t peer, std::uint64_t tag, std::span<const iovec> parts) {
    const std::uint64_t number = last_number_ + 1;
    const auto code = endpoint_.send({Kind::active, parts, peer, tag, number, 0, nullptr, false});
    if (code == 0) under_way_.insert(last_number_ = number);
    return code;
}

std::int64_t Remote::say(const Note& note) {
    const std::uint64_t numbers[] = {static_cast<std::uint64_t>(note.what), note.id, note.key, note.address, note.size};
    std::array<std::uint8_t, kNoteSize> header;
    for (std::size_t i = 0; i < std::size(numbers); ++i)
        store_little(numbers[i], header.data() + i * sizeof numbers[0]);
    const iovec parts[] = {piece(header.data(), header.size()), piece(note.bytes.data(), note.bytes.size())};
    return send(note.peer, endpoint_.note_tag, {parts, note.bytes.empty() ? 1U : 2U});
}

/// The region is looked for when the answer is due, since the program may have closed it after the question came.
std::int64_t Remote::answer(const Note& question) {
    std::array<std::uint8_t, kPieceHeader> header = {};
    std::vector<iovec> parts = {{header.data(), header.size()}};
    if (question.what == What::read) {
        const Region* const region =
            endpoint_.domain->region_of(question.key, question.address, question.size, FI_REMOTE_READ);
        if (region != nullptr) parts.push_back({region->at(question.address), question.size});
    } else {
        const auto found = writes_.find(question.key);
        if (found == writes_.end() || !is_for(found->second, question))
            endpoint_.end("a peer fetches a write that is not for it");
        const auto cut = slice(found->second.parts, question.address, question.size);
        if (total(cut) != question.size) endpoint_.end("a peer fetches more of a write than there is");
        parts.insert(parts.end(), cut.begin(), cut.end());
    }
    header[0] = parts.size() > 1 ? 1 : 0;
    return send(question.peer, endpoint_.piece_tag(question.id), parts);
}

template <class Say>
void Remote::go_on(std::deque<Note>& notes, Say say) {
    while (!notes.empty() && may_say()) {
        const auto code = say(notes.front());
        if (code == -FI_EAGAIN) return;
        if (code != 0) endpoint_.end("a message about a peer's memory fails: " + text_of(code));
        notes.pop_front();
    }
}

void Remote::go_on() {
    go_on(questions_, [this](const Note& one) { return answer(one); });
    ask_for_pieces();
    go_on(notes_, [this](const Note& one) { return say(one); });
}

}  // namespace cryptmpi::fabric::libfabric
