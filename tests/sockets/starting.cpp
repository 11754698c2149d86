// Programs that are started, and above all what cannot be: whatever the kernel says to a file, a program hears.
#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support.hpp"

namespace sockets {
namespace {

constexpr int kRan = 199;  // no error has this number
constexpr const char* kExits = "exit 199\n";

/// A folder of files, most of which are no programs. It is the working folder, so that their names stay short.
class Files {
public:
    Files() {
        const std::string pattern = "/tmp/starting-XXXXXX";
        std::copy(pattern.begin(), pattern.end(), name_.begin());
        if (::mkdtemp(name_.data()) == nullptr || ::chdir(name_.data()) != 0) give_up("mkdtemp");
    }
    ~Files() {
        (void)!::chdir("/");
        (void)!std::system(("rm -r " + folder() + " " + elsewhere_).c_str());
    }
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;

    std::string folder() const { return name_.data(); }
    /// Where nothing may be run on some systems.
    std::string elsewhere() const { return elsewhere_; }

    static void write(const std::string& name, const std::string& text, mode_t mode) {
        const Descriptor file(::open(name.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600));
        if (::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fchmod(file, mode) != 0)
            give_up(name.c_str());
    }

    std::vector<std::string> make() const {
        ::umask(0);
        write("text", kExits, 0755);
        write("script", std::string("#!/bin/sh\n") + kExits, 0755);
        write("text-0644", kExits, 0644);
        write("script-0644", std::string("#!/bin/sh\n") + kExits, 0644);
        write("empty", "", 0755);
        write("elf-cut-off", "\177ELF", 0755);
        write("script-of-nothing", "#!\n", 0755);
        write("script-of-none", "#!/nonexistent\n", 0755);
        write("script-of-0644", "#!./text-0644\n", 0755);
        write("script-of-folder", "#!./folder\n", 0755);
        write("script-of-fifo", "#!./fifo\n", 0755);
        write("script-of-text", "#!./text\n", 0755);
        write("scripts-0", "#!/bin/sh\n", 0755);
        for (int i = 0; i < 7; ++i)
            write("scripts-" + std::to_string(i + 1), "#!./scripts-" + std::to_string(i) + "\n", 0755);
        write(elsewhere_, kExits, 0755);
        ::mkdir("folder", 0755);
        ::mkfifo("fifo", 0755);
        ::mkfifo("fifo-0644", 0644);
        const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
        sockaddr_un address{AF_UNIX, "socket"};
        (void)::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
        ::chmod("socket", 0755);
        const std::vector<std::pair<const char*, const char*>> links = {
            {"loop", "loop"}, {"dangling", "nothing"}, {"to-0644", "text-0644"}, {"to-text", "text"}};
        for (const auto& [from, to] : links) {
            if (::symlink(to, from) != 0) give_up("symlink");
        }
        return {"text",
                "script",
                "text-0644",
                "script-0644",
                "empty",
                "elf-cut-off",
                "script-of-nothing",
                "script-of-none",
                "script-of-0644",
                "script-of-folder",
                "script-of-fifo",
                "script-of-text",
                "scripts-4",
                "scripts-5",
                "scripts-7",
                "folder",
                "fifo",
                "fifo-0644",
                "socket",
                "loop",
                "dangling",
                "to-0644",
                "to-text",
                "missing",
                "text/below",
                "folder/",
                std::string(300, 'n'),
                std::string(5000, 'p'),
                ""};
    }

private:
    std::array<char, 32> name_{};
    std::string elsewhere_ = "/dev/shm/starting-" + std::to_string(::getpid());
};

using Call = std::function<int(const char*)>;  // returns an error, if it returns
struct Way {
    const char* name;
    Call call;
};

char* words[] = {const_cast<char*>("program"), const_cast<char*>("word"), nullptr};

int error_of(long returned) {
    return returned == -1 ? errno : 0;
}

/// The child's error, or how it ended.
int spawned(int error, pid_t child) {
    int status = 0;
    if (error != 0) return error;
    if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return kRan + 1;
    return WEXITSTATUS(status);
}

int by_descriptor(const char* file, int how) {
    const Descriptor opened(::open(file, how | O_NONBLOCK));
    return opened < 0 ? errno : error_of(::fexecve(opened, words, environ));
}

/// Names with a folder: "./", which none of PATH is.
const std::vector<Way>& ways() {
    static const Descriptor here(::open(".", O_PATH | O_DIRECTORY));  // which a script's interpreter needs, too
    static const std::vector<Way> all = {
        {"execve", [](const char* file) { return error_of(::execve(file, words, environ)); }},
        {"execv", [](const char* file) { return error_of(::execv(file, words)); }},
        {"execl", [](const char* file) { return error_of(::execl(file, "program", "word", nullptr)); }},
        {"execle", [](const char* file) { return error_of(::execle(file, "program", "word", nullptr, environ)); }},
        {"execlp", [](const char* file) { return error_of(::execlp(file, "program", "word", nullptr)); }},
        {"execvp", [](const char* file) { return error_of(::execvp(file, words)); }},
        {"execvpe", [](const char* file) { return error_of(::execvpe(file, words, environ)); }},
        {"execvp ./", [](const char* file) { return error_of(::execvp((std::string("./") + file).c_str(), words)); }},
        {"execveat", [](const char* file) { return error_of(::execveat(here, file, words, environ, 0)); }},
        {"execveat of here", [](const char* file) { return error_of(::execveat(AT_FDCWD, file, words, environ, 0)); }},
        {"execveat that may be empty",
         [](const char* file) { return error_of(::execveat(AT_FDCWD, file, words, environ, AT_EMPTY_PATH)); }},
        {"execveat of nowhere", [](const char* file) { return error_of(::execveat(99, file, words, environ, 0)); }},
        {"the system call", [](const char* file) { return error_of(::syscall(SYS_execve, file, words, environ)); }},
        {"fexecve", [](const char* file) { return by_descriptor(file, O_RDONLY); }},
        {"fexecve of a path", [](const char* file) { return by_descriptor(file, O_PATH); }},
        {"posix_spawn",
         [](const char* file) {
             pid_t child = 0;
             const int error = ::posix_spawn(&child, file, nullptr, nullptr, words, environ);
             return spawned(error, child);
         }},
        {"posix_spawnp",
         [](const char* file) {
             pid_t child = 0;
             const int error = ::posix_spawnp(&child, file, nullptr, nullptr, words, environ);
             return spawned(error, child);
         }},
        {"vfork",
         [](const char* file) {
             const pid_t child = ::vfork();
             if (child == 0) {
                 ::execv(file, words);
                 ::_exit(errno);
             }
             return spawned(child < 0 ? errno : 0, child);
         }},
    };
    return all;
}

std::string ending_of(const Way& way, const std::string& file) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(3);  // a FIFO may be waited for
        ::_exit(way.call(file.c_str()));
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child) give_up("waitpid");
    if (WIFSIGNALED(status)) return "killed by " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) == kRan) return "it ran";
    const char* const name = ::strerrorname_np(WEXITSTATUS(status));
    return name == nullptr ? std::to_string(WEXITSTATUS(status)) : name;
}

