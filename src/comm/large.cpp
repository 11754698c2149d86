#include "comm/large.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cryptmpi::comm {

using seal::kSegmentOverhead;

namespace {

/// May one more segment be with MPI, of a message that has `travelling` there, as all of them have `bytes`?
bool has_room(const engine::Plan& plan, const seal::Segments& segments, std::uint32_t position, std::size_t travelling,
              std::size_t bytes) {
    return travelling == 0 || (travelling < plan.in_flight_of(segments.announcement().segment) &&
                               bytes + segments.size(position) <= plan.all_in_flight);
}

}  // namespace

Outgoing::Outgoing(const Ways& ways, seal::Segments segments, int world_rank, const std::uint8_t* plain,
                   engine::Buffer packed)
    : ways_(ways),
      segments_(std::move(segments)),
      plan_(ways.plans.of(segments_.announcement().length)),
      to_(world_rank),
      plain_(plain),
      packed_(std::move(packed)) {
    ++ways_.traffic.sends;
}

Outgoing::~Outgoing() {
    --ways_.traffic.sends;
    for (const Travelling& one : travelling_) ways_.traffic.out -= one.wire.size();
}

bool Outgoing::out_of_patience() {
    const auto now = std::chrono::steady_clock::now();
    if (!waits_since_) waits_since_ = now;
    return now > std::max(*waits_since_, ways_.traffic.moved) + plan_.patience;
}

/// How many segments are sealed together now; none where there is no room.
std::uint32_t Outgoing::next_chunk(Amount amount) const {
    std::uint32_t count = 0;
    std::size_t bytes = ways_.traffic.out;
    while (count < ways_.workers.ready() && next_ + count < segments_.count()) {
        const std::uint32_t position = next_ + count;
        if (amount != Amount::all && !has_room(plan_, segments_, position, travelling_.size() + count, bytes)) break;
        bytes += segments_.size(position) + kSegmentOverhead;
        ++count;
    }
    return count;
}

// HOT PATH
Result<void> Outgoing::seal(std::uint32_t position, Travelling& one, std::size_t thread) const {
    return segments_.seal(position, plain_ + segments_.offset(position), one.wire.data(), thread);
}

// HOT PATH
int Outgoing::hand_over(Travelling one) {
    const std::size_t size = one.wire.size();
    const ByteCount bytes(ways_.mpi, size);
    const int code = ways_.mpi.Isend(one.wire.data(), bytes.count(), bytes.type(), to_,
                                     static_cast<int>(segments_.announcement().mark), ways_.comm, &one.request);
    if (code == MPI_SUCCESS) {
        ways_.traffic.out += size;
        travelling_.push_back(std::move(one));
    }
    return code;
}

