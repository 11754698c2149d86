// Start, fork, exec and exit.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "channel/calls.hpp"
#include "channel/real.hpp"

using namespace cryptmpi::channel;

namespace {

constexpr char kArenaVariable[] = "CRYPTMPI_INTERNAL_ARENA=";

/// Every process that holds a sealed socket is counted, so that only the last one ends the stream.
template <class Action>
void each_sealed(Action action) {
    Table& table = Process::made()->table();
    std::vector<Entry*> seen;
    for (int fd = 0; fd <= table.highest(); ++fd) {
        Entry* entry = table.find_sealed(fd);
        if (entry == nullptr || std::find(seen.begin(), seen.end(), entry) != seen.end()) continue;
        seen.push_back(entry);
        action(*entry);
    }
}

/// The sealed connections that the program about to be started will still hold.
std::vector<Shared*> surviving() {
    std::vector<Shared*> result;
    Process& process = *Process::made();
    const int highest = std::max(process.table().highest(), STDERR_FILENO);
    for (int fd = 0; fd <= highest; ++fd) {
        const int flags = real::fcntl(fd, F_GETFD, nullptr);
        struct stat information {};
        if (flags < 0 || (flags & FD_CLOEXEC) != 0 || fstat(fd, &information) != 0 || !S_ISSOCK(information.st_mode))
            continue;
        Shared* shared = process.arena().find(information.st_ino);
        if (shared != nullptr && std::find(result.begin(), result.end(), shared) == result.end())
            result.push_back(shared);
    }
    return result;
}

/// The environment of the program to be started: still under the library, and told of the arena if it needs it.
std::vector<char*> environment_with(char* const* environment, const std::string& arena) {
    std::vector<char*> result;
    for (char* const* one = environment; one != nullptr && *one != nullptr; ++one) {
        if (std::strncmp(*one, kArenaVariable, sizeof kArenaVariable - 1) != 0) result.push_back(*one);
    }
    if (!arena.empty()) result.push_back(const_cast<char*>(arena.c_str()));
    result.push_back(nullptr);
    return result;
}

bool among(const std::vector<Shared*>& kept, const Entry& entry) {
    return std::find(kept.begin(), kept.end(), entry.shared) != kept.end();
}

/// The sockets that close at exec lose this process as a holder. The last holder ends the stream.
void let_go(const std::vector<Shared*>& kept) {
    Table& table = Process::made()->table();
    each_sealed([&](Entry& entry) {
        if (among(kept, entry) || entry.shared.load()->processes.fetch_sub(1) > 1) return;
        for (int fd = 0; fd <= table.highest(); ++fd) {
            if (table.find(fd) != &entry) continue;
            (void)close_sending(*Process::made(), entry, 1000);
            break;
        }
    });
}

/// The program could not be started after all.
void take_back(const std::vector<Shared*>& kept) {
    each_sealed([&](Entry& entry) {
        if (!among(kept, entry)) entry.shared.load()->processes.fetch_add(1);
    });
}

/// Runs `start` with the environment that keeps sealed sockets alive across it.
template <class Start>
int start_program(char* const* environment, Start start) {
    Process* process = Process::made();
    if (process == nullptr || process->arena().fd() < 0) return start(environment);
    const std::vector<Shared*> kept = surviving();
    const bool vforked = !process->is_me();
    if (!vforked) let_go(kept);
    if (kept.empty()) {
        const int status = start(environment);
        if (!vforked) take_back(kept);
        return status;
    }
    const int arena = process->arena().fd();
    if (vforked) {
        for (Shared* shared : kept) shared->processes.fetch_add(1);
    }
    real::fcntl(arena, F_SETFD, nullptr);
    const std::string variable = kArenaVariable + std::to_string(arena);
    const int status = start(environment_with(environment, variable).data());
    const int error = errno;
    real::fcntl(arena, F_SETFD, reinterpret_cast<void*>(static_cast<long>(FD_CLOEXEC)));
    if (vforked) {
        for (Shared* shared : kept) shared->processes.fetch_sub(1);
    } else {
        take_back(kept);
    }
    errno = error;
    return status;
}

/// posix_spawn: what the child will hold is decided by its file actions, which cannot be read. It is counted as a
/// holder of everything that it may get, and gives back what it did not.
template <class Start>
int spawn_program(char* const* environment, const posix_spawn_file_actions_t* actions, Start start) {
    Process* process = Process::made();
    if (process == nullptr || process->arena().fd() < 0) return start(environment);
    std::vector<Shared*> given = surviving();
    if (actions != nullptr) {
        each_sealed([&](Entry& entry) {
            if (!among(given, entry)) given.push_back(entry.shared);
        });
    }
    if (given.empty()) return start(environment);
    const int arena = process->arena().fd();
    std::string variable = kArenaVariable + std::to_string(arena) + ",given";
    for (Shared* shared : given) {
        shared->processes.fetch_add(1);
        variable += ":" + std::to_string(process->arena().number(*shared));
    }
    real::fcntl(arena, F_SETFD, nullptr);
    const int status = start(environment_with(environment, variable).data());
    real::fcntl(arena, F_SETFD, reinterpret_cast<void*>(static_cast<long>(FD_CLOEXEC)));
    if (status != 0) {
        for (Shared* shared : given) shared->processes.fetch_sub(1);
    }
    return status;
}

std::vector<char*> collect(const char* first, va_list arguments) {
    std::vector<char*> result{const_cast<char*>(first)};
    while (result.back() != nullptr) result.push_back(va_arg(arguments, char*));
    return result;
}

__attribute__((constructor)) void started() {
    (void)Process::get();
    take_over_standard_streams();
}

__attribute__((destructor)) void ended() {
    if (Process* process = Process::made()) process->finish();
}

}  // namespace

