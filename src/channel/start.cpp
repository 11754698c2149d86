#include "channel/start.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_status.hpp"
#include "channel/connection.hpp"
#include "channel/courier.hpp"
#include "channel/descriptors.hpp"
#include "channel/go_libraries.hpp"
#include "channel/pulse.hpp"
#include "channel/real.hpp"
#include "config/internal_variables.hpp"

namespace cryptmpi::channel {
namespace {

class Threads final : public Background {
public:
    explicit Threads(Process& process) : courier_(process), pulse_(process) {}

    void carry(Entry& entry) override { courier_.carry(entry); }
    void opened() override { pulse_.start(); }
    Pause pause() override { return {{courier_.pause(), pulse_.pause()}}; }
    void after_fork_in_child() override {
        courier_.after_fork_in_child();
        pulse_.after_fork_in_child();
    }

private:
    Courier courier_;
    Pulse pulse_;
};

constinit thread_local bool making = false;

/// As dlmopen's, what the loader loads for LD_AUDIT has a C library of its own.
void look_at_auditors(Process& process) {
    const char* const given = std::getenv("LD_AUDIT");
    if (!process.enabled() || given == nullptr) return;
    const std::string all = given;
    for (std::size_t at = 0; at < all.size();) {
        const auto end = std::min(all.find(':', at), all.size());
        const std::string library = all.substr(at, end - at);
        at = end + 1;
        if (library.empty()) continue;
        if (!process.covering().allows(library)) {
            process.report().complain(
                library +
                " in LD_AUDIT is refused: it has a C library of its own, whose connections nobody seals; unset "
                "the variable, or name the library in allow_programs if it talks to no other node");
            real::_exit(kExitRefused);
        }
        if (!process.report().count_unsealed("allow_programs: " + library + " ran without CryptMPI", true))
            real::_exit(kExitRefused);
    }
}

/// A TCP socket of which no process before this one knew that it is sealed.
void adopt_unsealed(Process& process, int fd) {
    const auto peer = Address::peer_of(fd);
    if (!peer) {
        if (!is_internet_socket(fd)) return;
        // A connection that was reset has no peer any more, but may have bytes of one. Else another process that
        // holds the socket, too, may still connect it.
        int left = 0;
        const bool fresh = real::ioctl(fd, FIONREAD, &left) != 0 || left == 0;
        process.table().add(fd, fresh ? Kind::fresh : Kind::foreign);
        return;
    }
    std::string why;
    const Verdict verdict = process.policy().decide(fd, *peer, why);
    const bool stays_closed =
        verdict == Verdict::seal || (verdict == Verdict::plaintext && !process.report().count_unsealed(why, true));
    if (stays_closed) process.table().add(fd, Kind::foreign);
}

/// Returns the sealed connections among them.
std::vector<Shared*> adopt_sockets(Process& process) {
    std::map<std::uint64_t, int> first_of;
    std::vector<Shared*> adopted;
    each_descriptor([&](int fd) {
        struct stat information {};
        if (fstat(fd, &information) != 0 || !S_ISSOCK(information.st_mode)) return;
        if (!Table::holds(fd)) {
            if (option_of(fd, SO_DOMAIN) != AF_UNIX) real::close(fd);  // nobody would look after it
            return;
        }
        if (const auto kind = process.kind_of_foreign(fd)) {
            process.table().add(fd, *kind);
            return;
        }
        if (option_of(fd, SO_TYPE) != SOCK_STREAM) return;
        const auto [known, first] = first_of.emplace(information.st_ino, fd);
        if (!first) {
            process.table().share(known->second, fd);
            return;
        }
        if (Shared* shared = process.arena().find(information.st_ino)) {
            Entry* entry = process.table().add(fd, Kind::fresh);
            adopted.push_back(shared);
            process.note_shared();
            if (auto resumed = resume(process, *entry, *shared); !resumed)
                process.report().complain(resumed.error().line);
            return;
        }
        adopt_unsealed(process, fd);
    });
    return adopted;
}

/// Returns what the process before this one said of its arena: the descriptor, and the slots that it counted us in.
std::string adopt_arena(Process& process) {
    const char* inherited = std::getenv(config::kArenaVariable);
    if (inherited == nullptr) return "";
    std::string given = inherited;
    const int fd = std::atoi(inherited);
    struct stat information {};
    // The variable goes on to grandchildren, the descriptor only to a program that needs it.
    char path[64] = {};
    const std::string link = fmt::format("/proc/self/fd/{}", fd);
    const bool there = fstat(fd, &information) == 0 && readlink(link.c_str(), path, sizeof path - 1) > 0 &&
                       std::strstr(path, "memfd:cryptmpi") != nullptr;
    unsetenv(config::kArenaVariable);
    if (there) {
        real::fcntl(fd, F_SETFD, reinterpret_cast<void*>(static_cast<long>(FD_CLOEXEC)));
        if (auto adopted = process.arena().adopt(fd); !adopted) process.report().complain(adopted.error().line);
    }
    return given;
}

/// A connection that this process was counted on, and has not got.
void give_up(Process& process, Shared& shared, std::uint32_t generation) {
    // The others have gone meanwhile: nobody has the socket, by which it could be ended in order.
    if (shared.holders.leave(generation, 0) == 0) process.arena().give_back(&shared);
}

void adopt_inherited(Process& process) {
    if (!process.enabled()) return;
    process.report().remove_leftovers();
    const std::string given = adopt_arena(process);
    const std::vector<Shared*> adopted = adopt_sockets(process);
    // posix_spawn counted us as a holder of everything that we might have got: us alone, and nobody whom we start.
    if (given.find(fmt::format("given by {}:", getppid())) == std::string::npos) return;
    for (auto at = given.find(':'); at != std::string::npos && process.arena().fd() >= 0;
         at = given.find(':', at + 1)) {
        char* rest = nullptr;
        Shared* shared = process.arena().slot(std::strtoul(given.c_str() + at + 1, &rest, 10));
        if (*rest != '.') break;  // nothing that a process of ours wrote
        if (shared != nullptr && std::find(adopted.begin(), adopted.end(), shared) == adopted.end())
            give_up(process, *shared, static_cast<std::uint32_t>(std::strtoul(rest + 1, nullptr, 10)));
    }
}

}  // namespace

Process* make_process(const config::Environment& environment) {
    return new Process(environment, [](Process& process) { return std::make_unique<Threads>(process); });
}

Process& this_process() {
    if (Process* process = Process::made()) return *process;
    static auto* one = [] {
        making = true;
        Process* const process = make_process(config::process_environment());
        Process::stand_in(process);
        look_at_auditors(*process);
        adopt_inherited(*process);
        process->hold_key();
        if (process->enabled()) look_for_go(process->report(), process->covering());
        making = false;
        return process;
    }();
    return *one;
}

bool is_making_process() {
    return making;
}

}  // namespace cryptmpi::channel

/// Asked by the MPI layer in the same process.
extern "C" [[gnu::visibility("default")]] int cryptmpi_channel_confines() {
    return cryptmpi::channel::this_process().confined() ? 1 : 0;
}
