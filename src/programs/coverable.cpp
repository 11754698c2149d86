#include "programs/coverable.hpp"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/exit_status.hpp"
#include "programs/go_note.hpp"

namespace cryptmpi::programs {
namespace {

constexpr int kDeepestScript = 5;  // the kernel's
constexpr const char* kUnprotected =
    "; the system loads no preloaded library into it, so its traffic would go out in clear";

#if defined(__x86_64__)
constexpr std::uint16_t kOwnMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kOwnMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr std::uint16_t kOwnMachine = EM_PPC64;
#elif defined(__riscv)
constexpr std::uint16_t kOwnMachine = EM_RISCV;
#elif defined(__s390x__)
constexpr std::uint16_t kOwnMachine = EM_S390;
#else
#error "which ELF machine is this?"
#endif

/// A regular file may be a FIFO by the time that it is opened, which would then wait for a writer. Where another
/// process has a lease on the file, the kernel's exec waits until that is given back, and so does this.
int open_to_look(const char* name) {
    constexpr int kHow = O_RDONLY | O_CLOEXEC | O_NOCTTY;
    const int file = ::open(name, kHow | O_NONBLOCK);
    return file < 0 && errno == EWOULDBLOCK ? ::open(name, kHow) : file;
}

/// A file that is read in pieces; what lies outside is not there.
class File {
public:
    explicit File(const std::string& name) : descriptor_(open_to_look(name.c_str())) {}
    ~File() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    bool is_open() const { return descriptor_ >= 0; }
    std::size_t bytes(std::uint64_t offset, void* to, std::size_t size) const {
        const ssize_t got = pread(descriptor_, to, size, static_cast<off_t>(offset));
        return got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    template <class T>
    std::optional<T> read(std::uint64_t offset) const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value;
        if (bytes(offset, &value, sizeof value) != sizeof value) return std::nullopt;
        return value;
    }
    /// The zero-terminated text at `offset`, cut off where it is longer than any that we look for.
    std::string text(std::uint64_t offset) const {
        std::array<char, 256> buffer{};
        const std::size_t size = bytes(offset, buffer.data(), buffer.size() - 1);
        return {buffer.data(), strnlen(buffer.data(), size)};
    }
    bool holds(std::uint64_t offset, std::string_view text) const { return this->text(offset) == text; }

private:
    int descriptor_;
};

/// The words of a script's first line after "#!"; empty for anything else.
std::vector<std::string> interpreter_line(const File& file) {
    std::array<char, 4096> start{};
    const std::string_view text(start.data(), file.bytes(0, start.data(), start.size()));
    std::vector<std::string> words;
    if (!text.starts_with("#!")) return words;
    std::string_view line = text.substr(2, text.find('\n') - 2);
    while (!line.empty()) {
        const auto end = std::min(line.find_first_of(" \t\r"), line.size());
        if (end > 0) words.emplace_back(line.substr(0, end));
        line.remove_prefix(std::min(end + 1, line.size()));
    }
    return words;
}

/// What env(1) in a "#!" line will run.
std::string program_of_env(const std::vector<std::string>& words) {
    for (std::size_t i = 1; i < words.size(); ++i) {
        if (!words[i].starts_with('-') && words[i].find('=') == std::string::npos) return words[i];
    }
    return {};
}

/// What the kernel and the loader look at.
struct Elf {
    std::uint16_t machine = EM_NONE;
    bool is_64_bit = false;
    std::string interpreter;  // empty: statically linked
    bool made_by_go = false;
    std::uint64_t loaded = 0;   // bytes of memory that its segments take
    std::uint64_t written = 0;  // those of them that it may write to
};

/// What our libraries, and those that they need, take at most, with room to spare.
constexpr std::uint64_t kOwnMemory = 64ULL * 1024 * 1024;
/// What is written to of that: the table of descriptors, the stack of the thread that brings connections to their end,
/// and the heap. Without it the program would end in the middle, by an exception that it does not know.
constexpr std::uint64_t kOwnData = 32ULL * 1024 * 1024;

struct MissingMemory {
    const char* limit;  // as ulimit knows it
    std::uint64_t needed;
};

/// The loader leaves out a preloaded library for which there is no memory, and goes on with smaller ones.
std::optional<MissingMemory> memory_that_is_missing(const Elf& elf) {
    const auto allows = [](auto resource, std::uint64_t needed) {
        rlimit limit{};
        return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed;
    };
    const std::uint64_t all = elf.loaded + kOwnMemory;
    if (!allows(RLIMIT_AS, all)) return MissingMemory{"-v", all};
    const std::uint64_t data = elf.written + kOwnData;
    if (!allows(RLIMIT_DATA, data)) return MissingMemory{"-d", data};
    return std::nullopt;
}

bool has_go_section(const File& file, const Elf64_Ehdr& header) {
    if (header.e_shoff == 0) return false;
    const auto section = [&](std::uint64_t number) {
        return file.read<Elf64_Shdr>(header.e_shoff + number * sizeof(Elf64_Shdr));
    };
    const auto names = section(header.e_shstrndx);
    for (std::uint64_t i = 0; names && i < header.e_shnum; ++i) {
        const auto one = section(i);
        if (one && file.text(names->sh_offset + one->sh_name) == ".go.buildinfo") return true;
    }
    return false;
}

/// Nothing: it is no ELF file.
std::optional<Elf> read_elf(const File& file) {
    const auto header = file.read<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
    Elf elf;
    elf.machine = header->e_machine;
    elf.is_64_bit = header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == ELFDATA2LSB;
    for (std::uint64_t i = 0; elf.is_64_bit && i < header->e_phnum; ++i) {
        const auto segment = file.read<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
        if (!segment) break;
        if (segment->p_type == PT_LOAD) elf.loaded += segment->p_memsz;
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_W) != 0) elf.written += segment->p_memsz;
        if (segment->p_type == PT_INTERP) elf.interpreter = file.text(segment->p_offset);
        if (segment->p_type == PT_NOTE)
            elf.made_by_go = elf.made_by_go || has_go_note(file, segment->p_offset, segment->p_filesz);
    }
    elf.made_by_go = elf.made_by_go || (elf.is_64_bit && has_go_section(file, *header));
    return elf;
}

