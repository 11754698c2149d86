#include "loader/loaded.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace cryptmpi::loader {
namespace {

#if defined(__x86_64__)
constexpr ElfW(Word) kCall = R_X86_64_JUMP_SLOT;
constexpr ElfW(Word) kAddress = R_X86_64_GLOB_DAT;
constexpr ElfW(Word) kPointer = R_X86_64_64;
#elif defined(__aarch64__)
constexpr ElfW(Word) kCall = R_AARCH64_JUMP_SLOT;
constexpr ElfW(Word) kAddress = R_AARCH64_GLOB_DAT;
constexpr ElfW(Word) kPointer = R_AARCH64_ABS64;
#endif

using Relocation = ElfW(Rela);

}  // namespace

/// The parts of an object's dynamic section that relocations and symbols need.
struct Dynamic {
    const ElfW(Sym) * symbols = nullptr;
    const char* strings = nullptr;
    const ElfW(Word) * gnu_hash = nullptr;
    const ElfW(Word) * hash = nullptr;
    const Relocation* calls = nullptr;
    std::size_t call_bytes = 0;
    const Relocation* others = nullptr;
    std::size_t other_bytes = 0;
    const ElfW(Half) * versions = nullptr;  // of each symbol, as a number
    const ElfW(Verneed) * needed = nullptr;
    std::size_t needed_count = 0;  // files, of which it needs versions
};

namespace {

Dynamic read_dynamic(const ElfW(Dyn) * entry, ElfW(Addr) base) {
    // The loader adds the base to these in place, but for objects whose dynamic section is read-only.
    const auto at = [base](ElfW(Addr) address) { return address < base ? base + address : address; };
    Dynamic dynamic;
    for (; entry->d_tag != DT_NULL; ++entry) {
        switch (entry->d_tag) {
            case DT_SYMTAB:
                dynamic.symbols = reinterpret_cast<const ElfW(Sym)*>(at(entry->d_un.d_ptr));
                break;
            case DT_STRTAB:
                dynamic.strings = reinterpret_cast<const char*>(at(entry->d_un.d_ptr));
                break;
            case DT_GNU_HASH:
                dynamic.gnu_hash = reinterpret_cast<const ElfW(Word)*>(at(entry->d_un.d_ptr));
                break;
            case DT_HASH:
                dynamic.hash = reinterpret_cast<const ElfW(Word)*>(at(entry->d_un.d_ptr));
                break;
            case DT_JMPREL:
                dynamic.calls = reinterpret_cast<const Relocation*>(at(entry->d_un.d_ptr));
                break;
            case DT_PLTRELSZ:
                dynamic.call_bytes = entry->d_un.d_val;
                break;
            case DT_RELA:
                dynamic.others = reinterpret_cast<const Relocation*>(at(entry->d_un.d_ptr));
                break;
            case DT_RELASZ:
                dynamic.other_bytes = entry->d_un.d_val;
                break;
            case DT_VERSYM:
                dynamic.versions = reinterpret_cast<const ElfW(Half)*>(at(entry->d_un.d_ptr));
                break;
            case DT_VERNEED:
                dynamic.needed = reinterpret_cast<const ElfW(Verneed)*>(at(entry->d_un.d_ptr));
                break;
            case DT_VERNEEDNUM:
                dynamic.needed_count = entry->d_un.d_val;
                break;
            default:
                break;
        }
    }
    return dynamic;
}

/// Only the tables of hashes tell how many symbols there are.
std::size_t count_of_symbols(const Dynamic& dynamic) {
    if (dynamic.hash != nullptr) return dynamic.hash[1];
    if (dynamic.gnu_hash == nullptr) return 0;
    const ElfW(Word)* header = dynamic.gnu_hash;
    const ElfW(Word) bucket_count = header[0];
    const ElfW(Word) first = header[1];
    const ElfW(Word)* buckets = header + 4 + header[2] * (sizeof(ElfW(Addr)) / sizeof(ElfW(Word)));
    const ElfW(Word)* chains = buckets + bucket_count;
    ElfW(Word) last = 0;
    for (ElfW(Word) i = 0; i < bucket_count; ++i) last = std::max(last, buckets[i]);
    if (last < first) return first;
    while ((chains[last - first] & 1) == 0) ++last;
    return last + 1;
}

template <class Entry>
const Entry* behind(const void* at, std::size_t distance) {
    return reinterpret_cast<const Entry*>(static_cast<const char*>(at) + distance);
}

/// The pages that the loader made read-only after it had filled them, writable for a while.
class Writable {
public:
    Writable(ElfW(Addr) start, std::size_t size) {
        const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
        start_ = reinterpret_cast<void*>(start & ~(page - 1));
        size_ = ((start + size) & ~(page - 1)) - (start & ~(page - 1));
        if (size_ > 0) mprotect(start_, size_, PROT_READ | PROT_WRITE);
    }
    ~Writable() {
        if (size_ > 0) mprotect(start_, size_, PROT_READ);
    }
    Writable(const Writable&) = delete;
    Writable& operator=(const Writable&) = delete;

private:
    void* start_;
    std::size_t size_;
};

}  // namespace

