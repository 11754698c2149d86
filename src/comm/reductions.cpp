// Reductions cannot run on ciphertext: sealed partial results travel between ranks, and each combines what it opened.
// Partial results are combined in the order of ranks, so that operations that do not commute give what MPI promises.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "comm/calls.hpp"
#include "comm/collective.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// `count` elements of a datatype in memory of ours, laid out as the datatype says.
class Vector {
public:
    static int make(Layer& layer, MPI_Count count, MPI_Datatype type, Vector& out) {
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        MPI_Aint true_lower = 0;
        MPI_Aint true_extent = 0;
        if (int code = layer.mpi.Type_get_extent(type, &lower, &extent); code != MPI_SUCCESS) return code;
        if (int code = layer.mpi.Type_get_true_extent(type, &true_lower, &true_extent); code != MPI_SUCCESS) {
            return code;
        }
        const MPI_Aint span = count == 0 ? 0 : std::abs(extent) * static_cast<MPI_Aint>(count - 1) + true_extent;
        out.memory_ = layer.buffer(static_cast<std::size_t>(span));
        // User operations see whole elements: what lies between the data is set, too.
        std::memset(out.memory_.data(), 0, out.memory_.size());
        const MPI_Aint before = extent < 0 ? -extent * static_cast<MPI_Aint>(count - 1) : 0;
        return UserBuffer::make(layer.types(), out.memory_.data() + before - true_lower, count, type, false, out.view_);
    }
    const UserBuffer& view() const { return view_; }

private:
    engine::Buffer memory_;
    UserBuffer view_;
};

struct Operator {
    Layer& layer;
    MPI_Count count;
    MPI_Datatype type;
    MPI_Op op;

    /// right = left op right
    int combine(const UserBuffer& left, const UserBuffer& right) const {
        return CRYPTMPI_NATIVE(Reduce_local, count, left.address(), right.address(), Count{count}, type, op)(layer.mpi);
    }
};

int send_partial(const Call& call, int to, const UserBuffer& partial) {
    const auto wire = call.layer.buffer(partial.size() + kMessageOverhead);
    if (const int code = seal_block_for(call, to, partial, wire.data()); code != MPI_SUCCESS) return code;
    const ByteCount bytes(call.layer.mpi, wire.size());
    return call.layer.mpi.Send(wire.data(), bytes.count(), bytes.type(), to, 0,
                               call.communicator.own_traffic(call.layer.mpi));
}