/// glibc's loader obeys LD_PRELOAD; of others nothing is known.
bool is_of_glibc(const std::string& interpreter) {
    const auto name = interpreter.substr(interpreter.rfind('/') + 1);
    return name.starts_with("ld-linux") || name.starts_with("ld64.so") || name.starts_with("ld-2.");
}

Refusal refuse(const std::string& file, const std::string& why, int status = kExitRefused, int code = EACCES) {
    return {"program " + file + " " + why, status, code};
}

Refusal of_kernel(Refusal refusal) {
    refusal.is_kernels = true;
    return refusal;
}

/// What the kernel says to a file of this kind before it looks into it.
std::optional<Refusal> judge_kind(const std::string& name, const struct stat& status) {
    if (!S_ISREG(status.st_mode)) return of_kernel(refuse(name, "is not a file", kExitNotExecutable));
    // Any other error is no answer, as that of a sandbox in which this call is unknown.
    if (faccessat(AT_FDCWD, name.c_str(), X_OK, AT_EACCESS) == 0 || errno != EACCES) return std::nullopt;
    return of_kernel(refuse(name, "is not executable; chmod +x it", kExitNotExecutable));
}

std::string bytes_of_hex(std::string_view digits) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
        bytes += static_cast<char>(std::strtol(std::string(digits.substr(i, 2)).c_str(), nullptr, 16));
    return bytes;
}

/// One kind of file that binfmt_misc knows.
struct Registration {
    bool enabled = false;
    std::string interpreter;
    std::string extension;
    std::size_t offset = 0;
    std::string magic;
    std::string mask;  // empty: all bits count

