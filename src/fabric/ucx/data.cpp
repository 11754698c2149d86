#include "fabric/ucx/data.hpp"

#include <algorithm>

namespace cryptmpi::fabric::ucx {

void GenericTypes::add(ucp_datatype_t type, const ucp_generic_dt_ops_t& operations, void* context) {
    const std::unique_lock guard(lock_);
    auto& generic = all_[type];
    generic = std::make_unique<Generic>();
    generic->operations = operations;
    generic->context = context;
}

void GenericTypes::remove(ucp_datatype_t type) {
    const std::unique_lock guard(lock_);
    all_.erase(type);
}

const GenericTypes::Generic* GenericTypes::find(ucp_datatype_t type) const {
    const std::shared_lock guard(lock_);
    const auto found = all_.find(type);
    return found == all_.end() ? nullptr : found->second.get();
}

Data::Data(const GenericTypes& types, void* at, std::size_t count, ucp_datatype_t type, Use use)
    : at_(at), count_(count) {
    switch (type & UCP_DATATYPE_CLASS_MASK) {
        case UCP_DATATYPE_CONTIG:
            kind_ = Kind::contiguous;
            size_ = count * (type >> UCP_DATATYPE_SHIFT);
            break;
        case UCP_DATATYPE_IOV:
            kind_ = Kind::list;
            for (std::size_t i = 0; i < count; ++i) size_ += static_cast<const ucp_dt_iov_t*>(at)[i].length;
            break;
        case UCP_DATATYPE_GENERIC: {
            generic_ = types.find(type);
            if (generic_ == nullptr) break;
            kind_ = Kind::generic;
            size_ = use == Use::receive ? count * generic_->element.load() : 0;
            if (count == 0 || size_ != 0) break;
            // For the size of a receive nothing is finished, once for a type: see above.
            packing_ = generic_->operations.start_pack(generic_->context, at, count);
            size_ = generic_->operations.packed_size(packing_);
            generic_->element = size_ / count;
            break;
        }
        default:
            break;
    }
}

std::vector<iovec> Data::pieces(engine::BufferPool& pool, engine::Buffer& room) const {
    if (kind_ != Kind::generic) return places(size_);
    room = pool.take(size_);
    const auto& operations = generic_->operations;
    for (std::size_t done = 0; done < size_;) {
        const std::size_t more = operations.pack(packing_, done, room.data() + done, size_ - done);
        if (more == 0) break;
        done += more;
    }
    if (packing_ != nullptr) operations.finish(packing_);
    return {{room.data(), size_}};
}

std::vector<iovec> Data::places(std::size_t size) const {
    if (kind_ == Kind::contiguous) return {{at_, size}};
    std::vector<iovec> places;
    const auto* const list = static_cast<const ucp_dt_iov_t*>(at_);
    for (std::size_t i = 0; kind_ == Kind::list && i < count_ && size != 0; ++i) {
        const std::size_t part = std::min(size, list[i].length);
        if (part != 0) places.push_back({list[i].buffer, part});
        size -= part;
    }
    return places;
}

ucs_status_t Data::unpack(const std::uint8_t* from, std::size_t size) const {
    const auto& operations = generic_->operations;
    void* const state = operations.start_unpack(generic_->context, at_, count_);
    const ucs_status_t status = size == 0 ? UCS_OK : operations.unpack(state, 0, from, size);
    operations.finish(state);
    return status;
}

}  // namespace cryptmpi::fabric::ucx
