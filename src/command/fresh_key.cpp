#include "command/fresh_key.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "aead/registry.hpp"
#include "command/job.hpp"
#include "command/munge.hpp"
#include "command/reports.hpp"
#include "command/shell.hpp"

namespace cryptmpi::command {
namespace {

constexpr const char* kOtherWay = "; or set job_key = \"file\", and give every node the key file";

/// One byte at a time: what follows the line is the program's.
std::size_t read_line(std::uint8_t* at, std::size_t size) {
    using Clock = std::chrono::steady_clock;
    constexpr auto kPatience = std::chrono::seconds(60);
    const auto deadline = Clock::now() + kPatience;
    std::size_t got = 0;
    while (got < size && (got == 0 || at[got - 1] != '\n')) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd readable{STDIN_FILENO, POLLIN, 0};
        const int ready = left <= 0 ? 0 : poll(&readable, 1, static_cast<int>(left));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) break;
        const ssize_t count = read(STDIN_FILENO, at + got, 1);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        ++got;
    }
    return got;
}

/// Of srun, whose streams anybody on the network can read and change: MUNGE says that this user's process has sent it.
Result<void> unwrap_line(Secret<keys::kJobKeyLineSize>& line) {
    std::array<std::uint8_t, kLongestCredential> text{};
    std::size_t size = read_line(text.data(), text.size());
    if (size > 0 && text[size - 1] == '\n') --size;
    const std::string credential(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size));
    if (auto unwrapped = munge_unwrap(credential, {line.data(), line.size()}); !unwrapped)
        return fail(unwrapped.error().code,
                    "exec: the job's key did not come on the standard input: " + unwrapped.error().line + kOtherWay);
    return {};
}

/// Signals that a program may end by. Those that a terminal sends, it sends to the program, too.
sigset_t passed_on() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM}) sigaddset(&signals, signal);
    return signals;
}

void detach() {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
    if (null > STDERR_FILENO) close(null);
    (void)!chdir("/");
}

/// What the starter learns from the holder: first the program's process, then its end.
struct News {
    pid_t program;
    int status;
};

int started(const std::string& program, const Words& arguments, const sigset_t& mask, pid_t parent) {
    // A holder that is killed takes the program with it, which would be without its key.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) return kExitRefused;
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    return replace_by(program, arguments);
}

/// In a process of its own, between the starter and the program: daemons that the program leaves become its children.
void hold(keys::KeyInMemory key, const std::string& program, const Words& arguments, const sigset_t& mask, int news) {
    const int starter_gone = SIGRTMIN;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, starter_gone);
    const pid_t self = getpid();
    const pid_t child = fork();
    if (child == 0) _exit(started(program, arguments, mask, self));
    News told{child, child < 0 ? kExitRefused << 8 : 0};
    (void)!write(news, &told, sizeof told);
    detach();
    key.pin();
    bool running = child > 0;
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, starter_gone);
    for (;;) {
        int status = 0;
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == child && running) {
            running = false;
            told.status = status;
            (void)!write(news, &told, sizeof told);
            close(news);
        }
        if (ended > 0 || (ended < 0 && errno == EINTR)) continue;
        if (ended < 0) return;  // no child is left
        // The starter ends after the program, unless it was killed.
        if (sigtimedwait(&awaited, nullptr, &kLookAfterKey) == starter_gone && running) kill(child, SIGKILL);
        key.restore();
    }
}

int exit_status(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Waits for the program's end, passing signals on.
int await(int news, const sigset_t& signals) {
    const int arriving = signalfd(-1, &signals, SFD_CLOEXEC);
    News told{};
    pid_t program = -1;
    for (;;) {
        std::array<pollfd, 2> ready = {{{news, POLLIN, 0}, {arriving, POLLIN, 0}}};
        if (poll(ready.data(), ready.size(), -1) < 0) continue;
        if (ready[0].revents != 0) {
            if (read(news, &told, sizeof told) != sizeof told)
                return complain("exec: the process that kept the job's key on this node was killed", kExitRefused);
            if (program > 0 || told.program < 0) return exit_status(told.status);
            program = told.program;
        }
        signalfd_siginfo signal{};
        if (ready[1].revents == 0 || read(arriving, &signal, sizeof signal) != sizeof signal) continue;
        // What the terminal sends, it has sent to the program, too.
        if (program > 0 && signal.ssi_code != SI_KERNEL) kill(program, static_cast<int>(signal.ssi_signo));
    }
}

}  // namespace