    explicit Registration(std::string_view text) {
        while (!text.empty()) {
            const std::string_view line = text.substr(0, text.find('\n'));
            text.remove_prefix(std::min(line.size() + 1, text.size()));
            const std::string_view name = line.substr(0, line.find(' '));
            const std::string value(line.substr(std::min(name.size() + 1, line.size())));
            if (name == "enabled") enabled = true;
            if (name == "interpreter") interpreter = value;
            if (name == "extension") extension = value;
            if (name == "offset") offset = std::strtoul(value.c_str(), nullptr, 10);
            if (name == "magic") magic = bytes_of_hex(value);
            if (name == "mask") mask = bytes_of_hex(value);
        }
    }

    bool takes(const std::string& name, std::string_view start) const {
        if (!enabled) return false;
        if (!extension.empty()) return name.ends_with(extension);
        if (magic.empty() || start.size() < offset + magic.size()) return false;
        for (std::size_t i = 0; i < magic.size(); ++i) {
            const int different = start[offset + i] ^ magic[i];
            if ((different & (i < mask.size() ? mask[i] : 0xFF)) != 0) return false;
        }
        return true;
    }
};

/// The interpreter to which the kernel hands a file like this one by its list of kinds; empty: none.
std::string registered_interpreter(const std::string& name, const File& file) {
    constexpr const char* kList = "/proc/sys/fs/binfmt_misc";
    const auto close = [](DIR* open) { closedir(open); };
    const std::unique_ptr<DIR, decltype(close)> folder(opendir(kList), close);
    if (!folder || File(fmt::format("{}/status", kList)).text(0) == "disabled\n") return {};
    std::array<char, 256> start{};  // as much as the kernel looks at
    (void)file.bytes(0, start.data(), start.size());
    while (const dirent* entry = readdir(folder.get())) {
        const std::string_view kind = entry->d_name;
        if (kind == "." || kind == ".." || kind == "register" || kind == "status") continue;
        std::array<char, 4096> text{};
        const std::size_t size = File(fmt::format("{}/{}", kList, kind)).bytes(0, text.data(), text.size());
        const Registration registration({text.data(), size});
        if (registration.takes(name, {start.data(), start.size()})) return registration.interpreter;
    }
    return {};
}

std::optional<Refusal> judge_elf(const std::string& name, const Elf& elf) {
    if (elf.machine != kOwnMachine || !elf.is_64_bit) {
        return refuse(name,
                      fmt::format("is for another kind of machine (ELF machine {}{}); build it for this one",
                                  elf.machine, elf.is_64_bit ? "" : ", 32 bits"),
                      kExitNotExecutable);
    }
    if (elf.made_by_go) {
        return refuse(name,
                      "is a Go program: it makes its own system calls, past the C library, so its traffic would go "
                      "out in clear; only programs that use the C library can be sealed");
    }
    if (elf.interpreter.empty())
        return refuse(name, std::string("is statically linked") + kUnprotected + "; link it dynamically");
    if (elf.interpreter.find("ld-musl") != std::string::npos) {
        return refuse(name, "uses musl, not glibc, so our library cannot be loaded into it; build it against glibc");
    }
    if (!is_of_glibc(elf.interpreter)) {
        return refuse(name, "is loaded by " + elf.interpreter +
                                ", not by glibc's loader, so our library cannot be loaded into it; build it "
                                "against glibc");
    }
    if (const auto missing = memory_that_is_missing(elf)) {
        return refuse(name, fmt::format("may not have the memory that our library needs beside it, so the loader would "
                                        "leave that out; raise the limit (ulimit {}) to {} KiB at least",
                                        missing->limit, missing->needed / 1024));
    }
    return std::nullopt;
}

std::optional<Refusal> judge_deep(const std::string& name, const Locate& locate, int depth);

