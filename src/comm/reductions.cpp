// Reductions cannot run on ciphertext: sealed partial results travel between ranks, and each combines what it opened.
// Partial results are combined in the order of ranks, so that operations that do not commute give what MPI promises.
#include <algorithm>
#include <cstring>
#include <numeric>
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
    const ByteCount out_bytes(call.layer.mpi, out_wire.size());
    const ByteCount in_bytes(call.layer.mpi, in_wire.size());
    const int code = call.layer.mpi.Sendrecv(out_wire.data(), out_bytes.count(), out_bytes.type(), peer, 0,
                                             in_wire.data(), in_bytes.count(), in_bytes.type(), peer, 0,
                                             call.communicator.own_traffic(call.layer.mpi), MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? code : open_block_from(call, peer, in_wire.data(), in);
}

#define CRYPTMPI_TRY(expression) \
    if (const int code_ = (expression); code_ != MPI_SUCCESS) return code_

/// What a reduction is asked to do: each rank's contribution is `own`, in the user's memory at `from`.
struct Reduction {
    Layer& layer;
    Communicator& communicator;
    const Operator& op;
    const UserBuffer& own;
    const void* from;

    const Nodes& nodes() const { return communicator.nodes(layer.mpi); }
    bool commutes() const {
        int flag = 0;
        return layer.mpi.Op_commutative(op.op, &flag) == MPI_SUCCESS && flag != 0;
    }
    /// Of this node's contributions, `result` of the rank `to` gets the sum, as of all operations here.
    int on_node(int to, const UserBuffer& result) const {
        if (nodes().alone()) return copy(layer, own, result);
        return CRYPTMPI_NATIVE(Reduce, op.count, from, result.address(), Count{op.count}, op.type, op.op,
                               nodes().place_on_node(to), nodes().own())(layer.mpi);
    }
};

/// A binomial tree over `ranks`, whose first is its root. `mine` of that gets the result; `other` is memory to work
/// with.
int reduce_along_tree(const Call& call, const Operator& op, const std::vector<int>& ranks, const UserBuffer*& mine,
                      const UserBuffer*& other) {
    const auto found = std::find(ranks.begin(), ranks.end(), call.communicator.rank());
    const auto place = static_cast<std::size_t>(found - ranks.begin());
    for (std::size_t step = 1; step < ranks.size(); step *= 2) {
        if ((place & step) != 0) return send_partial(call, ranks[place - step], *mine);
        if (place + step >= ranks.size()) continue;
        CRYPTMPI_TRY(receive_partial(call, ranks[place + step], *other));
        CRYPTMPI_TRY(op.combine(*mine, *other));
        std::swap(mine, other);
    }
    return MPI_SUCCESS;
}

/// From all ranks in their order to rank 0, which sends the result on.
int reduce_in_order(const Call& call, const Reduction& what, const UserBuffer* in, int root, const UserBuffer* mine,
                    const UserBuffer* other) {
    const int me = what.communicator.rank();
    std::vector<int> ranks(static_cast<std::size_t>(what.communicator.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    CRYPTMPI_TRY(copy(what.layer, what.own, *mine));
    CRYPTMPI_TRY(reduce_along_tree(call, what.op, ranks, mine, other));
    if (me == 0 && me != root) return send_partial(call, root, *mine);
    if (me == root && me != 0) return receive_partial(call, 0, *in);
    return me == root ? copy(what.layer, *mine, *in) : MPI_SUCCESS;
}

/// On each node first, then between one rank of each, the root among them.
int reduce_by_nodes(const Call& call, const Reduction& what, const UserBuffer* in, int root, const UserBuffer* mine,
                    const UserBuffer* other) {
    const Nodes& nodes = what.nodes();
    const int me = what.communicator.rank();
    const int roots_leader = nodes.leader_of(root);
    std::vector<int> ranks = nodes.all_leaders();
    std::rotate(ranks.begin(), ranks.begin() + nodes.place_of_leader(roots_leader), ranks.end());
    ranks.front() = root;
    const int of_node = nodes.leader_of(me) == roots_leader ? root : nodes.leader_of(me);
    CRYPTMPI_TRY(what.on_node(of_node, *mine));
    if (me != of_node) return MPI_SUCCESS;
    CRYPTMPI_TRY(reduce_along_tree(call, what.op, ranks, mine, other));
    return me == root ? copy(what.layer, *mine, *in) : MPI_SUCCESS;
}

/// `in` of the root gets the result.
int reduce(const Reduction& what, const UserBuffer* in, int root) {
    const Call call = begin_call(what.layer, what.communicator, CollectiveKind::reduce, root);
    Vector first;
    Vector second;
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, first));
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, second));
    const auto way = what.commutes() ? reduce_by_nodes : reduce_in_order;
    return way(call, what, in, root, &first.view(), &second.view());
}

