// Start, fork, exec and exit.
#include <alloca.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/sched.h>
#include <pty.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wordexp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "channel/calls.hpp"
#include "channel/epoll.hpp"
#include "channel/real.hpp"
#include "channel/spawn_actions.hpp"
#include "programs/coverable.hpp"

using namespace cryptmpi::channel;
namespace programs = cryptmpi::programs;

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
        if (Shared* const shared = entry->shared.load(); shared != nullptr) action(*entry, *shared);
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

/// What is started without us: our own way to another node, and what our command asks questions of.
thread_local bool outside = false;

/// The process whose programs are to be under us; null: nobody's are.
Process* covering_process() {
    Process* process = Process::made();
    return process != nullptr && process->enabled() && !outside ? process : nullptr;
}

/// Checks what is about to be started; false with errno.
bool may_start(const char* file) {
    Process* process = covering_process();
    return process == nullptr || file == nullptr || process->covering().may_start(process->report(), file);
}

/// Runs `start` with the environment of a program to be started: still under the library, and told of the arena if it
/// needs it. On the stack, because a child of vfork could give nothing back to its parent's heap.
template <class Start>
int with_environment(char* const* environment, const char* arena, const Start& start) {
    Process* process = covering_process();
    if (process == nullptr) return start(environment);
    const Covering& covering = process->covering();
    auto** list = static_cast<char**>(alloca(covering.most_entries(environment) * sizeof(char*)));
    auto* text = static_cast<char*>(alloca(covering.most_text(environment)));
    covering.fill(environment, kArenaVariable, arena, list, text);
    return start(list);
}

using Connections = std::span<Shared* const>;

bool among(Connections kept, const Entry& entry) {
    return std::find(kept.begin(), kept.end(), entry.shared) != kept.end();
}

/// The sockets that close at exec lose this process as a holder. The last holder ends the stream.
void let_go(Connections kept) {
    Table& table = Process::made()->table();
    const ProcessName own_name = Process::made()->name();
    each_sealed([&](Entry& entry, Shared& shared) {
        if (among(kept, entry) || shared.holders.leave(entry.generation.load(), own_name) != 0) return;
        for (int fd = 0; fd <= table.highest(); ++fd) {
            if (table.find(fd) != &entry) continue;
            (void)close_sending(*Process::made(), entry, 1000);
            break;
        }
    });
}

/// The program could not be started after all.
void take_back(Connections kept) {
    const ProcessName own_name = Process::made()->name();
    each_sealed([&](Entry& entry, Shared& shared) {
        if (!among(kept, entry) && shared.holders.join(entry.generation.load()))
            shared.holders.sign(entry.generation.load(), own_name);
    });
}

