#include "interpose/contained.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string_view>

namespace cryptmpi::interpose {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kName = "PMPI_Init\0"sv;
// MPICH and its kin; Open MPI.
constexpr std::string_view kWords[] = {"MPI_Send(buf=%p"sv, "ompi_mpi_init: "sv};

/// The file's bytes; empty if it cannot be read: then nobody can run it, either.
class File {
public:
    explicit File(const std::string& name) {
        const int descriptor = open(name.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) return;
        struct stat status = {};
        if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
            size_ = static_cast<std::size_t>(status.st_size);
            start_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
            if (start_ == MAP_FAILED) size_ = 0;
        }
        close(descriptor);
    }
    ~File() {
        if (size_ > 0) munmap(start_, size_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    /// Outside the file there is nothing.
    std::string_view part(std::uint64_t offset, std::uint64_t size) const {
        if (offset > size_ || size > size_ - offset) return {};
        return {static_cast<const char*>(start_) + offset, size};
    }
    std::string_view all() const { return {static_cast<const char*>(start_), size_}; }
    template <class T>
    T read(std::uint64_t offset) const {
        T value = {};
        const auto bytes = part(offset, sizeof value);
        if (bytes.size() == sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }

private:
    void* start_ = nullptr;
    std::size_t size_ = 0;
};

bool has(std::string_view bytes, std::string_view what) {
    return memmem(bytes.data(), bytes.size(), what.data(), what.size()) != nullptr;
}

/// Most tables do not have the name at all: only then are the symbols looked at one by one.
bool defines_it(const File& file, const Elf64_Shdr& symbols, std::string_view names) {
    std::set<std::size_t> places;
    for (auto at = names.find(kName); at != std::string_view::npos; at = names.find(kName, at + 1)) places.insert(at);
    if (places.empty()) return false;
    for (std::uint64_t at = 0; at < symbols.sh_size; at += sizeof(Elf64_Sym)) {
        const auto symbol = file.read<Elf64_Sym>(symbols.sh_offset + at);
        const bool defined = symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
        if (defined && places.contains(symbol.st_name)) return true;
    }
    return false;
}

}  // namespace

bool contains_mpi(const std::string& name, bool is_program) {
    const File file(name);
    const auto header = file.read<Elf64_Ehdr>(0);
    bool stripped = true;
    for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
        const auto section = [&](std::uint64_t number) {
            return file.read<Elf64_Shdr>(header.e_shoff + number * sizeof(Elf64_Shdr));
        };
        const Elf64_Shdr symbols = section(i);
        if (symbols.sh_type != SHT_SYMTAB && symbols.sh_type != SHT_DYNSYM) continue;
        stripped = stripped && symbols.sh_type != SHT_SYMTAB;
        const Elf64_Shdr names = section(symbols.sh_link);
        if (defines_it(file, symbols, file.part(names.sh_offset, names.sh_size))) return true;
    }
    return is_program && stripped && (has(file.all(), kWords[0]) || has(file.all(), kWords[1]));
}

}  // namespace cryptmpi::interpose