int receive_partial(const Call& call, int from, const UserBuffer& partial) {
    const auto wire = call.layer.buffer(partial.size() + kMessageOverhead);
    const ByteCount bytes(call.layer.mpi, wire.size());
    const int code = call.layer.mpi.Recv(wire.data(), bytes.count(), bytes.type(), from, 0,
                                         call.communicator.own_traffic(call.layer.mpi), MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? code : open_block_from(call, from, wire.data(), partial);
}

int exchange_partials(const Call& call, int peer, const UserBuffer& out, const UserBuffer& in) {
    const auto out_wire = call.layer.buffer(out.size() + kMessageOverhead);
    const auto in_wire = call.layer.buffer(in.size() + kMessageOverhead);
    if (const int code = seal_block_for(call, peer, out, out_wire.data()); code != MPI_SUCCESS) return code;
    const ByteCount bytes(call.layer.mpi, out_wire.size());
    const int code = call.layer.mpi.Sendrecv(out_wire.data(), bytes.count(), bytes.type(), peer, 0, in_wire.data(),
                                             bytes.count(), bytes.type(), peer, 0,
                                             call.communicator.own_traffic(call.layer.mpi), MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? code : open_block_from(call, peer, in_wire.data(), in);
}

#define CRYPTMPI_TRY(expression) \
    if (const int code_ = (expression); code_ != MPI_SUCCESS) return code_

/// A binomial tree: `in` of the root gets the result. Each rank's contribution is `own`.
int reduce(Layer& layer, Communicator& communicator, const UserBuffer& own, const UserBuffer* in, const Operator& op,
           int root) {
    const Call call = begin_call(layer, communicator, CollectiveKind::reduce, root);
    const int ranks = communicator.size();
    const int me = communicator.rank();
    int commutes = 0;
    CRYPTMPI_TRY(layer.mpi.Op_commutative(op.op, &commutes));
    // The tree's root is rank 0 where the order matters, and sends the result on.
    const int top = commutes != 0 ? root : 0;
    const int place = (me - top + ranks) % ranks;
    Vector first;
    Vector second;
    CRYPTMPI_TRY(Vector::make(layer, op.count, op.type, first));
    CRYPTMPI_TRY(Vector::make(layer, op.count, op.type, second));
    const UserBuffer* mine = &first.view();
    const UserBuffer* other = &second.view();
    CRYPTMPI_TRY(copy(layer, own, *mine));
    for (int step = 1; step < ranks; step *= 2) {
        if ((place & step) != 0) {
            CRYPTMPI_TRY(send_partial(call, (place - step + top) % ranks, *mine));
            break;
        }
        if (place + step >= ranks) continue;
        CRYPTMPI_TRY(receive_partial(call, (place + step + top) % ranks, *other));
        CRYPTMPI_TRY(op.combine(*mine, *other));
        std::swap(mine, other);
    }
    if (me == top && me != root) return send_partial(call, root, *mine);
    if (me == root && me != top) return receive_partial(call, top, *in);
    return me == root ? copy(layer, *mine, *in) : MPI_SUCCESS;
}

/// The result on all ranks, in `in`.
int allreduce(Layer& layer, Communicator& communicator, const UserBuffer& own, const UserBuffer& in,
              const Operator& op) {
    CRYPTMPI_TRY(reduce(layer, communicator, own, &in, op, 0));
    return broadcast(layer, communicator, in, 0);
}

/// Prefixes by doubling distances: after each step a rank's `partial` covers twice as many ranks.
int scan(Layer& layer, Communicator& communicator, const UserBuffer& own, const UserBuffer& in, const Operator& op,
         bool exclusive) {
    const Call call = begin_call(layer, communicator, exclusive ? CollectiveKind::exscan : CollectiveKind::scan);
    const int ranks = communicator.size();
    const int me = communicator.rank();
    Vector vectors[4];
    for (Vector& vector : vectors) CRYPTMPI_TRY(Vector::make(layer, op.count, op.type, vector));
    const UserBuffer* partial = &vectors[0].view();  // of the group of ranks that this one has talked with
    const UserBuffer* prefix = &vectors[1].view();   // of the ranks before this one in that group, and this one
    const UserBuffer* other = &vectors[2].view();
    const UserBuffer* spare = &vectors[3].view();
    CRYPTMPI_TRY(copy(layer, own, *partial));
    bool has_prefix = !exclusive;
    if (has_prefix) CRYPTMPI_TRY(copy(layer, own, *prefix));
    for (int step = 1; step < ranks; step *= 2) {
        const int peer = me ^ step;
        if (peer >= ranks) continue;
        CRYPTMPI_TRY(exchange_partials(call, peer, *partial, *other));
        if (peer < me) {
            // prefix = other op prefix; partial = other op partial
            if (has_prefix) {
                CRYPTMPI_TRY(op.combine(*other, *prefix));
            } else {
                CRYPTMPI_TRY(copy(layer, *other, *prefix));
                has_prefix = true;
            }
            CRYPTMPI_TRY(op.combine(*other, *partial));
        } else {
            // partial = partial op other
            CRYPTMPI_TRY(copy(layer, *other, *spare));
            CRYPTMPI_TRY(op.combine(*partial, *spare));
            std::swap(partial, spare);
        }
    }
    return has_prefix ? copy(layer, *prefix, in) : MPI_SUCCESS;
}

/// The arguments of a reduction as buffers: what this rank puts in, and where the result goes.
struct Arguments {
    UserBuffer own;
    UserBuffer in;
};

int make_arguments(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, bool has_result,
                   Arguments& arguments) {
    const void* const from = out == MPI_IN_PLACE ? in : out;
    CRYPTMPI_TRY(UserBuffer::make(layer.types(), from, count, type, false, arguments.own));
    return has_result ? UserBuffer::make(layer.types(), in, count, type, false, arguments.in) : MPI_SUCCESS;
}

Communicator* find_crossing(Layer& layer, MPI_Comm comm, MPI_Count count, MPI_Op op, int root = 0) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    const bool good = communicator != nullptr && communicator->has(root) && count >= 0 && op != MPI_OP_NULL;
    return good ? communicator : nullptr;
}

}  // namespace

int Reduce(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    Layer& layer = Layer::get();
    Communicator* communicator = find_crossing(layer, comm, count, op, root);
    if (communicator == nullptr) {
        return CRYPTMPI_NATIVE(Reduce, count, out, in, Count{count}, type, op, root, comm)(layer.mpi);
    }
    const bool is_root = communicator->rank() == root;
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, is_root, arguments));
    return reduce(layer, *communicator, arguments.own, &arguments.in, {layer, count, type, op}, root);
}