/// The sum of what all leaders have, on all of them. They are a power of two, but for the first ones, which come in
/// pairs: one of two gives the other what it has, and gets the result. Commutative operations only.
class AmongLeaders {
public:
    /// `call` has two numbers: between two leaders, each way, there are two blocks at most.
    AmongLeaders(const Call& call, const Operator& op)
        : call_(call), op_(op), leaders_(call.communicator.nodes(call.layer.mpi).all_leaders()) {
        const auto many = static_cast<int>(leaders_.size());
        while (2 * power_ <= many) power_ *= 2;
        pairs_ = many - power_;
    }

    int run(const UserBuffer*& mine, const UserBuffer*& other) {
        const int place = call_.communicator.nodes(call_.layer.mpi).place_of_leader(call_.communicator.rank());
        const bool paired = place < 2 * pairs_;
        if (paired && place % 2 == 0) {
            CRYPTMPI_TRY(send_partial(call_, rank_at(place + 1), *mine));
            return receive_partial(call_, rank_at(place + 1), *mine);
        }
        if (paired) {
            CRYPTMPI_TRY(receive_partial(call_, rank_at(place - 1), *other));
            CRYPTMPI_TRY(op_.combine(*other, *mine));
        }
        const int at = paired ? place / 2 : place - pairs_;
        CRYPTMPI_TRY(halves_pay(*mine) ? by_halves(at, *mine, *other) : by_doubling(at, mine, other));
        return paired ? send_partial(call_, rank_at(place - 1), *mine) : MPI_SUCCESS;
    }

private:
    static constexpr std::size_t kLargeForDoubling = std::size_t{32} << 10;  // bytes

    int rank_at(int place) const { return leaders_[static_cast<std::size_t>(place)]; }
    /// Of those that are a power of two.
    int rank_of(int at) const { return rank_at(at < pairs_ ? 2 * at + 1 : at + pairs_); }
    bool halves_pay(const UserBuffer& mine) const {
        return mine.size() > kLargeForDoubling && op_.count >= power_ && extent() > 0;
    }
    MPI_Aint extent() const {
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        return call_.layer.mpi.Type_get_extent(op_.type, &lower, &extent) == MPI_SUCCESS ? extent : 0;
    }

    /// Everything is exchanged with one after the other: few steps.
    int by_doubling(int at, const UserBuffer*& mine, const UserBuffer*& other) const {
        for (int step = 1; step < power_; step *= 2) {
            const int peer = at ^ step;
            CRYPTMPI_TRY(exchange_partials(call_, rank_of(peer), *mine, *other));
            // The same order on both sides: results are the same to the last bit.
            if (peer < at) {
                CRYPTMPI_TRY(op_.combine(*other, *mine));
            } else {
                CRYPTMPI_TRY(op_.combine(*mine, *other));
                std::swap(mine, other);
            }
        }
        return MPI_SUCCESS;
    }

    struct Range {
        MPI_Count begin;
        MPI_Count count;
    };
    int part(const UserBuffer& of, Range range, UserBuffer& out) const {
        auto* const at = static_cast<std::uint8_t*>(of.address()) + extent() * static_cast<MPI_Aint>(range.begin);
        return UserBuffer::make(call_.layer.types(), at, range.count, op_.type, false, out);
    }

