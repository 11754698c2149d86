// Buffered sends. What is sealed waits in memory of ours; the buffer that the user attached says how much may wait.
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/native_call.hpp"
#include "comm/point.hpp"

namespace cryptmpi::comm {

int start_buffered(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int to, int tag) {
    Requests& requests = layer.requests();
    const std::size_t need = buffer.size() + MPI_BSEND_OVERHEAD;
    collect_orphans(layer, Orphans::some);
    if (requests.buffered + need > requests.attached) collect_orphans(layer, Orphans::each);
    if (requests.buffered + need > requests.attached) {
        return raise_on_comm(layer, communicator.handle(), MPI_ERR_BUFFER);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = start_send(layer, Mode::buffered, communicator, buffer, to, tag, &request);
    if (code != MPI_SUCCESS) return code;
    if (Operation* operation = requests.find(request)) {
        operation->buffered = need;
        requests.buffered += need;
        requests.orphans.push_back(request);
        return MPI_SUCCESS;
    }
    return layer.mpi.Wait(&request, MPI_STATUS_IGNORE);  // done already
}

namespace {

template <class After, class NativeCall>
int bsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, After after,
          NativeCall native) {
    const auto guard = layer.guard();
    Communicator* communicator = find_sealed_to(layer, comm, to);
    if (communicator == nullptr) {
        return native(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = make_message(layer, comm, at, count, type, tag, false, buffer); code != MPI_SUCCESS) {
        return code;
    }
    const int code = start_buffered(layer, *communicator, buffer, to, tag);
    return code != MPI_SUCCESS ? code : after(layer.mpi);
}

/// Waits until nothing of ours is left in the user's buffer. Other threads go on meanwhile.
void drain(Layer& layer) {
    repeat(layer, [&](int& done) {
        const auto guard = layer.guard();
        collect_orphans(layer, Orphans::each);
        done = layer.requests().buffered == 0 ? 1 : 0;
        return MPI_SUCCESS;
    });
}

/// MPI takes the memory itself, as much as it needs.
bool is_automatic([[maybe_unused]] const void* at) {
#if defined MPI_BUFFER_AUTOMATIC
    return at == MPI_BUFFER_AUTOMATIC;
#elif defined MPICH_VERSION
    // Later versions of the same ABI have it, whose programs run over what is built with the header of an earlier one.
    return reinterpret_cast<std::intptr_t>(at) == -2;
#else
    return false;
#endif
}

}  // namespace

int Bsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return bsend(
        layer, at, count, type, to, tag, comm, [](auto&) { return MPI_SUCCESS; },
        CRYPTMPI_NATIVE(Bsend, count, at, Count{count}, type, to, tag, comm));
}

int Ibsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
           MPI_Request* request) {
    const auto guard = layer.guard();
    // To nobody: the message would have gone before MPI finds no request.
    if (request == nullptr && find_sealed_to(layer, comm, to) != nullptr) {
        return layer.mpi.Isend(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, tag, comm, request);
    }
    return bsend(
        layer, at, count, type, to, tag, comm,
        // A request that is done.
        [&](auto& mpi) { return mpi.Isend(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, tag, comm, request); },
        CRYPTMPI_NATIVE(Ibsend, count, at, Count{count}, type, to, tag, comm, request));
}

int Buffer_attach(Layer& layer, void* at, MPI_Count size) {
    const auto guard = layer.guard();
    const int code = CRYPTMPI_NATIVE(Buffer_attach, size, at, Count{size})(layer.mpi);
    if (code != MPI_SUCCESS) return code;
    layer.requests().attached =
        is_automatic(at) ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(size);
    return code;
}

namespace {

template <class Size>
int detach(Layer& layer, void* at, Size* size) {
    drain(layer);
    const int code = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<Size, int>) {
            return mpi.Buffer_detach(at, size);
        } else {
            return mpi.Buffer_detach_c(at, size);
        }
    }(layer.mpi);
    const auto guard = layer.guard();
    if (code == MPI_SUCCESS) layer.requests().attached = 0;
    return code;
}

}  // namespace

int Buffer_detach(Layer& layer, void* at, int* size) {
    return detach(layer, at, size);
}

int Buffer_detach(Layer& layer, void* at, MPI_Count* size) {
    return detach(layer, at, size);
}

int Buffer_flush(Layer& layer) {
    drain(layer);
    return layer.mpi.Buffer_flush();
}

}  // namespace cryptmpi::comm