void note_endings(const std::vector<std::string>& files, const char* where) {
    for (const Way& way : ways()) {
        for (const std::string& file : files)
            note("%s%s of %.40s: %s", where, way.name, file.c_str(), ending_of(way, file).c_str());
    }
}

SOCKETS_CASE(what_cannot_be_started) {
    const Pair pair = connected_pair();  // there is something to be given on, or kept
    const Files files;
    std::vector<std::string> names = files.make();
    ::setenv("PATH", files.folder().c_str(), 1);
    note_endings(names, "");
    note("elsewhere: %s", ending_of(ways().front(), files.elsewhere()).c_str());
    for (const int fd : {-1, 99})
        note("fexecve of %d: %s", fd,
             ending_of({"", [fd](const char*) { return error_of(::fexecve(fd, words, environ)); }}, "").c_str());
    ::setenv("PATH", "/bin:/usr/bin", 1);  // for rm
}

SOCKETS_CASE(what_cannot_be_started_from_any_folder_of_path) {
    // A search goes on behind what may not be run, and remembers it.
    const Pair pair = connected_pair();
    const Files files;
    (void)files.make();
    for (const char* folder : {"one", "two", "file"}) ::mkdir(folder, 0755);
    ::mkdir("one/in-both", 0755);
    Files::write("one/0644-in-one", kExits, 0644);
    Files::write("one/0644-in-both", kExits, 0644);
    Files::write("two/0644-in-both", kExits, 0644);
    Files::write("one/better-in-two", kExits, 0644);
    Files::write("two/better-in-two", std::string("#!/bin/sh\n") + kExits, 0755);
    Files::write("two/in-both", std::string("#!/bin/sh\n") + kExits, 0755);
    const std::vector<std::string> names = {
        "0644-in-one", "0644-in-both",        "better-in-two",       "in-both",       "missing",
        "loop",        std::string(255, 'n'), std::string(256, 'n'), "two/in-both/x", ""};
    for (const std::string& path : {std::string("one:two"), std::string("missing:text:one:two"),
                                    std::string("loop:one:two"), std::string(3000, 'p') + ":one:two",
                                    std::string(300, 'n') + ":one:two", std::string("one::two:"), std::string()}) {
        ::setenv("PATH", path.c_str(), 1);
        note_endings(names, (path.substr(0, 20) + ": ").c_str());
    }
    ::setenv("PATH", "/bin:/usr/bin", 1);
}

SOCKETS_CASE(vfork_leaves_nothing_behind) {
    // A child of vfork has its parent's heap, and what it had there when its program began stays.
    constexpr int kTimes = 100;
    const Pair pair = connected_pair();  // goes with the program
    const auto start = [](const char* what, auto call) {
        const auto once = [&] {
            const pid_t child = ::vfork();
            if (child == 0) {
                call();
                ::_exit(1);
            }
            int status = 0;
            if (::waitpid(child, &status, 0) != child || status != 0) give_up(what);
        };
        once();
        const std::size_t before = ::mallinfo2().uordblks;
        for (int i = 0; i < kTimes; ++i) once();
        note("%s: more than a byte each: %d", what, ::mallinfo2().uordblks >= before + kTimes);
    };
    ::setenv("PATH", "/nonexistent-folder-with-a-long-name:/usr/bin:/bin", 1);
    start("execl", [] { ::execl("/bin/true", "true", nullptr); });
    start("execlp", [] { ::execlp("true", "true", nullptr); });
    start("execle", [] { ::execle("/bin/true", "true", "a", "b", "c", "d", "e", nullptr, environ); });
    start("execv", [] { ::execv("/bin/true", words); });
    start("execvp", [] { ::execvp("true", words); });
    static const Descriptor file(::open("/bin/true", O_PATH | O_CLOEXEC));
    start("fexecve", [] { ::fexecve(file, words, environ); });
}

}  // namespace
}  // namespace sockets
