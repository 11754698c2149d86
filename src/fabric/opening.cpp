#include "fabric/opening.hpp"

namespace {

thread_local int depth = 0;

}  // namespace

namespace cryptmpi::fabric {

Opening::Opening() {
    ++depth;
}

Opening::~Opening() {
    --depth;
}

}  // namespace cryptmpi::fabric

extern "C" [[gnu::visibility("default")]] int cryptmpi_fabric_is_opening() {
    return depth;
}