Result<FreshKey> draw_fresh_key(const config::Settings& settings) {
    keys::sweep_keys();
    sweep_local_reports();
    auto kex = aead::load_kex(settings.module_folder.string(), settings.module);
    if (!kex) return tl::unexpected<Error>(kex.error());
    const auto key = keys::draw_job_key(*kex->api->kex);
    if (!key) return tl::unexpected<Error>(key.error());
    auto file = keys::KeyInMemory::new_file(*kex->api->kex);
    if (!file) return tl::unexpected<Error>(file.error());
    auto held = keys::KeyInMemory::keep(*file, **key);
    if (!held) return fail(held.error().code, held.error().line + kOtherWay);
    return FreshKey{std::move(*file), std::move(*held)};
}

Result<void> key_to_stdin(const std::filesystem::path& key_file, KeyRoad road) {
    const auto key = keys::read_job_key(key_file);
    if (!key) return tl::unexpected<Error>(key.error());
    Secret<keys::kJobKeyLineSize> line;
    keys::write_key_line(**key, line);
    std::string wrapped;
    if (road == KeyRoad::srun) {
        auto credential = munge_wrap({line.data(), line.size()});
        if (!credential)
            return fail(credential.error().code,
                        "the job's key cannot go to other nodes by srun, which does not encrypt: " +
                            credential.error().line + "; use --rsh ssh" + kOtherWay);
        wrapped = *credential + "\n";
    }
    const void* const text = road == KeyRoad::srun ? static_cast<const void*>(wrapped.data()) : line.data();
    const std::size_t size = road == KeyRoad::srun ? wrapped.size() : line.size();
    std::array<int, 2> ends{};
    // A pipe has room for the line before anybody reads it, and ends when this process has become another.
    const bool piped = pipe2(ends.data(), O_CLOEXEC) == 0 && write(ends[1], text, size) == static_cast<ssize_t>(size) &&
                       dup2(ends[0], STDIN_FILENO) == STDIN_FILENO;
    if (!piped) return fail(errno, std::string("agent: no pipe for the job's key: ") + std::strerror(errno));
    return {};
}

Result<keys::KeyInMemory> key_from_stdin(const config::Settings& settings, KeyRoad road) {
    if (!keys::KeyInMemory::is_file_name(settings.key_file))
        return fail(EINVAL,
                    "exec: --key-on-stdin: " + settings.key_file.string() + " is no place of a job's fresh key");
    keys::sweep_keys();
    sweep_local_reports();
    Secret<keys::kJobKeyLineSize> line;
    std::size_t size = 0;
    if (road == KeyRoad::srun) {
        if (auto unwrapped = unwrap_line(line); !unwrapped) return tl::unexpected<Error>(unwrapped.error());
        size = line.size();
    } else {
        size = read_line(line.data(), line.size());
    }
    keys::JobKey key;
    if (auto parsed = keys::parse_job_key({line.data(), size}, key); !parsed) {
        return fail(parsed.error().code, "exec: the job's key did not come on the standard input, which " +
                                             parsed.error().line +
                                             ": let the remote shell pass its input on (ssh without -n)" + kOtherWay);
    }
    return keys::KeyInMemory::keep(settings.key_file, key);
}

int hold_while_running(keys::KeyInMemory key, const std::string& program, const Words& arguments) {
    std::array<int, 2> news{};
    if (pipe2(news.data(), O_CLOEXEC) != 0)
        return complain(std::string("exec: no pipe: ") + std::strerror(errno), kExitRefused);
    const sigset_t signals = passed_on();
    sigset_t all = signals;
    sigaddset(&all, SIGCHLD);
    sigaddset(&all, SIGRTMIN);
    sigset_t before;
    sigprocmask(SIG_BLOCK, &all, &before);
    const pid_t holder = fork();
    if (holder < 0) return complain(std::string("exec: cannot start a process: ") + std::strerror(errno), kExitRefused);
    if (holder == 0) {
        close(news[0]);
        hold(std::move(key), program, arguments, before, news[1]);
        _exit(0);
    }
    key.leave();
    close(news[1]);
    return await(news[0], signals);
}

}  // namespace cryptmpi::command
