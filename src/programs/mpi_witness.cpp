#include "programs/mpi_witness.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cryptmpi::programs {
namespace {

using Question = int (*)(int*);

struct Objects {
    std::vector<std::string> libraries;  // files of MPIs
    std::uintptr_t program = 0;          // where the program's own file was loaded
};

/// libmpi.so.40, libmpich.so.12, libmpi_abi.so.0, libmpi_ilp64.so.4 and their like.
bool is_called_as_mpi(std::string_view file) {
    const auto name = file.substr(file.rfind('/') + 1);
    return name.starts_with("libmpi") && name.find(".so") != std::string_view::npos;
}

int collect(dl_phdr_info* object, std::size_t, void* to) {
    auto& objects = *static_cast<Objects*>(to);
    const std::string_view file = object->dlpi_name == nullptr ? "" : object->dlpi_name;
    if (file.empty() && objects.program == 0) objects.program = object->dlpi_addr;  // the first one is the program
    if (is_called_as_mpi(file)) objects.libraries.emplace_back(file);
    return 0;
}

bool says_yes(Question question) {
    int flag = 0;
    return question != nullptr && question(&flag) == 0 && flag != 0;
}

/// Its own one, not that of whoever stands before it in the loader's order.
void* function_of(const std::string& file, const std::string& name) {
    void* const library = dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    void* const function = dlsym(library, name.c_str());
    dlclose(library);
    return function;
}

/// The program's own file, mapped for reading; every access is checked against its size.
class ProgramFile {
public:
    ProgramFile(int (*open_file)(const char*), int (*close_file)(int)) {
        const int file = open_file("/proc/self/exe");
        if (file < 0) return;
        struct stat status {};
        if (fstat(file, &status) == 0 && status.st_size > 0) {
            size_ = static_cast<std::size_t>(status.st_size);
            start_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
        }
        close_file(file);
    }
    ~ProgramFile() {
        if (start_ != MAP_FAILED) munmap(start_, size_);
    }
    ProgramFile(const ProgramFile&) = delete;
    ProgramFile& operator=(const ProgramFile&) = delete;

    template <class T>
    std::optional<T> read(std::uint64_t offset) const {
        if (start_ == MAP_FAILED || offset > size_ || size_ - offset < sizeof(T)) return std::nullopt;
        T value;
        std::memcpy(&value, static_cast<const char*>(start_) + offset, sizeof(T));
        return value;
    }
    bool holds(std::uint64_t offset, std::string_view text) const {
        return offset < size_ && size_ - offset > text.size() &&
               std::memcmp(static_cast<const char*>(start_) + offset, text.data(), text.size() + 1) == 0;
    }

private:
    void* start_ = MAP_FAILED;
    std::size_t size_ = 0;
};

using Section = ElfW(Shdr);
using Symbol = ElfW(Sym);

/// The value of a function that this table of symbols defines.
std::optional<std::uint64_t> value_in(const ProgramFile& file, const Section& table, const Section& strings,
                                      std::string_view name) {
    for (std::uint64_t at = 0; at + sizeof(Symbol) <= table.sh_size; at += sizeof(Symbol)) {
        const auto symbol = file.read<Symbol>(table.sh_offset + at);
        if (!symbol) return std::nullopt;
        const bool defined = symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
        if (defined && file.holds(strings.sh_offset + symbol->st_name, name)) return symbol->st_value;
    }
    return std::nullopt;
}

/// An MPI that is linked into the program is in the loader's table only where the program exports its functions.
bool program_says_yes(std::uintptr_t program, const std::string& call, const ProgramFile& file) {
    const auto header = file.read<ElfW(Ehdr)>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
    const auto section = [&](std::uint64_t number) {
        return file.read<Section>(header->e_shoff + number * sizeof(Section));
    };
    for (std::uint64_t number = 0; number < header->e_shnum; ++number) {
        const auto table = section(number);
        if (!table || (table->sh_type != SHT_SYMTAB && table->sh_type != SHT_DYNSYM)) continue;
        const auto strings = section(table->sh_link);
        if (!strings) continue;
        for (const std::string& name : {call, "P" + call}) {
            const auto value = value_in(file, *table, *strings, name);
            if (value) return says_yes(reinterpret_cast<Question>(program + *value));
        }
    }
    return false;
}

}  // namespace

bool mpi_says(std::string_view what, int (*open_file)(const char*), int (*close_file)(int)) {
    const std::string call = "MPI_" + std::string(what);
    Objects objects;
    dl_iterate_phdr(collect, &objects);
    for (const auto& library : objects.libraries) {
        if (says_yes(reinterpret_cast<Question>(function_of(library, call)))) return true;
    }
    return objects.libraries.empty() && program_says_yes(objects.program, call, ProgramFile(open_file, close_file));
}

void* mpi_function(const std::string& name) {
    Objects objects;
    dl_iterate_phdr(collect, &objects);
    for (const auto& library : objects.libraries) {
        if (void* const function = function_of(library, name)) return function;
    }
    return nullptr;
}

}  // namespace cryptmpi::programs
