#include "channel/holders.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

// A name in its place: 32 bits of the namespace, 9 of the connection's number, one that says that it is a child that is
// not there yet, and 22 of the process's number, which Linux does not exceed.
constexpr int kProcessBits = 22;
constexpr int kNumberBits = 9;
constexpr int kNumberShift = kProcessBits + 1;
constexpr int kNamespaceShift = kNumberShift + kNumberBits;
constexpr std::uint64_t kProcessMask = (1U << kProcessBits) - 1;
constexpr std::uint64_t kUnborn = 1U << kProcessBits;
constexpr std::uint64_t kNumberMask = ((1ULL << kNumberBits) - 1) << kNumberShift;

std::uint64_t number_in_name(std::uint32_t generation) {
    return static_cast<std::uint64_t>(generation) << kNumberShift & kNumberMask;
}

/// 0: there is no /proc here.
std::uint64_t inode_of(const char* file) {
    struct stat information {};
    return stat(file, &information) == 0 ? information.st_ino : 0;
}

std::uint64_t own_namespace() {
    return inode_of("/proc/self/ns/pid");
}

}  // namespace

ProcessName name_of_this_process() {
    return name_of_child(getpid());
}

ProcessName name_of_child(std::int32_t pid) {
    const std::uint64_t inode = own_namespace();
    const auto number = static_cast<std::uint64_t>(pid);
    return inode == 0 || number > kProcessMask ? 0 : inode << kNamespaceShift | number;
}

bool children_are_here() {
    return inode_of("/proc/self/ns/pid_for_children") == own_namespace();
}

ProcessName unborn_child_of(ProcessName parent) {
    return parent == 0 ? 0 : parent | kUnborn;
}

bool has_ended(ProcessName process) {
    if (process == 0 || (process & kUnborn) != 0 || process >> kNamespaceShift != own_namespace()) return false;
    const auto pid = static_cast<pid_t>(process & kProcessMask);
    const long found = real::syscall(SYS_pidfd_open, pid, 0, 0, 0, 0, 0);
    if (found < 0) return errno == ESRCH || (errno == ENOSYS && kill(pid, 0) != 0 && errno == ESRCH);
    pollfd one{static_cast<int>(found), POLLIN, 0};
    const timespec now{};
    const bool ended = real::ppoll(&one, 1, &now, nullptr) == 1 && (one.revents & POLLIN) != 0;
    real::close(one.fd);
    return ended;
}

bool Holders::join(std::uint32_t generation) {
    std::uint64_t before = value_.load();
    do {
        if (before >> kShift != generation) return false;
    } while (!value_.compare_exchange_weak(before, before + 1));
    return true;
}

void Holders::sign(std::uint32_t generation, ProcessName process) {
    if (process == 0) return;
    const std::uint64_t name = process | number_in_name(generation);
    for (const auto& place : names_) {
        if (place.load() == name) return;
    }
    for (auto& place : names_) {
        std::uint64_t there = place.load();
        const bool free = there == 0 || (there & kNumberMask) != number_in_name(generation);  // of an earlier one
        if (free && place.compare_exchange_strong(there, name)) return;
    }
    for (auto& place : names_) {
        std::uint64_t there = place.load();
        if (!has_ended(there & ~kNumberMask) || !place.compare_exchange_strong(there, name)) continue;
        (void)one_less(generation);  // whom it takes the place of; the one who signs is counted
        return;
    }
}

void Holders::rename(std::uint32_t generation, ProcessName before, ProcessName now) {
    if (before == 0 || now == 0) return;
    for (auto& place : names_) {
        std::uint64_t there = before | number_in_name(generation);
        if (place.compare_exchange_strong(there, now | number_in_name(generation))) return;
    }
}

std::optional<std::uint32_t> Holders::leave(std::uint32_t generation, ProcessName process) {
    const std::uint64_t own = process | number_in_name(generation);
    for (auto& place : names_) {
        std::uint64_t there = own;
        if (process != 0 && place.compare_exchange_strong(there, 0)) break;
    }
    auto left = one_less(generation);
    for (auto& place : names_) {
        if (!left || *left == 0) return left;
        std::uint64_t there = place.load();
        if (there == 0 || (there & kNumberMask) != number_in_name(generation)) continue;
        if (!has_ended(there & ~kNumberMask)) return left;  // who lives looks for the others when it leaves
        // Whoever takes the name out counts it out, and nobody else.
        if (place.compare_exchange_strong(there, 0)) left = one_less(generation);
    }
    return left;
}

void Holders::finish() {
    for (auto& place : names_) place.store(0);
    value_.store(static_cast<std::uint64_t>(generation() + 1) << kShift, std::memory_order_release);
}

std::optional<std::uint32_t> Holders::one_less(std::uint32_t generation) {
    std::uint64_t before = value_.load();
    do {
        if (before >> kShift != generation || static_cast<std::uint32_t>(before) == 0) return std::nullopt;
    } while (!value_.compare_exchange_weak(before, before - 1));
    return static_cast<std::uint32_t>(before - 1);
}

}  // namespace cryptmpi::channel