namespace cryptmpi::channel {

pid_t fork_by(const std::function<pid_t()>& call) {
    if (Process::made() == nullptr) return call();
    each_sealed([](Entry& entry) { entry.shared.load()->processes.fetch_add(1); });
    const pid_t pid = Process::made()->fork(call);
    if (pid < 0) each_sealed([](Entry& entry) { entry.shared.load()->processes.fetch_sub(1); });
    return pid;
}

}  // namespace cryptmpi::channel

CRYPTMPI_CALL pid_t fork() {
    return fork_by([] { return real::fork(); });
}

CRYPTMPI_CALL pid_t _Fork() {
    return fork_by([] { return real::_Fork(); });
}

CRYPTMPI_CALL int execve(const char* path, char* const* arguments, char* const* environment) {
    return start_program(environment, [&](char* const* with) { return real::execve(path, arguments, with); });
}

CRYPTMPI_CALL int execv(const char* path, char* const* arguments) {
    return execve(path, arguments, environ);
}

CRYPTMPI_CALL int execvpe(const char* file, char* const* arguments, char* const* environment) {
    return start_program(environment, [&](char* const* with) { return real::execvpe(file, arguments, with); });
}

CRYPTMPI_CALL int execvp(const char* file, char* const* arguments) {
    return execvpe(file, arguments, environ);
}

CRYPTMPI_CALL int fexecve(int fd, char* const* arguments, char* const* environment) {
    return start_program(environment, [&](char* const* with) { return real::fexecve(fd, arguments, with); });
}

CRYPTMPI_CALL int execveat(int folder, const char* path, char* const* arguments, char* const* environment, int flags) {
    return start_program(environment, [&](char* const* with) {
        return static_cast<int>(real::syscall(SYS_execveat, folder, reinterpret_cast<long>(path),
                                              reinterpret_cast<long>(arguments), reinterpret_cast<long>(with), flags,
                                              0));
    });
}

CRYPTMPI_CALL int execl(const char* path, const char* first, ...) {
    va_list arguments;
    va_start(arguments, first);
    const std::vector<char*> all = collect(first, arguments);
    va_end(arguments);
    return execv(path, all.data());
}

CRYPTMPI_CALL int execlp(const char* file, const char* first, ...) {
    va_list arguments;
    va_start(arguments, first);
    const std::vector<char*> all = collect(first, arguments);
    va_end(arguments);
    return execvp(file, all.data());
}

CRYPTMPI_CALL int execle(const char* path, const char* first, ...) {
    va_list arguments;
    va_start(arguments, first);
    const std::vector<char*> all = collect(first, arguments);
    char* const* environment = va_arg(arguments, char* const*);
    va_end(arguments);
    return execve(path, all.data(), environment);
}

CRYPTMPI_CALL int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                              const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
    return spawn_program(environment, actions, [&](char* const* with) {
        return real::posix_spawn(pid, path, actions, attributes, arguments, with);
    });
}

CRYPTMPI_CALL int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
    return spawn_program(environment, actions, [&](char* const* with) {
        return real::posix_spawnp(pid, file, actions, attributes, arguments, with);
    });
}

CRYPTMPI_CALL void _exit(int status) {
    if (Process* process = Process::made()) process->finish();
    real::_exit(status);
    __builtin_unreachable();
}

CRYPTMPI_CALL void _Exit(int status) {
    _exit(status);
}
