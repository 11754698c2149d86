// The note that Go writes into what it makes: who finds it knows of system calls past the C library.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string_view>

namespace cryptmpi::programs {

/// Is it among the notes of this segment? A source answers `read<T>(offset)` with a value or nullopt, and says whether
/// it `holds(offset, text)`, which ends with a zero. No memory of the heap.
template <class Source>
bool has_go_note(const Source& source, std::uint64_t start, std::uint64_t size) {
    using std::string_view_literals::operator""sv;
    for (std::uint64_t offset = 0; offset < size;) {
        const auto note = source.template read<Elf64_Nhdr>(start + offset);
        if (!note) return false;
        if (source.holds(start + offset + sizeof(Elf64_Nhdr), "Go"sv)) return true;
        const auto padded = [](std::uint64_t bytes) { return (bytes + 3) & ~std::uint64_t{3}; };
        offset += sizeof(Elf64_Nhdr) + padded(note->n_namesz) + padded(note->n_descsz);
    }
    return false;
}

}  // namespace cryptmpi::programs
