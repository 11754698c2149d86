// While MPI opens a network through one of our doors, what UCX, libfabric and the libraries below them open is for it.
#pragma once

namespace cryptmpi::fabric {

class Opening {
public:
    Opening();
    ~Opening();
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

    /// Was there one in this process?
    static bool has_been();
};

}  // namespace cryptmpi::fabric

/// Asked by the channel library in the same process, of the calling thread.
extern "C" int cryptmpi_fabric_is_opening();
