// MPI_Reduce: partial results travel along a tree.
#include "comm/reduce.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/calls.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

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

}  // namespace

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

int Reduce(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm, root);
    const auto native = CRYPTMPI_NATIVE(Reduce, count, out, in, Count{count}, type, op, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const bool is_root = communicator->rank() == root;
    const Operator sum{layer, count, type, op};
    ReductionArguments arguments;
    const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
        return mpi.Reduce(number, number, many, MPI_INT, MPI_SUM, 0, alone);
    };
    const int code = make_arguments(sum, comm, out, in, is_root, ask, arguments);
    if (code != MPI_SUCCESS) return code;
    return reduce({layer, *communicator, sum, arguments.own, arguments.from}, &arguments.in, root);
}

}  // namespace cryptmpi::comm
