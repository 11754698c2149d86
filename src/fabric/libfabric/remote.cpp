#include "fabric/libfabric/remote.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/endian.hpp"
#include "base/pieces.hpp"
#include "fabric/flows.hpp"
#include "fabric/libfabric/codes.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

/// How many there may be of one peer, and of all together; of each there may always be one.
struct Limit {
    std::size_t of_one;
    std::size_t of_all;
    bool lets_in(std::size_t one, std::size_t all) const { return one == 0 || (one < of_one && all < of_all); }
};
// Messages of ours that wait in the provider; how many later ones may overtake one there, which is less than what a
// flow allows; and notes that wait for the provider before the program has to, or what they ask for.
constexpr Limit kUnderWay = {64, 1024};
constexpr std::uint64_t kMostOvertaking = kMostEarly / 4;
constexpr Limit kNotes = {512, 4096};
// Pieces of all peers that are asked for: of others there is one then, and short.
constexpr std::size_t kMostPieces = 64;
// Of a long message: nothing travels while the first piece is sealed, and while the last one is opened.
constexpr std::size_t kShortPiece = std::size_t{64} << 10;
// Questions that a peer that is there may not have taken.
constexpr int kMostNotTaken = 3;

}  // namespace

/// No piece's tag is that of notes.
std::uint64_t Remote::next_id() {
    if ((++last_id_ & kIdBits) == 0) ++last_id_;
    return last_id_;
}

std::int64_t Remote::read(const Wish& wish) {
    if (endpoint_.peer_of(wish.peer) == nullptr) return -FI_EINVAL;
    if (!kNotes.lets_in(side_of(wish.peer).transfers, transfers_.size())) return -FI_EAGAIN;
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
    if (!kNotes.lets_in(side_of(wish.peer).notes.size(), waiting_)) return -FI_EAGAIN;
    const std::size_t size = total(wish.parts);
    if (size == 0) {
        endpoint_.tell(FI_WRITE, wish.context, wish.wanted);
        return 0;
    }
    Note note = {wish.peer, What::write, next_id(), wish.key, wish.address, size};
    Write write = {wish.peer, {}, wish.context, wish.wanted};
    if (size <= std::min(kShort, endpoint_.message_size() - kNoteSize)) {
        note.bytes.reserve(size);
        for (const iovec& part : wish.parts) {
            const auto* const at = static_cast<const std::uint8_t*>(part.iov_base);
            note.bytes.insert(note.bytes.end(), at, at + part.iov_len);
        }
    } else {
        write.parts.assign(wish.parts.begin(), wish.parts.end());
    }
    writes_.emplace(note.id, std::move(write));
    will_say(std::move(note));
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
    will_say({peer, What::done, id, 0, 0, 1});
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
            take_question(std::move(one));
            break;
        case What::write:
            take_write(one);
            break;
        case What::done:
            take_done(one);
            break;
        case What::leaves:
            if (is_leaving_) will_say({from, What::wants_none, 0, 0, 0, 0});
            break;
        case What::wants_none:
            take_end_of_receives(peer);
            break;
        default:
            endpoint_.end("a note about memory is of no kind that is known");
    }
    go_on();
}

// protocol: F9
/// The region is looked for when bytes have come for it, since the program may have closed it in the meantime.
bool Remote::put(std::uint64_t key, std::uint64_t address, std::span<const std::uint8_t> bytes) {
    const auto memory = endpoint_.memory_of(key, address, bytes.size(), FI_REMOTE_WRITE);
    if (!memory) return false;
    // A member may write nothing, which is nowhere.
    if (!bytes.empty()) std::memcpy(*memory, bytes.data(), bytes.size());
    return true;
}

