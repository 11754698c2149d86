#include "command/program.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "command/shell.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

Refusal refuse(std::string line, int status, int code) {
    return {std::move(line), status, code};
}

tl::expected<fs::path, Refusal> locate(const std::string& program, const config::Environment& environment) {
    if (auto file = find_in_path(program, environment)) return *file;
    if (program.find('/') == std::string::npos)
        return tl::unexpected(refuse("program " + program + " not found in PATH", kExitNotFound, ENOENT));
    struct stat status {};
    if (stat(program.c_str(), &status) != 0) {
        const int code = errno;
        return tl::unexpected(refuse("program " + program + ": " + std::strerror(code),
                                     code == ENOENT || code == ENOTDIR ? kExitNotFound : kExitNotExecutable, code));
    }
    if (!S_ISREG(status.st_mode))
        return tl::unexpected(refuse("program " + program + " is not a file", kExitNotExecutable, EACCES));
    return tl::unexpected(refuse("program " + program + " is not executable; chmod +x it", kExitNotExecutable, EACCES));
}

}  // namespace

tl::expected<fs::path, Refusal> coverable(const std::string& program, const config::Environment& environment) {
    auto file = locate(program, environment);
    if (!file) return file;
    const auto of_env = [&](const std::string& named, std::string& found) -> std::optional<Refusal> {
        auto there = locate(named, environment);
        if (!there) return there.error();
        found = there->string();
        return std::nullopt;
    };
    if (auto refusal = programs::judge(file->string(), of_env)) return tl::unexpected<Refusal>(std::move(*refusal));
    return file;
}

}  // namespace cryptmpi::command