/// The descriptors that the child may get although they close at exec: all, where that cannot be read.
std::vector<int> passed_on(const posix_spawn_file_actions_t* actions) {
    if (auto read = read_spawn_actions(actions)) return std::move(read->passed);
    std::vector<int> all(static_cast<std::size_t>(Process::made()->table().highest() + 1));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

/// Runs `start` with the environment that keeps sealed sockets alive across it. What is still needed when it starts is
/// on the stack: nobody gives back to the heap of its parent what a child of vfork has there.
template <class Start>
int start_program(char* const* environment, Start start) {
    Process* process = Process::made();
    if (process == nullptr || process->arena().fd() < 0) return with_environment(environment, nullptr, start);
    Connections kept;
    {
        const std::vector<Shared*> found = surviving();
        auto** const first = static_cast<Shared**>(alloca(found.size() * sizeof(Shared*)));
        kept = {first, std::copy(found.begin(), found.end(), first)};
    }
    const bool vforked = !process->is_me();
    // The courier and the pulse would end between a call of the kernel and the note of what it did.
    Background::Pause pause;
    if (!vforked) pause = process->background().pause();
    if (!vforked) let_go(kept);
    if (kept.empty()) {
        const int status = with_environment(environment, nullptr, start);
        if (!vforked) take_back(kept);
        return status;
    }
    const int arena = process->arena().fd();
    const ProcessName own_name = name_of_this_process();
    if (vforked) {
        for (Shared* shared : kept) {
            if (shared->holders.join(shared->holders.generation()))
                shared->holders.sign(shared->holders.generation(), own_name);
        }
        process->note_shared();  // the memory is the parent's
    }
    real::fcntl(arena, F_SETFD, nullptr);
    std::array<char, sizeof kArenaVariable + 16> variable{};
    fmt::format_to_n(variable.data(), variable.size() - 1, "{}{}", kArenaVariable, arena);
    const int status = with_environment(environment, variable.data(), start);
    const int error = errno;
    real::fcntl(arena, F_SETFD, reinterpret_cast<void*>(static_cast<long>(FD_CLOEXEC)));
    if (vforked) {
        for (Shared* shared : kept) shared->holders.leave(shared->holders.generation(), own_name);
    } else {
        take_back(kept);
    }
    errno = error;
    return status;
}

/// posix_spawn: what the child will hold is decided by its file actions. It is counted as a holder of everything that
/// it may get, and gives back what it did not.
template <class Start>
int spawn_program(char* const* environment, const posix_spawn_file_actions_t* actions, Start start) {
    Process* process = Process::made();
    const Giving giving(process);
    if (process == nullptr || process->arena().fd() < 0) return with_environment(environment, nullptr, start);
    std::vector<Shared*> given = surviving();
    for (const int fd : passed_on(actions)) {
        const Entry* const entry = process->table().find_sealed(fd);
        Shared* const shared = entry == nullptr ? nullptr : entry->shared.load();
        if (shared != nullptr && !among(given, *entry)) given.push_back(shared);
    }
    if (given.empty()) return with_environment(environment, nullptr, start);
    const int arena = process->arena().fd();
    std::string variable = fmt::format("{}{},given by {}", kArenaVariable, arena, getpid());
    for (Shared* shared : given) {
        shared->holders.join(shared->holders.generation());
        variable += fmt::format(":{}.{}", process->arena().number(*shared), shared->holders.generation());
    }
    process->note_shared();
    real::fcntl(arena, F_SETFD, nullptr);
    const int status = with_environment(environment, variable.c_str(), start);
    real::fcntl(arena, F_SETFD, reinterpret_cast<void*>(static_cast<long>(FD_CLOEXEC)));
    if (status != 0) {
        for (Shared* shared : given) shared->holders.leave(shared->holders.generation(), 0);
    }
    return status;
}

/// As execvp finds it, so that what is checked is what is started. Empty, with errno: there is none.
std::string find(const char* file) {
    return std::strchr(file, '/') != nullptr ? file : programs::find_in_path(file, std::getenv("PATH"));
}

/// What execvp does with a file that the kernel does not know: it is the shell's.
int execute_by_shell(const char* file, char* const* arguments, char* const* environment) {
    constexpr const char* kShell = "/bin/sh";
    std::size_t count = 0;
    while (arguments[count] != nullptr) ++count;
    auto** words = static_cast<char**>(alloca((count + 3) * sizeof(char*)));
    std::size_t at = 0;
    words[at++] = const_cast<char*>(kShell);
    words[at++] = const_cast<char*>(file);
    for (std::size_t i = 1; i < count; ++i) words[at++] = arguments[i];
    words[at] = nullptr;
    return execve(kShell, words, environment);
}

/// Can the kernel look from here? Else errno is set.
bool is_place(int folder, const char* path, int flags) {
    const bool may_be_empty = (flags & AT_EMPTY_PATH) != 0;
    errno = path == nullptr ? EFAULT : *path == '\0' ? ENOENT : ENAMETOOLONG;
    if (path == nullptr || (*path == '\0' && !may_be_empty) || std::strlen(path) >= PATH_MAX) return false;
    return folder == AT_FDCWD || *path == '/' || real::fcntl(folder, F_GETFD, nullptr) >= 0;
}

/// What a call of the exec family with a folder's descriptor names.
std::string path_below(int folder, const char* path) {
    std::string name = path == nullptr ? "" : path;
    if (folder == AT_FDCWD && name.empty()) return ".";
    if (folder == AT_FDCWD || name.starts_with('/')) return name;
    return fmt::format("/proc/self/fd/{}{}", folder, name.empty() ? "" : "/" + name);
}

/// libc starts the shell of these calls by itself, with the environment as it is: while `call` runs, as it has to be.
template <class Call>
auto with_whole_environment(const Call& call) {
    Process* process = covering_process();
    const Giving giving(process);
    if (process == nullptr || process->covering().is_whole(environ)) return call();
    const Covering& covering = process->covering();
    std::vector<char*> list(covering.most_entries(environ));
    std::vector<char> text(covering.most_text(environ));
    covering.fill(environ, kArenaVariable, nullptr, list.data(), text.data());
    char** const before = environ;
    environ = list.data();
    const auto result = call();
    const int error = errno;
    if (environ == list.data()) {
        environ = before;
    } else {  // another thread has changed it meanwhile: what it made of ours stays
        (void)new std::vector<char*>(std::move(list));
        (void)new std::vector<char>(std::move(text));
    }
    errno = error;
    return result;
}

/// How many there are, with the null at their end.
std::size_t count(const char* first, va_list* arguments) {
    std::size_t count = 1;
    for (const char* one = first; one != nullptr; one = va_arg(*arguments, char*)) ++count;
    return count;
}

void collect(const char* first, va_list* arguments, char** all) {
    *all = const_cast<char*>(first);
    while (*all != nullptr) *++all = va_arg(*arguments, char*);
}

/// A child that is about to be forked, as a holder of what this process holds. The child may be killed before it has
/// done anything, and may have ended before fork returns here: whoever of the two is first writes down who it is. In
/// the child nothing is allocated: another thread may have held the heap's lock.
class ExpectedChild {
public:
    /// `elsewhere`: it begins a PID namespace.
    explicit ExpectedChild(bool elsewhere)
        : is_seen_(!elsewhere && children_are_here()), unborn_(unborn_child_of(Process::made()->name())) {
        each_sealed([&](Entry& entry, Shared& shared) {
            if (!shared.holders.join(entry.generation.load())) return;
            shared.holders.sign(entry.generation.load(), unborn_);
            Process::made()->note_shared();
        });
    }
    /// What fork returned.
    void is(pid_t pid) const {
        if (pid < 0) {
            each_sealed([&](Entry& entry, Shared& shared) { shared.holders.leave(entry.generation.load(), unborn_); });
            return;
        }
        const ProcessName name = pid == 0 ? name_of_this_process() : is_seen_ ? name_of_child(pid) : 0;
        const Table& table = Process::made()->table();
        for (int fd = 0; fd <= table.highest(); ++fd) {
            Entry* entry = table.find_sealed(fd);
            Shared* shared = entry == nullptr ? nullptr : entry->shared.load();
            if (shared != nullptr) shared->holders.rename(entry->generation.load(), unborn_, name);
        }
    }

private:
    bool is_seen_;
    ProcessName unborn_;
};

void end_process(Process::Ending how) {
    if (Process* process = Process::made()) process->finish(how, end);
}

__attribute__((constructor)) void started() {
    (void)this_process();
    take_over_standard_streams();
    real::backtrace_symbols_fd.look_up();
    // Its handlers run the last one first: before us, those of the program.
    (void)at_quick_exit([] { end_process(Process::Ending::at_once); });
}

__attribute__((destructor)) void ended() {
    end_process(Process::Ending::by_exit);
}

}  // namespace

