#include "comm/large.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "seal/message.hpp"

namespace cryptmpi::comm {

using seal::kSegmentOverhead;

namespace {

// One segment of so many is sent synchronously, and the last: seldom enough that it costs next to nothing.
constexpr std::uint32_t kSynchronousEvery = 4;
// Segments, or rests, that one receiver may not have asked for, of all messages; but each message that its sender waits
// for may have one that tells. Enough that the network is busy until it does.
constexpr std::size_t kMostUnasked = 8;
// How often patience runs out before a receiver counts as absent, not late: for a second.
constexpr std::uint32_t kIsAbsent = 20;
// Of 32 MB: more than any memory.
constexpr std::uint32_t kMostDoublings = 32;
// A receiver looks for a rest the first of so many times that nothing has come.
constexpr std::uint32_t kLooksEvery = 16;

/// Tags, on our communicator, of what belongs to one message.
int tag_of_segments(const seal::Announcement& announcement) {
    return static_cast<int>(2 * announcement.mark);
}
int tag_of_rest(const seal::Announcement& announcement) {
    return static_cast<int>(2 * announcement.mark + 1);
}

/// Bytes of the segments from `first` to before `end`, in one message.
std::size_t wire_size(const seal::Segments& segments, std::uint32_t first, std::uint32_t end) {
    if (first == end) return 0;
    const std::size_t plain = segments.offset(end - 1) + segments.size(end - 1) - segments.offset(first);
    return plain + std::size_t{end - first} * kSegmentOverhead;
}

/// May one more segment be with MPI, of a message that has `travelling` there, as all of them have `bytes`?
bool has_room(const engine::Plan& plan, const seal::Segments& segments, std::uint32_t position, std::size_t travelling,
              std::size_t bytes) {
    return travelling == 0 || (travelling < plan.in_flight_of(segments.announcement().segment) &&
                               bytes + segments.size(position) <= plan.all_in_flight);
}

Scratch make_scratch(const SegmentTransport& transport, const Place& place, const seal::Announcement& announcement) {
    Scratch scratch(place.layout ? transport.workers.threads() : 0);
    for (engine::Buffer& one : scratch) one = transport.pool.take(std::max(announcement.first, announcement.segment));
    return scratch;
}

}  // namespace

int send_hint(const SegmentTransport& transport, int world_rank, const std::uint8_t wire[seal::kAnnouncedWire],
              InTransit& hint) {
    InTransit made(transport.left, Transfer::send, transport.pool.take(seal::kAnnouncedWire));
    std::copy_n(wire, seal::kAnnouncedWire, made.wire.data());
    const ByteCount bytes(transport.mpi, made.wire.size());
    const int code = transport.mpi.Isend(made.wire.data(), bytes.count(), bytes.type(), world_rank,
                                         transport.tag_of_hints, transport.comm, &made.request);
    if (code == MPI_SUCCESS) hint = std::move(made);
    return code;
}

Outgoing::Outgoing(const SegmentTransport& transport, seal::Segments segments, int world_rank, Place place)
    : transport_(transport),
      segments_(std::move(segments)),
      plan_(transport.plans.of(segments_.announcement().length)),
      to_(world_rank),
      unasked_(transport.traffic.unasked[world_rank]),
      place_(std::move(place)) {
    ++transport_.traffic.sends;
}

Outgoing::~Outgoing() {
    --transport_.traffic.sends;
    for (const Travelling& one : travelling_) transport_.traffic.out -= one.wire.size();
    was_asked_for(handed_);
}

std::uint32_t Outgoing::times_out_of_patience() {
    const auto now = std::chrono::steady_clock::now();
    if (!waits_since_) waits_since_ = now;
    return static_cast<std::uint32_t>((now - std::max(*waits_since_, transport_.traffic.moved)) / plan_.patience);
}

/// A receiver who is only late should not cost the memory of all messages: until he is taken to be absent, twice what
/// may be with MPI anyway; then twice as much again each time that patience has run out.
bool Outgoing::may_send_rest(Amount amount) {
    if (all_sent() || amount == Amount::what_has_room) return false;
    if (amount == Amount::all) return true;
    const std::uint32_t times = times_out_of_patience();
    const std::uint32_t doublings = std::clamp(times, kIsAbsent, kIsAbsent + kMostDoublings) - kIsAbsent;
    const std::size_t bytes = transport_.traffic.out + wire_size(segments_, next_, segments_.count());
    return times != 0 && bytes <= 2 * plan_.all_in_flight << doublings;
}

/// The segments from the next to before `position` are ready, and `bytes` with MPI or ready.
bool Outgoing::has_room(std::uint32_t position, std::size_t bytes) const {
    const std::uint32_t ready = position - next_;
    const bool may_be_unasked = unasked_ + ready < kMostUnasked || (ready == 0 && telling_ == 0 && waits_since_);
    return may_be_unasked && comm::has_room(plan_, segments_, position, travelling_.size() + ready, bytes);
}

/// How many segments are sealed together now; none where there is no room.
std::uint32_t Outgoing::next_chunk() const {
    std::uint32_t count = 0;
    std::size_t bytes = transport_.traffic.out;
    while (count < transport_.workers.ready() && next_ + count < segments_.count()) {
        const std::uint32_t position = next_ + count;
        if (!has_room(position, bytes)) break;
        bytes += segments_.size(position) + kSegmentOverhead;
        ++count;
    }
    return count;
}

/// The first of what was handed to MPI of this message, so many.
void Outgoing::was_asked_for(std::uint32_t count) {
    if (count <= asked_) return;
    unasked_ -= count - asked_;
    asked_ = count;
}

// HOT PATH
Result<void> Outgoing::seal(std::uint32_t position, std::uint8_t* wire, std::size_t thread,
                            const Scratch& scratch) const {
    const std::size_t offset = segments_.offset(position);
    if (!place_.layout) return segments_.seal(position, place_.at + offset, wire, thread);
    std::uint8_t* const packed = scratch[thread].data();
    place_.layout->pack(offset, segments_.size(position), packed);
    return segments_.seal(position, packed, wire, thread);
}

// HOT PATH
int Outgoing::hand_over(Travelling one, int tag) {
    const std::size_t size = one.wire.size();
    const ByteCount bytes(transport_.mpi, size);
    const auto isend = one.asked != 0 ? transport_.mpi.Issend : transport_.mpi.Isend;
    const int code = isend(one.wire.data(), bytes.count(), bytes.type(), to_, tag, transport_.comm, &one.request);
    if (code == MPI_SUCCESS) {
        transport_.traffic.out += size;
        if (one.asked != 0) ++telling_;
        travelling_.push_back(std::move(one));
    }
    return code;
}

Result<int> Outgoing::send_chunk(std::uint32_t count) {
    struct Piece {
        Travelling travelling;
        Result<void> sealed;
    };
    const std::uint32_t first = std::exchange(next_, next_ + count);
    handed_ += count;
    unasked_ += count;
    std::vector<Piece> pieces(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t up_to_it = first + i + 1;
        const bool tells =
            up_to_it % kSynchronousEvery == 0 || up_to_it == segments_.count() || unasked_ >= kMostUnasked;
        const std::uint32_t asked = tells ? up_to_it : 0;
        pieces[i].travelling =
            Travelling(transport_.left, transport_.pool.take(segments_.size(first + i) + kSegmentOverhead), asked);
    }
    const Scratch scratch = make_scratch(transport_, place_, segments_.announcement());
    transport_.workers.run(count, [&](std::size_t i, std::size_t thread) {
        const std::uint32_t position = first + static_cast<std::uint32_t>(i);
        pieces[i].sealed = seal(position, pieces[i].travelling.wire.data(), thread, scratch);
        return pieces[i].travelling.wire.size();
    });
    for (Piece& piece : pieces) {
        if (!piece.sealed) return tl::unexpected(std::move(piece.sealed.error()));
    }
    const int tag = tag_of_segments(segments_.announcement());
    for (Piece& piece : pieces) {
        if (const int code = hand_over(std::move(piece.travelling), tag); code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

Result<int> Outgoing::send_rest() {
    const std::uint32_t first = std::exchange(next_, segments_.count());
    ++unasked_;
    Travelling rest(transport_.left, transport_.pool.take(wire_size(segments_, first, next_)), ++handed_);
    std::vector<Result<void>> sealed(next_ - first);
    const Scratch scratch = make_scratch(transport_, place_, segments_.announcement());
    transport_.workers.run(sealed.size(), [&](std::size_t i, std::size_t thread) {
        const std::uint32_t position = first + static_cast<std::uint32_t>(i);
        sealed[i] = seal(position, rest.wire.data() + wire_size(segments_, first, position), thread, scratch);
        return segments_.size(position);
    });
    for (Result<void>& one : sealed) {
        if (!one) return tl::unexpected(std::move(one.error()));
    }
    return hand_over(std::move(rest), tag_of_rest(segments_.announcement()));
}

Result<int> Outgoing::send(Amount amount) {
    if (result_ && *result_ == MPI_SUCCESS) result_ = send_more(amount);
    return result_;
}

Result<int> Outgoing::send_more(Amount amount) {
    for (std::uint32_t count = next_chunk(); count != 0; count = next_chunk()) {
        auto code = send_chunk(count);
        if (!code || *code != MPI_SUCCESS) return code;
        advance();
    }
    return may_send_rest(amount) ? send_rest() : MPI_SUCCESS;
}

namespace {

/// An error of MPI's ends the job, by the error handler of our communicator; where it does not, what MPI may still have
/// is left with it.
bool is_done(const Native& mpi, MPI_Request& request) {
    int done = 0;
    return mpi.Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
}

}  // namespace

void Outgoing::advance() {
    for (InTransit* one : {&announcement_, &hint_}) {
        if (one->request != MPI_REQUEST_NULL && is_done(transport_.mpi, one->request)) *one = InTransit();
    }
    while (!travelling_.empty() && is_done(transport_.mpi, travelling_.front().request)) {
        transport_.traffic.out -= travelling_.front().wire.size();
        if (const std::uint32_t asked = travelling_.front().asked; asked != 0) {
            was_asked_for(asked);
            --telling_;
        }
        travelling_.pop_front();
        transport_.traffic.moved = std::chrono::steady_clock::now();
    }
}

Incoming::Incoming(const SegmentTransport& transport, seal::Segments segments, int world_rank, Place place)
    : transport_(transport),
      segments_(std::move(segments)),
      plan_(transport.plans.of(segments_.announcement().length)),
      from_(world_rank),
      rests_(transport.traffic.rests[world_rank]),
      place_(std::move(place)),
      alone_(segments_.count()),
      rest_(transport.left, Transfer::receive, {}) {
    receive_what_has_room();
}

Incoming::~Incoming() {
    for (const InTransit& one : travelling_) transport_.traffic.in -= one.wire.size();
    if (rest_.wire.data() == nullptr) return;
    transport_.traffic.in_rests -= rest_.wire.size();
    --rests_;
}

void Incoming::receive_what_has_room() {
    while (posted_ < alone_ && has_room(plan_, segments_, posted_, travelling_.size(), transport_.traffic.in)) {
        receive_next();
    }
}

void Incoming::receive_next() {
    const std::size_t size = segments_.size(posted_) + kSegmentOverhead;
    InTransit one(transport_.left, Transfer::receive, transport_.pool.take(size));
    const ByteCount bytes(transport_.mpi, size);
    transport_.mpi.Irecv(one.wire.data(), bytes.count(), bytes.type(), from_, tag_of_segments(segments_.announcement()),
                         transport_.comm, &one.request);
    transport_.traffic.in += size;
    travelling_.push_back(std::move(one));
    ++posted_;
}

/// Takes the next segment, in their order, if it has come; the next ones are on their way while it is opened.
bool Incoming::take_next() {
    if (travelling_.empty()) return take_from_rest();
    InTransit& first = travelling_.front();
    int done = 0;
    MPI_Status status;
    const int code = transport_.mpi.Test(&first.request, &done, &status);
    if (code == MPI_SUCCESS && done == 0) return false;
    MPI_Count size = 0;
    if (code == MPI_SUCCESS) transport_.mpi.Get_elements_x(&status, MPI_BYTE, &size);
    const std::uint8_t* const at = first.wire.data();
    transport_.traffic.in -= first.wire.size();
    came_.push_back({std::move(first), at, static_cast<std::size_t>(size)});
    travelling_.pop_front();
    receive_what_has_room();
    return true;
}

bool Incoming::take_from_rest() {
    const std::uint32_t position = taken();
    if (rest_.wire.data() == nullptr || position == segments_.count()) return false;
    if (rest_.request != MPI_REQUEST_NULL && !is_done(transport_.mpi, rest_.request)) return false;
    const std::uint8_t* const at = rest_.wire.data() + wire_size(segments_, alone_, position);
    came_.push_back({InTransit(), at, segments_.size(position) + kSegmentOverhead});
    return true;
}

/// A sender who waited for a late receiver has handed over the rests of many messages: all but few stay with him.
bool Incoming::may_receive_rest() const {
    return rests_ == 0 || transport_.traffic.in_rests < plan_.all_in_flight / 2;
}

/// Has the sender handed all that was left to MPI, before a wait?
void Incoming::look_for_rest() {
    if (alone_ != segments_.count() || taken() == segments_.count() || in_vain_++ % kLooksEvery != 0) return;
    if (!may_receive_rest()) return;
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    const int tag = tag_of_rest(segments_.announcement());
    if (transport_.mpi.Improbe(from_, tag, transport_.comm, &found, &message, &status) != MPI_SUCCESS || found == 0)
        return;
    MPI_Count size = 0;
    transport_.mpi.Get_elements_x(&status, MPI_BYTE, &size);
    receive_rest(message, static_cast<std::size_t>(size));
}

// protocol: M20
/// Its size tells where it begins.
void Incoming::receive_rest(MPI_Message& message, std::size_t size) {
    std::uint32_t first = taken();
    if (size > wire_size(segments_, 0, segments_.count())) {
        // It stays with MPI: no memory for more than the sender has announced, however long MPI is told that it is.
        fail({fmt::format("the rest of it has {} bytes, more than all of this message", size), EBADMSG});
        return receive_no_more_than(first);
    }
    while (first < segments_.count() && wire_size(segments_, first, segments_.count()) != size) ++first;
    rest_.wire = transport_.pool.take(size);
    transport_.traffic.in_rests += size;
    ++rests_;
    const ByteCount bytes(transport_.mpi, size);
    transport_.mpi.Imrecv(rest_.wire.data(), bytes.count(), bytes.type(), &message, &rest_.request);
    if (first == segments_.count()) {
        fail({fmt::format("the rest of it has {} bytes, of no segments of this message", size), EBADMSG});
        first = taken();
    }
    receive_no_more_than(first);
}

/// The receives for what comes with the rest go: each is cancelled as it is left with MPI.
void Incoming::receive_no_more_than(std::uint32_t count) {
    alone_ = count;
    for (; posted_ > alone_; --posted_) {
        transport_.traffic.in -= travelling_.back().wire.size();
        travelling_.pop_back();
    }
}

/// Also of what was opened beside the segment that failed, or behind it, nothing is left.
void Incoming::fail(Error error) {
    failure_ = std::move(error);
    if (opened_ != 0) place_.wipe(segments_.offset(opened_ - 1) + segments_.size(opened_ - 1));
    place_ = Place();
}

// HOT PATH
Result<void> Incoming::open(std::uint32_t position, const Came& one, std::size_t thread, const Scratch& scratch) const {
    const std::size_t offset = segments_.offset(position);
    if (!place_.layout) return segments_.open(position, one.at, one.size, place_.at + offset, thread);
    std::uint8_t* const packed = scratch[thread].data();
    auto opened = segments_.open(position, one.at, one.size, packed, thread);
    if (opened) place_.layout->unpack(offset, segments_.size(position), packed);
    return opened;
}

// HOT PATH
void Incoming::open_all() {
    const std::uint32_t first = opened_;
    opened_ = taken();
    if (!place_.is_nowhere()) {
        const Scratch scratch = make_scratch(transport_, place_, segments_.announcement());
        transport_.workers.run(came_.size(), [&](std::size_t i, std::size_t thread) {
            Came& one = came_[i];
            one.opened = open(first + static_cast<std::uint32_t>(i), one, thread, scratch);
            return one.size;
        });
        const auto failed = std::find_if(came_.begin(), came_.end(), [](const Came& one) { return !one.opened; });
        if (failed != came_.end()) fail(std::move(failed->opened.error()));
    }
    came_.clear();
}

bool Incoming::advance() {
    receive_what_has_room();
    for (;;) {
        while (came_.size() < transport_.workers.ready() && take_next()) {
        }
        if (came_.empty()) break;
        open_all();
    }
    if (opened_ == segments_.count()) return true;
    look_for_rest();
    return false;
}

}  // namespace cryptmpi::comm
