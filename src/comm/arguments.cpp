#include "comm/arguments.hpp"

#include <utility>

#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

bool is_predefined(MPI_Op op) {
    for (const MPI_Op one : {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR,
                             MPI_BXOR, MPI_MAXLOC, MPI_MINLOC, MPI_REPLACE, MPI_NO_OP}) {
        if (op == one) return true;
    }
    return false;
}

}  // namespace

int say_what_is_wrong(Layer& layer, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type) {
    const int code = CRYPTMPI_NATIVE(Send, count, at, Count{count}, type, MPI_PROC_NULL, 0, layer.quiet())(layer.mpi);
    if (code != MPI_SUCCESS) return raise_class_on_comm(layer, comm, code);
    if (count == 0) return MPI_SUCCESS;
    if (count < 0) return raise_on_comm(layer, comm, MPI_ERR_COUNT);
    return raise_on_comm(layer, comm, type == MPI_DATATYPE_NULL ? MPI_ERR_TYPE : MPI_ERR_BUFFER);
}

int refuse_tag(Layer& layer, MPI_Comm comm) {
    return raise_on_comm(layer, comm, MPI_ERR_TAG);
}

int refuse_in_place(Layer& layer, MPI_Comm comm) {
#ifdef OPEN_MPI
    return raise_on_comm(layer, comm, MPI_ERR_ARG);
#else
    return raise_on_comm(layer, comm, MPI_ERR_BUFFER);
#endif
}

int check_operation(Layer& layer, MPI_Comm comm, MPI_Datatype type, MPI_Op op) {
    // What MPI took once it takes again: only predefined types go with predefined operations, and these stay.
    auto& known = layer.answers();
    if (op == MPI_OP_NULL) return raise_on_comm(layer, comm, MPI_ERR_OP);
    if (!is_predefined(op)) {
        Shape shape;
        return layer.types().find(type, comm, shape);  // of no elements, too
    }
    if (type == MPI_DATATYPE_NULL) return raise_on_comm(layer, comm, MPI_ERR_OP);  // MPICH 5 would crash
    const int asked = [&]() -> int {
        // One thread at a time calls an operation on the communicator of this rank alone.
        const std::lock_guard hold(known.lock);
        if (known.combined.contains({type, op}) || layer.alone() == MPI_COMM_NULL) return MPI_SUCCESS;
        const int code = layer.mpi.Allreduce(nullptr, nullptr, 0, type, op, layer.alone());
        if (code == MPI_SUCCESS) known.combined.emplace(type, op);
        return code;
    }();
    // Not under the lock: MPI may call an error handler of the user's.
    return asked == MPI_SUCCESS ? MPI_SUCCESS : raise_on_comm(layer, comm, asked);
}

int answer_to(Layer& layer, Question ask, int count) {
    auto& [lock, taken, answers] = layer.answers();
    const std::lock_guard hold(lock);
    if (layer.alone() == MPI_COMM_NULL) return MPI_SUCCESS;
    const auto [answer, is_new] = answers.emplace(std::pair(ask, count), MPI_SUCCESS);
    if (is_new) {
        int numbers[2] = {};
        int others[2] = {};
        layer.mpi.Error_class(ask(layer.mpi, numbers, others, count, layer.alone()), &answer->second);
    }
    return answer->second;
}

int check_alias(Layer& layer, MPI_Comm comm, const void* out, const UserBuffer& in, Question ask) {
    if (out != in.address() || in.size() == 0) [[likely]] {
        return MPI_SUCCESS;
    }
    const int answer = answer_to(layer, ask, in.count() > 1 ? 2 : 1);  // Open MPI does not mind one element
    return answer == MPI_SUCCESS ? MPI_SUCCESS : raise_on_comm(layer, comm, answer);
}

}  // namespace cryptmpi::comm