namespace cryptmpi::channel {

pid_t fork_by(const std::function<pid_t()>& call, bool elsewhere) {
    if (is_borrower()) return refuse_borrower("fork");
    if (present() == nullptr) return call();
    const Giving descriptors(Process::made());
    const auto streams = hold_streams();
    Process& process = *Process::made();
    const pid_t pid = process.fork([&] {
        const ForkLocks locks(process.table());
        const std::lock_guard holders(process.holders_lock());
        const ExpectedChild child(elsewhere);
        const pid_t made = call();
        child.is(made);
        return made;
    });
    if (pid == 0) may_borrow = false;  // of a handler of signals, which ran before its thread had its memory back
    return pid;
}

long lend_memory() {
    const int error = errno;
    Process& process = this_process();  // the child makes none
    process.note_given();
    const long before = process.enabled() ? begin_borrowing() : -1;
    errno = error;
    return before;
}

void take_memory_back(long before) {
    const int error = errno;
    Process& process = this_process();
    process.note_given();
    const char* const refused = before == -1 ? nullptr : end_borrowing(before);
    if (refused != nullptr) {
        const std::string call = refused;
        process.report().tell_of_refused(
            call + " after vfork", "in a child of vfork, which uses its parent's memory and so cannot seal, " + call +
                                       " is refused; let it exec first, or start it by fork");
    }
    errno = error;
}

Cloned cloned(std::uint64_t flags) {
    if ((flags & CLONE_THREAD) != 0) return (flags & CLONE_FILES) != 0 ? Cloned::sharing : Cloned::mixed;
    if ((flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK)) {
        // By its thread-local variables, and then by its number, we know it.
        const bool is_hidden = (flags & CLONE_SETTLS) != 0 || ((flags & CLONE_NEWPID) != 0 && getpid() == 1);
        return is_hidden || (flags & CLONE_FILES) != 0 ? Cloned::mixed : Cloned::borrowing;
    }
    return (flags & (CLONE_VM | CLONE_FILES)) == 0 ? Cloned::copy : Cloned::mixed;
}

int refuse_clone() {
    this_process().report().tell_of_refused(
        "clone",
        "clone with CLONE_VM or CLONE_FILES, but not as a thread or vfork, is refused: it would "
        "not be known any more which sockets are sealed; start that process by fork");
    errno = EINVAL;
    return -1;
}

int allow_unsharing(const char* call) {
    std::error_code error;
    const std::filesystem::directory_iterator tasks("/proc/self/task", error);
    const auto threads = error ? 0 : std::distance(begin(tasks), end(tasks));
    if (threads == 1) return 0;
    this_process().report().tell_of_refused(
        call, fmt::format("{} is refused in a process with several threads: one with descriptors of its own would not "
                          "know any more which sockets are sealed; unshare before threads begin, or in a child",
                          call));
    errno = EINVAL;
    return -1;
}

}  // namespace cryptmpi::channel

