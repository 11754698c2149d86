// Intracommunicators: each that MPI makes gets an identity that its members derive alike, from the parent's and from
// how it came to be.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/errors.hpp"
#include "comm/layer.hpp"
#include "comm/meeting.hpp"
#include "comm/members.hpp"
#include "comm/received.hpp"

namespace cryptmpi::comm {
namespace {

/// Zeros where no communicator was made for this rank.
CommunicatorId id_of(Layer& layer, const Communicator& parent, std::string_view how, std::uint64_t call,
                     MPI_Comm made) {
    if (made == MPI_COMM_NULL) return {};
    auto id = layer.keys().derive_id(parent.id(), how, call, world_ranks_of(layer.mpi, made));
    if (!id) layer.end_job(id.error().line);
    return *id;
}

/// Registers what was made of `parent`'s members. One that we did not register, and that leaves the node, ends the job
/// when it is used: a parent that stays on one node makes none. What is made of a session's is the session's, too.
void add(Layer& layer, Communicator* parent, std::string_view how, std::uint64_t call, MPI_Comm made,
         Ours ours = Ours::shared) {
    if (parent == nullptr || made == MPI_COMM_NULL) return;
    const bool inherits = parent->ours() == Ours::its_own;
    layer.add(made, id_of(layer, *parent, how, call, made), inherits ? Ours::its_own : ours);
}

/// Where several threads of a rank call MPI, the communicator of our own traffic is made together with the user's:
/// later, it would be by threads at the same time, which Open MPI does not always survive (they wait for each other in
/// ompi_comm_nextcid), and the program may have taken care not to do that.
void prepare_for_threads(Layer& layer, MPI_Comm made) {
    if (made == MPI_COMM_NULL) return;
    std::shared_ptr<Communicator> communicator;
    {
        const auto guard = layer.guard();
        communicator = layer.share(made);
    }
    if (!communicator || communicator->ours() == Ours::shared) return;
    if (communicator->crosses()) nodes_of(layer, *communicator);
}

/// Null where nothing is ours to seal.
std::shared_ptr<Communicator> parent_of(Layer& layer, MPI_Comm comm) {
    const auto guard = layer.guard();
    return layer.find(comm) == nullptr ? nullptr : layer.share(comm);
}

/// A parent, and which of the constructor calls on it this is. All members call them in the same order.
struct Turn {
    std::shared_ptr<Communicator> parent;
    std::uint64_t call = 0;
};

Turn take_turn(Layer& layer, std::shared_ptr<Communicator> parent) {
    const auto guard = layer.guard();
    const std::uint64_t call = parent->next_construction();
    return {std::move(parent), call};
}

/// What can be known of a new communicator's members before MPI makes it.
struct Asked {
    /// In this order, unless `reordered`; none: only MPI knows. This rank may not be one.
    std::optional<std::vector<int>> members;  // ranks of MPI_COMM_WORLD
    bool reordered = false;                   // as MPI likes
    /// A call that MPI refuses is one of all members, too. Else MPI may have refused it on this rank alone, before the
    /// ranks met, and the others know of no such call.
    bool of_all_if_refused = false;
    /// A rank that would be its only member may get none, as MPICH 4.0 gives to all but the first.
    bool none_if_alone = false;

    bool has(int world_rank) const {
        return !members || std::find(members->begin(), members->end(), world_rank) != members->end();
    }
};

/// What MPI gave for a new communicator.
struct Given {
    int code = MPI_SUCCESS;
    MPI_Comm made = MPI_COMM_NULL;
    bool written = false;  // by MPI, at all

