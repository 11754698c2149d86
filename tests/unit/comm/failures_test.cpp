// Each call of MPI's fails once: the error comes out, nothing crashes, nothing goes in clear, and nobody is deceived.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "comm/calls.hpp"
#include "fake_mpi.hpp"

namespace cryptmpi::comm {
namespace {

using fake::Clear;
using fake::Ending;
using fake::Job;
using fake::Rank;

using Bytes = std::vector<std::uint8_t>;

/// What a rank has of it: MPI's code, and whether its data are those that were sent.
struct Outcome {
    int code = MPI_SUCCESS;
    bool right = true;
    bool ended = false;
};
using Program = std::function<Outcome(Rank&)>;

/// Memory that lives as long as its rank: after an error, MPI may still work on it.
Bytes& kept(std::size_t size) {
    thread_local std::list<Bytes> all;
    return all.emplace_back(size);
}

int first_of(int code, int next) {
    return code != MPI_SUCCESS ? code : next;
}

Outcome blocking(Rank& rank, std::size_t size) {
    const auto count = static_cast<MPI_Count>(size);
    const Clear data(size);
    if (rank.number == 0) {
        return {Send(rank.layer, data.bytes().data(), count, MPI_BYTE, 1, 1, MPI_COMM_WORLD)};
    }
    Bytes& into = kept(size);
    const int code = Recv(rank.layer, into.data(), count, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return {code, into == data.bytes()};
}

Outcome nonblocking(Rank& rank, std::size_t size) {
    const auto count = static_cast<MPI_Count>(size);
    const Clear data(size);
    Bytes& into = kept(size);
    const int peer = 1 - rank.number;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    const int received = Irecv(rank.layer, into.data(), count, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[0]);
    const int sent = Isend(rank.layer, data.bytes().data(), count, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[1]);
    const int waited = Waitall(rank.layer, 2, requests, MPI_STATUSES_IGNORE);
    return {first_of(first_of(received, sent), waited), into == data.bytes()};
}

Outcome persistent(Rank& rank, std::size_t size) {
    const auto count = static_cast<MPI_Count>(size);
    Clear data(size);
    Bytes& into = kept(size);
    MPI_Request request = MPI_REQUEST_NULL;
    int code = rank.number == 0 ? Send_init(rank.layer, data.data(), count, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request)
                                : Recv_init(rank.layer, into.data(), count, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    if (code != MPI_SUCCESS) return {code};
    code = Start(rank.layer, &request);
    if (code == MPI_SUCCESS) code = Wait(rank.layer, &request, MPI_STATUS_IGNORE);
    if (request != MPI_REQUEST_NULL) Request_free(rank.layer, &request);
    return {code, rank.number == 0 || into == data.bytes()};
}

Outcome probed(Rank& rank, std::size_t size) {
    const Clear data(size);
    if (rank.number == 0) return blocking(rank, size);
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (const int code = Mprobe(rank.layer, 0, 1, MPI_COMM_WORLD, &message, &status); code != MPI_SUCCESS)
        return {code};
    Bytes& into = kept(size);
    const int code = Mrecv(rank.layer, into.data(), static_cast<MPI_Count>(size), MPI_BYTE, &message, &status);
    return {code, into == data.bytes()};
}

Outcome bcast(Rank& rank, std::size_t size) {
    const Clear data(size);
    Bytes into = rank.number == 0 ? data.bytes() : Bytes(size);
    const int code = Bcast(rank.layer, into.data(), static_cast<MPI_Count>(size), MPI_BYTE, 0, MPI_COMM_WORLD);
    return {code, into == data.bytes()};
}

Outcome alltoall(Rank& rank, std::size_t size) {
    Bytes out;
    for (int i = 0; i < rank.ranks; ++i) {
        const Bytes one = Clear(size, rank.number).bytes();
        out.insert(out.end(), one.begin(), one.end());
    }
    Bytes in(out.size());
    const auto count = static_cast<MPI_Count>(size);
    const int code = Alltoall(rank.layer, out.data(), count, MPI_BYTE, in.data(), count, MPI_BYTE, MPI_COMM_WORLD);
    bool right = true;
    for (int i = 0; i < rank.ranks; ++i) {
        right = right && Bytes(in.begin() + i * count, in.begin() + (i + 1) * count) == Clear(size, i).bytes();
    }
    return {code, right};
}

Outcome allreduce(Rank& rank, std::size_t size) {
    const std::vector<int> mine(size, rank.number + 1);
    std::vector<int> in(size);
    const int code =
        Allreduce(rank.layer, mine.data(), in.data(), static_cast<MPI_Count>(size), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return {code, in == std::vector<int>(size, rank.ranks * (rank.ranks + 1) / 2)};
}

Outcome gather(Rank& rank, std::size_t size) {
    const Clear mine(size, rank.number);
    Bytes all(size * static_cast<std::size_t>(rank.ranks));
    const auto count = static_cast<MPI_Count>(size);
    const int code =
        Gather(rank.layer, mine.bytes().data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, 0, MPI_COMM_WORLD);
    bool right = true;
    for (int i = 0; rank.number == 0 && i < rank.ranks; ++i) {
        right = right && Bytes(all.begin() + i * count, all.begin() + (i + 1) * count) == Clear(size, i).bytes();
    }
    return {code, right};
}

/// Lets the first, the second ... call on each rank fail, each in a job of its own, until there is none.
void fail_each(const std::string& name, int ranks, const Program& program) {
    int jobs = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        bool failed = true;
        for (std::uint64_t call = 0; failed && call < 60; ++call) {
            fake::Options options;
            options.longest = std::chrono::milliseconds(200);
            Job job(ranks, options);
            failed = false;
            std::string procedure;
            job.fails = [&](int on, const std::string& called, std::uint64_t number) {
                if (on != rank || number != call) return false;
                procedure = called;
                return failed = true;
            };
            std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
            const Ending ending = job.run([&](Rank& on) {
                Outcome outcome = program(on);
                outcome.ended = true;
                outcomes[static_cast<std::size_t>(on.number)] = outcome;
            });
            const std::string what =
                name + ": " + procedure + ", call " + std::to_string(call) + " of rank " + std::to_string(rank) + "\n";
            for (const std::string& complaint : ending.complaints) {
                // A rank whose operation failed is in the next one while others are in this.
                EXPECT_NE(complaint.find(" is in "), std::string::npos) << what << ending.told();
            }
            for (const Outcome& outcome : outcomes) {
                EXPECT_TRUE(!outcome.ended || outcome.right || outcome.code != MPI_SUCCESS) << what << ending.told();
            }
            // Without a failure, all goes well: then every call has failed once.
            EXPECT_TRUE(failed || ending.went_well()) << what << ending.told();
            ++jobs;
        }
        EXPECT_FALSE(failed) << name << " has more calls than are tried";
    }
    EXPECT_GT(jobs, ranks) << name << ": no call failed";
}

TEST(Failures, OfBlockingMessages) {
    fail_each("blocking", 2, [](Rank& rank) { return blocking(rank, 100); });
}

TEST(Failures, OfNonBlockingMessages) {
    fail_each("nonblocking", 2, [](Rank& rank) { return nonblocking(rank, 100); });
}

TEST(Failures, OfPersistentMessages) {
    fail_each("persistent", 2, [](Rank& rank) { return persistent(rank, 100); });
}

TEST(Failures, OfProbedMessages) {
    fail_each("probed", 2, [](Rank& rank) { return probed(rank, 100); });
}

/// The first call of `procedure` on `rank` fails, and MPI has what it was to wait for still.
void fail_first(Job& job, int rank, const std::string& procedure) {
    job.fails = [=, failed = false](int on, const std::string& called, std::uint64_t) mutable {
        if (on != rank || called != procedure || failed) return false;
        return failed = true;
    };
}

int finish(const Rank& rank, const std::string& procedure, MPI_Request& request) {
    if (procedure == "Wait") return Wait(rank.layer, &request, MPI_STATUS_IGNORE);
    int done = 0;
    int code = MPI_SUCCESS;
    while (done == 0 && code == MPI_SUCCESS) code = comm::Test(rank.layer, &request, &done, MPI_STATUS_IGNORE);
    return code;
}

int send(const Rank& rank, const Clear& data, int to, int tag) {
    return Send(rank.layer, data.bytes().data(), static_cast<MPI_Count>(data.bytes().size()), MPI_BYTE, to, tag,
                MPI_COMM_WORLD);
}

Bytes received(const Rank& rank, std::size_t size, int from, int tag) {
    Bytes& into = kept(size);
    const int code = Recv(rank.layer, into.data(), static_cast<MPI_Count>(size), MPI_BYTE, from, tag, MPI_COMM_WORLD,
                          MPI_STATUS_IGNORE);
    EXPECT_EQ(code, MPI_SUCCESS);
    return into;
}

TEST(Failures, AReceiveThatMpiKeepsAfterAnErrorIsWaitedForAgain) {
    for (const std::string procedure : {"Wait", "Test"}) {
        for (const bool persistent : {false, true}) {
            const Clear data(3000);
            Job job(2);
            fail_first(job, 0, procedure);
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number == 1) {
                    received(rank, 1, 0, 1);
                    EXPECT_EQ(send(rank, data, 0, 5), MPI_SUCCESS);
                    return;
                }
                Bytes& into = kept(3000);
                MPI_Request request = MPI_REQUEST_NULL;
                if (persistent) {
                    Recv_init(rank.layer, into.data(), 3000, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
                    EXPECT_EQ(Start(rank.layer, &request), MPI_SUCCESS);
                } else {
                    Irecv(rank.layer, into.data(), 3000, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
                }
                EXPECT_NE(finish(rank, procedure, request), MPI_SUCCESS);
                EXPECT_NE(request, MPI_REQUEST_NULL);
                send(rank, Clear(1), 1, 1);
                EXPECT_EQ(finish(rank, procedure, request), MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
                if (persistent) Request_free(rank.layer, &request);
            });
            EXPECT_TRUE(ending.went_well()) << procedure << " of " << persistent << "\n" << ending.told();
        }
    }
}

TEST(Failures, ASendThatMpiKeepsAfterAnErrorKeepsItsMemory) {
    for (const std::string procedure : {"Wait", "Test"}) {
        const Clear data(3000);
        const Clear next(3000, 1);
        Job job(2);
        fail_first(job, 0, procedure);
        const Ending ending = job.run([&](Rank& rank) {
            if (rank.number == 1) {
                EXPECT_EQ(received(rank, 3000, 0, 1), next.bytes());
                EXPECT_EQ(received(rank, 3000, 0, 5), data.bytes());
                return;
            }
            MPI_Request request = MPI_REQUEST_NULL;
            Issend(rank.layer, data.bytes().data(), 3000, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
            EXPECT_NE(finish(rank, procedure, request), MPI_SUCCESS);
            EXPECT_EQ(send(rank, next, 1, 1), MPI_SUCCESS);
            EXPECT_EQ(finish(rank, procedure, request), MPI_SUCCESS);
        });
        EXPECT_TRUE(ending.went_well()) << procedure << "\n" << ending.told();
    }
}

/// The program has no request of it.
TEST(Failures, WhatACollectiveOperationLeavesWithMpiKeepsItsMemory) {
    constexpr std::size_t kSize = 9000;  // MPI has it until it is received
    constexpr int kMessages = 4;         // of that size: one would get that memory, were it free
    Job job(2);
    fail_first(job, 1, "Wait");
    const Ending ending = job.run([&](Rank& rank) {
        const std::vector<int> mine(kSize / sizeof(int), rank.number + 1);
        std::vector<int> in(mine.size());
        const auto reduce = [&] {
            return Reduce(rank.layer, mine.data(), in.data(), static_cast<MPI_Count>(mine.size()), MPI_INT, MPI_SUM, 0,
                          MPI_COMM_WORLD);
        };
        if (rank.number == 0) {
            for (int i = 0; i < kMessages; ++i) EXPECT_EQ(received(rank, kSize, 1, 5), Clear(kSize, i).bytes());
            EXPECT_EQ(reduce(), MPI_SUCCESS);
            EXPECT_EQ(in, std::vector<int>(in.size(), 3));
            send(rank, Clear(1), 1, 1);
            return;
        }
        EXPECT_NE(reduce(), MPI_SUCCESS);
        std::vector<Clear> out;
        for (int i = 0; i < kMessages; ++i) out.emplace_back(kSize, i);
        std::vector<MPI_Request> requests(out.size(), MPI_REQUEST_NULL);
        for (std::size_t i = 0; i < out.size(); ++i) {
            Isend(rank.layer, out[i].data(), static_cast<MPI_Count>(kSize), MPI_BYTE, 0, 5, MPI_COMM_WORLD,
                  &requests[i]);
        }
        EXPECT_EQ(Waitall(rank.layer, kMessages, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
        received(rank, 1, 0, 1);
        MPI_Request none = MPI_REQUEST_NULL;
        EXPECT_EQ(finish(rank, "Test", none), MPI_SUCCESS);  // gives back what MPI is done with
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Failures, OfCollectiveOperations) {
    fail_each("bcast", 3, [](Rank& rank) { return bcast(rank, 100); });
    fail_each("alltoall", 3, [](Rank& rank) { return alltoall(rank, 100); });
    fail_each("alltoall of large blocks", 3, [](Rank& rank) { return alltoall(rank, 3000); });
    fail_each("allreduce", 3, [](Rank& rank) { return allreduce(rank, 20); });
    fail_each("gather", 3, [](Rank& rank) { return gather(rank, 100); });
}

// One of several requests fails, with an MPI whose Testall ends none then.

/// On rank 1: a receive that is too short for its message, one that is not, and one whose message comes when it has
/// said so.
struct Several {
    explicit Several(std::size_t size) : into(size) {}
    void start(const Rank& rank) {
        const auto receive = [&](Bytes& place, int tag, MPI_Request& request) {
            Irecv(rank.layer, place.data(), static_cast<MPI_Count>(place.size()), MPI_BYTE, 0, tag, MPI_COMM_WORLD,
                  &request);
        };
        receive(small, 1, requests[0]);
        receive(into, 2, requests[1]);
        receive(late, 3, requests[2]);
    }
    Bytes small = Bytes(4);
    Bytes into;
    Bytes late = Bytes(100);
    std::array<MPI_Request, 3> requests{};
    std::array<MPI_Status, 3> statuses{};
};

void send_several(const Rank& rank, std::size_t size) {
    MPI_Request request = MPI_REQUEST_NULL;
    const Clear data(size);
    Isend(rank.layer, data.bytes().data(), static_cast<MPI_Count>(size), MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request);
    send(rank, Clear(3000), 1, 1);
    Wait(rank.layer, &request, MPI_STATUS_IGNORE);
    received(rank, 1, 1, 4);
    send(rank, Clear(100), 1, 3);
}

int count_of(const Rank& rank, const MPI_Status& status) {
    int count = 0;
    rank.mpi.Get_count(&status, MPI_BYTE, &count);
    return count;
}

TEST(Failures, WhatATestallThatEndsNoneHasOpenedIsTheSameInTheNextCall) {
    using Case = std::pair<std::size_t, bool>;
    for (const auto& [bytes, is_altered] : {Case{600, false}, Case{600, true}, Case{600000, false}}) {
        const std::size_t size = bytes;
        const bool altered = is_altered;
        fake::Options options;
        options.testall_ends_none = true;
        Job job(2, options);
        job.on_wire = [&](fake::Message& message, std::vector<fake::Message>&) {
            if (altered && message.tag == 2) message.bytes.back() ^= 1;
            return true;
        };
        const Ending ending = job.run([&](Rank& rank) {
            if (rank.number == 0) {
                send_several(rank, size);
                return;
            }
            Several several(size);
            several.start(rank);
            auto& [failed, whole, late] = several.statuses;
            int done = 1;
            int code = MPI_SUCCESS;
            do {
                code = Testall(rank.layer, 3, several.requests.data(), &done, several.statuses.data());
            } while (code == MPI_SUCCESS || whole.MPI_ERROR == MPI_ERR_PENDING);
            EXPECT_EQ(code, MPI_ERR_IN_STATUS);
            EXPECT_EQ(done, 0);
            EXPECT_EQ(failed.MPI_ERROR, MPI_ERR_TRUNCATE);
            EXPECT_EQ(whole.MPI_ERROR == MPI_SUCCESS, !altered);
            EXPECT_EQ(late.MPI_ERROR, MPI_ERR_PENDING);
            MPI_Status again;
            EXPECT_EQ(Wait(rank.layer, &several.requests[1], &again) == MPI_SUCCESS, !altered);
            for (const MPI_Status& one : {whole, again}) {
                EXPECT_TRUE(altered || count_of(rank, one) == static_cast<int>(size)) << count_of(rank, one);
            }
            EXPECT_EQ(several.into == Clear(size).bytes(), !altered);
            EXPECT_EQ(Wait(rank.layer, several.requests.data(), MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
            send(rank, Clear(1), 0, 4);
            EXPECT_EQ(Wait(rank.layer, &several.requests[2], MPI_STATUS_IGNORE), MPI_SUCCESS);
        });
        EXPECT_TRUE(altered || ending.went_well()) << size << ending.told();
        EXPECT_TRUE(!ending.aborted && ending.stuck.empty()) << size << ending.told();
    }
}

TEST(Failures, AWaitallBesideALargeMessageEndsEachRequest) {
    constexpr std::size_t kSize = 600000;
    fake::Options options;
    options.testall_ends_none = true;
    Job job(2, options);
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            received(rank, 1, 1, 4);
            send_several(rank, 600);
            send(rank, Clear(kSize), 1, 9);
            return;
        }
        Bytes large(kSize);
        MPI_Request elsewhere = MPI_REQUEST_NULL;
        Irecv(rank.layer, large.data(), kSize, MPI_BYTE, 0, 9, MPI_COMM_WORLD, &elsewhere);
        Several several(600);
        several.start(rank);
        send(rank, Clear(1), 0, 4);
        send(rank, Clear(1), 0, 4);
        EXPECT_EQ(Waitall(rank.layer, 3, several.requests.data(), several.statuses.data()), MPI_ERR_IN_STATUS);
        const std::array<int, 3> codes{MPI_ERR_TRUNCATE, MPI_SUCCESS, MPI_SUCCESS};
        for (std::size_t i = 0; i < codes.size(); ++i) {
            EXPECT_EQ(several.statuses[i].MPI_ERROR, codes[i]);
            EXPECT_EQ(several.requests[i], MPI_REQUEST_NULL);
        }
        EXPECT_EQ(count_of(rank, several.statuses[1]), 600);
        EXPECT_EQ(several.into, Clear(600).bytes());
        EXPECT_EQ(Wait(rank.layer, &elsewhere, MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_EQ(large, Clear(kSize).bytes());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

// Constructors that fail.

/// How often this rank's error handler was called.
thread_local int times_told = 0;
void count_told(MPI_Comm*, int*, ...) {
    ++times_told;
}

void set_handler(const Rank& rank, MPI_Comm comm, MPI_Comm_errhandler_function* function) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    rank.mpi.Comm_create_errhandler(function, &handler);
    rank.mpi.Comm_set_errhandler(comm, handler);
}

/// All ranks have the same idea of what was made of MPI_COMM_WORLD, of what is made of it now, and of what has failed.
void expect_all_go_on(const Rank& rank) {
    MPI_Comm made = MPI_COMM_NULL;
    EXPECT_EQ(Comm_dup(rank.layer, MPI_COMM_WORLD, &made), MPI_SUCCESS);
    MPI_Comm split = MPI_COMM_NULL;
    EXPECT_EQ(Comm_split(rank.layer, MPI_COMM_WORLD, 0, -rank.number, &split), MPI_SUCCESS);
    for (MPI_Comm* const comm : {&made, &split}) {
        const int mine = 1;
        int sum = 0;
        EXPECT_EQ(Allreduce(rank.layer, &mine, &sum, 1, MPI_INT, MPI_SUM, *comm), MPI_SUCCESS);
        EXPECT_EQ(sum, rank.ranks);
        EXPECT_EQ(Comm_free(rank.layer, comm), MPI_SUCCESS);
    }
}

using Construct = std::function<int(Layer&, MPI_Comm* made)>;

struct Constructor {
    std::string name;
    Construct call;
};

constexpr int kTooMany[] = {100, 100};
constexpr int kNothing[] = {0, 0};

/// What MPI refuses on any rank by itself.
std::vector<Constructor> refused_constructors() {
    std::vector<Constructor> all{
        {"Comm_dup to nowhere", [](Layer& layer, MPI_Comm*) { return Comm_dup(layer, MPI_COMM_WORLD, nullptr); }},
        {"Comm_split to nowhere",
         [](Layer& layer, MPI_Comm*) { return Comm_split(layer, MPI_COMM_WORLD, 0, 0, nullptr); }},
        {"Comm_split by no color",
         [](Layer& layer, MPI_Comm* made) { return Comm_split(layer, MPI_COMM_WORLD, -7, 0, made); }},
        {"Comm_split_type by no type",
         [](Layer& layer, MPI_Comm* made) {
             return Comm_split_type(layer, MPI_COMM_WORLD, 4711, 0, MPI_INFO_NULL, made);
         }},
        {"Comm_create of no group",
         [](Layer& layer, MPI_Comm* made) { return Comm_create(layer, MPI_COMM_WORLD, MPI_GROUP_NULL, made); }},
        {"Cart_sub of no grid",
         [](Layer& layer, MPI_Comm* made) { return Cart_sub(layer, MPI_COMM_WORLD, kNothing, made); }},
    };
    for (const int reorder : {0, 1}) {
        const std::string how = reorder != 0 ? " with reorder" : "";
        all.push_back({"Cart_create" + how, [=](Layer& layer, MPI_Comm* made) {
                           return Cart_create(layer, MPI_COMM_WORLD, 2, kTooMany, kNothing, reorder, made);
                       }});
        all.push_back({"Graph_create" + how, [=](Layer& layer, MPI_Comm* made) {
                           return Graph_create(layer, MPI_COMM_WORLD, 1000, kNothing, kNothing, reorder, made);
                       }});
        all.push_back({"Dist_graph_create_adjacent" + how, [=](Layer& layer, MPI_Comm* made) {
                           return Dist_graph_create_adjacent(layer, MPI_COMM_WORLD, -1, kNothing, kNothing, 0, kNothing,
                                                             kNothing, MPI_INFO_NULL, reorder, made);
                       }});
    }
    return all;
}

TEST(Failures, AConstructorThatMpiRefusesOnOneRankIsNoCallOfTheOthers) {
    for (const Constructor& constructor : refused_constructors()) {
        for (const bool forgets_told_errors : {false, true}) {
            fake::Options options;
            options.longest = std::chrono::milliseconds(1000);
            options.forgets_told_errors = forgets_told_errors;
            Job job(3, options);
            const Ending ending = job.run([&](Rank& rank) {
                times_told = 0;
                set_handler(rank, MPI_COMM_WORLD, count_told);
                if (rank.number == 2) {
                    MPI_Comm made = MPI_COMM_NULL;
                    const int code = constructor.call(rank.layer, &made);
                    EXPECT_EQ(code == MPI_SUCCESS, forgets_told_errors) << constructor.name;
                    EXPECT_EQ(times_told, 1) << constructor.name;
                    EXPECT_EQ(made, MPI_COMM_NULL) << constructor.name;
                }
                expect_all_go_on(rank);
            });
            EXPECT_TRUE(ending.went_well()) << constructor.name << ending.told();
        }
    }
}

/// Such of all ranks that may fail anywhere.
std::vector<Constructor> constructors() {
    return {
        {"Comm_dup", [](Layer& layer, MPI_Comm* made) { return Comm_dup(layer, MPI_COMM_WORLD, made); }},
        {"Comm_split", [](Layer& layer, MPI_Comm* made) { return Comm_split(layer, MPI_COMM_WORLD, 0, 0, made); }},
        {"Comm_create",
         [](Layer& layer, MPI_Comm* made) {
             MPI_Group all = MPI_GROUP_NULL;
             layer.mpi.Comm_group(MPI_COMM_WORLD, &all);
             const int code = Comm_create(layer, MPI_COMM_WORLD, all, made);
             layer.mpi.Group_free(&all);
             return code;
         }},
    };
}

TEST(Failures, AConstructorThatFailsOnAllRanksMakesNoneAndAllGoOn) {
    for (const Constructor& constructor : constructors()) {
        for (const bool forgets_told_errors : {false, true}) {
            fake::Options options;
            options.longest = std::chrono::milliseconds(1000);
            options.forgets_told_errors = forgets_told_errors;
            Job job(3, options);
            std::array<bool, 3> failed{};
            job.fails = [&](int rank, const std::string& procedure, std::uint64_t) {
                const bool first = procedure == constructor.name && !failed[static_cast<std::size_t>(rank)];
                if (first) failed[static_cast<std::size_t>(rank)] = true;
                return first;
            };
            const Ending ending = job.run([&](Rank& rank) {
                times_told = 0;
                set_handler(rank, MPI_COMM_WORLD, count_told);
                MPI_Comm made = MPI_COMM_SELF;
                const int code = constructor.call(rank.layer, &made);
                EXPECT_EQ(code == MPI_SUCCESS, forgets_told_errors) << constructor.name;
                EXPECT_EQ(times_told, 1) << constructor.name;
                EXPECT_EQ(made, MPI_COMM_NULL) << constructor.name;
                expect_all_go_on(rank);
            });
            EXPECT_TRUE(ending.went_well()) << constructor.name << ending.told();
        }
    }
}

// protocol: M16
TEST(Failures, AMemberWithoutACommunicatorAndWithoutAnErrorEndsTheJob) {
    Job job(3);
    job.on_members = [](int rank, std::vector<int>& members) {
        if (rank == 2) members.clear();
    };
    const Ending ending = job.run([](Rank& rank) {
        MPI_Comm made = MPI_COMM_NULL;
        Comm_dup(rank.layer, MPI_COMM_WORLD, &made);
        if (rank.number == 2) ADD_FAILURE() << "it goes on";
    });
    EXPECT_TRUE(ending.aborted);
    EXPECT_NE(ending.said[2].find("other members"), std::string::npos) << ending.told();
}

TEST(Failures, ACommunicatorOfNoGroupIsNone) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        times_told = 0;
        set_handler(rank, MPI_COMM_WORLD, count_told);
        MPI_Comm made = MPI_COMM_SELF;
        EXPECT_EQ(Comm_create_group(rank.layer, MPI_COMM_WORLD, MPI_GROUP_NULL, 3, &made), MPI_SUCCESS);
        EXPECT_EQ(made, MPI_COMM_NULL);
        EXPECT_EQ(times_told, 0);
        expect_all_go_on(rank);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

std::atomic<int> told_at_the_end = 0;
void tell_at_the_end(MPI_Comm*, int*, ...) {
    ++told_at_the_end;
}

TEST(Failures, NobodyHearsAtTheEndThatCommWorldIsRevoked) {
    for (const std::vector<int>& nodes : {std::vector<int>{0, 1}, std::vector<int>{0, 0}}) {
        fake::Options options;
        options.nodes = nodes;
        options.seals_all = false;
        options.world_is_revoked = true;
        options.errors_return = false;
        Job job(2, options);
        const Ending fatal = job.run([](Rank&) {});
        EXPECT_TRUE(fatal.went_well()) << fatal.told();
        told_at_the_end = 0;
        const Ending handled = job.run([](Rank& rank) { set_handler(rank, MPI_COMM_WORLD, tell_at_the_end); });
        EXPECT_TRUE(handled.went_well()) << handled.told();
        EXPECT_EQ(told_at_the_end, 0);
    }
}

}  // namespace
}  // namespace cryptmpi::comm
