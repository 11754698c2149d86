#include "comm/partials.hpp"

#include <algorithm>
#include <limits>

#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

constexpr std::uint64_t kInFlight = 4;  // pieces, each way

}  // namespace

MPI_Aint Operator::extent() const {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    return layer.mpi.Type_get_extent(type, &lower, &extent) == MPI_SUCCESS ? extent : 0;
}

MPI_Count Operator::piece() const {
    int size = 0;
    if (layer.mpi.Type_size(type, &size) != MPI_SUCCESS || size <= 0 || extent() <= 0) {
        return std::numeric_limits<MPI_Count>::max();
    }
    return static_cast<MPI_Count>(std::max(layer.collectives().piece / static_cast<std::size_t>(size), std::size_t{1}));
}

int Operator::part(const UserBuffer& of, Range range, UserBuffer& out) const {
    auto* const at = static_cast<std::uint8_t*>(of.address()) + extent() * static_cast<MPI_Aint>(range.begin);
    return UserBuffer::make(layer.types(), MPI_COMM_SELF, at, range.count, type, false, out);
}

int Operator::combine(const UserBuffer& left, const UserBuffer& right) const {
    return CRYPTMPI_NATIVE(Reduce_local, count, left.address(), right.address(), Count{count}, type, op)(layer.mpi);
}

std::uint64_t Partials::pieces(MPI_Count count, MPI_Count piece) {
    if (count / 2 <= piece) return 1;
    return static_cast<std::uint64_t>((count + piece - 1) / piece);
}

Range Partials::range(const UserBuffer& of, std::uint64_t i) const {
    if (pieces(of.count(), piece_) == 1) return {0, of.count()};
    const MPI_Count begin = static_cast<MPI_Count>(i) * piece_;
    return {begin, std::min(piece_, of.count() - begin)};
}

const UserBuffer& Partials::part(const UserBuffer& whole, Range range, UserBuffer& room) {
    if (range.count == whole.count()) return whole;
    failed(op_.part(whole, range, room));
    return room;
}

/// The next piece is sealed before the last one is waited for: both ranks are at work while pieces travel.
void Partials::move(int to, const UserBuffer* out, int from, const UserBuffer* in, std::uint64_t before,
                    const Then& then) {
    const std::uint64_t outgoing = out == nullptr ? 0 : pieces(out->count(), piece_);
    const std::uint64_t incoming = in == nullptr ? 0 : pieces(in->count(), piece_);
    const std::uint64_t first = before * numbers(op_);
    InTransit sent[kInFlight];
    InTransit received[kInFlight];
    const auto begin = [&](std::uint64_t i) {
        UserBuffer room;
        begin_receive(from, part(*in, range(*in, i), room), received[i % kInFlight]);
    };
    for (std::uint64_t i = 0; i < std::min(incoming, kInFlight); ++i) begin(i);
    for (std::uint64_t i = 0; i < std::max(outgoing, incoming + 1); ++i) {
        UserBuffer room;
        if (i < outgoing) {
            InTransit& one = sent[i % kInFlight];
            wait(address(to), one);
            begin_send(block_of(call_, first + i), to, part(*out, range(*out, i), room), one);
        }
        if (i == 0 || i > incoming) continue;
        InTransit& one = received[(i - 1) % kInFlight];
        const std::size_t size = wait(address(from), one);
        const Range came = range(*in, i - 1);
        const UserBuffer& piece = part(*in, came, room);
        if (code_ == MPI_SUCCESS) {
            code_ = open_block_from(block_of(call_, first + i - 1), from, one.wire.data(), piece, size);
        }
        if (i - 1 + kInFlight < incoming) begin(i - 1 + kInFlight);
        if (code_ == MPI_SUCCESS && then) then(came);
    }
    for (InTransit& one : sent) wait(address(to), one);
}

void Partials::begin_send(const Call& call, int to, const UserBuffer& piece, InTransit& one) {
    one = InTransit(call.layer.left_with_mpi(), Transfer::send, call.layer.buffer(piece.size() + kMessageOverhead));
    if (code_ == MPI_SUCCESS) code_ = seal_block_for(call, to, piece, one.wire.data());
    if (code_ != MPI_SUCCESS) void_block(one.wire.data(), piece.size());
    const ByteCount bytes(call.layer.mpi, one.wire.size());
    const auto there = address(to);
    keep_error(there, call.layer.mpi.Isend(one.wire.data(), bytes.count(), bytes.type(), there.rank, there.tag,
                                           there.comm, &one.request));
}

void Partials::begin_receive(int from, const UserBuffer& piece, InTransit& one) {
    one =
        InTransit(call_.layer.left_with_mpi(), Transfer::receive, call_.layer.buffer(piece.size() + kMessageOverhead));
    const ByteCount bytes(call_.layer.mpi, one.wire.size());
    const auto there = address(from);
    keep_error(there, call_.layer.mpi.Irecv(one.wire.data(), bytes.count(), bytes.type(), there.rank, there.tag,
                                            there.comm, &one.request));
}

std::size_t Partials::wait(const Address& address, InTransit& one) {
    const auto& mpi = call_.layer.mpi;
    if (one.request == MPI_REQUEST_NULL) return kUnknown;
    MPI_Status status;
    const int code = mpi.Wait(&one.request, &status);
    keep_error(address, code);
    MPI_Count size = 0;
    if (code == MPI_SUCCESS && one.transfer == Transfer::receive) mpi.Get_elements_x(&status, MPI_BYTE, &size);
    return static_cast<std::size_t>(size);
}

void Partials::keep_error(const Address& address, int code) {
    code_ = first_of(code_, call_.layer.pass_on(address.comm, call_.communicator.handle(), code));
}

void Partials::combine(const UserBuffer& left, const UserBuffer& right) {
    combine(left, right, {0, right.count()});
}

void Partials::combine(const UserBuffer& left, const UserBuffer& right, Range range) {
    if (code_ != MPI_SUCCESS) return;
    UserBuffer of_left;
    UserBuffer of_right;
    const UserBuffer& from = part(left, range, of_left);
    const UserBuffer& to = part(right, range, of_right);
    if (code_ == MPI_SUCCESS) code_ = op_.on(range).combine(from, to);
}

void Partials::copy(const UserBuffer& from, const UserBuffer& to) {
    if (code_ == MPI_SUCCESS) code_ = comm::copy(call_.layer, from, to);
}

}  // namespace cryptmpi::comm
