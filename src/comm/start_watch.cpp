#include "comm/start_watch.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <system_error>

namespace cryptmpi::comm {
namespace {

constexpr const char* kMend =
    ": MPI cannot reach all ranks; does one run under another layer, or without cryptmpi? Give all the same --layer";

}  // namespace

StartWatch::StartWatch(Layer& layer) : layer_(layer) {
    if (!layer.settings().enabled) return;
    // The program's signals are not for our thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread(&StartWatch::watch, this);
    } catch (const std::system_error&) {  // no thread to be had: MPI_Init is not watched
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

StartWatch::~StartWatch() {
    {
        const std::lock_guard guard(lock_);
        begun_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
}

void StartWatch::watch() {
    const auto longest = layer_.settings().handshake_timeout;
    const auto notice = std::min(layer_.settings().agreement_timeout, longest);
    const auto begun = [this] { return begun_; };
    std::unique_lock guard(lock_);
    if (changed_.wait_for(guard, notice, begun)) return;
    layer_.say("MPI_Init has not returned yet" + std::string(kMend));
    if (changed_.wait_for(guard, longest - notice, begun)) return;
    layer_.complain("MPI_Init did not return in time" + std::string(kMend) +
                    " (handshake_timeout_s sets how long it may take)");
    _exit(kExitRefused);  // MPI, which another thread is in, cannot be asked to end the job: its launcher will
}

}  // namespace cryptmpi::comm
