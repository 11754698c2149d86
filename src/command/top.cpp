// Looks, again and again, at what the processes of sealed jobs on this node do (report/live.hpp).
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "command/shell.hpp"
#include "command/subcommands.hpp"
#include "report/live.hpp"
#include "report/live_reader.hpp"
#include "report/live_view.hpp"
#include "report/part.hpp"

namespace cryptmpi::command {
namespace {

using report::LiveLook;

struct Options {
    bool once = false;
    bool json = false;
    double interval = 1;
    std::string prometheus;
};

volatile sig_atomic_t ended = 0;

void note_end(int) {
    ended = 1;
}

LiveLook look() {
    LiveLook now;
    now.found = report::read_live(report::folders_to_read(report::own_runtime_folder(), geteuid()));
    now.when = std::chrono::steady_clock::now();
    now.time = report::seconds_now();
    return now;
}

/// This command's signals reach it only while it waits, so that none comes between a look at `ended` and the wait.
class Signals {
public:
    Signals() {
        sigset_t ours;
        sigemptyset(&ours);
        struct sigaction action {};
        action.sa_handler = note_end;
        for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
            sigaddset(&ours, signal);
            sigaction(signal, &action, nullptr);
        }
        sigprocmask(SIG_BLOCK, &ours, &while_waiting_);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigdelset(&while_waiting_, signal);
    }
    const sigset_t& while_waiting() const { return while_waiting_; }

private:
    sigset_t while_waiting_{};
};

/// Until then, or a signal, or 'q' from the keyboard where there is one. False: it is to end.
bool wait_until(std::chrono::steady_clock::time_point until, const Signals& signals, bool keyboard) {
    while (ended == 0) {
        const auto left = until - std::chrono::steady_clock::now();
        if (left <= left.zero()) return true;
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
        constexpr std::int64_t kSecond = 1'000'000'000;
        const timespec wait{static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
        pollfd keys{STDIN_FILENO, POLLIN, 0};
        if (ppoll(&keys, keyboard ? 1 : 0, &wait, &signals.while_waiting()) <= 0) continue;
        char key = 0;
        if (read(STDIN_FILENO, &key, 1) != 1) {
            keyboard = false;
        } else if (key == 'q' || key == 'Q') {
            return false;
        }
    }
    return false;
}

bool print(const std::string& text) {
    return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

/// The terminal's second screen, without a cursor; the keyboard gives keys at once, and shows none.
class Screen {
public:
    Screen() : keyboard_(tcgetattr(STDIN_FILENO, &before_) == 0) {
        if (keyboard_) {
            termios now = before_;
            now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
            now.c_cc[VSUSP] = _POSIX_VDISABLE;  // it would leave the terminal as it is now
            tcsetattr(STDIN_FILENO, TCSANOW, &now);
        }
        (void)print("\x1b[?1049h\x1b[?25l");
    }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;
    ~Screen() {
        (void)print("\x1b[?25h\x1b[?1049l");
        if (keyboard_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }

    bool has_keyboard() const { return keyboard_; }

    /// As much of it as there is room for. Its texts are fit for a terminal: nothing in them is a control character.
    bool show(const std::string& text) const {
        winsize size{};
        const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 && size.ws_col > 0;
        const std::size_t rows = known ? size.ws_row - 1U : 23;
        const std::size_t columns = known ? size.ws_col : 80;
        std::string page = "\x1b[H";
        std::istringstream lines(text);
        std::size_t row = 0;
        for (std::string line; row < rows && std::getline(lines, line); ++row)
            page += first_of(line, columns) + "\x1b[K\r\n";
        return print(page + "\x1b[J");
    }

private:
    static std::string first_of(const std::string& line, std::size_t columns) {
        std::size_t seen = 0;
        std::size_t at = 0;
        for (; at < line.size(); ++at) {
            const bool begins = (line[at] & 0xc0) != 0x80;
            if (begins && seen++ == columns) break;
        }
        return line.substr(0, at);
    }

    termios before_{};
    bool keyboard_;
};

std::string clock_text(std::int64_t time) {
    const auto seconds = static_cast<time_t>(time);
    std::tm local{};
    char text[16] = {};
    return localtime_r(&seconds, &local) != nullptr && std::strftime(text, sizeof text, "%H:%M:%S", &local) > 0 ? text
                                                                                                                : "";
}

/// Beside it and renamed, so that nobody reads half of it. Others may read it: node_exporter is another user.
Result<void> write_metrics(const std::string& file, const LiveLook& now) {
    const std::string fresh = fmt::format("{}.{}.new", file, getpid());
    const auto failed = [&](int error) {
        unlink(fresh.c_str());
        return fail(error, "top: " + file + " cannot be written: " + std::strerror(error));
    };
    unlink(fresh.c_str());
    const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                        S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
    if (fd < 0) return failed(errno);
    const std::string text = report::live_metrics(now);
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += static_cast<std::size_t>(n);
    }
    const int error = done < text.size() ? errno : 0;
    if (close(fd) != 0 || error != 0) return failed(error != 0 ? error : errno);
    if (rename(fresh.c_str(), file.c_str()) != 0) return failed(errno);
    return {};
}

/// What a look is for. Error: it could not be written.
Result<void> tell(const Options& options, const LiveLook& now, const LiveLook* before, const Screen* screen) {
    if (!options.prometheus.empty()) {
        if (auto done = write_metrics(options.prometheus, now); !done) return done;
    }
    bool printed = true;
    if (options.json) {
        // For terminals, too, which obey control characters.
        printed =
            print(report::live_json(now, before).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
    } else if (screen != nullptr) {
        printed =
            screen->show("cryptmpi top, " + clock_text(now.time) + "; q ends it\n\n" + report::live_table(now, before));
    } else if (options.prometheus.empty()) {
        printed = print(report::live_table(now, before));
    }
    if (!printed) return fail(EIO, "top: it could not be written: " + std::string(std::strerror(errno)));
    return {};
}

std::chrono::nanoseconds interval_of(const Options& options) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(options.interval));
}

/// With rates over one interval, where there is anything to look at.
Result<void> tell_once(const Options& options, const Signals& signals) {
    const LiveLook first = look();
    if (first.found.processes.empty()) return tell(options, first, nullptr, nullptr);
    if (!wait_until(first.when + interval_of(options), signals, false)) return {};
    return tell(options, look(), &first, nullptr);
}

Result<void> tell_on(const Options& options, const Signals& signals, const Screen* screen) {
    std::optional<LiveLook> before;
    for (;;) {
        LiveLook now = look();
        if (auto done = tell(options, now, before ? &*before : nullptr, screen); !done) return done;
        const auto next = now.when + interval_of(options);
        before = std::move(now);
        if (!wait_until(next, signals, screen != nullptr && screen->has_keyboard())) return {};
    }
}

int top(const Options& options) {
    const Signals signals;
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    const bool goes_on = !options.once && (terminal || options.json || !options.prometheus.empty());
    std::optional<Screen> screen;
    if (goes_on && terminal && !options.json) screen.emplace();
    const auto done = goes_on ? tell_on(options, signals, screen ? &*screen : nullptr) : tell_once(options, signals);
    screen.reset();
    return done ? 0 : complain(done.error().line, 1);
}

}  // namespace

void add_top(CLI::App& app, int& status) {
    constexpr double kShortest = 0.1;
    constexpr double kLongest = 3600;
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("top", "Show what the processes of sealed jobs on this node do, while they run");
    sub->add_flag("--once", options->once, "Look over one interval, and end; so it is without a terminal");
    sub->add_flag("--json", options->json, "Print one line of JSON for each look");
    sub->add_option("--interval", options->interval, "Seconds between looks, 0.1 to 3600 (default: 1)")
        ->type_name("SECONDS")
        ->check(CLI::Range(kShortest, kLongest));
    sub->add_option("--prometheus", options->prometheus,
                    "Write the numbers to this file at each look, as node_exporter reads a file")
        ->type_name("FILE");
    sub->footer(
        "Exit status: 0, also where no sealed job runs, which one line says. q or Ctrl-C ends it.\n"
        "It shows this user's processes; root sees everybody's (docs/observing.md).");
    sub->callback([options, &status] { status = top(*options); });
}

}  // namespace cryptmpi::command
