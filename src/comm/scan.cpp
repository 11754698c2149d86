// MPI_Scan and MPI_Exscan.
#include <utility>

#include "comm/calls.hpp"
#include "comm/native_call.hpp"
#include "comm/reduction.hpp"

namespace cryptmpi::comm {
namespace {

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

}  // namespace

int Scan(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Scan, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const Operator sum{layer, count, type, op};
    ReductionArguments arguments;
    const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
        return mpi.Scan(number, number, many, MPI_INT, MPI_SUM, alone);
    };
    const int code = make_arguments(sum, comm, out, in, true, ask, arguments);
    if (code != MPI_SUCCESS) return code;
    return scan(layer, *communicator, arguments.own, arguments.in, sum, false);
}

int Exscan(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Exscan, count, out, in, Count{count}, type, op, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const Operator sum{layer, count, type, op};
    ReductionArguments arguments;
    const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
        return mpi.Exscan(number, number, many, MPI_INT, MPI_SUM, alone);
    };
    const bool has_result = communicator->rank() != 0 || in != nullptr;  // rank 0 gets nothing
    const int code = make_arguments(sum, comm, out, in, has_result, ask, arguments);
    if (code != MPI_SUCCESS) return code;
    return scan(layer, *communicator, arguments.own, arguments.in, sum, true);
}

}  // namespace cryptmpi::comm