CRYPTMPI_CALL int unshare(int flags) {
    const Process* process = Process::made();
    const bool enabled = process != nullptr && process->enabled();
    if (enabled && (flags & CLONE_FILES) != 0 && allow_unsharing("unshare of the descriptors") != 0) return -1;
    return real::unshare(flags);
}

/// What follows `argument` depends on the flags, and is passed on as if it were all there. A child as of fork goes on
/// where its copy of our stack ends, not on the stack that it was given.
CRYPTMPI_CALL __attribute__((no_sanitize("address"))) int clone(int (*function)(void*), void* stack, int flags,
                                                                void* argument, ...) {
    va_list arguments;
    va_start(arguments, argument);
    auto* parent = va_arg(arguments, pid_t*);
    void* tls = va_arg(arguments, void*);
    auto* child = va_arg(arguments, pid_t*);
    va_end(arguments);
    const Process* process = Process::made();
    const bool enabled = process != nullptr && process->enabled();
    const Cloned made = cloned(static_cast<unsigned>(flags));
    if (!enabled || made == Cloned::sharing || function == nullptr || stack == nullptr)
        return real::clone(function, stack, flags, argument, parent, tls, child);
    if (made == Cloned::borrowing) {
        const long before = lend_memory();
        const int pid = real::clone(function, stack, flags, argument, parent, tls, child);
        take_memory_back(before);
        return pid;
    }
    if (made == Cloned::mixed) return refuse_clone();
#ifdef __x86_64__
    const long last[] = {reinterpret_cast<long>(child), reinterpret_cast<long>(tls)};
#else
    const long last[] = {reinterpret_cast<long>(tls), reinterpret_cast<long>(child)};
#endif
    const pid_t pid = fork_by(
        [&] {
            return static_cast<pid_t>(
                real::syscall(SYS_clone, flags, 0, reinterpret_cast<long>(parent), last[0], last[1], 0));
        },
        (flags & CLONE_NEWPID) != 0);
    if (pid == 0) _exit(function(argument));
    return pid;
}

CRYPTMPI_CALL int __clone(int (*function)(void*), void* stack, int flags, void* argument, pid_t* parent, void* tls,
                          pid_t* child) {
    return clone(function, stack, flags, argument, parent, tls, child);
}

