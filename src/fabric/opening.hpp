// While MPI opens a network through one of our doors, what UCX, libfabric and the libraries below them open is for it.
#pragma once

#include <cstdint>

namespace cryptmpi::fabric {

enum class Road : std::uint8_t { ucx, libfabric };

class Opening {
public:
    explicit Opening(Road road);
    ~Opening();
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

    /// Was there one of this road in this process?
    static bool has_been(Road road);
};

}  // namespace cryptmpi::fabric

/// Asked by the channel library in the same process, of the calling thread.
extern "C" int cryptmpi_fabric_is_opening();
