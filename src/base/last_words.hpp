// What a process says before it ends the job.
#pragma once

#include <sys/ioctl.h>
#include <sys/stat.h>

#include <ctime>
#include <functional>

namespace cryptmpi {

/// Waits until somebody has read what was written to this pipe, a quarter of a second at most. MPICH's Hydra throws
/// away what it has not read of the ranks when one of them ends the job, so that nobody would learn why it has ended.
/// `wait` is called between two looks.
inline void let_be_read(int pipe, const std::function<void()>& wait) {
    constexpr int kLooks = 50;
    struct stat status {};
    if (fstat(pipe, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
    for (int look = 0; look < kLooks; ++look) {
        int unread = 0;
        if (ioctl(pipe, FIONREAD, &unread) != 0 || unread == 0) return;
        wait();
    }
}

inline void let_be_read(int pipe) {
    let_be_read(pipe, [] {
        constexpr timespec kBetween{0, 5'000'000};
        nanosleep(&kBetween, nullptr);
    });
}

}  // namespace cryptmpi
