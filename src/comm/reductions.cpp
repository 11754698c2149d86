// Reductions cannot run on ciphertext: sealed partial results travel between ranks, and each combines what it opened.
// Partial results are combined in the order of ranks, so that operations that do not commute give what MPI promises.
#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "comm/arguments.hpp"
#include "comm/calls.hpp"
#include "comm/collective.hpp"
#include "comm/native_call.hpp"
#include "comm/partials.hpp"
#include "engine/collectives.hpp"

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
        const int code = CRYPTMPI_NATIVE(Reduce, op.count, from, result.address(), Count{op.count}, op.type, op.op,
                                         nodes().place_on_node(to), nodes().own())(layer.mpi);
        return layer.pass_on(nodes().own(), communicator.handle(), code);
    }
};

/// A binomial tree over `ranks`, whose first is its root. `mine` of that gets the result; `other` is memory to work
/// with.
void reduce_along_tree(Partials& partials, int me, const std::vector<int>& ranks, const UserBuffer*& mine,
                       const UserBuffer*& other) {
    const auto found = std::find(ranks.begin(), ranks.end(), me);
    const auto place = static_cast<std::size_t>(found - ranks.begin());
    for (std::size_t step = 1; step < ranks.size(); step *= 2) {
        if ((place & step) != 0) return partials.send(ranks[place - step], *mine);
        if (place + step >= ranks.size()) continue;
        partials.receive(ranks[place + step], *other, partials.combines(*mine, *other));
        std::swap(mine, other);
    }
}

/// From all ranks in their order to rank 0, which sends the result on.
int reduce_in_order(const Call& call, const Reduction& what, const UserBuffer* in, int root, const UserBuffer* mine,
                    const UserBuffer* other) {
    const int me = what.communicator.rank();
    std::vector<int> ranks(static_cast<std::size_t>(what.communicator.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    Partials partials(call, what.op);
    partials.copy(what.own, *mine);
    reduce_along_tree(partials, me, ranks, mine, other);
    if (me == 0 && me != root) partials.send(root, *mine);
    if (me == root && me != 0) partials.receive(0, *in);
    if (me == root && me == 0) partials.copy(*mine, *in);
    return partials.code();
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
    Partials partials(call, what.op, what.on_node(of_node, *mine));
    if (me != of_node) return partials.code();
    reduce_along_tree(partials, me, ranks, mine, other);
    if (me == root) partials.copy(*mine, *in);
    return partials.code();
}

/// `in` of the root gets the result.
int reduce(const Reduction& what, const UserBuffer* in, int root) {
    const Call call =
        begin_call(what.layer, what.communicator, CollectiveKind::reduce, root, Partials::numbers(what.op));
    Vector first;
    Vector second;
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, first));
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, second));
    const auto way = what.commutes() ? reduce_by_nodes : reduce_in_order;
    return way(call, what, in, root, &first.view(), &second.view());
}

/// The sum of what all leaders have, on all of them. By doubling and by halves, they are a power of two, but for the
/// first ones, which come in pairs: one of two gives the other what it has, and gets the result. Commutative operations
/// only.
class AmongLeaders {
public:
    /// `call` has numbers for two vectors: between two leaders, each way, there are two at most.
    AmongLeaders(const Call& call, const Operator& op, Partials& partials)
        : call_(call), op_(op), partials_(partials), leaders_(call.communicator.nodes(call.layer.mpi).all_leaders()) {
        const auto many = static_cast<int>(leaders_.size());
        while (2 * power_ <= many) power_ *= 2;
        pairs_ = many - power_;
    }