Result<int> Outgoing::send_chunk(std::uint32_t count) {
    struct Piece {
        Travelling travelling;
        Result<void> sealed;
    };
    std::vector<Piece> pieces(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        pieces[i].travelling = {ways_.pool.take(segments_.size(next_ + i) + kSegmentOverhead), MPI_REQUEST_NULL};
    }
    const std::uint32_t first = std::exchange(next_, next_ + count);
    ways_.workers.run(count, [&](std::size_t i, std::size_t thread) {
        pieces[i].sealed = seal(first + static_cast<std::uint32_t>(i), pieces[i].travelling, thread);
        return pieces[i].travelling.wire.size();
    });
    for (Piece& piece : pieces) {
        if (!piece.sealed) return tl::unexpected(std::move(piece.sealed.error()));
    }
    for (Piece& piece : pieces) {
        if (const int code = hand_over(std::move(piece.travelling)); code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

Result<int> Outgoing::send(Amount amount) {
    Result<int> code = MPI_SUCCESS;
    for (std::uint32_t count = next_chunk(amount); count != 0; count = next_chunk(amount)) {
        code = send_chunk(count);
        if (!code || *code != MPI_SUCCESS) break;
        advance();
    }
    return code;
}

void Outgoing::announced(MPI_Request request, engine::Buffer wire) {
    announcement_ = request;
    announcement_wire_ = std::move(wire);
}

namespace {

/// An error of MPI's ends the job, by the error handler of our communicator.
bool is_done(const interpose::Native& mpi, MPI_Request& request) {
    int done = 0;
    return mpi.Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
}

}  // namespace

void Outgoing::advance() {
    if (announcement_ != MPI_REQUEST_NULL && is_done(ways_.mpi, announcement_)) announcement_ = MPI_REQUEST_NULL;
    while (!travelling_.empty() && is_done(ways_.mpi, travelling_.front().request)) {
        ways_.traffic.out -= travelling_.front().wire.size();
        travelling_.pop_front();
        ways_.traffic.moved = std::chrono::steady_clock::now();
    }
}

Incoming::Incoming(const Ways& ways, seal::Segments segments, int world_rank, std::uint8_t* out)
    : ways_(ways),
      segments_(std::move(segments)),
      plan_(ways.plans.of(segments_.announcement().length)),
      from_(world_rank),
      out_(out) {
    receive_what_has_room();
}

Incoming::~Incoming() {
    for (const Travelling& one : travelling_) ways_.traffic.in -= one.wire.size();
}

void Incoming::receive_what_has_room() {
    while (posted_ < segments_.count() && has_room(plan_, segments_, posted_, travelling_.size(), ways_.traffic.in)) {
        receive_next();
    }
}

void Incoming::receive_next() {
    const std::size_t size = segments_.size(posted_) + kSegmentOverhead;
    Travelling one{ways_.pool.take(size), MPI_REQUEST_NULL};
    const ByteCount bytes(ways_.mpi, size);
    ways_.mpi.Irecv(one.wire.data(), bytes.count(), bytes.type(), from_,
                    static_cast<int>(segments_.announcement().mark), ways_.comm, &one.request);
    ways_.traffic.in += size;
    travelling_.push_back(std::move(one));
    ++posted_;
}

/// Takes the next segment, in their order, if it has come; the next ones are on their way while it is opened.
bool Incoming::take_next() {
    Travelling& first = travelling_.front();
    int done = 0;
    MPI_Status status;
    const int code = ways_.mpi.Test(&first.request, &done, &status);
    if (code == MPI_SUCCESS && done == 0) return false;
    MPI_Count size = 0;
    if (code == MPI_SUCCESS) ways_.mpi.Get_elements_x(&status, MPI_BYTE, &size);
    came_.push_back({std::move(first.wire), static_cast<std::size_t>(size)});
    ways_.traffic.in -= came_.back().wire.size();
    travelling_.pop_front();
    receive_what_has_room();
    return true;
}

// HOT PATH
void Incoming::open_all() {
    const std::uint32_t first = opened_;
    opened_ += static_cast<std::uint32_t>(came_.size());
    if (out_ != nullptr) {
        ways_.workers.run(came_.size(), [&](std::size_t i, std::size_t thread) {
            Came& one = came_[i];
            const std::uint32_t position = first + static_cast<std::uint32_t>(i);
            one.opened = segments_.open(position, one.wire.data(), one.size, out_ + segments_.offset(position), thread);
            return one.size;
        });
        const auto failed = std::find_if(came_.begin(), came_.end(), [](const Came& one) { return !one.opened; });
        if (failed != came_.end()) {
            failure_ = std::move(failed->opened.error());
            // Also what was opened beside it, or behind it.
            const std::uint32_t last = opened_ - 1;
            wipe(out_, segments_.offset(last) + segments_.size(last));
            out_ = nullptr;
        }
    }
    came_.clear();
}

bool Incoming::advance() {
    receive_what_has_room();
    for (;;) {
        while (came_.size() < ways_.workers.ready() && !travelling_.empty() && take_next()) {
        }
        if (came_.empty()) return travelling_.empty();
        open_all();
    }
}

}  // namespace cryptmpi::comm
