#include "fabric/opening.hpp"

#include <array>
#include <atomic>
#include <cstddef>

namespace {

thread_local int depth = 0;
std::array<std::atomic<bool>, 2> opened = {};

}  // namespace

namespace cryptmpi::fabric {

Opening::Opening(Road road) {
    ++depth;
    opened[static_cast<std::size_t>(road)].store(true, std::memory_order_relaxed);
}

Opening::~Opening() {
    --depth;
}

bool Opening::has_been(Road road) {
    return opened[static_cast<std::size_t>(road)].load(std::memory_order_relaxed);
}

}  // namespace cryptmpi::fabric

extern "C" [[gnu::visibility("default")]] int cryptmpi_fabric_is_opening() {
    return depth;
}