std::optional<Refusal> judge_script(const std::string& name, const std::vector<std::string>& words,
                                    const Locate& locate, int depth) {
    if (depth == 0) {
        return of_kernel(
            refuse(name, "has an interpreter that is a script of scripts, too deep", kExitNotExecutable, ELOOP));
    }
    auto refusal = judge_deep(words.front(), locate, depth - 1);
    const bool by_env = words.front().substr(words.front().rfind('/') + 1) == "env";
    if (const std::string program = by_env ? program_of_env(words) : ""; !refusal && locate && !program.empty()) {
        std::string file;
        refusal = locate(program, file);
        if (!refusal) refusal = judge_deep(file, locate, depth - 1);
    }
    if (refusal) refusal->line = "script " + name + ": " + refusal->line;
    return refusal;
}

std::optional<Refusal> judge_deep(const std::string& name, const Locate& locate, int depth) {
    struct stat status {};
    if (stat(name.c_str(), &status) != 0) {
        const int code = errno;
        return of_kernel({"program " + name + ": " + std::strerror(code), kExitNotFound, code});
    }
    if (auto refusal = judge_kind(name, status)) return refusal;
    const File file(name);
    if (!file.is_open()) {
        return refuse(name, std::string("cannot be read (") + std::strerror(errno) +
                                "), so nobody knows whether our library would be loaded into it; chmod +r it");
    }
    const auto elf = read_elf(file);
    if (const std::string interpreter = elf ? "" : registered_interpreter(name, file); !interpreter.empty()) {
        return refuse(name,
                      fmt::format("is of a kind for which the system runs {} (binfmt_misc), and nobody has looked "
                                  "at that; start {} with the file as its argument",
                                  interpreter, interpreter));
    }
    const auto script = interpreter_line(file);
    if (!script.empty()) return judge_script(name, script, locate, depth);
    if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) {
        return refuse(name, std::string("is set-user-ID or set-group-ID") + kUnprotected +
                                "; remove the bit (chmod ug-s) on a copy of your own");
    }
    if (getxattr(name.c_str(), "security.capability", nullptr, 0) > 0) {
        return refuse(name, std::string("has file capabilities") + kUnprotected + "; use a copy without (setcap -r)");
    }
    if (!elf)
        return refuse(name, "is neither an ELF executable nor a script with a #! line", kExitNotExecutable, ENOEXEC);
    return judge_elf(name, *elf);
}

}  // namespace

std::optional<Refusal> judge(const std::string& file, const Locate& locate) {
    return judge_deep(file, locate, kDeepestScript);
}

std::string find_in_path(const std::string& name, const char* path) {
    // As far as its mode says; else errno is set.
    const auto runnable = [](const std::string& file) {
        struct stat status {};
        if (stat(file.c_str(), &status) != 0) return false;
        const bool is_refused = judge_kind(file, status).has_value();
        if (is_refused) errno = EACCES;
        return !is_refused;
    };
    const bool is_a_path = name.find('/') != std::string::npos;
    if (is_a_path && runnable(name)) return name;
    if (is_a_path) return {};
    const std::string_view folders = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
    int code = ENOENT;
    for (std::size_t start = 0; !name.empty() && start <= folders.size();) {
        const auto end = std::min(folders.find(':', start), folders.size());
        std::string file(end == start ? "." : folders.substr(start, end - start));
        start = end + 1;
        if (file.size() >= PATH_MAX) continue;
        file.append("/").append(name);
        if (runnable(file)) return file;
        if (errno == EACCES) code = EACCES;
        constexpr std::array kGoesOn{EACCES, ENOENT, ENOTDIR, ESTALE, ENODEV, ETIMEDOUT};
        if (std::find(kGoesOn.begin(), kGoesOn.end(), errno) == kGoesOn.end()) return {};
    }
    errno = code;
    return {};
}

}  // namespace cryptmpi::programs