    /// Each sums up a part of its own, of which all then get all: few bytes.
    int by_halves(int at, const UserBuffer& mine, const UserBuffer& other) const {
        std::vector<std::pair<Range, Range>> halves;  // kept, given
        Range whole{0, op_.count};
        for (int step = power_ / 2; step > 0; step /= 2) {
            const Range lower{whole.begin, whole.count / 2};
            const Range upper{whole.begin + lower.count, whole.count - lower.count};
            const bool keeps_lower = (at & step) == 0;
            halves.emplace_back(keeps_lower ? lower : upper, keeps_lower ? upper : lower);
            const auto [kept, given] = halves.back();
            UserBuffer out;
            UserBuffer in;
            UserBuffer own;
            CRYPTMPI_TRY(part(mine, given, out));
            CRYPTMPI_TRY(part(other, kept, in));
            CRYPTMPI_TRY(part(mine, kept, own));
            CRYPTMPI_TRY(exchange_partials(call_, rank_of(at ^ step), out, in));
            const Operator sum{op_.layer, kept.count, op_.type, op_.op};
            CRYPTMPI_TRY(sum.combine(in, own));
            whole = kept;
        }
        for (int step = 1; step < power_; step *= 2) {
            const auto [kept, given] = halves.back();
            halves.pop_back();
            UserBuffer out;
            UserBuffer in;
            CRYPTMPI_TRY(part(mine, kept, out));
            CRYPTMPI_TRY(part(mine, given, in));
            CRYPTMPI_TRY(exchange_partials(block_of(call_, 1), rank_of(at ^ step), out, in));
        }
        return MPI_SUCCESS;
    }

    const Call& call_;
    const Operator& op_;
    const std::vector<int>& leaders_;
    int power_ = 1;
    int pairs_ = 0;
};

/// The result on all ranks, in `in`.
int allreduce(const Reduction& what, const UserBuffer& in) {
    if (!what.commutes()) {
        CRYPTMPI_TRY(reduce(what, &in, 0));
        return broadcast(what.layer, what.communicator, in, 0);
    }
    const Call call = begin_call(what.layer, what.communicator, CollectiveKind::allreduce, kNoRoot, 2);
    const Nodes& nodes = what.nodes();
    const int leader = nodes.leader_of(what.communicator.rank());
    Vector first;
    Vector second;
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, first));
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, second));
    const UserBuffer* mine = &first.view();
    const UserBuffer* other = &second.view();
    int code = what.on_node(leader, *mine);
    if (code == MPI_SUCCESS && nodes.is_leader(what.communicator.rank())) {
        code = AmongLeaders(call, what.op).run(mine, other);
    }
    engine::Buffer packed;
    std::uint8_t* at = mine->contiguous();
    if (at == nullptr) {
        packed = what.layer.buffer(mine->size());
        at = packed.data();
        if (code == MPI_SUCCESS) code = mine->pack(at);
    }
    code = share_on_node(call, leader, at, mine->size(), code);
    return code != MPI_SUCCESS ? code : in.unpack(at, mine->size());
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
    const void* from = nullptr;  // where `own` is, as the user said it
};

int make_arguments(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, bool has_result,
                   Arguments& arguments) {
    arguments.from = out == MPI_IN_PLACE ? in : out;
    CRYPTMPI_TRY(UserBuffer::make(layer.types(), arguments.from, count, type, false, arguments.own));
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
    const Operator sum{layer, count, type, op};
    return reduce({layer, *communicator, sum, arguments.own, arguments.from}, &arguments.in, root);
}

int Allreduce(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Layer& layer = Layer::get();
    Communicator* communicator = find_crossing(layer, comm, count, op);
    if (communicator == nullptr) {
        return CRYPTMPI_NATIVE(Allreduce, count, out, in, Count{count}, type, op, comm)(layer.mpi);
    }
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, true, arguments));
    const Operator sum{layer, count, type, op};
    return allreduce({layer, *communicator, sum, arguments.own, arguments.from}, arguments.in);
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
    const void* const from = out == MPI_IN_PLACE ? in : out;
    UserBuffer own;
    UserBuffer mine;
    CRYPTMPI_TRY(UserBuffer::make(layer.types(), from, total, type, false, own));
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
    const Operator sum{layer, total, type, op};
    CRYPTMPI_TRY(reduce({layer, communicator, sum, own, from}, &whole.view(), 0));
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
