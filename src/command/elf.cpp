#include "command/elf.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "command/shell.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

/// A file mapped for reading; every access is checked against its size.
class Mapping {
public:
    static Result<Mapping> open(const fs::path& file) {
        const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) return fail(errno, "cannot read " + file.string() + ": " + std::strerror(errno));
        struct stat status {};
        void* start = MAP_FAILED;
        if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
            start = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
        }
        close(descriptor);
        if (start == MAP_FAILED) return fail(ENOEXEC, file.string() + " is empty or not a plain file");
        return Mapping(static_cast<const char*>(start), static_cast<std::size_t>(status.st_size));
    }
    Mapping(Mapping&& other) noexcept : start_(std::exchange(other.start_, nullptr)), size_(other.size_) {}
    Mapping& operator=(Mapping&&) = delete;
    ~Mapping() {
        if (start_ != nullptr) munmap(const_cast<char*>(start_), size_);
    }

    std::string_view all() const { return {start_, size_}; }

    template <class T>
    std::optional<T> read(std::uint64_t offset) const {
        static_assert(std::is_trivially_copyable_v<T>);
        if (offset > size_ || size_ - offset < sizeof(T)) return std::nullopt;
        T value;
        std::memcpy(&value, start_ + offset, sizeof(T));
        return value;
    }
    /// The zero-terminated text at `offset`; empty outside the file.
    std::string text(std::uint64_t offset) const {
        if (offset >= size_) return {};
        return {start_ + offset, strnlen(start_ + offset, size_ - offset)};
    }

private:
    Mapping(const char* start, std::size_t size) : start_(start), size_(size) {}
    const char* start_;
    std::size_t size_;
};

/// The places in the file that the loader looks at.
struct Segments {
    std::vector<Elf64_Phdr> loads;
    std::optional<Elf64_Phdr> dynamic;

    std::uint64_t offset_of(std::uint64_t address) const {
        for (const auto& load : loads) {
            if (address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz) {
                return address - load.p_vaddr + load.p_offset;
            }
        }
        return UINT64_MAX;
    }
};

void read_dynamic(const Mapping& mapping, const Segments& segments, ElfFile& elf) {
    if (!segments.dynamic) return;
    std::uint64_t strings = UINT64_MAX;
    std::vector<std::pair<std::int64_t, std::uint64_t>> names;
    const auto count = segments.dynamic->p_filesz / sizeof(Elf64_Dyn);
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto entry = mapping.read<Elf64_Dyn>(segments.dynamic->p_offset + i * sizeof(Elf64_Dyn));
        if (!entry || entry->d_tag == DT_NULL) break;
        if (entry->d_tag == DT_STRTAB) strings = segments.offset_of(entry->d_un.d_ptr);
        if (entry->d_tag == DT_NEEDED || entry->d_tag == DT_RPATH || entry->d_tag == DT_RUNPATH) {
            names.emplace_back(entry->d_tag, entry->d_un.d_val);
        }
    }
    if (strings == UINT64_MAX) return;
    for (const auto& [tag, offset] : names) {
        auto text = mapping.text(strings + offset);
        if (tag == DT_NEEDED) {
            elf.needed.push_back(std::move(text));
        } else if (tag == DT_RPATH) {
            elf.rpath = std::move(text);
        } else {
            elf.runpath = std::move(text);
        }
    }
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const auto end = std::min(text.find(separator), text.size());
        if (end > 0) parts.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

std::string replaced(std::string text, std::string_view what, const std::string& with) {
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
        text.replace(at, what.size(), with);
    }
    return text;
}

/// The folders of a search path, $ORIGIN being the folder of the object that names them.
std::vector<std::string> folders(const std::string& search_path, const fs::path& object) {
    const std::string origin = object.parent_path().string();
    std::vector<std::string> result;
    for (const auto& folder : split(search_path, ':')) {
        result.push_back(replaced(replaced(folder, "${ORIGIN}", origin), "$ORIGIN", origin));
    }
    return result;
}

/// The loader's cache as ldconfig prints it: name -> file.
const std::multimap<std::string, std::string>& loader_cache() {
    static const auto cache = [] {
        std::multimap<std::string, std::string> entries;
        auto listing = output_of({"ldconfig", "-p"});
        if (!listing) listing = output_of({"/sbin/ldconfig", "-p"});  // sbin is not in every user's PATH
        std::istringstream lines(listing.value_or(""));
        for (std::string line; std::getline(lines, line);) {
            const auto arrow = line.find(" => ");
            const auto name = line.find_first_not_of(" \t");
            if (arrow == std::string::npos || name == std::string::npos) continue;
            entries.emplace(line.substr(name, line.find(' ', name) - name), line.substr(arrow + 4));
        }
        return entries;
    }();
    return cache;
}

/// An object that was found, with the folders that its own and its parents' RPATH offers for what it needs.
struct Found {
    fs::path file;
    ElfFile elf;
    std::vector<std::string> rpath;
};

std::optional<std::pair<fs::path, ElfFile>> usable(const fs::path& file) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) return std::nullopt;
    auto elf = read_elf(file);
    if (!elf || elf->machine != own_machine() || !elf->is_64_bit) return std::nullopt;
    return std::pair{file, std::move(*elf)};
}

