#include "fabric/opening.hpp"

#include <atomic>

namespace {

thread_local int depth = 0;
std::atomic<bool> given_fabric = false;

}  // namespace

namespace cryptmpi::fabric {

Opening::Opening() {
    ++depth;
}

Opening::~Opening() {
    --depth;
}

void Opening::has_given_fabric() {
    given_fabric.store(true, std::memory_order_relaxed);
}

bool Opening::may_carry() {
    return depth != 0 || given_fabric.load(std::memory_order_relaxed);
}

}  // namespace cryptmpi::fabric

extern "C" [[gnu::visibility("default")]] int cryptmpi_fabric_is_opening() {
    return depth;
}
