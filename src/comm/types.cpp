#include "comm/types.hpp"

#include <cstring>
#include <memory>

#include "comm/errors.hpp"

namespace cryptmpi::comm {
namespace {

constexpr std::size_t kLargestTried = std::size_t{1} << 20;  // bytes

/// A type of that size and extent may still order its bytes as it likes: does it pack them as they are? Each byte has
/// its place, a part of the number at a time.
bool keeps_order(const Native& mpi, MPI_Datatype type, std::size_t size) {
    if (size > kLargestTried) return false;
    const std::unique_ptr<std::uint8_t[]> memory(new std::uint8_t[2 * size]);
    std::uint8_t* const in = memory.get();
    std::uint8_t* const out = in + size;
    for (unsigned shift = 0; shift == 0 || size >> shift != 0; shift += 8) {
        for (std::size_t i = 0; i < size; ++i) in[i] = static_cast<std::uint8_t>(i >> shift);
        int position = 0;
        const int most = static_cast<int>(size);
        if (mpi.Pack(in, 1, type, out, most, &position, MPI_COMM_SELF) != MPI_SUCCESS || position != most ||
            std::memcmp(in, out, size) != 0) {
            return false;
        }
    }
    return true;
}

}  // namespace

int get_envelope(const Native& mpi, MPI_Datatype type, Envelope& envelope) {
    // Types that were made with large counts are shown by this form only.
    if (mpi.Type_get_envelope_c != nullptr) {
        return mpi.Type_get_envelope_c(type, &envelope.integers, &envelope.addresses, &envelope.counts, &envelope.types,
                                       &envelope.combiner);
    }
    int integers = 0;
    int addresses = 0;
    int types = 0;
    const int code = mpi.Type_get_envelope(type, &integers, &addresses, &types, &envelope.combiner);
    envelope.integers = integers;
    envelope.addresses = addresses;
    envelope.types = types;
    return code;
}

bool Envelope::is_predefined() const {
    switch (combiner) {
        case MPI_COMBINER_NAMED:
        case MPI_COMBINER_F90_REAL:
        case MPI_COMBINER_F90_COMPLEX:
        case MPI_COMBINER_F90_INTEGER:
            return true;
        default:
            return false;
    }
}

bool Envelope::is_derived() const {
    switch (combiner) {
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_CONTIGUOUS:
        case MPI_COMBINER_VECTOR:
        case MPI_COMBINER_HVECTOR:
        case MPI_COMBINER_INDEXED:
        case MPI_COMBINER_HINDEXED:
        case MPI_COMBINER_INDEXED_BLOCK:
        case MPI_COMBINER_HINDEXED_BLOCK:
        case MPI_COMBINER_STRUCT:
        case MPI_COMBINER_SUBARRAY:
        case MPI_COMBINER_DARRAY:
        case MPI_COMBINER_RESIZED:
            return true;
        default:
            return false;
    }
}

int Types::ask(MPI_Datatype type, MPI_Comm comm, Shape& shape) const {
    // A message to nobody, of which MPI looks at the arguments only. Of a type that is not committed the other
    // procedures say nothing.
    const std::uint8_t nothing = 0;
    const int asked = mpi.Send(&nothing, 1, type, MPI_PROC_NULL, 0, quiet_);
    if (asked != MPI_SUCCESS) return raise_class_on_comm(voice_, comm, asked);
    MPI_Count size = 0;
    if (const int code = mpi.Type_size_x(type, &size); code != MPI_SUCCESS) return code;
    Envelope envelope;
    if (const int code = get_envelope(mpi, type, envelope); code != MPI_SUCCESS) return code;
    MPI_Aint lower = 0;
    if (const int code = mpi.Type_get_extent(type, &lower, &shape.extent); code != MPI_SUCCESS) return code;
    shape.size = static_cast<std::size_t>(size);
    shape.gapless = lower == 0 && shape.extent == size;
    if (!shape.gapless || envelope.combiner == MPI_COMBINER_NAMED) return MPI_SUCCESS;
    MPI_Aint extent = 0;
    if (const int code = mpi.Type_get_true_extent(type, &lower, &extent); code != MPI_SUCCESS) return code;
    shape.gapless = lower == 0 && extent == size && keeps_order(mpi, type, shape.size);
    return MPI_SUCCESS;
}

int Types::look_up(MPI_Datatype type, MPI_Comm comm, Shape& shape) {
    {
        const std::lock_guard hold(lock_);
        if (const auto known = known_.find(type); known != known_.end()) {
            recent_[place(type)] = {type, &known->second};
            shape = known->second;
            return MPI_SUCCESS;
        }
    }
    // Not under the lock: MPI may call an error handler of the user's.
    if (const int code = ask(type, comm, shape); code != MPI_SUCCESS) return code;
    const std::lock_guard hold(lock_);
    recent_[place(type)] = {type, &(known_[type] = shape)};
    return MPI_SUCCESS;
}

void Types::forget(MPI_Datatype type) {
    const std::lock_guard hold(lock_);
    if (known_.erase(type) != 0) recent_[place(type)].shape = nullptr;
}

}  // namespace cryptmpi::comm