    void run(const UserBuffer*& mine, const UserBuffer*& other) {
        const int place = nodes().place_of_leader(call_.communicator.rank());
        const engine::AllreduceWay way = way_for(*mine);
        if (way == engine::AllreduceWay::parts) return partials_.failed(by_parts(place, *mine, *other));
        const bool paired = place < 2 * pairs_;
        if (paired && place % 2 == 0) {
            partials_.send(rank_at(place + 1), *mine);
            return partials_.receive(rank_at(place + 1), *mine);
        }
        if (paired) {
            partials_.receive(rank_at(place - 1), *other, partials_.combines(*other, *mine));
        }
        const int at = paired ? place / 2 : place - pairs_;
        if (way == engine::AllreduceWay::halves) {
            partials_.failed(by_halves(at, *mine, *other));
        } else {
            by_doubling(at, mine, other);
        }
        if (paired) partials_.send(rank_at(place - 1), *mine);
    }

private:
    const Nodes& nodes() const { return call_.communicator.nodes(call_.layer.mpi); }
    int rank_at(int place) const { return leaders_[static_cast<std::size_t>(place)]; }
    /// Of those that are a power of two.
    int rank_of(int at) const { return rank_at(at < pairs_ ? 2 * at + 1 : at + pairs_); }
    /// All leaders see the same sizes, and have the same costs.
    engine::AllreduceWay way_for(const UserBuffer& mine) const {
        const bool can_be_cut = op_.count >= static_cast<MPI_Count>(leaders_.size()) && op_.extent() > 0;
        if (!can_be_cut) return engine::AllreduceWay::doubling;
        const auto way = engine::allreduce_way(call_.layer.collectives().costs, mine.size(),
                                               static_cast<std::uint32_t>(leaders_.size()));
        const bool too_long = mine.size() > INT_MAX / 2;  // for MPI_Allgatherv, which takes sealed parts by int
        return way == engine::AllreduceWay::parts && too_long ? engine::AllreduceWay::halves : way;
    }

    /// Everything is exchanged with one after the other: few steps.
    void by_doubling(int at, const UserBuffer*& mine, const UserBuffer*& other) {
        for (int step = 1; step < power_; step *= 2) {
            const int peer = at ^ step;
            // The same order on both sides: results are the same to the last bit.
            if (peer < at) {
                partials_.exchange(rank_of(peer), *mine, *other, partials_.combines(*other, *mine));
            } else {
                partials_.exchange(rank_of(peer), *mine, *other, partials_.combines(*mine, *other));
                std::swap(mine, other);
            }
        }
    }

    int part(const UserBuffer& of, Range range, UserBuffer& out) const { return op_.part(of, range, out); }

    Range part_of(int place) const {
        const auto many = static_cast<MPI_Count>(leaders_.size());
        const MPI_Count begin = op_.count * place / many;
        return {begin, op_.count * (place + 1) / many - begin};
    }

    /// Each sums up a part of its own from what all others send it, and seals it for all.
    int by_parts(int place, const UserBuffer& mine, const UserBuffer& other) {
        const auto many = static_cast<int>(leaders_.size());
        const Range range = part_of(place);
        UserBuffer own;
        UserBuffer in;
        CRYPTMPI_TRY(part(mine, range, own));
        CRYPTMPI_TRY(part(other, range, in));
        for (int step = 1; step < many; ++step) {
            const int to = (place + step) % many;
            const int from = (place - step + many) % many;
            UserBuffer out;
            CRYPTMPI_TRY(part(mine, part_of(to), out));
            partials_.exchange(rank_at(to), out, rank_at(from), in, partials_.combines(in, own));
        }
        return spread_parts(place, mine);
    }

