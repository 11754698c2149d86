#include "comm/large.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace cryptmpi::comm {

using seal::kSegmentOverhead;

namespace {

/// May one more segment be with MPI, of a message that has `travelling` there, as all of them have `bytes`?
bool has_room(const engine::Plan& plan, std::size_t travelling, std::size_t bytes, std::size_t size) {
    return travelling == 0 || (travelling < plan.in_flight && bytes + size <= plan.all_in_flight);
}

}  // namespace

Outgoing::Outgoing(const Ways& ways, seal::Segments segments, int world_rank, const std::uint8_t* plain,
                   engine::Buffer packed)
    : ways_(ways),
      segments_(std::move(segments)),
      plan_(ways.plans.of(segments_.announcement().length)),
      to_(world_rank),
      plain_(plain),
      packed_(std::move(packed)) {}

Outgoing::~Outgoing() {
    for (const Travelling& one : travelling_) ways_.traffic.out -= one.wire.size();
}

bool Outgoing::out_of_patience() {
    const auto now = std::chrono::steady_clock::now();
    if (!waits_since_) waits_since_ = now;
    return now > std::max(*waits_since_, ways_.traffic.moved) + plan_.patience;
}

bool Outgoing::has_room() const {
    return comm::has_room(plan_, travelling_.size(), ways_.traffic.out, segments_.size(next_));
}

// HOT PATH
Result<int> Outgoing::send_next() {
    const std::size_t size = segments_.size(next_) + kSegmentOverhead;
    Travelling one{ways_.pool.take(size), MPI_REQUEST_NULL};
    if (auto done = segments_.seal(next_, plain_ + segments_.offset(next_), one.wire.data()); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    ++next_;
    const ByteCount bytes(ways_.mpi, size);
    const int code = ways_.mpi.Isend(one.wire.data(), bytes.count(), bytes.type(), to_,
                                     static_cast<int>(segments_.announcement().mark), ways_.comm, &one.request);
    if (code == MPI_SUCCESS) {
        ways_.traffic.out += size;
        travelling_.push_back(std::move(one));
    }
    return code;
}

Result<int> Outgoing::send(Amount amount) {
    Result<int> code = MPI_SUCCESS;
    while (!all_sent() && (amount == Amount::all || has_room())) {
        code = send_next();
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
    while (posted_ < segments_.count() &&
           has_room(plan_, travelling_.size(), ways_.traffic.in, segments_.size(posted_))) {
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

// HOT PATH
void Incoming::take(const std::uint8_t* wire, std::size_t size) {
    const std::uint32_t position = opened_++;
    if (out_ == nullptr) return;
    if (auto done = segments_.open(position, wire, size, out_ + segments_.offset(position)); !done) {
        failure_ = std::move(done.error());
        wipe(out_, segments_.offset(position));
        out_ = nullptr;
    }
}

bool Incoming::advance() {
    receive_what_has_room();
    while (!travelling_.empty()) {
        Travelling& first = travelling_.front();
        int done = 0;
        MPI_Status status;
        const int code = ways_.mpi.Test(&first.request, &done, &status);
        if (code == MPI_SUCCESS && done == 0) return false;
        MPI_Count size = 0;
        if (code == MPI_SUCCESS) ways_.mpi.Get_elements_x(&status, MPI_BYTE, &size);
        const auto wire = std::move(first.wire);
        ways_.traffic.in -= wire.size();
        travelling_.pop_front();
        // The next ones are on their way while this one is opened.
        receive_what_has_room();
        take(wire.data(), static_cast<std::size_t>(size));
    }
    return true;
}

}  // namespace cryptmpi::comm
