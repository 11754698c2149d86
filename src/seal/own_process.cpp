#include "seal/own_process.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cryptmpi::seal {
namespace {

constinit volatile std::uint8_t without_page = 0;

/// A page of its own, of zeros in every child. Where the kernel has no such pages (Linux before 4.14), only children of
/// fork() are told from their parents.
volatile std::uint8_t* make_mark() {
    const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* const page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return &without_page;
    madvise(page, size, MADV_WIPEONFORK);
    return static_cast<std::uint8_t*>(page);
}

}  // namespace

namespace detail {
constinit const volatile std::uint8_t* own_mark = &without_page;
}

void claim_keys() {
    // What was claimed stays claimed in a child, whose mark is zero.
    [[maybe_unused]] static const bool claimed = [] {
        static volatile std::uint8_t* mark = make_mark();
        *mark = 1;
        detail::own_mark = mark;
        pthread_atfork(nullptr, nullptr, [] { *mark = 0; });
        return true;
    }();
}

}  // namespace cryptmpi::seal
