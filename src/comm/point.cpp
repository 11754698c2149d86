#include "comm/point.hpp"

#include <algorithm>
#include <utility>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {

using seal::kMessageOverhead;

int native_send(const interpose::Native& mpi, Mode mode, const ByteCount& bytes, const void* at, int to, int tag,
                MPI_Comm comm) {
    switch (mode) {
        case Mode::synchronous:
            return mpi.Ssend(at, bytes.count(), bytes.type(), to, tag, comm);
        case Mode::ready:
            return mpi.Rsend(at, bytes.count(), bytes.type(), to, tag, comm);
        case Mode::buffered:  // its ciphertext is in memory of ours: it is sent from there (buffered.cpp)
        case Mode::standard:
            break;
    }
    return mpi.Send(at, bytes.count(), bytes.type(), to, tag, comm);
}

int native_isend(const interpose::Native& mpi, Mode mode, const ByteCount& bytes, const void* at, int to, int tag,
                 MPI_Comm comm, MPI_Request* request) {
    switch (mode) {
        case Mode::synchronous:
            return mpi.Issend(at, bytes.count(), bytes.type(), to, tag, comm, request);
        case Mode::ready:
            return mpi.Irsend(at, bytes.count(), bytes.type(), to, tag, comm, request);
        case Mode::buffered:
        case Mode::standard:
            break;
    }
    return mpi.Isend(at, bytes.count(), bytes.type(), to, tag, comm, request);
}

int seal_message(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
                 std::uint8_t* wire) {
    const std::size_t size = buffer.size();
    Bytes packed;
    const std::uint8_t* plain = buffer.contiguous();
    if (plain == nullptr && size != 0) {
        packed = Bytes(size);
        if (const int code = buffer.pack(packed.data()); code != MPI_SUCCESS) return code;
        plain = packed.data();
    }
    if (auto done = communicator.seal(to, tag, seal::Form::whole, plain, size, wire); !done) {
        return layer.raise(communicator.handle(), done.error().line);
    }
    return MPI_SUCCESS;
}

namespace {

std::string describe(int from, int tag) {
    return "the message from rank " + std::to_string(from) + " with tag " + std::to_string(tag);
}

}  // namespace

void set_size(const interpose::Native& mpi, MPI_Status& status, std::size_t size) {
    mpi.Status_set_elements_x(&status, MPI_BYTE, static_cast<MPI_Count>(size));
}

std::size_t wire_size(const interpose::Native& mpi, const MPI_Status& status) {
    MPI_Count size = 0;
    mpi.Get_elements_x(&status, MPI_BYTE, &size);
    return size < 0 ? 0 : static_cast<std::size_t>(size);
}

Communicator* find_sealed(Layer& layer, MPI_Comm comm, int to, int tag, MPI_Count count, MPI_Datatype type) {
    Communicator* communicator = layer.find(comm);
    const bool sealed = communicator != nullptr && communicator->has(to) && communicator->sealed(to);
    return sealed && tag >= 0 && count >= 0 && type != MPI_DATATYPE_NULL ? communicator : nullptr;
}

bool may_be_sealed(const Communicator& communicator, int from) {
    return from == MPI_ANY_SOURCE || (communicator.has(from) && communicator.sealed(from));
}