    int spread_parts(int place, const UserBuffer& mine) {
        const Call call = block_of(call_, Partials::numbers(op_));
        std::vector<UserBuffer> parts(leaders_.size());
        std::vector<int> sizes;
        std::vector<int> places;
        int total = 0;
        for (std::size_t i = 0; i < leaders_.size(); ++i) {
            CRYPTMPI_TRY(part(mine, part_of(static_cast<int>(i)), parts[i]));
            sizes.push_back(static_cast<int>(parts[i].size() + kMessageOverhead));
            places.push_back(total);
            total += sizes.back();
        }
        const auto me = static_cast<std::size_t>(place);
        const auto wires = call.layer.buffer(static_cast<std::size_t>(total));
        std::uint8_t* const wire = wires.data() + places[me];
        if (partials_.code() == MPI_SUCCESS) partials_.failed(seal_block_for_all(call, parts[me], wire));
        if (partials_.code() != MPI_SUCCESS) void_block(wire, parts[me].size());
        const int gathered = call.layer.mpi.Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), sizes.data(),
                                                       places.data(), MPI_BYTE, nodes().leaders());
        CRYPTMPI_TRY(call.layer.pass_on(nodes().leaders(), call.communicator.handle(), gathered));
        for (std::size_t i = 0; i < leaders_.size() && partials_.code() == MPI_SUCCESS; ++i) {
            if (i != me) partials_.failed(open_block_of_all(call, leaders_[i], wires.data() + places[i], parts[i]));
        }
        return MPI_SUCCESS;
    }

    /// Each sums up a part of its own, of which all then get all: few bytes.
    int by_halves(int at, const UserBuffer& mine, const UserBuffer& other) {
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
            partials_.exchange(rank_of(at ^ step), out, in, partials_.combines(in, own));
            whole = kept;
        }
        for (int step = 1; step < power_; step *= 2) {
            const auto [kept, given] = halves.back();
            halves.pop_back();
            UserBuffer out;
            UserBuffer in;
            CRYPTMPI_TRY(part(mine, kept, out));
            CRYPTMPI_TRY(part(mine, given, in));
            partials_.exchange(rank_of(at ^ step), out, in, {}, 1);
        }
        return MPI_SUCCESS;
    }

    const Call& call_;
    const Operator& op_;
    Partials& partials_;
    const std::vector<int>& leaders_;
    int power_ = 1;
    int pairs_ = 0;
};

/// The result on all ranks, in `in`.
int allreduce(const Reduction& what, const UserBuffer& in) {
    if (!what.commutes()) {
        const int code = reduce(what, &in, 0);
        return broadcast(what.layer, what.communicator, in, 0, code);
    }
    const Call call =
        begin_call(what.layer, what.communicator, CollectiveKind::allreduce, kNoRoot, 2 * Partials::numbers(what.op));
    const Nodes& nodes = what.nodes();
    const int leader = nodes.leader_of(what.communicator.rank());
    Vector first;
    Vector second;
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, first));
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, second));
    const UserBuffer* mine = &first.view();
    const UserBuffer* other = &second.view();
    Partials partials(call, what.op, what.on_node(leader, *mine));
    if (nodes.is_leader(what.communicator.rank())) AmongLeaders(call, what.op, partials).run(mine, other);
    int code = partials.code();
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
    const Call call = begin_call(layer, communicator, exclusive ? CollectiveKind::exscan : CollectiveKind::scan,
                                 kNoRoot, Partials::numbers(op));
    const int ranks = communicator.size();
    const int me = communicator.rank();
    Vector vectors[4];
    for (Vector& vector : vectors) CRYPTMPI_TRY(Vector::make(layer, op.count, op.type, vector));
    const UserBuffer* partial = &vectors[0].view();  // of the group of ranks that this one has talked with
    const UserBuffer* prefix = &vectors[1].view();   // of the ranks before this one in that group, and this one
    const UserBuffer* other = &vectors[2].view();
    const UserBuffer* spare = &vectors[3].view();
    Partials partials(call, op);
    partials.copy(own, *partial);
    bool has_prefix = !exclusive;
    if (has_prefix) partials.copy(own, *prefix);
    for (int step = 1; step < ranks; step *= 2) {
        const int peer = me ^ step;
        if (peer >= ranks) continue;
        partials.exchange(peer, *partial, *other);
        if (peer < me) {
            // prefix = other op prefix; partial = other op partial
            if (has_prefix) {
                partials.combine(*other, *prefix);
            } else {
                partials.copy(*other, *prefix);
                has_prefix = true;
            }
            partials.combine(*other, *partial);
        } else {
            // partial = partial op other
            partials.copy(*other, *spare);
            partials.combine(*partial, *spare);
            std::swap(partial, spare);
        }
    }
    if (has_prefix) partials.copy(*prefix, in);
    return partials.code();
}

/// The arguments of a reduction as buffers: what this rank puts in, and where the result goes.
struct Arguments {
    UserBuffer own;
    UserBuffer in;
    const void* from = nullptr;  // where `own` is, as the user said it
    bool wrong = false;          // MPI says what is
};

int make_arguments(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, bool has_result,
                   Arguments& arguments) {
    arguments.from = out == MPI_IN_PLACE ? in : out;
    CRYPTMPI_TRY(UserBuffer::make(layer.types(), arguments.from, count, type, false, arguments.own));
    if (has_result) CRYPTMPI_TRY(UserBuffer::make(layer.types(), in, count, type, false, arguments.in));
    arguments.wrong = arguments.own.is_wrong() || arguments.in.is_wrong();
    return MPI_SUCCESS;
}