    /// Where the program has heard of an error, MPI's code may not tell, but a member without a communicator does.
    bool failed(Layer& layer, MPI_Comm comm, bool is_member) const {
        if (code != MPI_SUCCESS) return true;
        if (made != MPI_COMM_NULL || (written && !is_member)) return false;
        return hides_told_errors(layer.mpi, comm) && forgets_told_errors(layer);
    }
};

/// The program's handle is as MPI leaves it. It may be the parent's, too.
template <class Make>
Given make_natively(const Native& mpi, MPI_Comm* made, Make make) {
    MPI_Comm handle = MPI_COMM_WORLD;  // which no procedure makes
    const int code = make(mpi, &handle);
    if (handle == MPI_COMM_WORLD) return {code};
    *made = handle;
    return {code, code == MPI_SUCCESS ? handle : MPI_COMM_NULL, true};
}

bool same_but_for_order(std::vector<int> one, std::vector<int> other) {
    std::sort(one.begin(), one.end());
    std::sort(other.begin(), other.end());
    return one == other;
}

// protocol: M17
/// Have all members been given the same communicator, with the same members in the same order? By all members of the
/// parent; `id` tells all of that, zeros are no communicator.
bool members_agree(Layer& layer, Communicator& parent, const CommunicatorId& id, MPI_Comm made) {
    const auto answers = tell_all(layer, parent, id);
    if (made == MPI_COMM_NULL) return true;
    const auto& world = parent.world_ranks();
    for (const int member : world_ranks_of(layer.mpi, made)) {
        const auto found = std::find(world.begin(), world.end(), member);
        if (found == world.end()) return false;
        const auto said = answers.begin() + (found - world.begin()) * static_cast<std::ptrdiff_t>(id.size());
        if (!std::equal(id.begin(), id.end(), said)) return false;
    }
    return true;
}

/// Ends the job if the new communicator is not what was asked for. If it `failed`, the other members may have one.
void check(Layer& layer, const Turn& turn, const Asked& asked, const char* by_what, MPI_Comm made, bool failed) {
    if (asked.reordered) {
        const auto id = id_of(layer, *turn.parent, "made", turn.call, made);
        if (!members_agree(layer, *turn.parent, id, made)) end_for_other_members(layer, by_what);
    }
    if (failed || !asked.members) return;
    const std::vector<int>& members = *asked.members;
    const bool is_member = asked.has(layer.world_rank());
    if (asked.none_if_alone && made == MPI_COMM_NULL && members.size() == 1) return;
    if (is_member != (made != MPI_COMM_NULL)) end_for_other_members(layer, by_what);
    if (!is_member) return;
    const std::vector<int> given = world_ranks_of(layer.mpi, made);
    if (asked.reordered ? !same_but_for_order(given, members) : given != members) end_for_other_members(layer, by_what);
}

/// `ask(parent)` says what is Asked; nothing: MPI refuses it on this rank, whatever the others do. If it does not, the
/// communicator is one that we did not register.
template <class Ask, class Make>
int construct(Layer& layer, const char* by_what, MPI_Comm comm, MPI_Comm* made, Ask ask, Make make) {
    const std::shared_ptr<Communicator> parent = parent_of(layer, comm);
    if (parent == nullptr || made == nullptr) return make(layer.mpi, made);
    const std::optional<Asked> asked = ask(*parent);
    if (!asked) return make(layer.mpi, made);
    const Given given = make_natively(layer.mpi, made, make);
    const bool failed = given.failed(layer, comm, asked->has(layer.world_rank()));
    if (failed && !asked->of_all_if_refused) return given.code;
    const Turn turn = take_turn(layer, parent);
    check(layer, turn, *asked, by_what, given.made, failed);
    add(layer, parent.get(), "made", turn.call, given.made);
    prepare_for_threads(layer, given.made);
    return given.code;
}

/// A function of the program's that copies an attribute may fail on some of them.
Asked all_members(const Communicator& parent) {
    return {parent.world_ranks(), false, true};
}

/// Nothing is known of an invalid one: MPI says so.
Asked members_of(Layer& layer, MPI_Group group) {
    if (group == MPI_GROUP_NULL) return {};
    return {world_ranks(layer.mpi, group)};
}

/// The first so many, all of the others get none. More than there are MPI refuses.
std::optional<Asked> first_members(const Communicator& parent, std::int64_t how_many, int reorder) {
    const auto& world = parent.world_ranks();
    if (how_many > static_cast<std::int64_t>(world.size())) return std::nullopt;
    const auto end = world.begin() + std::max<std::int64_t>(how_many, 0);
    return Asked{std::vector<int>(world.begin(), end), reorder != 0, reorder != 0};
}

/// Does MPI refuse the arguments of `make(mpi, comm, made)` on any communicator? It is asked on that of this rank
/// alone.
template <class Make>
bool refuses(Layer& layer, Make make) {
    const std::lock_guard hold(layer.answers().lock);
    if (layer.alone() == MPI_COMM_NULL) return false;
    MPI_Comm made = MPI_COMM_NULL;
    if (make(layer.mpi, layer.alone(), &made) != MPI_SUCCESS) return true;
    if (made != MPI_COMM_NULL) layer.mpi.Comm_free(&made);
    return false;
}

std::optional<Asked> as_mpi_decides(Layer& layer, int type, MPI_Info info) {
    const bool is_usual = type == MPI_COMM_TYPE_SHARED || type == MPI_UNDEFINED;
    const auto ask = [&](auto& mpi, MPI_Comm comm, MPI_Comm* made) {
        return mpi.Comm_split_type(comm, type, 0, info, made);
    };
    if (!is_usual && refuses(layer, ask)) return std::nullopt;
    return Asked{std::nullopt, true, true};
}

/// MPI may write the handle only when the request ends. One that it has written by now is kept: Open MPI's Fortran
/// procedures give a variable of their own, which is gone by then.
template <class Make>
int construct_later(Layer& layer, const char* by_what, MPI_Comm comm, MPI_Comm* made, MPI_Request* request, Make make) {
    const std::shared_ptr<Communicator> parent = parent_of(layer, comm);
    if (made == nullptr || request == nullptr || parent == nullptr) return make(layer.mpi);
    const Turn turn = take_turn(layer, parent);
    const bool hides_errors = hides_told_errors(layer.mpi, comm);
    const auto guard = layer.guard();
    *made = MPI_COMM_NULL;
    *request = MPI_REQUEST_NULL;
    const int code = make(layer.mpi);
    if (code != MPI_SUCCESS || *request == MPI_REQUEST_NULL) return code;
    auto operation = std::make_unique<Operation>();
    operation->kind = Operation::Kind::construct;
    operation->communicator = parent;
    operation->at_end = [&layer, turn, made, written = *made, by_what, hides_errors] {
        const MPI_Comm ready = written != MPI_COMM_NULL ? written : *made;
        const bool failed = ready == MPI_COMM_NULL && hides_errors && forgets_told_errors(layer);
        check(layer, turn, all_members(*turn.parent), by_what, ready, failed);
        add(layer, turn.parent.get(), "made", turn.call, ready);
    };
    layer.requests().add(*request, std::move(operation));
    return code;
}

/// Of a group whose members alone call this: they count among themselves.
template <class Make>
int construct_of_group(Layer& layer, const char* by_what, MPI_Comm comm, MPI_Group group, const std::string& how,
                       Ours ours, MPI_Comm* made, Make make) {
    const std::shared_ptr<Communicator> parent = parent_of(layer, comm);
    if (parent == nullptr || made == nullptr) return make(layer.mpi, made);
    const Given given = make_natively(layer.mpi, made, make);
    const Asked asked = members_of(layer, group);
    if (given.failed(layer, comm, asked.has(layer.world_rank())) || !asked.members) return given.code;
    check(layer, {parent, 0}, asked, by_what, given.made, false);
    if (given.made == MPI_COMM_NULL) return given.code;
    {
        const auto guard = layer.guard();
        const std::uint64_t call = parent->next_of_group(*asked.members, how);
        add(layer, parent.get(), how, call, given.made, ours);
    }
    prepare_for_threads(layer, given.made);
    return given.code;
}

/// Those who gave this rank's color, by key and then by rank. Each tells the others of both, since MPI's own exchange
/// of them is in clear.
std::optional<Asked> members_of_color(Layer& layer, Communicator& parent, int color, int key) {
    const auto ask = [&](auto& mpi, MPI_Comm comm, MPI_Comm* made) { return mpi.Comm_split(comm, color, key, made); };
    if (color < 0 && color != MPI_UNDEFINED && refuses(layer, ask)) return std::nullopt;
    struct Choice {
        std::int32_t color;
        std::int32_t key;
    };
    const Choice mine{color, key};
    std::array<std::uint8_t, sizeof mine> bytes;
    std::memcpy(bytes.data(), &mine, sizeof mine);
    const auto answers = tell_all(layer, parent, bytes);
    if (color == MPI_UNDEFINED) return Asked{std::vector<int>(), false, true};
    std::vector<std::pair<int, int>> chosen;  // key, rank
    for (int rank = 0; rank < parent.size(); ++rank) {
        Choice choice{};
        std::memcpy(&choice, answers.data() + static_cast<std::size_t>(rank) * sizeof choice, sizeof choice);
        if (choice.color == color) chosen.emplace_back(choice.key, rank);
    }
    std::sort(chosen.begin(), chosen.end());
    std::vector<int> members;
    for (const auto& [at, rank] : chosen) members.push_back(parent.world_ranks()[static_cast<std::size_t>(rank)]);
    return Asked{members, false, true};
}

/// Of a grid.
std::int64_t places_of(int dimensions, const int sizes[]) {
    std::int64_t places = 1;
    if (dimensions > 0 && sizes == nullptr) return INT_MAX;  // which no communicator has
    for (int i = 0; i < dimensions && places <= INT_MAX; ++i) places *= std::max(sizes[i], 0);
    return places;
}

bool any_is_negative(int count, const int numbers[]) {
    return count > 0 && numbers != nullptr && *std::min_element(numbers, numbers + count) < 0;
}

/// Of a graph that each member tells its own part of.
std::optional<Asked> all_neighbors(const Communicator& parent, bool refused, int reorder) {
    return refused ? std::nullopt : first_members(parent, parent.size(), reorder);
}

/// Those of a grid that have this rank's place in the dimensions that do not remain. Ranks count the places row by row.
Asked members_of_slice(Layer& layer, const Communicator& parent, const int remain[]) {
    const auto& mpi = layer.mpi;
    int kind = MPI_UNDEFINED;
    int dimensions = 0;
    if (remain == nullptr || mpi.Topo_test(parent.handle(), &kind) != MPI_SUCCESS || kind != MPI_CART ||
        mpi.Cartdim_get(parent.handle(), &dimensions) != MPI_SUCCESS) {
        return {std::nullopt};  // MPI says that it is no grid
    }
    std::vector<int> sizes(static_cast<std::size_t>(dimensions));
    std::vector<int> periods(sizes.size());
    std::vector<int> own(sizes.size());
    mpi.Cart_get(parent.handle(), dimensions, sizes.data(), periods.data(), own.data());
    std::vector<int> members;
    for (int rank = 0; rank < parent.size(); ++rank) {
        bool fits = true;
        for (int left = rank, i = dimensions - 1; i >= 0; --i) {
            const auto at = static_cast<std::size_t>(i);
            fits = fits && (remain[i] != 0 || left % sizes[at] == own[at]);
            left /= sizes[at];
        }
        if (fits) members.push_back(parent.world_ranks()[static_cast<std::size_t>(rank)]);
    }
    return {members, false, false, true};
}

/// Why there are no keys for a communicator of this group; empty where there are: MPI_COMM_WORLD has them.
std::string unsealable(const Layer& layer, MPI_Group group) {
    if (!layer.begun()) {
        return "there is no MPI_COMM_WORLD, whose processes agree on the keys; call MPI_Init, or use the channel layer "
               "(--layer channel)";
    }
    if (!layer.lets_sessions_in()) {
        return "a session of MPI_THREAD_MULTIPLE came in another thread than the one that called MPI_Init, which takes "
               "no locks; begin it in that one, or call MPI_Init_thread for MPI_THREAD_MULTIPLE";
    }
    const std::vector<int> ranks = world_ranks(layer.mpi, group);
    if (std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED) == ranks.end()) return {};
    return "a process of its group is not in MPI_COMM_WORLD, and has no keys";
}

}  // namespace

