#include "comm/buffer.hpp"

#include <algorithm>
#include <cstring>

#include "base/secret.hpp"
#include "comm/decode.hpp"

namespace cryptmpi::comm {

int UserBuffer::make(Types& types, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type, bool keep,
                     UserBuffer& out) {
    Shape shape;
    if (count != 0) [[likely]] {
        if (const int code = types.find(type, comm, shape); code != MPI_SUCCESS) return code;
    }
    out.mpi_ = &types.mpi;
    out.at_ = static_cast<std::uint8_t*>(const_cast<void*>(at));
    out.count_ = count;
    out.type_ = type;
    out.size_ = static_cast<std::size_t>(count) * shape.size;
    out.contiguous_ = shape.gapless || out.size_ == 0;
    return out.contiguous_ ? MPI_SUCCESS : out.prepare_packing(keep);
}

int UserBuffer::prepare_packing(bool keep) {
    if (at_ == nullptr) {
        MPI_Aint lower = 0;
        MPI_Aint extent = 0;
        if (const int code = mpi_->Type_get_true_extent(type_, &lower, &extent); code != MPI_SUCCESS) return code;
        return lower == 0 ? MPI_SUCCESS : leave_bottom();  // nobody's data begin at the address 0: is_wrong()
    }
    return keep ? keep_type() : MPI_SUCCESS;
}

/// By Type_dup the program's attributes would be copied, by functions of the program.
int UserBuffer::keep_type() {
    MPI_Datatype kept = MPI_DATATYPE_NULL;
    if (const int code = mpi_->Type_contiguous(1, type_, &kept); code != MPI_SUCCESS) return code;
    type_ = kept;
    owns_type_ = true;
    return mpi_->Type_commit(&type_);
}

int UserBuffer::leave_bottom() {
    constexpr MPI_Aint kAnywhere = 4096;
    int length = 1;  // element by element, the moved type has the extent of the other
    MPI_Aint place = -kAnywhere;
    MPI_Datatype moved = MPI_DATATYPE_NULL;
    if (const int code = mpi_->Type_create_hindexed(1, &length, &place, type_, &moved); code != MPI_SUCCESS)
        return code;
    at_ = reinterpret_cast<std::uint8_t*>(kAnywhere);
    type_ = moved;
    owns_type_ = true;
    return mpi_->Type_commit(&type_);
}

/// `work(at, count, offset, size)` for the elements of the first `bytes` of packed data, in runs whose bytes MPI counts
/// by int.
template <class Work>
int UserBuffer::by_runs(std::size_t bytes, Work work) const {
    if (bytes == 0) return MPI_SUCCESS;
    if (bytes <= INT_MAX && count_ <= INT_MAX)
        return work(at_, static_cast<int>(bytes / element()), 0, static_cast<int>(bytes));
    if (element() > INT_MAX) return MPI_ERR_COUNT;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (const int code = mpi_->Type_get_extent(type_, &lower, &extent); code != MPI_SUCCESS) return code;
    const std::size_t most = INT_MAX / element();
    const std::size_t count = bytes / element();
    for (std::size_t first = 0; first < count; first += most) {
        const std::size_t some = std::min(most, count - first);
        const int code = work(at_ + static_cast<MPI_Aint>(first) * extent, static_cast<int>(some), first * element(),
                              static_cast<int>(some * element()));
        if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

// protocol: M2
int UserBuffer::pack(std::uint8_t* out) const {
    if (contiguous_) {
        if (size_ != 0) std::memcpy(out, at_, size_);
        return MPI_SUCCESS;
    }
    return by_runs(size_, [&](std::uint8_t* at, int count, std::size_t offset, int size) {
        int position = 0;
        return mpi_->Pack(at, count, type_, out + offset, size, &position, MPI_COMM_SELF);
    });
}

int UserBuffer::unpack(const std::uint8_t* in, std::size_t size) const {
    if (contiguous_) {
        if (size != 0) std::memcpy(at_, in, size);
        return MPI_SUCCESS;
    }
    if (size == 0) return MPI_SUCCESS;
    // The last element may have come in part: MPI unpacks whole elements, and the predefined ones of a broken one.
    const std::size_t element = this->element();
    const std::size_t whole = size / element;
    const int unpacked = by_runs(whole * element, [&](std::uint8_t* at, int count, std::size_t offset, int bytes) {
        int position = 0;
        return mpi_->Unpack(in + offset, bytes, &position, at, count, type_, MPI_COMM_SELF);
    });
    if (unpacked != MPI_SUCCESS) return unpacked;
    const std::size_t rest = size - whole * element;
    if (rest == 0) return MPI_SUCCESS;
    // Over a copy of what is there: the bytes after the part keep their values.
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (const int code = mpi_->Type_get_extent(type_, &lower, &extent); code != MPI_SUCCESS) return code;
    std::uint8_t* const last = at_ + static_cast<MPI_Aint>(whole) * extent;
    const std::unique_ptr<std::uint8_t[]> image(new std::uint8_t[element]);
    int position = 0;
    int code = mpi_->Pack(last, 1, type_, image.get(), static_cast<int>(element), &position, MPI_COMM_SELF);
    if (code != MPI_SUCCESS) return code;
    std::memcpy(image.get(), in + whole * element, rest);
    position = 0;
    return mpi_->Unpack(image.get(), static_cast<int>(element), &position, last, 1, type_, MPI_COMM_SELF);
}

std::unique_ptr<const engine::Layout> UserBuffer::layout() const {
    return decode_layout(*mpi_, at_, count_, type_, size_);
}

void Place::wipe(std::size_t size) const {
    if (layout) return layout->wipe(0, size);
    if (at != nullptr) cryptmpi::wipe(at, size);
}

Place find_place(engine::BufferPool& pool, const UserBuffer& buffer, std::size_t size) {
    Place place;
    place.at = buffer.contiguous();
    if (place.at != nullptr) return place;
    place.layout = buffer.layout();
    if (place.layout) place.at = place.layout->stretch();
    if (place.at != nullptr) place.layout.reset();
    if (place.at != nullptr || place.layout) return place;
    place.packed = pool.take(size);
    place.at = place.packed.data();
    return place;
}

void ByteCount::make_type(std::size_t size) {
    constexpr std::size_t kChunk = std::size_t{1} << 30;
    const std::size_t chunks = size / kChunk;
    MPI_Datatype chunk = MPI_DATATYPE_NULL;
    mpi_.Type_contiguous(static_cast<int>(kChunk), MPI_BYTE, &chunk);
    int lengths[] = {static_cast<int>(chunks), static_cast<int>(size % kChunk)};
    MPI_Aint places[] = {0, static_cast<MPI_Aint>(chunks * kChunk)};
    MPI_Datatype types[] = {chunk, MPI_BYTE};
    mpi_.Type_create_struct(2, lengths, places, types, &type_);
    mpi_.Type_commit(&type_);
    mpi_.Type_free(&chunk);
    count_ = 1;
}

}  // namespace cryptmpi::comm
