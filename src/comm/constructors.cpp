// Intracommunicators: each that MPI makes gets an identity that its members derive alike, from the parent's and from
// how it came to be.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/layer.hpp"

namespace cryptmpi::comm {
namespace {

std::vector<int> world_ranks(const interpose::Native& mpi, MPI_Group group) {
    MPI_Group world = MPI_GROUP_NULL;
    mpi.Comm_group(MPI_COMM_WORLD, &world);
    int size = 0;
    mpi.Group_size(group, &size);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) ranks[static_cast<std::size_t>(i)] = i;
    std::vector<int> result(ranks.size());
    mpi.Group_translate_ranks(group, size, ranks.data(), world, result.data());
    mpi.Group_free(&world);
    return result;
}

std::vector<int> world_ranks_of(const interpose::Native& mpi, MPI_Comm comm) {
    MPI_Group group = MPI_GROUP_NULL;
    mpi.Comm_group(comm, &group);
    auto result = world_ranks(mpi, group);
    mpi.Group_free(&group);
    return result;
}

/// Registers what was made of `parent`'s members. A parent that stays on one node makes none that leaves it.
void add(Layer& layer, Communicator* parent, std::string_view how, std::uint64_t call, MPI_Comm made) {
    if (parent == nullptr || made == MPI_COMM_NULL) return;
    auto id = layer.derive_id(parent->id(), how, call, world_ranks_of(layer.mpi, made));
    if (!id) layer.end_job(id.error().line);
    layer.add(made, *id);
}

/// Where several threads of a rank call MPI, the communicator of our own traffic is made together with the user's:
/// later, it would be by threads at the same time, which Open MPI does not always survive (they wait for each other in
/// ompi_comm_nextcid), and the program may have taken care not to do that.
void prepare_for_threads(Layer& layer, MPI_Comm made) {
    if (!layer.threads_somewhere() || made == MPI_COMM_NULL) return;
    std::shared_ptr<Communicator> communicator;
    {
        const auto guard = layer.guard();
        communicator = layer.share(made);
    }
    if (communicator) communicator->nodes(layer.mpi);
}

/// A parent, and which of the constructor calls on it this is. All members call them in the same order.
struct Turn {
    std::shared_ptr<Communicator> parent;
    std::uint64_t call = 0;
};

Turn take_turn(Layer& layer, MPI_Comm comm) {
    const auto guard = layer.guard();
    if (layer.find(comm) == nullptr) return {};
    Turn turn{layer.share(comm), 0};
    turn.call = turn.parent->next_construction();
    return turn;
}

template <class Make>
int construct(MPI_Comm comm, MPI_Comm* made, Make make) {
    Layer& layer = Layer::get();
    const Turn turn = take_turn(layer, comm);
    const int code = make(layer.mpi);
    if (code != MPI_SUCCESS) return code;
    add(layer, turn.parent.get(), "made", turn.call, *made);
    prepare_for_threads(layer, *made);
    return code;
}

/// MPI may write the handle only when the request ends. One that it has written by now is kept: Open MPI's Fortran
/// procedures give a variable of their own, which is gone by then.
template <class Make>
int construct_later(MPI_Comm comm, MPI_Comm* made, MPI_Request* request, Make make) {
    Layer& layer = Layer::get();
    const Turn turn = take_turn(layer, comm);
    const auto guard = layer.guard();
    *made = MPI_COMM_NULL;
    const int code = make(layer.mpi);
    if (code != MPI_SUCCESS || turn.parent == nullptr) return code;
    auto operation = std::make_unique<Operation>();
    operation->kind = Operation::Kind::construct;
    operation->communicator = turn.parent;
    operation->at_end = [&layer, turn, made, written = *made] {
        add(layer, turn.parent.get(), "made", turn.call, written != MPI_COMM_NULL ? written : *made);
    };
    layer.requests().add(*request, std::move(operation));
    return code;
}

/// Of a group whose members alone call this: they count among themselves.
template <class Make>
int construct_of_group(MPI_Comm comm, MPI_Group group, const std::string& how, MPI_Comm* made, Make make) {
    Layer& layer = Layer::get();
    std::shared_ptr<Communicator> parent;
    {
        const auto guard = layer.guard();
        if (layer.find(comm) != nullptr) parent = layer.share(comm);
    }
    const int code = make(layer.mpi);
    if (code != MPI_SUCCESS || parent == nullptr || *made == MPI_COMM_NULL) return code;
    {
        const auto guard = layer.guard();
        const std::uint64_t call = parent->next_of_group(world_ranks(layer.mpi, group), how);
        add(layer, parent.get(), how, call, *made);
    }
    prepare_for_threads(layer, *made);
    return code;
}

/// Why there are no keys for a communicator of this group; empty where there are: MPI_COMM_WORLD has them.
std::string unsealable(const Layer& layer, MPI_Group group) {
    if (!layer.begun()) {
        return "there is no MPI_COMM_WORLD, whose processes agree on the keys; call MPI_Init, or use the channel layer "
               "(--layer channel)";
    }
    const std::vector<int> ranks = world_ranks(layer.mpi, group);
    if (std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED) == ranks.end()) return {};
    return "a process of its group is not in MPI_COMM_WORLD, and has no keys";
}

}  // namespace

