#include "comm/rank_threads.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "config/settings.hpp"

namespace cryptmpi::comm {
namespace {

// A chunk of a large message follows another within about that time.
constexpr std::chrono::microseconds kLingers{50};

/// OMP_NUM_THREADS: a number for each level of nesting. 0: it says nothing.
std::size_t openmp_threads() {
    const std::string text = config::process_environment()("OMP_NUM_THREADS").value_or("");
    std::size_t all = 0;
    for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
        std::size_t level = 0;
        const auto [stop, error] = std::from_chars(at, end, level);
        if (error != std::errc{} || level == 0) return 0;
        all = std::min(std::max(all, std::size_t{1}) * std::min(level, engine::kMostHardwareThreads),
                       engine::kMostHardwareThreads);
        at = stop == end ? end : stop + 1;
    }
    return all;
}

/// How many hardware threads the program uses by itself; as many as there are where nobody says how many.
std::size_t program_threads(bool several_call) {
    if (const std::size_t said = openmp_threads(); said != 0) return said;
    const bool has_openmp = dlsym(RTLD_DEFAULT, "omp_get_max_threads") != nullptr;
    return has_openmp || several_call ? engine::kMostHardwareThreads : 1;
}

}  // namespace

RankThreads::RankThreads(int setting, bool several_call)
    : setting_(static_cast<std::size_t>(setting)),
      program_threads_(program_threads(several_call)),
      own_(engine::HardwareThreads::of_this_thread()),
      share_(own_.count()) {}

void RankThreads::ask(const interpose::Native& mpi, MPI_Comm comm) {
    MPI_Comm node = MPI_COMM_NULL;
    mpi.Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    engine::PerHardwareThread ranks = own_.members();
    mpi.Allreduce(MPI_IN_PLACE, ranks.data(), static_cast<int>(ranks.size()), MPI_INT, MPI_SUM, node);
    mpi.Comm_free(&node);
    share_ = own_.share(ranks);
}

engine::Workers::Settings RankThreads::workers() const {
    if (setting_ != 0) return {.threads = setting_, .where = own_};
    return {.threads = engine::threads_of_rank(share_, program_threads_),
            .where = own_,
            .lingers = kLingers,
            .rest_when_late = true};
}

}  // namespace cryptmpi::comm
