#include "programs/coverable.hpp"

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
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/exit_status.hpp"
#include "programs/go_note.hpp"

namespace cryptmpi::programs {
namespace {

constexpr int kDeepestScript = 5;
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

/// A file that is read in pieces; what lies outside is not there.
class File {
public:
    explicit File(const std::string& name) : descriptor_(::open(name.c_str(), O_RDONLY | O_CLOEXEC)) {}
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
    std::uint64_t loaded = 0;  // bytes of memory that its segments take
};

/// What our libraries, and those that they need, take at most, with room to spare.
constexpr std::uint64_t kOwnMemory = 64ULL * 1024 * 1024;

/// The loader leaves out a preloaded library for which there is no memory, and goes on with smaller ones.
std::optional<std::uint64_t> memory_that_is_missing(const Elf& elf) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    const std::uint64_t needed = elf.loaded + kOwnMemory;
    return limit.rlim_cur < needed ? std::optional(needed) : std::nullopt;
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
    if (const auto needed = memory_that_is_missing(elf)) {
        return refuse(name, fmt::format("may not have the memory that our library needs beside it, so the loader would "
                                        "leave that out; raise the limit (ulimit -v) to {} KiB at least",
                                        *needed / 1024));
    }
    return std::nullopt;
}

std::optional<Refusal> judge_deep(const std::string& name, const Locate& locate, int depth);

std::optional<Refusal> judge_script(const std::string& name, const std::vector<std::string>& words,
                                    const Locate& locate, int depth) {
    if (depth == 0) return refuse(name, "has an interpreter that is a script of scripts, too deep", kExitNotExecutable);
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
        return Refusal{"program " + name + ": " + std::strerror(code), kExitNotFound, code};
    }
    const File file(name);
    if (!file.is_open()) {
        return refuse(name, std::string("cannot be read (") + std::strerror(errno) +
                                "), so nobody knows whether our library would be loaded into it; chmod +r it");
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
    const auto elf = read_elf(file);
    if (!elf)
        return refuse(name, "is neither an ELF executable nor a script with a #! line", kExitNotExecutable, ENOEXEC);
    return judge_elf(name, *elf);
}

}  // namespace

std::optional<Refusal> judge(const std::string& file, const Locate& locate) {
    return judge_deep(file, locate, kDeepestScript);
}

std::string find_in_path(const std::string& name, const char* path) {
    const auto runnable = [](const std::string& file) {
        struct stat status {};
        return stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
               faccessat(AT_FDCWD, file.c_str(), X_OK, AT_EACCESS) == 0;
    };
    if (name.empty()) return {};
    if (name.find('/') != std::string::npos) return runnable(name) ? name : std::string();
    const std::string_view folders = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
    for (std::size_t start = 0; start <= folders.size();) {
        const auto end = std::min(folders.find(':', start), folders.size());
        std::string file(end == start ? "." : folders.substr(start, end - start));
        file.append("/").append(name);
        if (runnable(file)) return file;
        start = end + 1;
    }
    return {};
}

}  // namespace cryptmpi::programs
