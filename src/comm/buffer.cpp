#include "comm/buffer.hpp"

#include <climits>
#include <cstring>
#include <utility>

namespace cryptmpi::comm {

namespace {

int get_combiner(const interpose::Native& mpi, MPI_Datatype type, int& combiner) {
    // Types that were made with large counts are shown by this form only.
    if (mpi.Type_get_envelope_c != nullptr) {
        MPI_Count numbers[4] = {};
        return mpi.Type_get_envelope_c(type, &numbers[0], &numbers[1], &numbers[2], &numbers[3], &combiner);
    }
    int numbers[3] = {};
    return mpi.Type_get_envelope(type, &numbers[0], &numbers[1], &numbers[2], &combiner);
}

}  // namespace

UserBuffer::UserBuffer(UserBuffer&& other) noexcept {
    *this = std::move(other);
}

UserBuffer& UserBuffer::operator=(UserBuffer&& other) noexcept {
    std::swap(mpi_, other.mpi_);
    std::swap(at_, other.at_);
    std::swap(count_, other.count_);
    std::swap(type_, other.type_);
    std::swap(contiguous_, other.contiguous_);
    std::swap(owns_type_, other.owns_type_);
    std::swap(size_, other.size_);
    return *this;
}

UserBuffer::~UserBuffer() {
    if (owns_type_) mpi_->Type_free(&type_);
}

int UserBuffer::make(const interpose::Native& mpi, const void* at, MPI_Count count, MPI_Datatype type, bool keep,
                     UserBuffer& out) {
    MPI_Count size = 0;
    if (const int code = mpi.Type_size_x(type, &size); code != MPI_SUCCESS) return code;
    UserBuffer made;
    made.mpi_ = &mpi;
    made.at_ = static_cast<std::uint8_t*>(const_cast<void*>(at));
    made.count_ = count;
    made.type_ = type;
    made.size_ = static_cast<std::size_t>(count * size);
    int combiner = 0;
    if (const int code = get_combiner(mpi, type, combiner); code != MPI_SUCCESS) return code;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (const int code = mpi.Type_get_extent(type, &lower, &extent); code != MPI_SUCCESS) return code;
    // MPI_DOUBLE_INT and its like have names, and gaps.
    made.contiguous_ = made.size_ == 0 || (combiner == MPI_COMBINER_NAMED && lower == 0 && extent == size);
    if (!made.contiguous_ && at == nullptr && count <= INT_MAX) {
        if (const int code = made.leave_bottom(); code != MPI_SUCCESS) return code;
    } else if (keep && !made.contiguous_) {
        if (const int code = mpi.Type_dup(type, &made.type_); code != MPI_SUCCESS) return code;
        made.owns_type_ = true;
    }
    out = std::move(made);
    return MPI_SUCCESS;
}

int UserBuffer::leave_bottom() {
    constexpr MPI_Aint kAnywhere = 4096;
    int length = static_cast<int>(count_);
    MPI_Aint place = -kAnywhere;
    MPI_Datatype moved = MPI_DATATYPE_NULL;
    if (const int code = mpi_->Type_create_hindexed(1, &length, &place, type_, &moved); code != MPI_SUCCESS)
        return code;
    at_ = reinterpret_cast<std::uint8_t*>(kAnywhere);
    count_ = 1;
    type_ = moved;
    owns_type_ = true;
    return mpi_->Type_commit(&type_);
}

int UserBuffer::pack(std::uint8_t* out) const {
    if (contiguous_) {
        if (size_ != 0) std::memcpy(out, at_, size_);
        return MPI_SUCCESS;
    }
    if (count_ > INT_MAX || size_ > INT_MAX) return MPI_ERR_COUNT;
    int position = 0;
    return mpi_->Pack(at_, static_cast<int>(count_), type_, out, static_cast<int>(size_), &position, MPI_COMM_SELF);
}

int UserBuffer::unpack(const std::uint8_t* in, std::size_t size) const {
    if (contiguous_) {
        if (size != 0) std::memcpy(at_, in, size);
        return MPI_SUCCESS;
    }
    if (size == 0) return MPI_SUCCESS;
    if (size > INT_MAX) return MPI_ERR_COUNT;
    // The last element may have come in part: MPI unpacks whole elements, and the predefined ones of a broken one.
    const auto element = size_ / static_cast<std::size_t>(count_);
    const std::size_t whole = size / element;
    int position = 0;
    if (whole != 0) {
        const int code =
            mpi_->Unpack(in, static_cast<int>(size), &position, at_, static_cast<int>(whole), type_, MPI_COMM_SELF);
        if (code != MPI_SUCCESS) return code;
    }
    const std::size_t rest = size - whole * element;
    if (rest == 0) return MPI_SUCCESS;
    // Over a copy of what is there: the bytes after the part keep their values.
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (const int code = mpi_->Type_get_extent(type_, &lower, &extent); code != MPI_SUCCESS) return code;
    std::uint8_t* const last = at_ + static_cast<MPI_Aint>(whole) * extent;
    Bytes image(element);
    position = 0;
    int code = mpi_->Pack(last, 1, type_, image.data(), static_cast<int>(element), &position, MPI_COMM_SELF);
    if (code != MPI_SUCCESS) return code;
    std::memcpy(image.data(), in + whole * element, rest);
    position = 0;
    return mpi_->Unpack(image.data(), static_cast<int>(element), &position, last, 1, type_, MPI_COMM_SELF);
}

int plain_bytes(const UserBuffer& buffer, Bytes& scratch, const std::uint8_t*& at) {
    at = buffer.contiguous();
    if (at != nullptr || buffer.size() == 0) return MPI_SUCCESS;
    scratch = Bytes(buffer.size());
    at = scratch.data();
    return buffer.pack(scratch.data());
}

ByteCount::ByteCount(const interpose::Native& mpi, std::size_t size) : mpi_(mpi), count_(static_cast<int>(size)) {
    if (size <= INT_MAX) return;
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

ByteCount::~ByteCount() {
    if (type_ != MPI_BYTE) mpi_.Type_free(&type_);
}

}  // namespace cryptmpi::comm