int Comm_dup(Layer& layer, MPI_Comm comm, MPI_Comm* made) {
    return construct(layer, "MPI_Comm_dup", comm, made, all_members,
                     [&](auto& mpi, MPI_Comm* out) { return mpi.Comm_dup(comm, out); });
}

int Comm_dup_with_info(Layer& layer, MPI_Comm comm, MPI_Info info, MPI_Comm* made) {
    return construct(layer, "MPI_Comm_dup_with_info", comm, made, all_members,
                     [&](auto& mpi, MPI_Comm* out) { return mpi.Comm_dup_with_info(comm, info, out); });
}

int Comm_idup(Layer& layer, MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
    return construct_later(layer, "MPI_Comm_idup", comm, made, request,
                           [&](auto& mpi) { return mpi.Comm_idup(comm, made, request); });
}

int Comm_idup_with_info(Layer& layer, MPI_Comm comm, MPI_Info info, MPI_Comm* made, MPI_Request* request) {
    return construct_later(layer, "MPI_Comm_idup_with_info", comm, made, request,
                           [&](auto& mpi) { return mpi.Comm_idup_with_info(comm, info, made, request); });
}

int Comm_create(Layer& layer, MPI_Comm comm, MPI_Group group, MPI_Comm* made) {
    return construct(
        layer, "MPI_Comm_create", comm, made, [&](const Communicator&) { return members_of(layer, group); },
        [&](auto& mpi, MPI_Comm* out) { return mpi.Comm_create(comm, group, out); });
}

