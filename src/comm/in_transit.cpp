#include "comm/in_transit.hpp"

namespace cryptmpi::comm {

void LeftWithMpi::take(Transfer transfer, MPI_Request request, engine::Buffer wire) {
    const std::lock_guard hold(lock_);
    if (transfer == Transfer::receive) mpi_.Cancel(&request);
    // MPI is mostly done at once with what is cancelled: then `wire` goes back to the pool here.
    int done = 0;
    mpi_.Test(&request, &done, MPI_STATUS_IGNORE);
    if (request == MPI_REQUEST_NULL) return;
    all_.push_back({request, std::move(wire)});
    count_ = all_.size();
}

void LeftWithMpi::look() {
    const std::lock_guard hold(lock_);
    all_.remove_if([&](One& one) {
        int done = 0;
        mpi_.Test(&one.request, &done, MPI_STATUS_IGNORE);
        return one.request == MPI_REQUEST_NULL;
    });
    count_ = all_.size();
}

}  // namespace cryptmpi::comm
