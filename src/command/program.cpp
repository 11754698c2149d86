#include "command/program.hpp"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "command/elf.hpp"
#include "command/process.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestScript = 5;

tl::unexpected<Refusal> refuse(std::string line, int status = kRefused) {
    return tl::unexpected<Refusal>(Refusal{std::move(line), status});
}

/// The words of a script's first line after "#!"; empty for anything else.
std::vector<std::string> interpreter_line(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    std::string line;
    constexpr std::size_t kLongest = 4096;
    for (char letter = 0; line.size() < kLongest && stream.get(letter) && letter != '\n';) line += letter;
    if (!line.starts_with("#!")) return {};
    std::istringstream words(line.substr(2));
    std::vector<std::string> result;
    for (std::string word; words >> word;) result.push_back(word);
    return result;
}

/// What env(1) in a "#!" line will run.
std::string program_of_env(const std::vector<std::string>& words) {
    for (std::size_t i = 1; i < words.size(); ++i) {
        if (!words[i].starts_with('-') && words[i].find('=') == std::string::npos) return words[i];
    }
    return {};
}

tl::expected<fs::path, Refusal> locate(const std::string& program, const config::Environment& environment) {
    if (auto file = find_in_path(program, environment)) return *file;
    if (program.find('/') == std::string::npos) {
        return refuse("program " + program + " not found in PATH", kNotFound);
    }
    struct stat status {};
    if (stat(program.c_str(), &status) != 0) {
        const int code = errno;
        return refuse("program " + program + ": " + std::strerror(code),
                      code == ENOENT || code == ENOTDIR ? kNotFound : kNotExecutable);
    }
    if (!S_ISREG(status.st_mode)) return refuse("program " + program + " is not a file", kNotExecutable);
    return refuse("program " + program + " is not executable; chmod +x it", kNotExecutable);
}

std::optional<Refusal> judge(const fs::path& file, const config::Environment& environment, int depth) {
    const std::string name = file.string();
    struct stat status {};
    if (stat(file.c_str(), &status) != 0) return Refusal{"program " + name + ": " + std::strerror(errno), kNotFound};

    const auto script = interpreter_line(file);
    if (!script.empty()) {
        if (depth == 0)
            return Refusal{"program " + name + ": its interpreter is a script of scripts, too deep", kNotExecutable};
        std::vector<std::string> programs = {script.front()};
        if (fs::path(script.front()).filename() == "env") programs.push_back(program_of_env(script));
        for (const auto& program : programs) {
            if (program.empty()) continue;
            auto interpreter = locate(program, environment);
            auto refusal =
                interpreter ? judge(*interpreter, environment, depth - 1) : std::optional(interpreter.error());
            if (refusal) return Refusal{"script " + name + ": " + refusal->line, refusal->status};
        }
        return std::nullopt;
    }

    const std::string unprotected =
        "; the system loads no preloaded library into it, so its traffic would go out in clear";
    if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) {
        return Refusal{"program " + name + " is set-user-ID or set-group-ID" + unprotected +
                           "; remove the bit (chmod ug-s) on a copy of your own",
                       kRefused};
    }
    if (getxattr(file.c_str(), "security.capability", nullptr, 0) > 0) {
        return Refusal{"program " + name + " has file capabilities" + unprotected + "; use a copy without (setcap -r)",
                       kRefused};
    }
    auto elf = read_elf(file);
    if (!elf) {
        if (elf.error().code != ENOEXEC) return std::nullopt;  // executable but unreadable: exec itself will tell
        return Refusal{"program " + name + " is neither an ELF executable nor a script with a #! line", kNotExecutable};
    }
    if (elf->machine != own_machine() || !elf->is_64_bit) {
        return Refusal{"program " + name + " is for another kind of machine (ELF machine " +
                           std::to_string(elf->machine) + (elf->is_64_bit ? "" : ", 32 bits") +
                           "); build it for this one",
                       kNotExecutable};
    }
    if (elf->made_by_go) {
        return Refusal{"program " + name +
                           " is a Go program: it makes its own system calls, past the C library, so its "
                           "traffic would go out in clear; only programs that use the C library can be sealed",
                       kRefused};
    }
    if (elf->interpreter.empty()) {
        return Refusal{"program " + name + " is statically linked" + unprotected + "; link it dynamically", kRefused};
    }
    if (elf->interpreter.find("ld-musl") != std::string::npos) {
        return Refusal{"program " + name +
                           " uses musl, not glibc, so our library cannot be loaded into it; build it against glibc",
                       kRefused};
    }
    return std::nullopt;
}

}  // namespace

tl::expected<fs::path, Refusal> coverable(const std::string& program, const config::Environment& environment) {
    auto file = locate(program, environment);
    if (!file) return file;
    if (auto refusal = judge(*file, environment, kDeepestScript)) return tl::unexpected<Refusal>(std::move(*refusal));
    return file;
}

}  // namespace cryptmpi::command
