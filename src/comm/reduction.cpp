#include "comm/reduction.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/native_call.hpp"

namespace cryptmpi::comm {

int Vector::make(Layer& layer, MPI_Count count, MPI_Datatype type, Vector& out) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Aint true_lower = 0;
    MPI_Aint true_extent = 0;
    if (int code = layer.mpi.Type_get_extent(type, &lower, &extent); code != MPI_SUCCESS) return code;
    if (int code = layer.mpi.Type_get_true_extent(type, &true_lower, &true_extent); code != MPI_SUCCESS) {
        return code;
    }
    // User operations see whole elements: what lies between the data is set, and what lies before the first of them and
    // after the last is there, too. An element's data may lie anywhere outside of its extent.
    const MPI_Aint widest = std::max<MPI_Aint>(extent, 0);
    const MPI_Aint head = std::clamp<MPI_Aint>(true_lower - lower, 0, widest);
    const MPI_Aint tail = std::clamp<MPI_Aint>(lower + extent - true_lower - true_extent, 0, widest);
    const MPI_Aint element = head + true_extent + tail;
    const MPI_Aint span = count == 0 ? 0 : std::abs(extent) * static_cast<MPI_Aint>(count - 1) + element;
    out.memory_ = layer.buffer(static_cast<std::size_t>(span));
    std::memset(out.memory_.data(), 0, out.memory_.size());
    const MPI_Aint before = head + (extent < 0 ? -extent * static_cast<MPI_Aint>(count - 1) : 0);
    return UserBuffer::make(layer.types(), MPI_COMM_SELF, out.memory_.data() + before - true_lower, count, type, false,
                            out.view_);
}

bool Reduction::commutes() const {
    int flag = 0;
    return layer.mpi.Op_commutative(op.op, &flag) == MPI_SUCCESS && flag != 0;
}

int Reduction::on_node(int to, const UserBuffer& result) const {
    if (nodes().alone()) return copy(layer, own, result);
    const int code = CRYPTMPI_NATIVE(Reduce, op.count, from, result.address(), Count{op.count}, op.type, op.op,
                                     nodes().place_on_node(to), nodes().own())(layer.mpi);
    return layer.pass_on(nodes().own(), communicator.handle(), code);
}

int make_arguments(const Operator& op, MPI_Comm comm, const void* out, void* in, bool has_result, Question ask,
                   ReductionArguments& arguments) {
    Layer& layer = op.layer;
    CRYPTMPI_TRY(check_operation(layer, comm, op.type, op.op));
    const bool in_place = out == MPI_IN_PLACE;
    if (in_place && !has_result) return refuse_in_place(layer, comm);
    arguments.from = in_place ? in : out;
    CRYPTMPI_TRY(make_own(layer, comm, arguments.from, op.count, op.type, false, arguments.own));
    if (has_result) CRYPTMPI_TRY(make_own(layer, comm, in, op.count, op.type, false, arguments.in));
    return check_alias(layer, comm, out, arguments.in, ask);
}

}  // namespace cryptmpi::comm
