// Messages between ranks of one process, over a fake MPI.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "comm/calls.hpp"
#include "fake_mpi.hpp"

namespace cryptmpi::comm {
namespace {

using fake::Clear;
using fake::Ending;
using fake::Job;
using fake::Message;
using fake::Rank;

using Bytes = std::vector<std::uint8_t>;

int send(const Rank& rank, const Clear& data, int to, int tag, MPI_Comm comm = MPI_COMM_WORLD) {
    return Send(rank.layer, data.bytes().data(), static_cast<MPI_Count>(data.bytes().size()), MPI_BYTE, to, tag, comm);
}

int receive(const Rank& rank, Bytes& into, int from, int tag, MPI_Status* status = MPI_STATUS_IGNORE,
            MPI_Comm comm = MPI_COMM_WORLD) {
    return Recv(rank.layer, into.data(), static_cast<MPI_Count>(into.size()), MPI_BYTE, from, tag, comm, status);
}

TEST(PointToPoint, ABlockingMessageComesAsItWasSent) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{70000}}) {
        const Clear data(size);
        Job job(2);
        const Ending ending = job.run([&](Rank& rank) {
            if (rank.number == 0) {
                EXPECT_EQ(send(rank, data, 1, 7), MPI_SUCCESS);
                return;
            }
            Bytes into(size);
            MPI_Status status;
            EXPECT_EQ(receive(rank, into, 0, 7, &status), MPI_SUCCESS);
            EXPECT_EQ(into, data.bytes());
            EXPECT_EQ(status.MPI_SOURCE, 0);
            EXPECT_EQ(status.MPI_TAG, 7);
            int count = -1;
            rank.mpi.Get_count(&status, MPI_BYTE, &count);
            EXPECT_EQ(count, static_cast<int>(size));
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

}  // namespace
}  // namespace cryptmpi::comm