std::optional<std::pair<fs::path, ElfFile>> search(const std::string& name, const Found& wanting,
                                                   const config::Environment& environment) {
    if (name.find('/') != std::string::npos) return usable(name);
    std::vector<std::string> places;
    const auto add = [&](const std::vector<std::string>& more) {
        places.insert(places.end(), more.begin(), more.end());
    };
    if (wanting.elf.runpath.empty()) add(wanting.rpath);
    if (auto path = environment("LD_LIBRARY_PATH")) add(split(replaced(*path, ";", ":"), ':'));
    add(folders(wanting.elf.runpath, wanting.file));
    for (const auto& place : places) {
        if (auto object = usable(fs::path(place) / name)) return object;
    }
    const auto [first, last] = loader_cache().equal_range(name);
    for (auto entry = first; entry != last; ++entry) {
        if (auto object = usable(entry->second)) return object;
    }
    for (const char* place : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) {
        if (auto object = usable(fs::path(place) / name)) return object;
    }
    return std::nullopt;
}

}  // namespace

Result<ElfFile> read_elf(const fs::path& file) {
    auto mapping = Mapping::open(file);
    if (!mapping) return tl::unexpected<Error>(mapping.error());
    const auto header = mapping->read<Elf64_Ehdr>(0);
    if (!mapping->all().starts_with(std::string_view(ELFMAG, SELFMAG)) || !header) {
        return fail(ENOEXEC, file.string() + " is not an ELF file");
    }
    ElfFile elf;
    elf.machine = header->e_machine;
    elf.is_64_bit = header->e_ident[EI_CLASS] == ELFCLASS64;
    if (!elf.is_64_bit || header->e_ident[EI_DATA] != ELFDATA2LSB) return elf;
    Segments segments;
    for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
        const auto segment = mapping->read<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
        if (!segment) return fail(ENOEXEC, file.string() + " is an ELF file that was cut off");
        if (segment->p_type == PT_LOAD) segments.loads.push_back(*segment);
        if (segment->p_type == PT_DYNAMIC) segments.dynamic = *segment;
    }
    read_dynamic(*mapping, segments, elf);
    return elf;
}

Result<std::vector<std::string>> exported_functions(const fs::path& file) {
    if (auto elf = read_elf(file); !elf || !elf->is_64_bit || elf->machine != own_machine()) {
        return elf ? fail(ENOEXEC, file.string() + " is for another processor") : tl::unexpected<Error>(elf.error());
    }
    auto mapping = Mapping::open(file);
    if (!mapping) return tl::unexpected<Error>(mapping.error());
    const auto header = mapping->read<Elf64_Ehdr>(0);
    const auto section = [&](std::uint64_t number) {
        return mapping->read<Elf64_Shdr>(header->e_shoff + number * sizeof(Elf64_Shdr));
    };
    for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
        const auto symbols = section(i);
        if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
        const auto strings = section(symbols->sh_link);
        std::vector<std::string> functions;
        for (std::uint64_t at = 0; strings && at < symbols->sh_size; at += sizeof(Elf64_Sym)) {
            const auto symbol = mapping->read<Elf64_Sym>(symbols->sh_offset + at);
            if (!symbol) break;
            const bool exported = symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
            if (exported) functions.push_back(mapping->text(strings->sh_offset + symbol->st_name));
        }
        return functions;
    }
    return fail(ENOEXEC, file.string() + " has no table of what it exports");
}

std::uint16_t own_machine() {
    static const std::uint16_t machine = [] {
        auto self = read_elf("/proc/self/exe");
        return self ? self->machine : std::uint16_t{EM_NONE};
    }();
    return machine;
}

std::vector<fs::path> loaded_objects(const fs::path& program, const config::Environment& environment) {
    std::vector<fs::path> objects;
    std::error_code ignored;
    auto start = usable(fs::canonical(program, ignored));
    if (!start) return objects;
    std::set<std::string> seen;
    std::deque<Found> queue;
    queue.push_back({start->first, start->second, folders(start->second.rpath, start->first)});
    while (!queue.empty()) {
        const Found object = std::move(queue.front());
        queue.pop_front();
        for (const auto& name : object.elf.needed) {
            if (!seen.insert(name).second) continue;
            auto found = search(name, object, environment);
            if (!found) continue;
            objects.push_back(found->first);
            // RPATH passes on to what an object needs; RUNPATH does not.
            auto rpath = folders(found->second.rpath, found->first);
            rpath.insert(rpath.end(), object.rpath.begin(), object.rpath.end());
            queue.push_back({found->first, std::move(found->second), std::move(rpath)});
        }
    }
    return objects;
}

std::vector<fs::path> cached_objects(std::string_view prefix) {
    std::vector<fs::path> objects;
    for (const auto& [name, file] : loader_cache()) {
        if (name.starts_with(prefix)) objects.emplace_back(file);
    }
    return objects;
}

bool file_contains(const fs::path& file, std::string_view text) {
    auto mapping = Mapping::open(file);
    if (!mapping) return false;
    return memmem(mapping->all().data(), mapping->all().size(), text.data(), text.size()) != nullptr;
}

}  // namespace cryptmpi::command
