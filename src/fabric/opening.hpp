// While MPI opens a network through one of our doors, what UCX, libfabric and the libraries below them open is for it.
#pragma once

namespace cryptmpi::fabric {

class Opening {
public:
    Opening();
    ~Opening();
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

    /// The program has got a fabric of libfabric's, wrapped: from now on libfabric's sockets may carry what is sealed.
    static void has_given_fabric();
    /// Has it, or is this thread getting one?
    static bool may_carry();
};

}  // namespace cryptmpi::fabric

/// Asked by the channel library in the same process, of the calling thread.
extern "C" int cryptmpi_fabric_is_opening();