int start_send(Layer& layer, Mode mode, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
               MPI_Request* request) {
    auto operation = std::make_unique<Operation>();
    operation->wire = Bytes(buffer.size() + kMessageOverhead);
    if (const int code = seal_message(layer, communicator, buffer, to, tag, operation->wire.data());
        code != MPI_SUCCESS) {
        return code;
    }
    const ByteCount bytes(layer.mpi, operation->wire.size());
    const int code =
        native_isend(layer.mpi, mode, bytes, operation->wire.data(), to, tag, communicator.handle(), request);
    if (code != MPI_SUCCESS) return code;
    // MPIs give one handle for all sends that are done already: then the buffer is free, and there is nothing to keep.
    int done = 0;
    if (layer.mpi.Request_get_status(*request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) {
        layer.requests().add(*request, std::move(operation));
    }
    return MPI_SUCCESS;
}

int start_receive(Layer& layer, Communicator& communicator, UserBuffer buffer, int from, int tag,
                  MPI_Request* request) {
    auto operation = std::make_unique<Operation>();
    operation->kind = Operation::Kind::receive;
    operation->wire = Bytes(buffer.size() + kMessageOverhead);
    operation->user = std::move(buffer);
    operation->communicator = layer.share(communicator.handle());
    operation->peer = from;
    operation->tag = tag;
    const ByteCount bytes(layer.mpi, operation->wire.size());
    const int code =
        layer.mpi.Irecv(operation->wire.data(), bytes.count(), bytes.type(), from, tag, communicator.handle(), request);
    if (code != MPI_SUCCESS) return code;
    operation->posted = communicator.post(from, tag);
    operation->is_posted = true;
    layer.requests().add(*request, std::move(operation));
    return MPI_SUCCESS;
}

int finish_receive(Layer& layer, Operation& operation, MPI_Status& status) {
    if (!operation.is_posted) return status.MPI_ERROR;
    Communicator& communicator = *operation.communicator;
    operation.is_posted = false;
    const Posted posted = communicator.take(operation.posted);
    int cancelled = 0;
    layer.mpi.Test_cancelled(&status, &cancelled);
    if (cancelled != 0) return MPI_SUCCESS;

    const int from = status.MPI_SOURCE;
    const int tag = status.MPI_TAG;
    const std::size_t came = wire_size(layer.mpi, status);
    const std::size_t capacity = operation.user.size();
    const std::uint8_t* plain = operation.wire.data();
    std::size_t size = came;
    Bytes opened;
    bool in_place = false;
    if (communicator.has(from) && communicator.sealed(from)) {
        if (came > operation.wire.size()) return MPI_ERR_TRUNCATE;
        size = came < kMessageOverhead ? 0 : came - kMessageOverhead;
        in_place = operation.user.contiguous() != nullptr || size == 0;
        if (!in_place) opened = Bytes(size);
        std::uint8_t* const out = in_place ? operation.user.contiguous() : opened.data();
        auto form = communicator.open(posted, from, tag, operation.wire.data(), came, out);
        if (!form) {
            set_size(layer.mpi, status, 0);
            return layer.integrity_error(describe(from, tag) + " " + form.error().line);
        }
        plain = opened.data();
    }
    // A message from this node came as it is, into a buffer that has room for a sealed one.
    const int result = size > capacity ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    size = std::min(size, capacity);
    set_size(layer.mpi, status, size);
    if (!in_place) {
        if (const int code = operation.user.unpack(plain, size); code != MPI_SUCCESS) return code;
    }
    return result;
}

namespace {

template <class Native>
int send(Mode mode, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, Native native) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    Communicator* communicator = find_sealed(layer, comm, to, tag, count, type);
    if (communicator == nullptr) {
        if (guard) guard.unlock();
        return native(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = UserBuffer::make(layer.mpi, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    if (layer.threads()) {
        // The numbers must be in the order of sending, and no lock may be held while MPI blocks.
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = start_send(layer, mode, *communicator, buffer, to, tag, &request);
        guard.unlock();
        return code != MPI_SUCCESS ? code : wait_one(layer, &request, MPI_STATUS_IGNORE);
    }
    const Bytes wire(buffer.size() + kMessageOverhead);
    if (const int code = seal_message(layer, *communicator, buffer, to, tag, wire.data()); code != MPI_SUCCESS) {
        return code;
    }
    return native_send(layer.mpi, mode, ByteCount(layer.mpi, wire.size()), wire.data(), to, tag, comm);
}

template <class Native>
int isend(Mode mode, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
          MPI_Request* request, Native native) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    Communicator* communicator = find_sealed(layer, comm, to, tag, count, type);
    if (communicator == nullptr || request == nullptr) {
        return native(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = UserBuffer::make(layer.mpi, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    return start_send(layer, mode, *communicator, buffer, to, tag, request);
}

}  // namespace

int Send(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return send(Mode::standard, at, count, type, to, tag, comm,
                CRYPTMPI_NATIVE(Send, count, at, Count{count}, type, to, tag, comm));
}

int Ssend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return send(Mode::synchronous, at, count, type, to, tag, comm,
                CRYPTMPI_NATIVE(Ssend, count, at, Count{count}, type, to, tag, comm));
}

int Rsend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return send(Mode::ready, at, count, type, to, tag, comm,
                CRYPTMPI_NATIVE(Rsend, count, at, Count{count}, type, to, tag, comm));
}

int Isend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    return isend(Mode::standard, at, count, type, to, tag, comm, request,
                 CRYPTMPI_NATIVE(Isend, count, at, Count{count}, type, to, tag, comm, request));
}

int Issend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    return isend(Mode::synchronous, at, count, type, to, tag, comm, request,
                 CRYPTMPI_NATIVE(Issend, count, at, Count{count}, type, to, tag, comm, request));
}

int Irsend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    return isend(Mode::ready, at, count, type, to, tag, comm, request,
                 CRYPTMPI_NATIVE(Irsend, count, at, Count{count}, type, to, tag, comm, request));
}

