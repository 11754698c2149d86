#include "command/process.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cryptmpi::command {

namespace fs = std::filesystem;

namespace {

/// The channel layer lets its own command start programs that it does not cover.
void execute_outside(const char* program, char* const* arguments) {
    using Start = int (*)(const char*, char* const*, char* const*);
    const auto start = reinterpret_cast<Start>(dlsym(RTLD_DEFAULT, "cryptmpi_exec_outside"));
    (void)(start != nullptr ? start(program, arguments, environ) : execvp(program, arguments));
}

int not_run(const std::string& program) {
    const int code = errno;
    return complain("cannot run " + program + ": " + std::strerror(code), code == ENOENT ? kNotFound : kNotExecutable);
}

}  // namespace

int complain(const std::string& line, int status) {
    std::fprintf(stderr, "cryptmpi: %s\n", line.c_str());
    return status;
}

std::vector<char*> pointers(const std::vector<std::string>& arguments) {
    std::vector<char*> result;
    result.reserve(arguments.size() + 1);
    for (const auto& argument : arguments) result.push_back(const_cast<char*>(argument.c_str()));
    result.push_back(nullptr);
    return result;
}

std::optional<std::string> output_of(const std::vector<std::string>& command) {
    using Clock = std::chrono::steady_clock;
    std::array<int, 2> pipe_ends{};
    if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return std::nullopt;
    auto arguments = pointers(command);
    const pid_t child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, STDIN_FILENO);
        dup2(pipe_ends[1], STDOUT_FILENO);
        dup2(pipe_ends[1], STDERR_FILENO);
        unsetenv("LD_PRELOAD");
        execute_outside(arguments[0], arguments.data());
        _exit(kNotFound);
    }
    close(pipe_ends[1]);
    if (child < 0) {
        close(pipe_ends[0]);
        return std::nullopt;
    }
    std::string output;
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    bool ended = false;
    while (!ended) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd readable{pipe_ends[0], POLLIN, 0};
        if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) <= 0) break;
        std::array<char, 4096> chunk{};
        const ssize_t count = read(pipe_ends[0], chunk.data(), chunk.size());
        if (count > 0) output.append(chunk.data(), static_cast<std::size_t>(count));
        ended = count <= 0;
    }
    close(pipe_ends[0]);
    if (!ended) kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!ended || !WIFEXITED(status) || WEXITSTATUS(status) == kNotFound) return std::nullopt;
    return output;
}

std::optional<fs::path> find_in_path(const std::string& name, const config::Environment& environment) {
    const auto path = environment("PATH");
    const std::string file = programs::find_in_path(name, path ? path->c_str() : nullptr);
    return file.empty() ? std::nullopt : std::optional<fs::path>(file);
}

std::string shell_word(std::string_view word) {
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
    std::string text = "'";
    for (const char letter : word) {
        if (letter == '\'') {
            text += "'\\''";
        } else {
            text += letter;
        }
    }
    return text + "'";
}

fs::path own_file() {
    std::error_code ignored;
    return fs::read_symlink("/proc/self/exe", ignored);
}

int replace_by(const std::string& program, const std::vector<std::string>& arguments) {
    execvp(program.c_str(), pointers(arguments).data());
    return not_run(program);
}

int replace_by_outside(const std::string& program, const std::vector<std::string>& arguments) {
    execute_outside(program.c_str(), pointers(arguments).data());
    return not_run(program);
}

}  // namespace cryptmpi::command