/// Of the two that follow libc forks by itself.
CRYPTMPI_CALL int daemon(int keep_folder, int keep_streams) {
    const pid_t pid = fork();
    if (pid < 0) return -1;
    if (pid > 0) _exit(0);
    if (setsid() < 0) return -1;
    if (keep_folder == 0) (void)!chdir("/");
    if (keep_streams != 0) return 0;
    const int null = real::open("/dev/null", O_RDWR, 0);
    if (null < 0) return -1;
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
    if (null > STDERR_FILENO) real::close(null);
    return 0;
}

CRYPTMPI_CALL pid_t forkpty(int* master, char* name, const termios* terminal, const winsize* size) {
    int near = -1;
    int far = -1;
    if (openpty(&near, &far, name, terminal, size) != 0) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        real::close(near);
        setsid();
        if (real::ioctl(far, TIOCSCTTY, nullptr) != 0) _exit(1);
        for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(far, stream);
        if (far > STDERR_FILENO) real::close(far);
        return 0;
    }
    real::close(far);
    if (pid < 0) {
        real::close(near);
    } else {
        *master = near;
    }
    return pid;
}

// Of vfork.S.

extern "C" long cryptmpi_before_vfork() {
    return lend_memory();
}

extern "C" pid_t cryptmpi_after_vfork(long result, long before) {
    take_memory_back(before);
    if (result >= 0) return static_cast<pid_t>(result);
    errno = static_cast<int>(-result);
    return -1;
}

CRYPTMPI_CALL pid_t fork() {
    return fork_by([] { return real::fork(); });
}

CRYPTMPI_CALL pid_t _Fork() {
    return fork_by([] { return real::_Fork(); });
}

CRYPTMPI_CALL int execve(const char* path, char* const* arguments, char* const* environment) {
    if (!may_start(path)) return -1;
    return start_program(environment, [&](char* const* with) { return real::execve(path, arguments, with); });
}

CRYPTMPI_CALL int execv(const char* path, char* const* arguments) {
    return execve(path, arguments, environ);
}

CRYPTMPI_CALL int execvpe(const char* file, char* const* arguments, char* const* environment) {
    if (covering_process() == nullptr)
        return start_program(environment, [&](char* const* with) { return real::execvpe(file, arguments, with); });
    char* found = nullptr;  // on the stack, as in start_program
    if (const std::string name = find(file); !name.empty())
        found = std::strcpy(static_cast<char*>(alloca(name.size() + 1)), name.c_str());
    if (found == nullptr) return -1;
    (void)execve(found, arguments, environment);
    return errno == ENOEXEC ? execute_by_shell(found, arguments, environment) : -1;
}

CRYPTMPI_CALL int execvp(const char* file, char* const* arguments) {
    return execvpe(file, arguments, environ);
}

CRYPTMPI_CALL int execveat(int folder, const char* path, char* const* arguments, char* const* environment, int flags) {
    if (covering_process() != nullptr && !is_place(folder, path, flags)) return -1;
    if (!may_start(path_below(folder, path).c_str())) return -1;
    return start_program(environment,
                         [&](char* const* with) { return real::execveat(folder, path, arguments, with, flags); });
}

CRYPTMPI_CALL int fexecve(int fd, char* const* arguments, char* const* environment) {
    errno = EINVAL;  // of the C library, which looks at the arguments, too
    if (fd < 0 || environment == nullptr) return -1;
    if (covering_process() != nullptr && !is_place(fd, "", AT_EMPTY_PATH)) return -1;
    if (!may_start(path_below(fd, "").c_str())) return -1;
    return start_program(environment, [&](char* const* with) { return real::fexecve(fd, arguments, with); });
}

CRYPTMPI_CALL int execl(const char* path, const char* first, ...) {
    va_list arguments;
    va_start(arguments, first);
    auto** all = static_cast<char**>(alloca(count(first, &arguments) * sizeof(char*)));
    va_end(arguments);
    va_start(arguments, first);
    collect(first, &arguments, all);
    va_end(arguments);
    return execv(path, all);
}

CRYPTMPI_CALL int execlp(const char* file, const char* first, ...) {
    va_list arguments;
    va_start(arguments, first);
    auto** all = static_cast<char**>(alloca(count(first, &arguments) * sizeof(char*)));
    va_end(arguments);
    va_start(arguments, first);
    collect(first, &arguments, all);
    va_end(arguments);
    return execvp(file, all);
}