void Remote::take_write(const Note& note) {
    const bool is_whole = note.bytes.size() == note.size;
    if (!is_whole && !note.bytes.empty()) endpoint_.end("a short write has another length than it says");
    if (is_whole) {
        const bool done = put(note.key, note.address, note.bytes);
        will_say({note.peer, What::done, note.id, 0, 0, done ? 1U : 0U});
    } else if (!endpoint_.memory_of(note.key, note.address, note.size, FI_REMOTE_WRITE)) {
        will_say({note.peer, What::done, note.id, 0, 0, 0});
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
    if (note.size != 1) endpoint_.give_up("MPI writes memory that the peer has not registered for it");
    const Write ended = std::move(found->second);
    writes_.erase(found);
    endpoint_.tell(ended.is_message ? FI_SEND : FI_WRITE, ended.context, ended.wanted);
}

bool Remote::has_messages() const {
    return std::any_of(writes_.begin(), writes_.end(),
                       [](const auto& one) { return one.second.is_message && !one.second.is_lost; });
}

/// One question for all messages to a peer; none while the provider has something for it. A provider may call a peer
/// that is gone one that takes nothing now: tcp connects again and again. There was a connection, so that one that is
/// there takes something soon, even if its program is busy.
void Remote::ask_who_fetches() {
    std::unordered_map<const Peer*, std::uint64_t> receivers;
    for (const auto& [id, write] : writes_) {
        if (write.is_message && !write.is_lost) receivers.emplace(endpoint_.peer_of(write.peer), write.peer);
    }
    for (const auto& [peer, address] : receivers) {
        Side& side = side_of(address);
        if (endpoint_.owes_to(peer) || !side.notes.empty()) {
            if (++side.not_taken >= kMostNotTaken) lose(peer);
        } else {
            side.not_taken = 0;
            if (side.under_way.empty()) will_say({address, What::leaves, 0, 0, 0, 0});
        }
    }
    go_on();
}

/// What it fetches all the same is still there: it may have asked before it knew.
void Remote::lose(const Peer* peer) {
    for (auto& [id, write] : writes_) {
        if (write.is_message && endpoint_.peer_of(write.peer) == peer) write.is_lost = true;
    }
}

// protocol: F10
void Remote::take_end_of_receives(const Peer* peer) {
    if (!is_leaving_) endpoint_.end("a peer says that it receives nothing any more, and nobody has asked");
    lose(peer);
}

Remote::Side& Remote::side_of(std::uint64_t peer) {
    return sides_[endpoint_.peer_of(peer)];
}

void Remote::touch(Side& side) {
    if (!std::exchange(side.is_busy, true)) busy_.push_back(&side);
}

void Remote::will_say(Note note) {
    Side& side = side_of(note.peer);
    side.notes.push_back(std::move(note));
    ++waiting_;
    touch(side);
}

void Remote::take_question(Note question) {
    Side& side = side_of(question.peer);
    side.questions.push_back(std::move(question));
    ++waiting_;
    touch(side);
}

void Remote::begin(Transfer transfer) {
    const std::uint64_t id = next_id();
    Side& side = side_of(transfer.peer);
    transfers_.emplace(id, std::move(transfer)).first->second.side = &side;
    ++side.transfers;
    side.asking.push_back(id);
    touch(side);
}

std::size_t Remote::next_piece(const Transfer& transfer, bool is_short) const {
    const std::size_t longest = is_short ? kShortPiece : kLongestPiece;
    const std::size_t most = std::min(longest, endpoint_.message_size() - kPieceHeader);
    const std::size_t left = transfer.size - transfer.asked;
    if (transfer.receive == nullptr || most <= kShortPiece) return std::min(most, left);
    if (transfer.asked == 0 || left <= kShortPiece) return std::min(kShortPiece, left);
    return std::min(most, left - std::min(kShortPiece, left / 2));
}

void Remote::ask_for_pieces(Side& side) {
    const Limit limit = {endpoint_.most_pieces(), kMostPieces};
    while (!side.asking.empty() && limit.lets_in(side.pieces, pieces_)) {
        Transfer& transfer = transfers_.at(side.asking.front());
        const std::size_t size = next_piece(transfer, pieces_ >= kMostPieces);
        const std::uint64_t id = next_id();
        const auto code = endpoint_.expect_piece(side.asking.front(), transfer.asked, size, id);
        if (code == -FI_EAGAIN) return;
        if (code != 0) endpoint_.give_up("a receive for memory cannot be posted: " + text_of(code));
        will_say({transfer.peer, transfer.what, id, transfer.key, transfer.address + transfer.asked, size});
        ++side.pieces;
        ++pieces_;
        transfer.asked += size;
        if (transfer.asked == transfer.size) side.asking.pop_front();
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
    --one.side->pieces;
    one.come += scratch.size();
    if (one.what == What::fetch && one.receive == nullptr && !put(one.own_key, one.own_address + at, scratch))
        one.is_open = false;
    if (one.come == one.size) end(transfer);
    go_on();
}

void Remote::end(std::uint64_t transfer) {
    const Transfer one = std::move(transfers_.at(transfer));
    transfers_.erase(transfer);
    --one.side->transfers;
    if (one.what == What::read) {
        endpoint_.tell(FI_READ, one.context, one.wanted);
    } else {
        will_say({one.peer, What::done, one.key, 0, 0, one.is_open ? 1U : 0U});
        if (one.receive != nullptr) endpoint_.end_fetching(*one.receive);
    }
}

bool Remote::may_say(const Side& side) const {
    const auto& under_way = side.under_way;
    return kUnderWay.lets_in(under_way.size(), under_way_) &&
           (under_way.empty() || side.last_number - *under_way.begin() < kMostOvertaking);
}

std::int64_t Remote::send(Side& side, std::uint64_t peer, std::uint64_t tag, std::span<const iovec> parts) {
    const std::uint64_t number = side.last_number + 1;
    const auto code = endpoint_.send(peer, tag, number, parts);
    if (code != 0) return code;
    side.under_way.insert(side.last_number = number);
    ++under_way_;
    return 0;
}

void Remote::sent(const Peer* peer, std::uint64_t number) {
    under_way_ -= sides_[peer].under_way.erase(number);
}

std::int64_t Remote::say(Side& side, const Note& note) {
    const std::uint64_t numbers[] = {static_cast<std::uint64_t>(note.what), note.id, note.key, note.address, note.size};
    std::array<std::uint8_t, kNoteSize> header;
    for (std::size_t i = 0; i < std::size(numbers); ++i)
        store_little(numbers[i], header.data() + i * sizeof numbers[0]);
    const iovec parts[] = {piece(header.data(), header.size()), piece(note.bytes.data(), note.bytes.size())};
    return send(side, note.peer, endpoint_.note_tag(), {parts, note.bytes.empty() ? 1U : 2U});
}

/// The region is looked for when the answer is due, since the program may have closed it after the question came.
std::int64_t Remote::answer(Side& side, const Note& question) {
    std::array<std::uint8_t, kPieceHeader> header = {};
    std::vector<iovec> parts = {{header.data(), header.size()}};
    if (question.what == What::read) {
        const auto memory = endpoint_.memory_of(question.key, question.address, question.size, FI_REMOTE_READ);
        if (memory) parts.push_back({*memory, question.size});
    } else {
        const auto found = writes_.find(question.key);
        if (found == writes_.end() || !is_for(found->second, question))
            endpoint_.end("a peer fetches a write that is not for it");
        const auto cut = slice(found->second.parts, question.address, question.size);
        if (total(cut) != question.size) endpoint_.end("a peer fetches more of a write than there is");
        parts.insert(parts.end(), cut.begin(), cut.end());
    }
    header[0] = parts.size() > 1 ? 1 : 0;
    return send(side, question.peer, endpoint_.piece_tag(question.id), parts);
}

template <class Say>
bool Remote::go_on(Side& side, std::deque<Note>& notes, Say say) {
    while (!notes.empty() && may_say(side)) {
        const auto code = say(notes.front());
        if (code == -FI_EAGAIN) return false;
        if (code != 0 && !is_leaving_) endpoint_.give_up("a message about a peer's memory fails: " + text_of(code));
        if (code != 0) lose(endpoint_.peer_of(notes.front().peer));
        notes.pop_front();
        --waiting_;
    }
    return true;
}

/// Until the provider takes nothing more of it now.
void Remote::go_on(Side& side) {
    if (!go_on(side, side.questions, [&](const Note& one) { return answer(side, one); })) return;
    ask_for_pieces(side);
    (void)go_on(side, side.notes, [&](const Note& one) { return say(side, one); });
}

/// Each of those that wait gets its turn once, whatever the provider does not take of another.
void Remote::go_on() {
    for (std::size_t left = busy_.size(); left != 0; --left) {
        Side& side = *busy_.front();
        go_on(side);
        busy_.pop_front();
        if (side.has_work()) {
            busy_.push_back(&side);
        } else {
            side.is_busy = false;
        }
    }
}

}  // namespace cryptmpi::fabric::libfabric
