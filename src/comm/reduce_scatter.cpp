// MPI_Reduce_scatter and MPI_Reduce_scatter_block: each node's part of the sum is made on it, or all of it at one rank.
#include <algorithm>
#include <climits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "comm/calls.hpp"
#include "comm/meeting.hpp"
#include "comm/native_call.hpp"
#include "comm/reduce.hpp"
#include "comm/scatter.hpp"
#include "engine/collectives.hpp"

namespace cryptmpi::comm {
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
    const Nodes& nodes = nodes_of(call.layer, call.communicator);
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
    const Nodes& nodes = nodes_of(call.layer, call.communicator);
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

int reduce_scatter(Layer& layer, Communicator& communicator, const void* out, void* in,
                   const std::vector<MPI_Count>& counts, MPI_Datatype type, MPI_Op op, bool uniform) {
    const MPI_Comm comm = communicator.handle();
    const MPI_Count least = *std::min_element(counts.begin(), counts.end());
    if (least < 0) return say_what_is_wrong(layer, comm, out, least, type);
    CRYPTMPI_TRY(check_operation(layer, comm, type, op));
    const MPI_Count total = std::accumulate(counts.begin(), counts.end(), MPI_Count{0});
    const void* const from = out == MPI_IN_PLACE ? in : out;
    UserBuffer own;
    UserBuffer mine;
    CRYPTMPI_TRY(make_own(layer, comm, from, total, type, false, own));
    CRYPTMPI_TRY(make_own(layer, comm, in, counts[static_cast<std::size_t>(communicator.rank())], type, false, mine));
    CRYPTMPI_TRY(check_alias(layer, comm, out, mine, [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
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
    Communicator* communicator = find_sealed(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Reduce_scatter_block, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const std::vector<MPI_Count> counts(static_cast<std::size_t>(communicator->size()), count);
    return reduce_scatter(layer, *communicator, out, in, counts, type, op, true);
}

template <class C>
int Reduce_scatter(Layer& layer, const void* out, void* in, const C* counts, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm);
    const auto native = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Reduce_scatter(out, in, counts, type, op, comm);
        } else {
            return mpi.Reduce_scatter_c(out, in, counts, type, op, comm);
        }
    };
    if (communicator == nullptr) return native(layer.mpi);
    if (counts == nullptr) return raise_on_comm(layer, comm, MPI_ERR_COUNT);  // as Open MPI tells it; others crash
    const std::vector<MPI_Count> of_ranks(counts, counts + communicator->size());
    return reduce_scatter(layer, *communicator, out, in, of_ranks, type, op, false);
}

template int Reduce_scatter(Layer&, const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm);
template int Reduce_scatter(Layer&, const void*, void*, const MPI_Count*, MPI_Datatype, MPI_Op, MPI_Comm);

}  // namespace cryptmpi::comm
