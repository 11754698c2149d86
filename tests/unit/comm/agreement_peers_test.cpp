// The agreement's messages over an MPI of which a test plays the few calls that they need.
#include "comm/agreement_peers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace cryptmpi::comm {
namespace {

using namespace std::chrono_literals;

/// What the next receive gets: so many bytes, or an error of MPI's, or nothing at all.
struct Coming {
    int bytes = 0;
    int code = MPI_SUCCESS;
    bool comes = true;
};
Coming coming;

int irecv(void* at, int room, MPI_Datatype, int, int, MPI_Comm, MPI_Request*) {
    std::fill_n(static_cast<std::uint8_t*>(at), std::min(room, coming.bytes), std::uint8_t{7});
    return MPI_SUCCESS;
}
int test(MPI_Request*, int* done, MPI_Status*) {
    *done = coming.comes ? 1 : 0;
    return coming.code;
}
int get_count(const MPI_Status*, MPI_Datatype, int* count) {
    *count = coming.bytes;
    return MPI_SUCCESS;
}

Result<void> receive(Coming what, std::vector<std::uint8_t>& message) {
    coming = what;
    comm::Native mpi{};
    mpi.Irecv = irecv;
    mpi.Test = test;
    mpi.Get_count = get_count;
    AgreementPeers peers(mpi, 0, {20ms, 20ms}, [](const std::string&) {});
    return peers.receive(1, message);
}

// protocol: A7
TEST(AgreementPeers, AMessageOfAnotherSizeIsRefused) {
    std::vector<std::uint8_t> message(48);
    EXPECT_TRUE(receive({48}, message));
    EXPECT_EQ(message, std::vector<std::uint8_t>(48, 7));
    for (const int bytes : {0, 1, 47, 49, 1000}) {
        const auto done = receive({bytes}, message);
        ASSERT_FALSE(done) << bytes;
        EXPECT_EQ(done.error().code, EPROTO);
        EXPECT_NE(done.error().line.find("sent " + std::to_string(bytes) + " bytes where 48 were expected"),
                  std::string::npos)
            << done.error().line;
    }
}

// protocol: A14
TEST(AgreementPeers, AMessageThatMpiCutsOffOrThatDoesNotComeIsAnError) {
    std::vector<std::uint8_t> message(48);
    EXPECT_EQ(receive({49, MPI_ERR_TRUNCATE}, message).error().code, EIO);
    EXPECT_EQ(receive({48, MPI_SUCCESS, false}, message).error().code, ETIMEDOUT);
}

}  // namespace
}  // namespace cryptmpi::comm
