#include "engine/layout.hpp"

#include <algorithm>
#include <cstring>

#include "base/secret.hpp"

namespace cryptmpi::engine {
namespace {

using Element = Layout::Element;

// Addresses are numbers here: what lies between elements is no object that a pointer might point to, and a datatype for
// MPI_BOTTOM begins at 0.

std::uintptr_t moved(std::uintptr_t at, std::ptrdiff_t by) {
    return at + static_cast<std::uintptr_t>(by);
}

/// To the element after `count` others.
std::ptrdiff_t distance(std::size_t count, std::ptrdiff_t extent) {
    return static_cast<std::ptrdiff_t>(count * static_cast<std::size_t>(extent));
}

std::uint8_t* memory(std::uintptr_t at) {
    return reinterpret_cast<std::uint8_t*>(at);
}

/// Bytes are bytes, whatever the program takes them for.
bool are_alike(const Element& one, const Element& other) {
    return &one == &other || (one.is_dense() && other.is_dense());
}

struct Out {
    static void copy(std::uint8_t* user, std::uint8_t* packed, std::size_t size) { std::memcpy(packed, user, size); }
};

struct In {
    static void copy(std::uint8_t* user, const std::uint8_t* packed, std::size_t size) {
        std::memcpy(user, packed, size);
    }
};

/// Between memory and packed bytes, in their order.
template <class Direction, class Byte>
class Copy {
public:
    explicit Copy(Byte* packed) : packed_(packed) {}

    void stretch(std::uintptr_t at, std::size_t size) {
        Direction::copy(memory(at), packed_, size);
        packed_ += size;
    }
    void stretches(std::uintptr_t at, std::size_t size, std::ptrdiff_t extent, std::size_t count) {
        switch (size) {  // one number, or two
            case 4:
                return short_stretches<4>(at, extent, count);
            case 8:
                return short_stretches<8>(at, extent, count);
            case 16:
                return short_stretches<16>(at, extent, count);
            default:
                for (; count != 0; --count, at = moved(at, extent)) stretch(at, size);
        }
    }

private:
    /// Of a size that the compiler knows.
    template <std::size_t size>
    void short_stretches(std::uintptr_t at, std::ptrdiff_t extent, std::size_t count) {
        for (; count != 0; --count, at = moved(at, extent)) stretch(at, size);
    }

    Byte* packed_;
};

struct Wipe {
    static void stretch(std::uintptr_t at, std::size_t size) { cryptmpi::wipe(memory(at), size); }
    static void stretches(std::uintptr_t at, std::size_t size, std::ptrdiff_t extent, std::size_t count) {
        for (; count != 0; --count, at = moved(at, extent)) stretch(at, size);
    }
};

/// Leads what copies or wipes along the stretches of a part of the packed bytes.
template <class Visitor>
class Walk {
public:
    explicit Walk(Visitor visitor) : visitor_(visitor) {}

    /// At least a byte, of an element at `at`.
    void through(const Element& element, std::uintptr_t at, std::size_t offset, std::size_t size) {
        if (element.is_stretch()) return visitor_.stretch(at + offset, size);
        for (std::size_t i = element.row_at(offset); size != 0; ++i) {
            const Element::Row& row = element.row(i);
            const std::size_t some = std::min(size, element.end_of_row(i) - offset);
            through_row(element.each_of_row(i), moved(at, row.place), offset - row.begin, some);
            offset += some;
            size -= some;
        }
    }

private:
    void through_row(const Element& each, std::uintptr_t at, std::size_t offset, std::size_t size) {
        if (each.is_dense()) return visitor_.stretch(at + offset, size);
        at = moved(at, distance(offset / each.size(), each.extent()));
        if (const std::size_t within = offset % each.size(); within != 0) {
            const std::size_t some = std::min(size, each.size() - within);
            through(each, at, within, some);
            at = moved(at, each.extent());
            size -= some;
        }
        const std::size_t whole = size / each.size();
        through_whole(each, at, whole);
        if (const std::size_t rest = size % each.size(); rest != 0) {
            through(each, moved(at, distance(whole, each.extent())), 0, rest);
        }
    }

    void through_whole(const Element& each, std::uintptr_t at, std::size_t count) {
        if (each.is_stretch()) return visitor_.stretches(at, each.size(), each.extent(), count);
        for (; count != 0; --count, at = moved(at, each.extent())) through(each, at, 0, each.size());
    }

    Visitor visitor_;
};

template <class Visitor>
void walk(Visitor visitor, const Element* whole, std::uintptr_t at, std::size_t offset, std::size_t size) {
    if (size != 0) Walk<Visitor>(visitor).through(*whole, at, offset, size);
}

}  // namespace

void Layout::Element::append(const Element& each, std::size_t count, std::ptrdiff_t place) {
    const std::size_t size = count * each.size_;
    if (size == 0) return;
    if (!continues_last_row(each, place)) {
        rows_.push_back({size_, place});
        note_kind_of_last_row(each);
    }
    size_ += size;
}

bool Layout::Element::continues_last_row(const Element& each, std::ptrdiff_t place) const {
    if (rows_.empty() || !are_alike(each_of_row(rows_.size() - 1), each)) return false;
    const std::size_t packed = size_ - rows_.back().begin;
    const std::ptrdiff_t length =
        each.is_dense() ? static_cast<std::ptrdiff_t>(packed) : distance(packed / each.size_, each.extent_);
    return static_cast<std::uintptr_t>(place) == moved(static_cast<std::uintptr_t>(rows_.back().place), length);
}

void Layout::Element::note_kind_of_last_row(const Element& each) {
    const bool is_first = rows_.size() == 1;
    if (!is_first && kinds_.size() == 1 && are_alike(*kinds_[0], each)) return;
    if (!is_first) kinds_.resize(rows_.size() - 1, kinds_[0]);
    kinds_.push_back(&each);
}

void Layout::Element::finish() {
    if (rows_.size() != 1 || rows_[0].place != 0 || !kinds_[0]->is_dense()) return;
    rows_.clear();
    kinds_.clear();
}

std::size_t Layout::Element::row_at(std::size_t offset) const {
    if (rows_.size() == 1) return 0;
    const auto after = std::upper_bound(rows_.begin(), rows_.end(), offset,
                                        [](std::size_t wanted, const Row& row) { return wanted < row.begin; });
    return static_cast<std::size_t>(after - rows_.begin()) - 1;
}

std::uint8_t* Layout::stretch() const {
    if (whole_->is_stretch()) return memory(address_);
    if (whole_->rows() != 1 || !whole_->each_of_row(0).is_dense()) return nullptr;
    return memory(moved(address_, whole_->row(0).place));
}

void Layout::pack(std::size_t offset, std::size_t size, std::uint8_t* out) const {
    walk(Copy<Out, std::uint8_t>(out), whole_, address_, offset, size);
}

void Layout::unpack(std::size_t offset, std::size_t size, const std::uint8_t* in) const {
    walk(Copy<In, const std::uint8_t>(in), whole_, address_, offset, size);
}

void Layout::wipe(std::size_t offset, std::size_t size) const {
    walk(Wipe(), whole_, address_, offset, size);
}

}  // namespace cryptmpi::engine