int Comm_create_group(Layer& layer, MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
    return construct_of_group(layer, "MPI_Comm_create_group", comm, group,
                              fmt::format("made of a group with tag {}", tag), Ours::shared, made,
                              [&](auto& mpi, MPI_Comm* out) { return mpi.Comm_create_group(comm, group, tag, out); });
}

int Comm_create_from_group(Layer& layer, MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler handler,
                           MPI_Comm* made) {
    if (layer.begun() && (group == MPI_GROUP_NULL || tag == nullptr || made == nullptr)) {
        return layer.mpi.Comm_create_from_group(group, tag, info, handler, made);  // which says what is wrong with it
    }
    if (const std::string reason = unsealable(layer, group); !reason.empty()) {
        if (made != nullptr) *made = MPI_COMM_NULL;
        layer.complain_of_refused("MPI_Comm_create_from_group", reason);
        return layer.begun() ? raise_on_world(layer, layer.refused_code()) : layer.refused_code();
    }
    return construct_of_group(
        layer, "MPI_Comm_create_from_group", MPI_COMM_WORLD, group,
        "made of a group alone with tag " + std::string(tag), Ours::its_own, made,
        [&](auto& mpi, MPI_Comm* out) { return mpi.Comm_create_from_group(group, tag, info, handler, out); });
}