/// What all reductions may be told of their arguments before anything is sent. `ask` calls MPI's own.
template <class Ask>
int check(Layer& layer, MPI_Comm comm, const void* out, const UserBuffer& in, MPI_Datatype type, MPI_Op op, Ask ask) {
    CRYPTMPI_TRY(check_operation(layer, comm, type, op));
    return check_alias(layer, comm, out, in, ask);
}

Communicator* find_crossing(Layer& layer, MPI_Comm comm, MPI_Count count, MPI_Datatype type, MPI_Op op, int root = 0) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    const bool good = communicator != nullptr && communicator->has(root) && count >= 0 && op != MPI_OP_NULL &&
                      type != MPI_DATATYPE_NULL;
    return good ? communicator : nullptr;
}

}  // namespace

int Reduce(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, count, type, op, root);
    const auto native = CRYPTMPI_NATIVE(Reduce, count, out, in, Count{count}, type, op, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const bool is_root = communicator->rank() == root;
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, is_root, arguments));
    if (arguments.wrong) return native(layer.mpi);
    CRYPTMPI_TRY(check(layer, comm, out, arguments.in, type, op,
                       [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
                           return mpi.Reduce(number, number, many, MPI_INT, MPI_SUM, 0, alone);
                       }));
    const Operator sum{layer, count, type, op};
    return reduce({layer, *communicator, sum, arguments.own, arguments.from}, &arguments.in, root);
}

int Allreduce(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, count, type, op);
    const auto native = CRYPTMPI_NATIVE(Allreduce, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, true, arguments));
    if (arguments.wrong) return native(layer.mpi);
    CRYPTMPI_TRY(check(layer, comm, out, arguments.in, type, op,
                       [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
                           return mpi.Allreduce(number, number, many, MPI_INT, MPI_SUM, alone);
                       }));
    const Operator sum{layer, count, type, op};
    return allreduce({layer, *communicator, sum, arguments.own, arguments.from}, arguments.in);
}

int Scan(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, count, type, op);
    const auto native = CRYPTMPI_NATIVE(Scan, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, true, arguments));
    if (arguments.wrong) return native(layer.mpi);
    CRYPTMPI_TRY(check(layer, comm, out, arguments.in, type, op,
                       [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
                           return mpi.Scan(number, number, many, MPI_INT, MPI_SUM, alone);
                       }));
    return scan(layer, *communicator, arguments.own, arguments.in, {layer, count, type, op}, false);
}

int Exscan(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, count, type, op);
    const auto native = CRYPTMPI_NATIVE(Exscan, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    Arguments arguments;
    CRYPTMPI_TRY(make_arguments(layer, out, in, count, type, true, arguments));
    if (arguments.wrong) return native(layer.mpi);
    CRYPTMPI_TRY(check(layer, comm, out, arguments.in, type, op,
                       [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
                           return mpi.Exscan(number, number, many, MPI_INT, MPI_SUM, alone);
                       }));
    return scan(layer, *communicator, arguments.own, arguments.in, {layer, count, type, op}, true);
}

namespace {

/// Which elements of a vector are whose: rank by rank; and with the ranks of each node next to each other.
class Parts {
public:
    Parts(const Nodes& nodes, const std::vector<MPI_Count>& counts) {
        Range next{0, 0};
        for (const MPI_Count count : counts) of_rank_.push_back(next = {next.begin + next.count, count});
        for (const int leader : nodes.all_leaders()) {
            order_.emplace_back();
            for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
                if (nodes.leader_of(rank) == leader) order_.back().push_back(rank);
            }
        }
        MPI_Count begin = 0;
        for (const std::vector<int>& node : order_) {
            of_node_.push_back({begin, 0});
            for (const int rank : node) of_node_.back().count += of_rank(rank).count;
            begin += of_node_.back().count;
        }
    }
    Range of_rank(int rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }
    Range of_node(int place) const { return of_node_[static_cast<std::size_t>(place)]; }
    const std::vector<std::vector<int>>& order() const { return order_; }
    /// Is that the order of ranks?
    bool sorted() const {
        int next = 0;
        for (const std::vector<int>& node : order_) {
            for (const int rank : node) {
                if (rank != next++) return false;
            }
        }
        return true;
    }

private:
    std::vector<Range> of_rank_;
    std::vector<Range> of_node_;
    std::vector<std::vector<int>> order_;  // the ranks of each node
};