int Recv(void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || !may_be_sealed(*communicator, from) || count < 0 || type == MPI_DATATYPE_NULL) {
        if (guard) guard.unlock();
        return CRYPTMPI_NATIVE(Recv, count, at, Count{count}, type, from, tag, comm, status)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = UserBuffer::make(layer.mpi, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    if (layer.threads()) {
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = start_receive(layer, *communicator, std::move(buffer), from, tag, &request);
        guard.unlock();
        return code != MPI_SUCCESS ? code : wait_one(layer, &request, status);
    }
    Operation operation;
    operation.kind = Operation::Kind::receive;
    operation.wire = Bytes(buffer.size() + kMessageOverhead);
    operation.user = std::move(buffer);
    operation.communicator = layer.share(comm);
    operation.posted = communicator->post(from, tag);
    operation.is_posted = true;
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const ByteCount bytes(layer.mpi, operation.wire.size());
    const int code = layer.mpi.Recv(operation.wire.data(), bytes.count(), bytes.type(), from, tag, comm, &mine);
    return conclude(layer, operation, mine, code);
}

int Irecv(void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || !may_be_sealed(*communicator, from) || count < 0 || type == MPI_DATATYPE_NULL ||
        request == nullptr) {
        return CRYPTMPI_NATIVE(Irecv, count, at, Count{count}, type, from, tag, comm, request)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = UserBuffer::make(layer.mpi, at, count, type, true, buffer); code != MPI_SUCCESS) return code;
    return start_receive(layer, *communicator, std::move(buffer), from, tag, request);
}

int Sendrecv(const void* out, MPI_Count out_count, MPI_Datatype out_type, int to, int out_tag, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status) {
    Layer& layer = Layer::get();
    {
        const auto guard = layer.guard();
        if (layer.find(comm) == nullptr) {
            return CRYPTMPI_NATIVE(Sendrecv, std::max(out_count, in_count), out, Count{out_count}, out_type, to,
                                   out_tag, in, Count{in_count}, in_type, from, in_tag, comm, status)(layer.mpi);
        }
    }
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (const int code = Irecv(in, in_count, in_type, from, in_tag, comm, &requests[0]); code != MPI_SUCCESS) {
        return code;
    }
    if (const int code = Isend(out, out_count, out_type, to, out_tag, comm, &requests[1]); code != MPI_SUCCESS) {
        return code;
    }
    const int sent = wait_one(layer, &requests[1], MPI_STATUS_IGNORE);
    const int received = wait_one(layer, &requests[0], status);
    return received != MPI_SUCCESS ? received : sent;
}

int Sendrecv_replace(void* at, MPI_Count count, MPI_Datatype type, int to, int out_tag, int from, int in_tag,
                     MPI_Comm comm, MPI_Status* status) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || count < 0 || type == MPI_DATATYPE_NULL) {
        if (guard) guard.unlock();
        return CRYPTMPI_NATIVE(Sendrecv_replace, count, at, Count{count}, type, to, out_tag, from, in_tag, comm,
                               status)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = UserBuffer::make(layer.mpi, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    Bytes copy(buffer.size());
    if (const int code = buffer.pack(copy.data()); code != MPI_SUCCESS) return code;
    const ByteCount bytes(layer.mpi, copy.size());
    if (guard) guard.unlock();
    return Sendrecv(copy.data(), bytes.count(), bytes.type(), to, out_tag, at, count, type, from, in_tag, comm, status);
}

}  // namespace cryptmpi::comm