int Comm_split(Layer& layer, MPI_Comm comm, int color, int key, MPI_Comm* made) {
    return construct(
        layer, "MPI_Comm_split", comm, made,
        [&](Communicator& parent) { return members_of_color(layer, parent, color, key); },
        [&](auto& mpi, MPI_Comm* out) { return mpi.Comm_split(comm, color, key, out); });
}

int Comm_split_type(Layer& layer, MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
    return construct(
        layer, "MPI_Comm_split_type", comm, made,
        [&](const Communicator&) { return as_mpi_decides(layer, type, info); },
        [&](auto& mpi, MPI_Comm* out) { return mpi.Comm_split_type(comm, type, key, info, out); });
}

int Cart_create(Layer& layer, MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder,
                MPI_Comm* made) {
    const auto ask = [&](const Communicator& parent) {
        return first_members(parent, places_of(dimensions, sizes), reorder);
    };
    return construct(layer, "MPI_Cart_create", comm, made, ask, [&](auto& mpi, MPI_Comm* out) {
        return mpi.Cart_create(comm, dimensions, sizes, periods, reorder, out);
    });
}

int Cart_sub(Layer& layer, MPI_Comm comm, const int remain[], MPI_Comm* made) {
    const auto ask = [&](const Communicator& parent) { return members_of_slice(layer, parent, remain); };
    return construct(layer, "MPI_Cart_sub", comm, made, ask,
                     [&](auto& mpi, MPI_Comm* out) { return mpi.Cart_sub(comm, remain, out); });
}

