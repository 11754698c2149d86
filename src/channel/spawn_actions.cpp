#include "channel/spawn_actions.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <atomic>
#include <cstring>
#include <map>

#include "channel/real.hpp"

namespace cryptmpi::channel {
namespace {

struct Numbers {
    int from;
    int to;
};

struct Opened {
    int fd;
    const char* path;
    int flags;
    mode_t mode;
};

/// As glibc keeps one action, which no header says: kinds have come, and none has changed.
struct Action {
    enum Kind : int { close, dup2, open, chdir, fchdir, closefrom, tcsetpgrp } kind;
    union {
        Numbers numbers;
        Opened opened;
        const char* path;
        int fd;
    };
};

const Action& action(const posix_spawn_file_actions_t& actions, int number) {
    return reinterpret_cast<const Action*>(actions.__actions)[number];
}

/// Puts one of each kind into an object, and looks whether they are found where they are expected.
bool is_as_expected() {
    posix_spawn_file_actions_t actions;
    if (::posix_spawn_file_actions_init(&actions) != 0) return false;
    bool right = ::posix_spawn_file_actions_adddup2(&actions, 101, 102) == 0 &&
                 ::posix_spawn_file_actions_addopen(&actions, 103, "file", O_RDONLY, 0) == 0 &&
                 ::posix_spawn_file_actions_addclose(&actions, 104) == 0 && actions.__used == 3 &&
                 action(actions, 0).kind == Action::dup2 && action(actions, 0).numbers.from == 101 &&
                 action(actions, 0).numbers.to == 102 && action(actions, 1).kind == Action::open &&
                 action(actions, 1).opened.fd == 103 && std::strcmp(action(actions, 1).opened.path, "file") == 0 &&
                 action(actions, 2).kind == Action::close && action(actions, 2).fd == 104;
    if (right && real::posix_spawn_file_actions_addchdir_np.is_there()) {
        right = real::posix_spawn_file_actions_addchdir_np(&actions, "folder") == 0 &&
                real::posix_spawn_file_actions_addfchdir_np(&actions, 105) == 0 && actions.__used == 5 &&
                action(actions, 3).kind == Action::chdir && std::strcmp(action(actions, 3).path, "folder") == 0 &&
                action(actions, 4).kind == Action::fchdir && action(actions, 4).fd == 105;
    }
    ::posix_spawn_file_actions_destroy(&actions);
    return right;
}

/// Asked without a lock, which a forked child might find taken: whoever asks twice gets the same answer.
bool can_be_read() {
    enum Answer { unknown, yes, no };
    static constinit std::atomic<Answer> answer = unknown;
    if (answer.load() == unknown) answer.store(is_as_expected() ? yes : no);
    return answer.load() == yes;
}

}  // namespace

std::string below(const std::string& folder, const std::string& path) {
    return folder.empty() || path.starts_with('/') ? path : folder + "/" + path;
}

std::optional<SpawnActions> read_spawn_actions(const posix_spawn_file_actions_t* actions) {
    SpawnActions result;
    if (actions == nullptr || actions->__used == 0) return result;
    if (!can_be_read()) return std::nullopt;
    // Descriptors as the child will have them, one action after the other.
    std::map<int, std::string> places;
    const auto place = [&](int fd) {
        const auto found = places.find(fd);
        return found == places.end() ? fmt::format("/proc/self/fd/{}", fd) : found->second;
    };
    for (int number = 0; number < actions->__used; ++number) {
        const Action& one = action(*actions, number);
        switch (one.kind) {
            case Action::dup2:
                result.passed.push_back(one.numbers.from);
                places[one.numbers.to] = place(one.numbers.from);
                break;
            case Action::open:
                places[one.opened.fd] = below(result.folder, one.opened.path);
                break;
            case Action::chdir:
                result.folder = below(result.folder, one.path);
                break;
            case Action::fchdir:
                result.folder = place(one.fd);
                break;
            case Action::close:
            case Action::closefrom:
            case Action::tcsetpgrp:
                break;
            default:
                return std::nullopt;
        }
    }
    return result;
}

}  // namespace cryptmpi::channel
