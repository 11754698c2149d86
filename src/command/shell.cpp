#include "command/shell.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/hex.hpp"
#include "base/printable.hpp"

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
    return complain("cannot run " + program + ": " + std::strerror(code),
                    code == ENOENT ? kExitNotFound : kExitNotExecutable);
}

/// Of the process, as the disposition of the signal is.
bool children_were_ignored = false;

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(20);
constexpr std::size_t kMostOutput = std::size_t{64} << 20;  // of what a command says that should say little

/// A command whose output is read.
struct Running {
    pid_t process = -1;
    int output = -1;
    std::string text;
    bool ended = false;  // its output is
};

/// `input`: what it reads; -1: nothing.
Running start(const std::vector<std::string>& command, bool with_stderr, int input = -1) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    auto arguments = pointers(command);
    const pid_t child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(input < 0 ? null : input, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(with_stderr ? ends[1] : null, STDERR_FILENO);
        unsetenv("LD_PRELOAD");
        execute_outside(arguments[0], arguments.data());
        _exit(kExitNotFound);
    }
    close(ends[1]);
    if (child >= 0) return {child, ends[0], {}, false};
    close(ends[0]);
    return {};
}

void read_one(Running& one) {
    std::array<char, 65536> chunk{};
    const ssize_t count = read(one.output, chunk.data(), chunk.size());
    if (count > 0) one.text.append(chunk.data(), static_cast<std::size_t>(count));
    one.ended = count == 0 || (count < 0 && errno != EINTR);
}

/// Waits for output. False: all have ended, or the time has.
bool read_some(std::vector<Running>& all, Clock::time_point deadline) {
    std::vector<pollfd> awaited;
    std::vector<Running*> of_them;
    for (auto& one : all) {
        if (one.process < 0 || one.ended || one.text.size() > kMostOutput) continue;
        awaited.push_back({one.output, POLLIN, 0});
        of_them.push_back(&one);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (awaited.empty() || left <= 0) return false;
    if (poll(awaited.data(), awaited.size(), static_cast<int>(left)) <= 0) return errno == EINTR;
    for (std::size_t i = 0; i < awaited.size(); ++i) {
        if (awaited[i].revents != 0) read_one(*of_them[i]);
    }
    return true;
}

/// What it said; nothing if it could not be run, or did not end.
std::optional<std::string> finish(Running& one) {
    if (one.process < 0) return std::nullopt;
    close(one.output);
    if (!one.ended) kill(one.process, SIGKILL);
    int status = 0;
    while (waitpid(one.process, &status, 0) < 0 && errno == EINTR) {
    }
    if (!one.ended || !WIFEXITED(status) || WEXITSTATUS(status) == kExitNotFound) return std::nullopt;
    return std::move(one.text);
}

}  // namespace

Result<std::string> random_name(const std::string& subcommand) {
    std::array<std::uint8_t, 16> bytes{};
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        return fail(errno, subcommand + ": the system gives no random bytes: " + std::strerror(errno));
    return hex(bytes);
}

int complain(const std::string& line, int status) {
    // A line may quote a file or a host that anybody has written or named.
    std::fprintf(stderr, "cryptmpi: %s\n", printable(line).c_str());
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
    return outputs_of({command}, true).front();
}

std::optional<std::string> answer_of(const std::vector<std::string>& command, std::span<const std::uint8_t> input) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
    const bool given = write(ends[1], input.data(), input.size()) == static_cast<ssize_t>(input.size());
    close(ends[1]);
    std::vector<Running> one;
    if (given) one.push_back(start(command, true, ends[0]));
    close(ends[0]);
    if (!given) return std::nullopt;
    const auto deadline = Clock::now() + kPatience;
    while (read_some(one, deadline)) {
    }
    return finish(one.front());
}

std::vector<std::optional<std::string>> outputs_of(const std::vector<std::vector<std::string>>& commands,
                                                   bool with_stderr) {
    constexpr std::size_t kAtOnce = 64;
    std::vector<std::optional<std::string>> outputs;
    for (std::size_t first = 0; first < commands.size(); first += kAtOnce) {
        const auto deadline = Clock::now() + kPatience;
        std::vector<Running> batch;
        for (std::size_t i = first; i < std::min(first + kAtOnce, commands.size()); ++i)
            batch.push_back(start(commands[i], with_stderr));
        while (read_some(batch, deadline)) {
        }
        for (auto& one : batch) outputs.push_back(finish(one));
    }
    return outputs;
}

std::vector<std::string> split_words(const std::string& text) {
    std::vector<std::string> words;
    std::istringstream stream(text);
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
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
    static const fs::path file = fs::read_symlink("/proc/self/exe", ignored);
    return file;
}

void watch_children() {
    children_were_ignored = std::signal(SIGCHLD, SIG_DFL) == SIG_IGN;
}

void leave_children_as_found() {
    if (children_were_ignored) std::signal(SIGCHLD, SIG_IGN);
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
