#include "fabric/opening.hpp"

#include <atomic>

namespace {

thread_local int depth = 0;
std::atomic<bool> has_been_one{false};

}  // namespace

namespace cryptmpi::fabric {

Opening::Opening() {
    ++depth;
    has_been_one.store(true, std::memory_order_relaxed);
}

Opening::~Opening() {
    --depth;
}

bool Opening::has_been() {
    return has_been_one.load(std::memory_order_relaxed);
}

}  // namespace cryptmpi::fabric

extern "C" [[gnu::visibility("default")]] int cryptmpi_fabric_is_opening() {
    return depth;
}
