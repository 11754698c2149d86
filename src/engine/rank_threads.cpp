#include "engine/rank_threads.hpp"

#include <dlfcn.h>

#include "engine/node_ranks.hpp"

namespace cryptmpi::engine {
namespace {

// A chunk of a large message follows another within about that time.
constexpr std::chrono::microseconds kLingers{50};

}  // namespace

std::size_t program_threads(std::size_t openmp, bool several_call) {
    if (openmp != 0) return openmp;
    const bool has_openmp = dlsym(RTLD_DEFAULT, "omp_get_max_threads") != nullptr;
    return has_openmp || several_call ? kMostHardwareThreads : 1;
}

RankThreads::RankThreads(int setting, std::size_t program_threads, const HardwareThreads& own)
    : setting_(static_cast<std::size_t>(setting)), program_threads_(program_threads), own_(own), share_(own_.count()) {}

Workers::Settings RankThreads::workers() const {
    if (setting_ != 0) return {.threads = setting_, .where = own_};
    return {.threads = threads_of_rank(share_, program_threads_),
            .where = own_,
            .lingers = kLingers,
            .rest_when_late = true};
}

Workers::Settings workers_without_mpi(int setting, std::size_t program_threads, int node_ranks,
                                      const HardwareThreads& own, const std::function<bool(pid_t)>& is_rank) {
    if (setting == 0 && node_ranks < 1) return {};
    RankThreads threads(setting, program_threads, own);
    if (threads.must_ask()) threads.share_with(ranks_of_node(own, node_ranks, is_rank));
    return threads.workers();
}

}  // namespace cryptmpi::engine
