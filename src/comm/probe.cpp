// Probe, and receiving what was probed: the user sees the size of his message, not of what travels.
#include <algorithm>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/native_call.hpp"
#include "comm/point.hpp"

namespace cryptmpi::comm {
namespace {

void show_user_size(Layer& layer, const Communicator& communicator, MPI_Status& status) {
    if (!communicator.has(status.MPI_SOURCE) || !communicator.sealed(status.MPI_SOURCE)) return;
    const std::size_t size = wire_size(layer.mpi, status);
    set_size(layer.mpi, status, size - std::min(size, seal::kMessageOverhead));
}

/// The operation that receives a matched message.
std::unique_ptr<Operation> receive_matched(Layer& layer, MPI_Message message, UserBuffer buffer) {
    auto found = layer.matched().extract(message);
    if (found.empty()) return nullptr;
    auto operation = std::make_unique<Operation>();
    operation->kind = Operation::Kind::receive;
    operation->wire = Bytes(buffer.size() + seal::kMessageOverhead);
    operation->user = std::move(buffer);
    operation->communicator = std::move(found.mapped().communicator);
    operation->posted = found.mapped().posted;
    operation->is_posted = true;
    return operation;
}

}  // namespace

int Probe(int from, int tag, MPI_Comm comm, MPI_Status* status) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    const Communicator* communicator = layer.find(comm);
    if (guard) guard.unlock();
    if (communicator == nullptr || status == MPI_STATUS_IGNORE) return layer.mpi.Probe(from, tag, comm, status);
    const int code = layer.mpi.Probe(from, tag, comm, status);
    if (code == MPI_SUCCESS) show_user_size(layer, *communicator, *status);
    return code;
}

int Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    const Communicator* communicator = layer.find(comm);
    const int code = layer.mpi.Iprobe(from, tag, comm, flag, status);
    if (communicator != nullptr && status != MPI_STATUS_IGNORE && code == MPI_SUCCESS && *flag != 0) {
        show_user_size(layer, *communicator, *status);
    }
    return code;
}

namespace {

/// After a matching probe: the message is taken out of MPI's queue, as a receive would.
void matched(Layer& layer, Communicator* communicator, MPI_Message message, const MPI_Status& status) {
    if (communicator == nullptr || message == MPI_MESSAGE_NULL || message == MPI_MESSAGE_NO_PROC) return;
    if (!communicator->has(status.MPI_SOURCE) || !communicator->sealed(status.MPI_SOURCE)) return;
    layer.matched()[message] = {layer.share(communicator->handle()),
                                communicator->post(status.MPI_SOURCE, status.MPI_TAG)};
}

}  // namespace

int Improbe(int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const int code = layer.mpi.Improbe(from, tag, comm, flag, message, &mine);
    if (code != MPI_SUCCESS || *flag == 0 || communicator == nullptr) return code;
    matched(layer, communicator, *message, mine);
    show_user_size(layer, *communicator, mine);
    return code;
}

int Mprobe(int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
    Layer& layer = Layer::get();
    if (layer.threads()) {
        // Two threads' messages must be noted in the order in which MPI gave them out.
        for (int flag = 0;;) {
            const int code = Improbe(from, tag, comm, &flag, message, status);
            if (flag != 0 || code != MPI_SUCCESS) return code;
        }
    }
    Communicator* communicator = layer.find(comm);
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const int code = layer.mpi.Mprobe(from, tag, comm, message, &mine);
    if (code != MPI_SUCCESS || communicator == nullptr) return code;
    matched(layer, communicator, *message, mine);
    show_user_size(layer, *communicator, mine);
    return code;
}

int Mrecv(void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    if (!layer.matched().contains(*message)) {
        if (guard) guard.unlock();
        return CRYPTMPI_NATIVE(Mrecv, count, at, Count{count}, type, message, status)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = UserBuffer::make(layer.mpi, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    const auto operation = receive_matched(layer, *message, std::move(buffer));
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const ByteCount bytes(layer.mpi, operation->wire.size());
    if (guard) guard.unlock();
    const int code = layer.mpi.Mrecv(operation->wire.data(), bytes.count(), bytes.type(), message, &mine);
    if (layer.threads()) guard.lock();
    return conclude(layer, *operation, mine, code);
}

int Imrecv(void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Request* request) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    if (!layer.matched().contains(*message)) {
        return CRYPTMPI_NATIVE(Imrecv, count, at, Count{count}, type, message, request)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = UserBuffer::make(layer.mpi, at, count, type, true, buffer); code != MPI_SUCCESS) return code;
    auto operation = receive_matched(layer, *message, std::move(buffer));
    const ByteCount bytes(layer.mpi, operation->wire.size());
    const int code = layer.mpi.Imrecv(operation->wire.data(), bytes.count(), bytes.type(), message, request);
    if (code == MPI_SUCCESS) layer.requests().add(*request, std::move(operation));
    return code;
}

}  // namespace cryptmpi::comm