/// Of `whole`, to `sorted`: node by node.
void sort_by_nodes(Partials& partials, const Operator& op, const Parts& parts, const UserBuffer& whole,
                   const UserBuffer& sorted) {
    MPI_Count at = 0;
    for (const std::vector<int>& node : parts.order()) {
        for (const int rank : node) {
            const Range range = parts.of_rank(rank);
            UserBuffer from;
            UserBuffer to;
            partials.failed(op.part(whole, range, from));
            partials.failed(op.part(sorted, {at, range.count}, to));
            partials.copy(from, to);
            at += range.count;
        }
    }
}

/// Each leader gives each other one what it has for its node, and adds up what it gets: `own` becomes the sum of its
/// node's part of `sorted`.
void add_up_parts(const Call& call, Partials& partials, const Operator& op, const Parts& parts,
                  const UserBuffer& sorted, const UserBuffer& own, const UserBuffer& incoming) {
    const Nodes& nodes = call.communicator.nodes(call.layer.mpi);
    const std::vector<int>& leaders = nodes.all_leaders();
    const auto many = static_cast<int>(leaders.size());
    const int place = nodes.place_of_leader(call.communicator.rank());
    for (int step = 1; step < many; ++step) {
        const int to = (place + step) % many;
        const int from = (place - step + many) % many;
        UserBuffer out;
        partials.failed(op.part(sorted, parts.of_node(to), out));
        partials.exchange(leaders[static_cast<std::size_t>(to)], out, leaders[static_cast<std::size_t>(from)], incoming,
                          partials.combines(incoming, own));
    }
}

/// The leader's vector `own`, its node's part, goes to the node's ranks, natively.
int scatter_on_node(const Call& call, const Operator& op, const Parts& parts, const UserBuffer& own,
                    const UserBuffer& mine, int code) {
    const Nodes& nodes = call.communicator.nodes(call.layer.mpi);
    const int me = call.communicator.rank();
    code = share_on_node(call, nodes.leader_of(me), nullptr, 0, code);
    if (code != MPI_SUCCESS) return code;
    if (nodes.alone()) return copy(call.layer, own, mine);
    std::vector<int> counts;
    std::vector<int> places;
    int total = 0;
    for (const int rank : nodes.on_node()) {
        counts.push_back(static_cast<int>(parts.of_rank(rank).count));
        places.push_back(total);
        total += counts.back();
    }
    const int scattered =
        call.layer.mpi.Scatterv(own.address(), counts.data(), places.data(), op.type, mine.address(),
                                counts[static_cast<std::size_t>(nodes.place_on_node(me))], op.type, 0, nodes.own());
    return call.layer.pass_on(nodes.own(), call.communicator.handle(), scattered);
}

/// On each node first; then each leader gets the sum of its node's part, and each rank its own. Commutative operations
/// only.
int reduce_scatter_by_parts(const Reduction& what, const std::vector<MPI_Count>& counts, const UserBuffer& mine) {
    const Call call =
        begin_call(what.layer, what.communicator, CollectiveKind::reduce_scatter, kNoRoot, Partials::numbers(what.op));
    const Nodes& nodes = what.nodes();
    const int me = what.communicator.rank();
    const Parts parts(nodes, counts);
    if (!nodes.is_leader(me)) {
        const int code = what.on_node(nodes.leader_of(me), {});
        return scatter_on_node(call, what.op, parts, {}, mine, code);
    }
    Vector whole;
    Vector by_nodes;
    Vector incoming;
    UserBuffer own;
    const Range range = parts.of_node(nodes.place_of_leader(me));
    CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, whole));
    CRYPTMPI_TRY(Vector::make(what.layer, range.count, what.op.type, incoming));
    if (!parts.sorted()) CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, by_nodes));
    const UserBuffer& sorted = parts.sorted() ? whole.view() : by_nodes.view();
    CRYPTMPI_TRY(what.op.part(sorted, range, own));
    Partials partials(call, what.op, what.on_node(me, whole.view()));
    if (!parts.sorted()) sort_by_nodes(partials, what.op, parts, whole.view(), sorted);
    add_up_parts(call, partials, what.op, parts, sorted, own, incoming.view());
    return scatter_on_node(call, what.op, parts, own, mine, partials.code());
}