int Graph_create(Layer& layer, MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,
                 MPI_Comm* made) {
    const auto ask = [&](const Communicator& parent) { return first_members(parent, nodes, reorder); };
    return construct(layer, "MPI_Graph_create", comm, made, ask, [&](auto& mpi, MPI_Comm* out) {
        return mpi.Graph_create(comm, nodes, index, edges, reorder, out);
    });
}

int Dist_graph_create(Layer& layer, MPI_Comm comm, int count, const int sources[], const int degrees[],
                      const int destinations[], const int weights[], MPI_Info info, int reorder, MPI_Comm* made) {
    const bool refused = count < 0 || any_is_negative(count, degrees);
    const auto ask = [&](const Communicator& parent) { return all_neighbors(parent, refused, reorder); };
    return construct(layer, "MPI_Dist_graph_create", comm, made, ask, [&](auto& mpi, MPI_Comm* out) {
        return mpi.Dist_graph_create(comm, count, sources, degrees, destinations, weights, info, reorder, out);
    });
}

int Dist_graph_create_adjacent(Layer& layer, MPI_Comm comm, int in_degree, const int sources[], const int in_weights[],
                               int out_degree, const int destinations[], const int out_weights[], MPI_Info info,
                               int reorder, MPI_Comm* made) {
    const bool refused = in_degree < 0 || out_degree < 0;
    const auto ask = [&](const Communicator& parent) { return all_neighbors(parent, refused, reorder); };
    return construct(layer, "MPI_Dist_graph_create_adjacent", comm, made, ask, [&](auto& mpi, MPI_Comm* out) {
        return mpi.Dist_graph_create_adjacent(comm, in_degree, sources, in_weights, out_degree, destinations,
                                              out_weights, info, reorder, out);
    });
}

namespace {

template <class End>
int end(Layer& layer, MPI_Comm* comm, End end_natively) {
    if (comm == nullptr) return end_natively(layer.mpi);
    const MPI_Comm handle = *comm;
    // MPI refuses it, and the other members do not know: what is ours of these is needed on.
    if (handle == MPI_COMM_WORLD || handle == MPI_COMM_SELF) return end_natively(layer.mpi);
    std::shared_ptr<Communicator> communicator;
    {
        const auto guard = layer.guard();
        communicator = layer.share(handle);
        if (communicator) communicator->free_own_traffic(layer.mpi);
    }
    const int code = end_natively(layer.mpi);
    if (code != MPI_SUCCESS) return code;
    if (communicator) {
        // Functions of the program that delete attributes may have used it until now.
        const auto guard = layer.guard();
        communicator->free_own_traffic(layer.mpi);
    }
    layer.forget(handle, communicator);
    return code;
}

}  // namespace

int Comm_free(Layer& layer, MPI_Comm* comm) {
    return end(layer, comm, [&](auto& mpi) { return mpi.Comm_free(comm); });
}

int Comm_disconnect(Layer& layer, MPI_Comm* comm) {
    return end(layer, comm, [&](auto& mpi) { return mpi.Comm_disconnect(comm); });
}

int Type_free(Layer& layer, MPI_Datatype* type) {
    if (type == nullptr) return layer.mpi.Type_free(type);
    const MPI_Datatype handle = *type;
    layer.types().forget(handle);
    const int code = layer.mpi.Type_free(type);
    // Functions of the program that delete attributes may have used it until now.
    layer.types().forget(handle);
    return code;
}

}  // namespace cryptmpi::comm