int Comm_dup(MPI_Comm comm, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) { return mpi.Comm_dup(comm, made); });
}

int Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) { return mpi.Comm_dup_with_info(comm, info, made); });
}

int Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
    return construct_later(comm, made, request, [&](auto& mpi) { return mpi.Comm_idup(comm, made, request); });
}

int Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* made, MPI_Request* request) {
    return construct_later(comm, made, request,
                           [&](auto& mpi) { return mpi.Comm_idup_with_info(comm, info, made, request); });
}

int Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) { return mpi.Comm_create(comm, group, made); });
}

int Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
    return construct_of_group(comm, group, "made of a group with tag " + std::to_string(tag), made,
                              [&](auto& mpi) { return mpi.Comm_create_group(comm, group, tag, made); });
}

int Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler handler, MPI_Comm* made) {
    Layer& layer = Layer::get();
    if (const std::string reason = unsealable(layer, group); !reason.empty()) {
        *made = MPI_COMM_NULL;
        layer.complain_of_refused("MPI_Comm_create_from_group", reason);
        return layer.begun() ? raise_on_world(layer, layer.refused_code()) : layer.refused_code();
    }
    return construct_of_group(MPI_COMM_WORLD, group, "made of a group alone with tag " + std::string(tag), made,
                              [&](auto& mpi) { return mpi.Comm_create_from_group(group, tag, info, handler, made); });
}

int Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) { return mpi.Comm_split(comm, color, key, made); });
}

int Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) { return mpi.Comm_split_type(comm, type, key, info, made); });
}

int Cart_create(MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder, MPI_Comm* made) {
    return construct(comm, made,
                     [&](auto& mpi) { return mpi.Cart_create(comm, dimensions, sizes, periods, reorder, made); });
}

int Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) { return mpi.Cart_sub(comm, remain, made); });
}

int Graph_create(MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) { return mpi.Graph_create(comm, nodes, index, edges, reorder, made); });
}

int Dist_graph_create(MPI_Comm comm, int count, const int sources[], const int degrees[], const int destinations[],
                      const int weights[], MPI_Info info, int reorder, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) {
        return mpi.Dist_graph_create(comm, count, sources, degrees, destinations, weights, info, reorder, made);
    });
}

int Dist_graph_create_adjacent(MPI_Comm comm, int in_degree, const int sources[], const int in_weights[],
                               int out_degree, const int destinations[], const int out_weights[], MPI_Info info,
                               int reorder, MPI_Comm* made) {
    return construct(comm, made, [&](auto& mpi) {
        return mpi.Dist_graph_create_adjacent(comm, in_degree, sources, in_weights, out_degree, destinations,
                                              out_weights, info, reorder, made);
    });
}

namespace {

template <class End>
int end(MPI_Comm* comm, End end_natively) {
    Layer& layer = Layer::get();
    const MPI_Comm handle = *comm;
    std::shared_ptr<Communicator> communicator;
    {
        const auto guard = layer.guard();
        communicator = layer.share(handle);
        if (communicator) communicator->free_own_traffic(layer.mpi);
    }
    const int code = end_natively(layer.mpi);
    if (code == MPI_SUCCESS) layer.forget(handle, communicator);
    return code;
}

}  // namespace

int Comm_free(MPI_Comm* comm) {
    return end(comm, [&](auto& mpi) { return mpi.Comm_free(comm); });
}

int Comm_disconnect(MPI_Comm* comm) {
    return end(comm, [&](auto& mpi) { return mpi.Comm_disconnect(comm); });
}

int Type_free(MPI_Datatype* type) {
    Layer& layer = Layer::get();
    if (type != nullptr) layer.types().forget(*type);
    return layer.mpi.Type_free(type);
}

}  // namespace cryptmpi::comm
