// An MPI in one process, for tests: N ranks, each a thread, of which one runs at a time. A seed decides who goes on and
// which message comes next, so a test that fails once fails each time.
//
//   1. A rank calls MPI through the Native of its Host. A call that has to wait gives the turn to another rank.
//   2. What a rank sends goes onto the wire, in a queue for each communicator, sender and receiver: a test may look at
//      it there, change it, drop it or send it again (on_wire).
//   3. With each turn some messages come out of the queues. Those of one queue keep their order, as MPI promises;
//      between queues there is none. A message that was matched may still take its time to arrive.
//   4. At the end nothing may be left: no message that nobody received, no receive that nothing came to, no request.
//
// The fake finds what a real MPI would not say: a buffer that changes while MPI sends it, ranks that call different
// collective operations, ranks that wait for each other, and bytes of Clear on their way between ranks.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/layer.hpp"

namespace cryptmpi::comm::fake {

/// A message on the wire.
struct Message {
    int context = 0;  // two for each communicator: of messages, and of collective operations
    int source = 0;   // ranks of MPI_COMM_WORLD
    int to = 0;
    int rank = 0;  // the source's rank in the communicator: what the receiver is told
    int tag = 0;
    std::string operation;  // the collective operation that it belongs to; empty: none
    std::vector<std::uint8_t> bytes;

    bool is_collective() const { return !operation.empty(); }
};

/// Data of programs that must not be seen on the wire: bytes that tell their place, and that they are clear.
class Clear {
public:
    explicit Clear(std::size_t size, int salt = 0);
    std::uint8_t* data() { return bytes_.data(); }
    const std::vector<std::uint8_t>& bytes() const { return bytes_; }
    static bool is_in(const std::vector<std::uint8_t>& bytes);

private:
    std::vector<std::uint8_t> bytes_;
};

struct Options {
    std::uint64_t seed = 1;
    std::vector<int> nodes = {};                       // of each rank; empty: each is a node of its own
    bool seals_all = true;                             // or only between nodes
    std::size_t eager = 4096;                          // bytes: larger sends wait for their receivers
    std::map<std::string, std::string> settings = {};  // "CRYPTMPI_..."
    bool errors_return = true;                         // or they are fatal, as MPI begins
    bool world_is_revoked = false;                     // no collective operation on MPI_COMM_WORLD goes on
    bool takes_back_sent = false;                      // a cancel takes back what was sent, too, as MPICH's ch3 does
    // As MPICH 5: what failed is a success once a handler of the program's has heard of it, what was cut off has no
    // length, and is told to who asks for the status of its request, too, on no communicator.
    bool forgets_told_errors = false;
    // Then it has this length instead, and nothing of it is written, as with UCX.
    std::size_t length_of_cut_off = 0;
    // As MPICH's Testall: where one has failed and another is not done, it fails, ends none, and calls the others that
    // are done successful.
    bool testall_ends_none = false;
    int thread_level = MPI_THREAD_SINGLE;
    std::string session_level = "MPI_THREAD_SINGLE";  // what sessions say that they have; empty: nothing
    // As MPICH: MPI_COMM_SELF and all else end with the last session, where one is still open at MPI_Finalize.
    bool ends_with_sessions = false;
    std::chrono::milliseconds longest{20'000};  // that ranks may ask in vain
};

class Job;

/// What a test's function gets, on each rank.
struct Rank {
    Job& job;
    int number;
    int ranks;
    Layer& layer;
    const comm::Native& mpi;
};

/// How a job ended.
struct Ending {
    bool aborted = false;                    // by a rank, with MPI_Abort
    int status = 0;                          // of MPI_Abort
    std::string stuck;                       // why nothing could go on; empty: it could
    std::vector<std::string> complaints;     // of the fake, about what the layer did
    std::vector<std::string> left;           // what was there at the end that should not
    std::vector<std::string> said;           // by the layers, by rank
    std::vector<std::uint64_t> calls;        // of MPI's procedures since the start of the test's function, by rank
    std::vector<std::size_t> communicators;  // that MPI still has, by rank
    std::vector<std::uint64_t> looks;        // how often MPI was asked whether one request is done, by rank
    bool went_well() const { return !aborted && stuck.empty() && complaints.empty() && left.empty(); }
    std::string told() const;
};

class World;

class Job {
public:
    explicit Job(int ranks, Options options = {});
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// May change a message as it is sent. False: it is lost. What it adds to `more` is sent after it.
    std::function<bool(Message& message, std::vector<Message>& more)> on_wire;
    /// May change who is in a communicator that MPI makes, as MPI tells this rank of MPI_COMM_WORLD. Nobody: this rank
    /// has none.
    std::function<void(int rank, std::vector<int>& members)> on_members;
    /// Does this call of the test's function fail? Asked of each of those that may, by its number on its rank.
    std::function<bool(int rank, const std::string& procedure, std::uint64_t number)> fails;

    /// What a rank does before MPI_Init and after MPI_Finalize, if anything.
    std::function<void(Rank&)> before;
    std::function<void(Rank&)> after;

    /// Runs it on all ranks, between MPI_Init and MPI_Finalize of the layer.
    Ending run(const std::function<void(Rank&)>& function);

private:
    int ranks_;
    Options options_;
    std::unique_ptr<World> world_;
};

}  // namespace cryptmpi::comm::fake