/// The whole result at rank 0, and from there to each rank its part.
int reduce_scatter_by_root(const Reduction& what, const std::vector<MPI_Count>& counts, const UserBuffer& mine,
                           bool uniform) {
    Vector whole;
    std::vector<UserBuffer> blocks;
    if (what.communicator.rank() == 0) {
        CRYPTMPI_TRY(Vector::make(what.layer, what.op.count, what.op.type, whole));
        Range range{0, 0};
        for (const MPI_Count count : counts) {
            range = {range.begin + range.count, count};
            CRYPTMPI_TRY(what.op.part(whole.view(), range, blocks.emplace_back()));
        }
    }
    const int code = reduce(what, &whole.view(), 0);
    return scatter(what.layer, what.communicator, blocks, &mine, 0, uniform, code);
}

/// All ranks see the same sizes, and have the same costs.
bool parts_pay(const Reduction& what) {
    return what.commutes() && what.op.extent() > 0 && what.op.count <= INT_MAX &&
           engine::reduce_scatter_by_parts(what.layer.collectives().costs, what.own.size(),
                                           static_cast<std::uint32_t>(what.nodes().all_leaders().size()));
}

template <class Native>
int reduce_scatter(Layer& layer, Communicator& communicator, const void* out, void* in,
                   const std::vector<MPI_Count>& counts, MPI_Datatype type, MPI_Op op, bool uniform, Native native) {
    if (std::any_of(counts.begin(), counts.end(), [](MPI_Count count) { return count < 0; })) return native(layer.mpi);
    const MPI_Count total = std::accumulate(counts.begin(), counts.end(), MPI_Count{0});
    const void* const from = out == MPI_IN_PLACE ? in : out;
    UserBuffer own;
    UserBuffer mine;
    CRYPTMPI_TRY(UserBuffer::make(layer.types(), from, total, type, false, own));
    CRYPTMPI_TRY(
        UserBuffer::make(layer.types(), in, counts[static_cast<std::size_t>(communicator.rank())], type, false, mine));
    if (own.is_wrong() || mine.is_wrong()) return native(layer.mpi);
    CRYPTMPI_TRY(check(layer, communicator.handle(), out, mine, type, op,
                       [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
                           return mpi.Reduce_scatter_block(number, number, many, MPI_INT, MPI_SUM, alone);
                       }));
    const Operator sum{layer, total, type, op};
    const Reduction what{layer, communicator, sum, own, from};
    return parts_pay(what) ? reduce_scatter_by_parts(what, counts, mine)
                           : reduce_scatter_by_root(what, counts, mine, uniform);
}

}  // namespace

int Reduce_scatter_block(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, count, type, op);
    const auto native = CRYPTMPI_NATIVE(Reduce_scatter_block, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const std::vector<MPI_Count> counts(static_cast<std::size_t>(communicator->size()), count);
    return reduce_scatter(layer, *communicator, out, in, counts, type, op, true, native);
}

template <class C>
int Reduce_scatter(Layer& layer, const void* out, void* in, const C* counts, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, 0, type, op);
    const auto native = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Reduce_scatter(out, in, counts, type, op, comm);
        } else {
            return mpi.Reduce_scatter_c(out, in, counts, type, op, comm);
        }
    };
    if (communicator == nullptr || counts == nullptr) return native(layer.mpi);
    const std::vector<MPI_Count> of_ranks(counts, counts + communicator->size());
    return reduce_scatter(layer, *communicator, out, in, of_ranks, type, op, false, native);
}

template int Reduce_scatter(Layer&, const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm);
template int Reduce_scatter(Layer&, const void*, void*, const MPI_Count*, MPI_Datatype, MPI_Op, MPI_Comm);

}  // namespace cryptmpi::comm
