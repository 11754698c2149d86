// MPI_Allreduce: on each node first, then among the first ranks of the nodes, in one of three ways.
#include <climits>
#include <utility>
#include <vector>

#include "comm/bcast.hpp"
#include "comm/calls.hpp"
#include "comm/meeting.hpp"
#include "comm/native_call.hpp"
#include "comm/reduce.hpp"
#include "engine/collectives.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// The sum of what all leaders have, on all of them. By doubling and by halves, they are a power of two, but for the
/// first ones, which come in pairs: one of two gives the other what it has, and gets the result. Commutative operations
/// only.
class AmongLeaders {
public:
    /// `call` has numbers for two vectors: between two leaders, each way, there are two at most.
    AmongLeaders(const Call& call, const Operator& op, Partials& partials)
        : call_(call), op_(op), partials_(partials), leaders_(nodes_of(call.layer, call.communicator).all_leaders()) {
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
    const Nodes& nodes() const { return nodes_of(call_.layer, call_.communicator); }
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

}  // namespace

int Allreduce(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Allreduce, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    if (in == MPI_IN_PLACE) return raise_on_comm(layer, comm, MPI_ERR_BUFFER);  // Open MPI too, of this one alone
    const Operator sum{layer, count, type, op};
    ReductionArguments arguments;
    const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
        return mpi.Allreduce(number, number, many, MPI_INT, MPI_SUM, alone);
    };
    const int code = make_arguments(sum, comm, out, in, true, ask, arguments);
    if (code != MPI_SUCCESS) return code;
    return allreduce({layer, *communicator, sum, arguments.own, arguments.from}, arguments.in);
}

}  // namespace cryptmpi::comm