int Allreduce(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Layer& layer = Layer::get();
    Communicator* communicator = find_crossing(layer, comm, count, op);
    if (communicator == nullptr) {
        return CRYPTMPI_NATIVE(Allreduce, count, out, in, Count{count}, type, op, comm)(layer.mpi);
    }
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, true, arguments));
    return allreduce(layer, *communicator, arguments.own, arguments.in, {layer, count, type, op});
}

int Scan(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Layer& layer = Layer::get();
    Communicator* communicator = find_crossing(layer, comm, count, op);
    if (communicator == nullptr) {
        return CRYPTMPI_NATIVE(Scan, count, out, in, Count{count}, type, op, comm)(layer.mpi);
    }
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, true, arguments));
    return scan(layer, *communicator, arguments.own, arguments.in, {layer, count, type, op}, false);
}

int Exscan(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Layer& layer = Layer::get();
    Communicator* communicator = find_crossing(layer, comm, count, op);
    if (communicator == nullptr) {
        return CRYPTMPI_NATIVE(Exscan, count, out, in, Count{count}, type, op, comm)(layer.mpi);
    }
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, true, arguments));
    return scan(layer, *communicator, arguments.own, arguments.in, {layer, count, type, op}, true);
}

namespace {

/// The whole result at rank 0, and from there to each rank its part, into `in`.
template <class CountOf>
int reduce_scatter(Layer& layer, Communicator& communicator, const void* out, void* in, MPI_Count total, CountOf count,
                   MPI_Datatype type, MPI_Op op, bool uniform) {
    const int ranks = communicator.size();
    UserBuffer own;
    UserBuffer mine;
    CRYPTMPI_TRY(UserBuffer::make(layer.types(), out == MPI_IN_PLACE ? in : out, total, type, false, own));
    CRYPTMPI_TRY(UserBuffer::make(layer.types(), in, count(communicator.rank()), type, false, mine));
    Vector whole;
    std::vector<UserBuffer> blocks;
    if (communicator.rank() == 0) {
        CRYPTMPI_TRY(Vector::make(layer, total, type, whole));
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        CRYPTMPI_TRY(layer.mpi.Type_get_extent(type, &lower, &extent));
        auto* at = static_cast<std::uint8_t*>(whole.view().address());
        blocks.resize(static_cast<std::size_t>(ranks));
        for (int i = 0; i < ranks; ++i) {
            CRYPTMPI_TRY(
                UserBuffer::make(layer.types(), at, count(i), type, false, blocks[static_cast<std::size_t>(i)]));
            at += extent * static_cast<MPI_Aint>(count(i));
        }
    }
    CRYPTMPI_TRY(reduce(layer, communicator, own, &whole.view(), {layer, total, type, op}, 0));
    return scatter(layer, communicator, blocks, &mine, 0, uniform);
}

}  // namespace

int Reduce_scatter_block(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Layer& layer = Layer::get();
    Communicator* communicator = find_crossing(layer, comm, count, op);
    if (communicator == nullptr) {
        return CRYPTMPI_NATIVE(Reduce_scatter_block, count, out, in, Count{count}, type, op, comm)(layer.mpi);
    }
    return reduce_scatter(
        layer, *communicator, out, in, count * communicator->size(), [&](int) { return count; }, type, op, true);
}

template <class C>
int Reduce_scatter(const void* out, void* in, const C* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Layer& layer = Layer::get();
    Communicator* communicator = find_crossing(layer, comm, 0, op);
    if (communicator == nullptr) {
        return [&](const auto& mpi) -> int {
            if constexpr (std::is_same_v<C, int>) {
                return mpi.Reduce_scatter(out, in, counts, type, op, comm);
            } else {
                return mpi.Reduce_scatter_c(out, in, counts, type, op, comm);
            }
        }(layer.mpi);
    }
    MPI_Count total = 0;
    for (int i = 0; i < communicator->size(); ++i) total += counts[i];
    return reduce_scatter(
        layer, *communicator, out, in, total, [&](int i) { return static_cast<MPI_Count>(counts[i]); }, type, op,
        false);
}

template int Reduce_scatter(const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm);
template int Reduce_scatter(const void*, void*, const MPI_Count*, MPI_Datatype, MPI_Op, MPI_Comm);

}  // namespace cryptmpi::comm
