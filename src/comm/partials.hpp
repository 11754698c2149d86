// What reductions are made of: operations on vectors, and partial results on their way between ranks.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "comm/collective.hpp"
#include "comm/in_transit.hpp"

namespace cryptmpi::comm {

/// Elements of a vector.
struct Range {
    MPI_Count begin;
    MPI_Count count;
};

/// An operation of MPI on vectors of `count` elements.
struct Operator {
    Layer& layer;
    MPI_Count count;
    MPI_Datatype type;
    MPI_Op op;

    MPI_Aint extent() const;
    /// Elements that travel together: large vectors go in pieces.
    MPI_Count piece() const;
    int part(const UserBuffer& of, Range range, UserBuffer& out) const;
    Operator on(Range range) const { return {layer, range.count, type, op}; }
    /// right = left op right
    int combine(const UserBuffer& left, const UserBuffer& right) const;
};

/// Partial results on their way between ranks, each sealed, and what is made of them. Large ones go in pieces, so that
/// one is sealed, opened or combined while another travels. After an error all goes on, with void blocks: nobody waits
/// for what never comes, and whoever needs the result is told.
class Partials {
public:
    /// What is done with a part of a vector that has come, while the rest is still on its way. By then, what is sent of
    /// the same elements has been sealed.
    using Then = std::function<void(Range)>;

    /// `call` has numbers() for each vector that goes from one rank to the same other one.
    Partials(const Call& call, const Operator& op, int code = MPI_SUCCESS)
        : call_(call), op_(op), piece_(op.piece()), code_(code) {}
    static std::uint64_t numbers(const Operator& op) { return pieces(op.count, op.piece()); }

    /// The first error.
    int code() const { return code_; }
    void failed(int code) { code_ = first_of(code_, code); }

    void send(int to, const UserBuffer& partial) { move(to, &partial, to, nullptr, 0, {}); }
    void receive(int from, const UserBuffer& partial, const Then& then = {}) {
        move(from, nullptr, from, &partial, 0, then);
    }
    /// `before`: the vectors of this call that went to the peer before.
    void exchange(int peer, const UserBuffer& out, const UserBuffer& in, const Then& then = {},
                  std::uint64_t before = 0) {
        move(peer, &out, peer, &in, before, then);
    }
    void exchange(int to, const UserBuffer& out, int from, const UserBuffer& in, const Then& then) {
        move(to, &out, from, &in, 0, then);
    }

    /// right = left op right, of vectors of as many elements: of all, or of those that came.
    void combine(const UserBuffer& left, const UserBuffer& right);
    Then combines(const UserBuffer& left, const UserBuffer& right) {
        return [this, &left, &right](Range range) { combine(left, right, range); };
    }
    void copy(const UserBuffer& from, const UserBuffer& to);

private:
    using Address = Communicator::Address;

    static std::uint64_t pieces(MPI_Count count, MPI_Count piece);
    void move(int to, const UserBuffer* out, int from, const UserBuffer* in, std::uint64_t before, const Then& then);
    Range range(const UserBuffer& of, std::uint64_t i) const;
    /// `whole` itself where the range is all of it.
    const UserBuffer& part(const UserBuffer& whole, Range range, UserBuffer& room);
    void combine(const UserBuffer& left, const UserBuffer& right, Range range);
    void begin_send(const Call& call, int to, const UserBuffer& piece, InTransit& one);
    void begin_receive(int from, const UserBuffer& piece, InTransit& one);
    /// Returns how many bytes came, of a receive.
    std::size_t wait(const Address& address, InTransit& one);
    Address address(int rank) const { return call_.communicator.address(call_.layer.mpi, rank); }
    void keep_error(const Address& address, int code);

    const Call& call_;
    const Operator& op_;
    MPI_Count piece_;
    int code_;
};

}  // namespace cryptmpi::comm