CRYPTMPI_CALL int execle(const char* path, const char* first, ...) {
    va_list arguments;
    va_start(arguments, first);
    auto** all = static_cast<char**>(alloca(count(first, &arguments) * sizeof(char*)));
    va_end(arguments);
    va_start(arguments, first);
    collect(first, &arguments, all);
    char* const* environment = va_arg(arguments, char* const*);
    va_end(arguments);
    return execve(path, all, environment);
}

namespace {

/// Checks the file that is started by this name, wherever that leads; false with errno.
bool may_spawn(const char* path, const posix_spawn_file_actions_t* actions) {
    Process* process = covering_process();
    if (process == nullptr || path == nullptr || *path == '/') return may_start(path);
    const auto read = read_spawn_actions(actions);
    if (read) return may_start(below(read->folder, path).c_str());
    const std::string name = path;
    process->report().tell_of_refused(
        "program " + name,
        "program " + name +
            " is not started: this C library keeps the file actions of posix_spawn in another way than is known here, "
            "so nobody can tell in which folder it would be looked for; give its whole path");
    errno = EACCES;
    return false;
}

template <class Id, class Start>
int spawn(Id* id, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
          char* const* arguments, char* const* environment, Start& start) {
    if (!may_spawn(path, actions)) return errno;
    return spawn_program(environment, actions,
                         [&](char* const* with) { return start(id, path, actions, attributes, arguments, with); });
}

/// `start_found` looks for the file itself.
template <class Id, class Start>
int spawn_by_name(Id* id, const char* file, const posix_spawn_file_actions_t* actions,
                  const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment, Start& start,
                  Start& start_found) {
    if (covering_process() != nullptr) {
        const std::string found = find(file);
        if (found.empty()) return errno;
        return spawn(id, found.c_str(), actions, attributes, arguments, environment, start);
    }
    return spawn_program(environment, actions, [&](char* const* with) {
        return start_found(id, file, actions, attributes, arguments, with);
    });
}

}  // namespace

CRYPTMPI_CALL int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                              const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
    return spawn(pid, path, actions, attributes, arguments, environment, real::posix_spawn);
}

CRYPTMPI_CALL int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
    return spawn_by_name(pid, file, actions, attributes, arguments, environment, real::posix_spawn, real::posix_spawnp);
}

// Of glibc 2.39: the same, and what names the child is a descriptor.

CRYPTMPI_CALL int pidfd_spawn(int* pidfd, const char* path, const posix_spawn_file_actions_t* actions,
                              const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
    if (!real::pidfd_spawn.is_there()) return ENOSYS;
    return spawn(pidfd, path, actions, attributes, arguments, environment, real::pidfd_spawn);
}

CRYPTMPI_CALL int pidfd_spawnp(int* pidfd, const char* file, const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
    if (!real::pidfd_spawnp.is_there()) return ENOSYS;
    return spawn_by_name(pidfd, file, actions, attributes, arguments, environment, real::pidfd_spawn,
                         real::pidfd_spawnp);
}

CRYPTMPI_CALL int system(const char* command) {
    if (command != nullptr && !may_start("/bin/sh")) return -1;
    return with_whole_environment([&] { return real::system(command); });
}

CRYPTMPI_CALL FILE* popen(const char* command, const char* how) {
    if (!may_start("/bin/sh")) return nullptr;
    return with_whole_environment([&] { return real::popen(command, how); });
}

CRYPTMPI_CALL int wordexp(const char* words, wordexp_t* expanded, int flags) {
    const bool has_command = std::strchr(words, '`') != nullptr || std::strstr(words, "$(") != nullptr;
    if (has_command && (flags & WRDE_NOCMD) == 0 && !may_start("/bin/sh")) return WRDE_CMDSUB;
    return with_whole_environment([&] { return real::wordexp(words, expanded, flags); });
}

/// For our own command only: execvpe of a program that is to run without us. Nothing of this is inherited.
CRYPTMPI_CALL int cryptmpi_exec_outside(const char* file, char* const* arguments, char* const* environment) {
    outside = true;
    const int status = execvpe(file, arguments, environment);
    outside = false;
    return status;
}

CRYPTMPI_CALL void _exit(int status) {
    end_process(Process::Ending::at_once);
    real::_exit(status);
    __builtin_unreachable();
}

CRYPTMPI_CALL void _Exit(int status) {
    _exit(status);
}
