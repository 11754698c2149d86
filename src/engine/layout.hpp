// Where in memory the bytes of a message are that do not lie next to each other: elements, made of rows of other ones,
// down to bytes. Any part of the packed bytes can be copied out or in by itself, and by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace cryptmpi::engine {

class Layout {
public:
    /// So many packed bytes, some memory away from the next element of the kind. Without rows, a stretch of bytes.
    class Element {
    public:
        Element(std::size_t size, std::ptrdiff_t extent) : size_(size), extent_(extent) {}

        /// Packed behind what it has so far: `count` elements of a kind, which lives as long as this, one after the
        /// other. The first is `place` bytes from where this is.
        void append(const Element& each, std::size_t count, std::ptrdiff_t place);
        /// Room for so many rows.
        void expect(std::size_t rows) { rows_.reserve(rows); }
        /// Nothing is appended any more.
        void finish();

        std::size_t size() const { return size_; }
        std::ptrdiff_t extent() const { return extent_; }
        bool is_stretch() const { return rows_.empty(); }
        /// Are several of them a stretch, too?
        bool is_dense() const { return is_stretch() && extent_ == static_cast<std::ptrdiff_t>(size_); }

        struct Row {
            std::size_t begin;  // among the packed bytes
            std::ptrdiff_t place;
        };
        std::size_t rows() const { return rows_.size(); }
        /// The one that the packed byte at `offset` is in.
        std::size_t row_at(std::size_t offset) const;
        const Row& row(std::size_t i) const { return rows_[i]; }
        std::size_t end_of_row(std::size_t i) const { return i + 1 < rows_.size() ? rows_[i + 1].begin : size_; }
        const Element& each_of_row(std::size_t i) const { return kinds_.size() == 1 ? *kinds_[0] : *kinds_[i]; }

    private:
        bool continues_last_row(const Element& each, std::ptrdiff_t place) const;
        void note_kind_of_last_row(const Element& each);

        std::size_t size_;
        std::ptrdiff_t extent_;
        std::vector<Row> rows_;
        std::vector<const Element*> kinds_;  // of each row; one where all have the same
    };

    /// An element for this layout, to be described.
    Element& make(std::ptrdiff_t extent) { return elements_.emplace_back(0, extent); }
    /// The same: a stretch of bytes.
    const Element& make_stretch(std::size_t size) {
        return elements_.emplace_back(size, static_cast<std::ptrdiff_t>(size));
    }
    /// The layout is of this element, at `address`.
    void describe(const Element& whole, const void* address) {
        whole_ = &whole;
        address_ = reinterpret_cast<std::uintptr_t>(address);
    }

    std::size_t size() const { return whole_ == nullptr ? 0 : whole_->size(); }
    /// The bytes themselves, where they lie next to each other after all; else null.
    std::uint8_t* stretch() const;

    // Of the packed bytes, `size` from `offset` on.
    void pack(std::size_t offset, std::size_t size, std::uint8_t* out) const;
    void unpack(std::size_t offset, std::size_t size, const std::uint8_t* in) const;
    /// In memory. What lies between them stays.
    void wipe(std::size_t offset, std::size_t size) const;

private:
    std::deque<Element> elements_;  // which stay where they are
    const Element* whole_ = nullptr;
    std::uintptr_t address_ = 0;
};

}  // namespace cryptmpi::engine