LoadedObject::LoadedObject(const dl_phdr_info& information)
    : file_(information.dlpi_name),
      base_(information.dlpi_addr),
      headers_(information.dlpi_phdr),
      header_count_(information.dlpi_phnum) {}

std::vector<LoadedObject> LoadedObject::all() {
    std::vector<LoadedObject> objects;
    dl_iterate_phdr(
        [](dl_phdr_info* information, std::size_t, void* all) {
            LoadedObject object(*information);
            const bool is_this_library = object.holds(reinterpret_cast<const void*>(read_dynamic));
            const bool is_vdso = !object.is_program() && object.file_.find('/') == std::string::npos;
            if (!is_this_library && !is_vdso)
                static_cast<std::vector<LoadedObject>*>(all)->push_back(std::move(object));
            return 0;
        },
        &objects);
    return objects;
}

const LoadedObject* LoadedObject::holding(const std::vector<LoadedObject>& objects, const void* address) {
    const auto found = std::find_if(objects.begin(), objects.end(),
                                    [address](const LoadedObject& object) { return object.holds(address); });
    return found == objects.end() ? nullptr : &*found;
}

bool LoadedObject::holds(const void* address) const {
    const auto wanted = reinterpret_cast<ElfW(Addr)>(address);
    return std::any_of(headers_, headers_ + header_count_, [&](const ElfW(Phdr) & header) {
        const ElfW(Addr) start = base_ + header.p_vaddr;
        return header.p_type == PT_LOAD && wanted >= start && wanted < start + header.p_memsz;
    });
}

Dynamic LoadedObject::dynamic() const {
    for (int i = 0; i < header_count_; ++i) {
        if (headers_[i].p_type == PT_DYNAMIC)
            return read_dynamic(reinterpret_cast<const ElfW(Dyn)*>(base_ + headers_[i].p_vaddr), base_);
    }
    return {};
}

void LoadedObject::each_exported(const std::function<void(const char* name, void* function)>& action) const {
    const Dynamic dynamic = this->dynamic();
    if (dynamic.symbols == nullptr || dynamic.strings == nullptr) return;
    const std::size_t count = count_of_symbols(dynamic);
    for (std::size_t i = 0; i < count; ++i) {
        const ElfW(Sym)& symbol = dynamic.symbols[i];
        const bool function = symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
        if (!function || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) continue;
        action(dynamic.strings + symbol.st_name, reinterpret_cast<void*>(base_ + symbol.st_value));
    }
}

void* LoadedObject::exported(std::string_view name) const {
    void* found = nullptr;
    each_exported([&](const char* candidate, void* function) {
        if (found == nullptr && candidate == name) found = function;
    });
    return found;
}

const char* Reference::version() const {
    if (object.versions == nullptr || object.needed == nullptr) return nullptr;
    constexpr unsigned kHidden = 0x8000;
    const unsigned number = object.versions[symbol] & ~kHidden;
    const auto* file = object.needed;
    for (std::size_t i = 0; i < object.needed_count; ++i, file = behind<ElfW(Verneed)>(file, file->vn_next)) {
        const auto* one = behind<ElfW(Vernaux)>(file, file->vn_aux);
        for (std::size_t j = 0; j < file->vn_cnt; ++j, one = behind<ElfW(Vernaux)>(one, one->vna_next)) {
            if ((one->vna_other & ~kHidden) == number) return object.strings + one->vna_name;
        }
    }
    return nullptr;
}

void LoadedObject::each_reference(const std::function<void(const Reference&)>& action) const {
    const Dynamic dynamic = this->dynamic();
    if (dynamic.symbols == nullptr || dynamic.strings == nullptr) return;
    const auto walk = [&](const Relocation* relocations, std::size_t bytes) {
        for (std::size_t i = 0; relocations != nullptr && i < bytes / sizeof(Relocation); ++i) {
            const auto type = ELF64_R_TYPE(relocations[i].r_info);
            const bool pointer = type == kPointer && relocations[i].r_addend == 0;
            if (type != kCall && type != kAddress && !pointer) continue;
            const std::size_t number = ELF64_R_SYM(relocations[i].r_info);
            const ElfW(Sym)& symbol = dynamic.symbols[number];
            const bool own = symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
            action({dynamic.strings + symbol.st_name, ELF64_ST_BIND(symbol.st_info) == STB_WEAK, pointer,
                    own ? reinterpret_cast<void*>(base_ + symbol.st_value) : nullptr,
                    reinterpret_cast<void**>(base_ + relocations[i].r_offset), dynamic, number});
        }
    };
    walk(dynamic.calls, dynamic.call_bytes);
    walk(dynamic.others, dynamic.other_bytes);
}

void LoadedObject::bind(const std::function<void*(const Reference&)>& address_for) const {
    std::vector<std::pair<void**, void*>> changes;
    each_reference([&](const Reference& reference) {
        void* const address = address_for(reference);
        if (address != *reference.place) changes.emplace_back(reference.place, address);
    });
    if (changes.empty()) return;
    const auto* relro = std::find_if(headers_, headers_ + header_count_,
                                     [](const ElfW(Phdr) & header) { return header.p_type == PT_GNU_RELRO; });
    const bool has_relro = relro != headers_ + header_count_;
    const Writable writable(has_relro ? base_ + relro->p_vaddr : 0, has_relro ? relro->p_memsz : 0);
    for (const auto& [place, address] : changes) *place = address;
}

const link_map* object_with(const void* address) {
    Dl_info information{};
    void* object = nullptr;
    const bool found = dladdr1(address, &information, &object, RTLD_DL_LINKMAP) != 0;
    return found ? static_cast<const link_map*>(object) : nullptr;
}

bool comes_behind(const link_map& object, const link_map& first) {
    const link_map* one = first.l_prev;
    while (one != nullptr && one != &object) one = one->l_prev;
    return one == nullptr && &object != &first;
}

void* function_of(const link_map& object, std::string_view name) {
    const Dynamic dynamic = read_dynamic(object.l_ld, object.l_addr);
    if (dynamic.symbols == nullptr || dynamic.strings == nullptr) return nullptr;
    const std::size_t count = count_of_symbols(dynamic);
    for (std::size_t i = 0; i < count; ++i) {
        const ElfW(Sym)& symbol = dynamic.symbols[i];
        const bool function = symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
        if (!function || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) continue;
        if (name == dynamic.strings + symbol.st_name) return reinterpret_cast<void*>(object.l_addr + symbol.st_value);
    }
    return nullptr;
}

void* function_behind(const link_map& object, std::string_view name) {
    void* found = nullptr;
    for (const link_map* one = object.l_next; one != nullptr && found == nullptr; one = one->l_next)
        found = function_of(*one, name);
    return found;
}

}  // namespace cryptmpi::loader
