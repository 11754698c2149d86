// What programs do wrong, or only just right, over a fake MPI: the error comes to the communicator of the call, nothing
// goes in clear, and nobody waits for a rank that went another way.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
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

/// Whose error handler was called last on this rank.
thread_local MPI_Comm told = MPI_COMM_NULL;
void tell(MPI_Comm* comm, int*, ...) {
    told = *comm;
}

/// A communicator like MPI_COMM_WORLD, whose errors are noted.
MPI_Comm make_comm(const Rank& rank) {
    MPI_Comm made = MPI_COMM_NULL;
    EXPECT_EQ(Comm_dup(rank.layer, MPI_COMM_WORLD, &made), MPI_SUCCESS);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    rank.mpi.Comm_create_errhandler(tell, &handler);
    rank.mpi.Comm_set_errhandler(made, handler);
    return made;
}

struct Mistake {
    std::string what;
    int code;
    std::function<int(MPI_Comm)> call;
};

void expect_told(const std::vector<Mistake>& mistakes, MPI_Comm comm) {
    for (const Mistake& mistake : mistakes) {
        told = MPI_COMM_NULL;
        EXPECT_EQ(mistake.call(comm), mistake.code) << mistake.what;
        EXPECT_EQ(told, comm) << mistake.what;
    }
}

/// Two of each four bytes.
MPI_Datatype gaps(const Rank& rank, bool committed) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    rank.mpi.Type_vector(8, 2, 4, MPI_BYTE, &type);
    if (committed) rank.mpi.Type_commit(&type);
    return type;
}

TEST(Mistakes, AnEmptyBlockOfAlltoallwNeedsNoType) {
    for (const bool in_place : {false, true}) {
        Job job(3);
        const Ending ending = job.run([&](Rank& rank) {
            // Rank 2 and the others have nothing for each other.
            const auto size_for = [&](int peer) { return (peer == 2) == (rank.number == 2) ? 2000 : 0; };
            Bytes out(6000);
            Bytes in(6000);
            std::array<int, 3> counts{};
            std::array<int, 3> places{0, 2000, 4000};
            std::array<MPI_Datatype, 3> types{};
            for (int i = 0; i < 3; ++i) {
                const auto at = static_cast<std::size_t>(i);
                counts[at] = size_for(i);
                types[at] = counts[at] == 0 ? MPI_DATATYPE_NULL : MPI_BYTE;
                const Bytes block = Clear(static_cast<std::size_t>(counts[at]), 16 * rank.number + i).bytes();
                std::copy(block.begin(), block.end(), (in_place ? in : out).begin() + places[at]);
            }
            EXPECT_EQ(Alltoallw(rank.layer, in_place ? MPI_IN_PLACE : out.data(), counts.data(), places.data(),
                                types.data(), in.data(), counts.data(), places.data(), types.data(), MPI_COMM_WORLD),
                      MPI_SUCCESS);
            for (int i = 0; i < 3; ++i) {
                const auto size = static_cast<std::size_t>(size_for(i));
                const Bytes came(in.begin() + places[static_cast<std::size_t>(i)],
                                 in.begin() + places[static_cast<std::size_t>(i)] + size_for(i));
                EXPECT_EQ(came, Clear(size, 16 * i + rank.number).bytes());
            }
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

TEST(Mistakes, AnEmptyMessageNeedsNoType) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        MPI_Datatype const kNone = MPI_DATATYPE_NULL;
        MPI_Request request = MPI_REQUEST_NULL;
        Bytes memory(1000);
        if (rank.number == 1) {
            for (int tag = 1; tag <= 4; ++tag) {
                MPI_Status status;
                EXPECT_EQ(Recv(rank.layer, nullptr, 0, tag % 2 == 0 ? kNone : MPI_INT, 0, tag, MPI_COMM_WORLD, &status),
                          MPI_SUCCESS);
                EXPECT_EQ(status.MPI_TAG, tag);
            }
            return;
        }
        EXPECT_EQ(Send(rank.layer, nullptr, 0, kNone, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
        EXPECT_EQ(Isend(rank.layer, nullptr, 0, kNone, 1, 2, MPI_COMM_WORLD, &request), MPI_SUCCESS);
        EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_EQ(Send_init(rank.layer, nullptr, 0, kNone, 1, 3, MPI_COMM_WORLD, &request), MPI_SUCCESS);
        EXPECT_EQ(Start(rank.layer, &request), MPI_SUCCESS);
        EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_EQ(Request_free(rank.layer, &request), MPI_SUCCESS);
        Buffer_attach(rank.layer, memory.data(), 1000);
        EXPECT_EQ(Bsend(rank.layer, nullptr, 0, kNone, 1, 4, MPI_COMM_WORLD), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// Each call with these elements, of which nothing is sent.
std::vector<Mistake> with(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int peer, int code) {
    static thread_local MPI_Request request;
    static thread_local Bytes in;
    in.resize(1000);
    const auto mistake = [&](const char* what, std::function<int(MPI_Comm)> call) {
        return Mistake{what, code, std::move(call)};
    };
    return {
        mistake("Send", [=, &layer](MPI_Comm comm) { return Send(layer, at, count, type, peer, 1, comm); }),
        mistake("Isend", [=, &layer](MPI_Comm comm) { return Isend(layer, at, count, type, peer, 1, comm, &request); }),
        mistake("Bsend", [=, &layer](MPI_Comm comm) { return Bsend(layer, at, count, type, peer, 1, comm); }),
        mistake("Send_init",
                [=, &layer](MPI_Comm comm) { return Send_init(layer, at, count, type, peer, 1, comm, &request); }),
        mistake("Recv",
                [=, &layer](MPI_Comm comm) { return Recv(layer, at, count, type, peer, 1, comm, MPI_STATUS_IGNORE); }),
        mistake("Irecv", [=, &layer](MPI_Comm comm) { return Irecv(layer, at, count, type, peer, 1, comm, &request); }),
        mistake("Recv_init",
                [=, &layer](MPI_Comm comm) { return Recv_init(layer, at, count, type, peer, 1, comm, &request); }),
        mistake("Sendrecv_replace",
                [=, &layer](MPI_Comm comm) {
                    return Sendrecv_replace(layer, at, count, type, peer, 1, peer, 1, comm, MPI_STATUS_IGNORE);
                }),
        mistake("Bcast", [=, &layer](MPI_Comm comm) { return Bcast(layer, at, count, type, 0, comm); }),
        mistake(
            "Gather",
            [=, &layer](MPI_Comm comm) { return Gather(layer, at, count, type, in.data(), 10, MPI_BYTE, 0, comm); }),
        mistake("Alltoall",
                [=, &layer](MPI_Comm comm) { return Alltoall(layer, at, count, type, in.data(), 10, MPI_BYTE, comm); }),
    };
}

TEST(Mistakes, DataWithoutMemoryATypeOrANumberAreToldToTheCallsCommunicator) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        Bytes memory(1000);
        MPI_Datatype usable = gaps(rank, true);
        MPI_Datatype uncommitted = gaps(rank, false);
        MPI_Comm comm = make_comm(rank);
        const int peer = 1 - rank.number;
        expect_told(with(rank.layer, nullptr, 1, MPI_INT, peer, MPI_ERR_BUFFER), comm);
        expect_told(with(rank.layer, nullptr, 2, usable, peer, MPI_ERR_BUFFER), comm);
        expect_told(with(rank.layer, memory.data(), 2, uncommitted, peer, MPI_ERR_TYPE), comm);
        expect_told(with(rank.layer, memory.data(), 2, MPI_DATATYPE_NULL, peer, MPI_ERR_TYPE), comm);
        expect_told(with(rank.layer, memory.data(), -1, MPI_INT, peer, MPI_ERR_COUNT), comm);
        rank.mpi.Type_free(&usable);
        rank.mpi.Type_free(&uncommitted);
        Comm_free(rank.layer, &comm);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// How often an error handler was called on this rank.
thread_local int times_told = 0;
void count_told(MPI_Comm*, int*, ...) {
    ++times_told;
}

TEST(Mistakes, AHandleOfNoCommunicatorIsToldOnce) {
    Job job(1);
    const Ending ending = job.run([](Rank& rank) {
        MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
        rank.mpi.Comm_create_errhandler(count_told, &handler);
        rank.mpi.Comm_set_errhandler(MPI_COMM_WORLD, handler);
        auto* const garbage = reinterpret_cast<MPI_Comm>(0x77777770);
        Layer& layer = rank.layer;
        Bytes data(10);
        MPI_Request request = MPI_REQUEST_NULL;
        const std::vector<std::function<int()>> calls{
            [&] { return Send(layer, data.data(), 10, MPI_BYTE, 0, 1, garbage); },
            [&] { return Isend(layer, data.data(), 10, MPI_BYTE, 0, 1, garbage, &request); },
            [&] { return Recv(layer, data.data(), 10, MPI_BYTE, 0, 1, garbage, MPI_STATUS_IGNORE); },
            [&] { return Irecv(layer, data.data(), 10, MPI_BYTE, 0, 1, garbage, &request); },
        };
        for (const auto& call : calls) {
            times_told = 0;
            EXPECT_EQ(call(), MPI_ERR_COMM);
            EXPECT_EQ(times_told, 1);
        }
        times_told = 0;
        EXPECT_TRUE(stays_on_node(layer, garbage));  // MPI says what it is
        EXPECT_EQ(times_told, 0);
        MPI_Errhandler now = MPI_ERRHANDLER_NULL;
        rank.mpi.Comm_get_errhandler(MPI_COMM_WORLD, &now);
        EXPECT_EQ(now, handler);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

// MPICH 5 raises what is of no communicator on MPI_COMM_SELF as soon as a handler was set there.
TEST(Mistakes, NobodySetsAnErrorHandlerOfCommSelfWhileMpiIsAsked) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        auto* const garbage = reinterpret_cast<MPI_Comm>(0x77777770);
        int mine = 1;
        int sum = 0;
        EXPECT_EQ(Allreduce(rank.layer, &mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
        std::array<int, 2> all{};
        int* const own = &all[static_cast<std::size_t>(rank.number)];
        EXPECT_EQ(Allgather(rank.layer, own, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD), MPI_ERR_BUFFER);
        EXPECT_EQ(rank.mpi.Comm_size(MPI_COMM_NULL, &sum), MPI_ERR_COMM);
        EXPECT_EQ(Send(rank.layer, &mine, 1, MPI_INT, 0, 1, garbage), MPI_ERR_COMM);
        EXPECT_EQ(rank.mpi.Comm_size(MPI_COMM_NULL, &sum), MPI_ERR_COMM);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, AnErrorHandlerOfCommSelfIsToldOnceOfAHandleOfNoCommunicator) {
    Job job(1);
    const Ending ending = job.run([](Rank& rank) {
        MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
        rank.mpi.Comm_create_errhandler(count_told, &handler);
        rank.mpi.Comm_set_errhandler(MPI_COMM_SELF, handler);
        auto* const garbage = reinterpret_cast<MPI_Comm>(0x77777770);
        times_told = 0;
        EXPECT_EQ(Send(rank.layer, nullptr, 0, MPI_BYTE, 0, 1, garbage), MPI_ERR_COMM);
        EXPECT_EQ(times_told, 1);
        MPI_Errhandler now = MPI_ERRHANDLER_NULL;
        rank.mpi.Comm_get_errhandler(MPI_COMM_SELF, &now);
        EXPECT_EQ(now, handler);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, ACommunicatorThatMpiKeepsIsUsedOn) {
    fake::Options options;
    options.nodes = {0, 0, 1, 1};
    options.seals_all = false;
    Job job(4, options);
    const Ending ending = job.run([](Rank& rank) {
        const auto add_up = [&] {
            int mine = 1;
            int sum = 0;
            EXPECT_EQ(Allreduce(rank.layer, &mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
            EXPECT_EQ(sum, 4);
        };
        add_up();
        for (MPI_Comm kept : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
            if (rank.number != 1) continue;
            rank.mpi.Comm_set_errhandler(kept, MPI_ERRORS_RETURN);
            EXPECT_EQ(Comm_disconnect(rank.layer, &kept), MPI_ERR_COMM);
            EXPECT_EQ(Comm_free(rank.layer, &kept), MPI_ERR_COMM);
        }
        add_up();
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, TagsBelow0AndMissingPlacesForRequestsAreTold) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        MPI_Comm comm = make_comm(rank);
        const int peer = 1 - rank.number;
        int number = 1;
        MPI_Request request = MPI_REQUEST_NULL;
        Layer& layer = rank.layer;
        Bytes memory(1000);
        Buffer_attach(layer, memory.data(), 1000);
        expect_told({{"Send", MPI_ERR_TAG, [&](MPI_Comm on) { return Send(layer, &number, 1, MPI_INT, peer, -5, on); }},
                     {"Isend", MPI_ERR_TAG,
                      [&](MPI_Comm on) { return Isend(layer, &number, 1, MPI_INT, peer, -5, on, &request); }},
                     {"Isend", MPI_ERR_ARG,
                      [&](MPI_Comm on) { return Isend(layer, &number, 1, MPI_INT, peer, 1, on, nullptr); }},
                     {"Ibsend", MPI_ERR_ARG,
                      [&](MPI_Comm on) { return Ibsend(layer, &number, 1, MPI_INT, peer, 1, on, nullptr); }}},
                    comm);
        Comm_free(rank.layer, &comm);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, AbsoluteAddressesAreNoMissingMemory) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        Clear data(3000);
        Bytes memory(3000);
        if (rank.number == 0) memory = data.bytes();
        const int length = 1500;
        const auto place = reinterpret_cast<MPI_Aint>(memory.data());
        MPI_Datatype half = MPI_DATATYPE_NULL;
        rank.mpi.Type_create_hindexed(1, &length, &place, MPI_BYTE, &half);
        rank.mpi.Type_commit(&half);
        if (rank.number == 0) {
            EXPECT_EQ(Send(rank.layer, MPI_BOTTOM, 2, half, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
        } else {
            EXPECT_EQ(Recv(rank.layer, MPI_BOTTOM, 2, half, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
            EXPECT_EQ(memory, data.bytes());
        }
        Type_free(rank.layer, &half);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// MPI_IN_PLACE as what comes, or as what a rank that is not the root sends.
std::vector<Mistake> in_wrong_places(Layer& layer, int me, void* at) {
    const auto told_of = [](const char* what, std::function<int(MPI_Comm)> call) {
        return Mistake{what, MPI_ERR_BUFFER, std::move(call)};
    };
    void* const here = MPI_IN_PLACE;
    std::vector<Mistake> all{
        told_of("Bcast", [=, &layer](MPI_Comm on) { return Bcast(layer, here, 1, MPI_INT, 0, on); }),
        told_of("Allgather",
                [=, &layer](MPI_Comm on) { return Allgather(layer, at, 1, MPI_INT, here, 1, MPI_INT, on); }),
        told_of("Alltoall", [=, &layer](MPI_Comm on) { return Alltoall(layer, at, 1, MPI_INT, here, 1, MPI_INT, on); }),
        told_of("Allreduce", [=, &layer](MPI_Comm on) { return Allreduce(layer, at, here, 1, MPI_INT, MPI_SUM, on); }),
        told_of("Allreduce of both",
                [=, &layer](MPI_Comm on) { return Allreduce(layer, here, here, 1, MPI_INT, MPI_SUM, on); }),
        told_of("Scan", [=, &layer](MPI_Comm on) { return Scan(layer, at, here, 1, MPI_INT, MPI_SUM, on); }),
        told_of("Reduce_scatter_block",
                [=, &layer](MPI_Comm on) { return Reduce_scatter_block(layer, at, here, 1, MPI_INT, MPI_SUM, on); }),
    };
    if (me == 0) {
        all.push_back(told_of("Reduce at the root", [=, &layer](MPI_Comm on) {
            return Reduce(layer, at, here, 1, MPI_INT, MPI_SUM, 0, on);
        }));
        all.push_back(told_of("Gather at the root", [=, &layer](MPI_Comm on) {
            return Gather(layer, at, 1, MPI_INT, here, 1, MPI_INT, 0, on);
        }));
        all.push_back(told_of("Scatter at the root", [=, &layer](MPI_Comm on) {
            return Scatter(layer, here, 1, MPI_INT, at, 1, MPI_INT, 0, on);
        }));
        return all;
    }
    all.push_back(
        told_of("Reduce", [=, &layer](MPI_Comm on) { return Reduce(layer, here, at, 1, MPI_INT, MPI_SUM, 0, on); }));
    all.push_back(
        told_of("Gather", [=, &layer](MPI_Comm on) { return Gather(layer, here, 1, MPI_INT, at, 1, MPI_INT, 0, on); }));
    all.push_back(told_of(
        "Scatter", [=, &layer](MPI_Comm on) { return Scatter(layer, at, 1, MPI_INT, here, 1, MPI_INT, 0, on); }));
    return all;
}

TEST(Mistakes, InPlaceWhereItMustNotBeIsTold) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        std::array<int, 8> numbers{};
        MPI_Comm comm = make_comm(rank);
        expect_told(in_wrong_places(rank.layer, rank.number, numbers.data()), comm);
        Comm_free(rank.layer, &comm);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, RanksThatGetNothingOfAnExscanNeedNoMemory) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        const int mine = 7;
        int before = 0;
        EXPECT_EQ(Exscan(rank.layer, &mine, rank.number == 0 ? nullptr : &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
                  MPI_SUCCESS);
        EXPECT_EQ(before, rank.number == 0 ? 0 : 7);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, AnAutomaticBufferHasRoomForEachBufferedSend) {
    const Clear data(6000);
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 1) {
            Bytes into(6000);
            EXPECT_EQ(Recv(rank.layer, into.data(), 6000, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                      MPI_SUCCESS);
            EXPECT_EQ(into, data.bytes());
            return;
        }
        EXPECT_EQ(Buffer_attach(rank.layer, MPI_BUFFER_AUTOMATIC, 0), MPI_SUCCESS);
        EXPECT_EQ(Bsend(rank.layer, data.bytes().data(), 6000, MPI_BYTE, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
        void* at = nullptr;
        int size = 0;
        EXPECT_EQ(Buffer_detach(rank.layer, &at, &size), MPI_SUCCESS);
        EXPECT_EQ(Bsend(rank.layer, data.bytes().data(), 6000, MPI_BYTE, 1, 1, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, WhatComesToAReceiveThatWasFreedIsOpenedAsOtherCallsWait) {
    const Clear data(3000);
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        const auto send = [&](int tag) {
            EXPECT_EQ(Send(rank.layer, data.bytes().data(), 3000, MPI_BYTE, 1, tag, MPI_COMM_WORLD), MPI_SUCCESS);
        };
        if (rank.number == 0) {
            send(1);
            send(2);
            return;
        }
        Bytes freed(3000);
        Bytes into(3000);
        MPI_Request request = MPI_REQUEST_NULL;
        EXPECT_EQ(Irecv(rank.layer, freed.data(), 3000, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request), MPI_SUCCESS);
        EXPECT_EQ(Request_free(rank.layer, &request), MPI_SUCCESS);
        EXPECT_EQ(request, MPI_REQUEST_NULL);
        EXPECT_EQ(Recv(rank.layer, into.data(), 3000, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
        for (int i = 0; i < 1000 && freed != data.bytes(); ++i) {
            int found = 0;
            Iprobe(rank.layer, 0, 3, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        }
        EXPECT_EQ(freed, data.bytes());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, AnActiveRequestIsNotStarted) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        const Clear data(100);
        Bytes memory(1000);
        Bytes into(100);
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank.number == 0) {
            Buffer_attach(rank.layer, memory.data(), 1000);
            Bsend_init(rank.layer, data.bytes().data(), 100, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
        } else {
            Recv_init(rank.layer, into.data(), 100, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
        }
        EXPECT_EQ(Start(rank.layer, &request), MPI_SUCCESS);
        EXPECT_EQ(Start(rank.layer, &request), MPI_ERR_REQUEST);
        EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_EQ(Request_free(rank.layer, &request), MPI_SUCCESS);
        if (rank.number == 1) {
            EXPECT_EQ(into, data.bytes());
        }
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, AnInactiveRequestIsNotCancelled) {
    Job job(2);
    const Ending ending = job.run([](Rank& rank) {
        int value = rank.number;
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank.number == 0) {
            Send_init(rank.layer, &value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
        } else {
            Recv_init(rank.layer, &value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &request);
        }
        EXPECT_EQ(Cancel(rank.layer, &request), MPI_ERR_REQUEST);
        EXPECT_EQ(Start(rank.layer, &request), MPI_SUCCESS);
        EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_EQ(value, 0);
        EXPECT_EQ(Cancel(rank.layer, &request), MPI_ERR_REQUEST);
        EXPECT_EQ(Request_free(rank.layer, &request), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, OtherThreadsGoOnWhileABufferIsDetached) {
    fake::Options options;
    options.thread_level = MPI_THREAD_MULTIPLE;
    options.longest = std::chrono::milliseconds(3000);
    std::atomic<bool> detaches = false;
    std::atomic<bool> went_on = false;
    Job job(2, options);
    const Ending ending = job.run([&](Rank& rank) {
        const Clear data(6000);
        Bytes memory(20000);
        if (rank.number == 1) {
            while (!went_on) {  // each call gives the turn to the other rank, until the job is stuck
                int found = 0;
                Iprobe(rank.layer, 0, 9, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
            }
            Recv(rank.layer, memory.data(), 6000, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            return;
        }
        Buffer_attach(rank.layer, memory.data(), 20000);
        EXPECT_EQ(Bsend(rank.layer, data.bytes().data(), 6000, MPI_BYTE, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
        std::thread other([&] {
            while (!detaches) std::this_thread::yield();
            const auto guard = rank.layer.guard();
            went_on = true;
        });
        void* at = nullptr;
        int size = 0;
        detaches = true;
        try {
            EXPECT_EQ(Buffer_detach(rank.layer, &at, &size), MPI_SUCCESS);
        } catch (...) {
            other.join();
            throw;
        }
        other.join();
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// Another thread of a rank's, that calls MPI as soon as the rank is inside a call of MPI's own.
class OtherThread {
public:
    OtherThread(Layer& layer, const std::atomic<bool>& is_inside, std::atomic<bool>& went_on)
        : thread_([&layer, &is_inside, &went_on, this] {
              while (!is_inside && !ends_) std::this_thread::yield();
              const auto guard = layer.guard();
              went_on = true;
          }) {}
    ~OtherThread() {
        ends_ = true;
        thread_.join();
    }
    OtherThread(const OtherThread&) = delete;
    OtherThread& operator=(const OtherThread&) = delete;

private:
    std::atomic<bool> ends_ = false;
    std::thread thread_;
};

/// Each call gives the turn to the other rank, until the job is stuck.
void ask_until(const Rank& rank, const std::atomic<bool>& is_so) {
    while (!is_so) {
        int found = 0;
        Iprobe(rank.layer, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    }
}

TEST(Mistakes, OtherThreadsGoOnInASendrecvThatNothingIsSealedOf) {
    fake::Options options;
    options.thread_level = MPI_THREAD_MULTIPLE;
    options.longest = std::chrono::milliseconds(3000);
    options.nodes = {0, 0};
    options.seals_all = false;
    std::atomic<bool> is_inside = false;
    std::atomic<bool> went_on = false;
    Job job(2, options);
    job.fails = [&](int, const std::string& procedure, std::uint64_t) {
        if (procedure == "Sendrecv") is_inside = true;
        return false;
    };
    const Ending ending = job.run([&](Rank& rank) {
        int mine = rank.number;
        int other = -1;
        if (rank.number == 1) {
            ask_until(rank, went_on);
            EXPECT_EQ(Send(rank.layer, &mine, 1, MPI_INT, 0, 2, MPI_COMM_WORLD), MPI_SUCCESS);
            EXPECT_EQ(Recv(rank.layer, &other, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
        } else {
            const OtherThread thread(rank.layer, is_inside, went_on);
            EXPECT_EQ(Sendrecv(rank.layer, &mine, 1, MPI_INT, 1, 1, &other, 1, MPI_INT, 1, 2, MPI_COMM_WORLD,
                               MPI_STATUS_IGNORE),
                      MPI_SUCCESS);
        }
        EXPECT_EQ(other, 1 - rank.number);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// Of a message that a matching probe has taken out of MPI's queue.
TEST(Mistakes, OtherThreadsGoOnWhileTheSegmentsOfAMatchedMessageCome) {
    constexpr int kSize = 300000;
    constexpr int kLetGo = 4;
    fake::Options options;
    options.thread_level = MPI_THREAD_MULTIPLE;
    options.longest = std::chrono::milliseconds(3000);
    const Clear data(kSize);
    std::atomic<bool> is_received = false;
    std::atomic<bool> is_inside = false;
    std::atomic<bool> went_on = false;
    std::vector<fake::Message> segments;
    Job job(2, options);
    job.on_wire = [&](fake::Message& message, std::vector<fake::Message>& more) {
        if (message.is_collective()) return true;
        if (message.tag == kLetGo && message.bytes.size() == seal::kMessageOverhead) more = std::move(segments);
        if (message.bytes.size() < 1000) return true;
        segments.push_back(message);
        return false;
    };
    job.fails = [&](int rank, const std::string& procedure, std::uint64_t) {
        if (rank == 1 && procedure == "Mrecv" && is_received) is_inside = true;
        return false;
    };
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            MPI_Request request = MPI_REQUEST_NULL;
            EXPECT_EQ(Isend(rank.layer, data.bytes().data(), kSize, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request),
                      MPI_SUCCESS);
            ask_until(rank, went_on);
            EXPECT_EQ(Send(rank.layer, nullptr, 0, MPI_BYTE, 1, kLetGo, MPI_COMM_WORLD), MPI_SUCCESS);
            EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
            return;
        }
        Bytes into(kSize);
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        EXPECT_EQ(Mprobe(rank.layer, 0, 1, MPI_COMM_WORLD, &message, &status), MPI_SUCCESS);
        {
            const OtherThread thread(rank.layer, is_inside, went_on);
            is_received = true;
            EXPECT_EQ(Mrecv(rank.layer, into.data(), kSize, MPI_BYTE, &message, &status), MPI_SUCCESS);
        }
        EXPECT_EQ(into, data.bytes());
        EXPECT_EQ(Recv(rank.layer, nullptr, 0, MPI_BYTE, 0, kLetGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// As a function of the program's does that deletes an attribute of the type: it is called inside of MPI's Type_free.
TEST(Mistakes, ATypeThatIsSentWithWhileItIsFreedIsForgotten) {
    Job job(2);
    const auto send_one = [](const Rank& rank, const Clear& data, MPI_Datatype type, int tag) {
        return Send(rank.layer, data.bytes().data(), 1, type, 1, tag, MPI_COMM_WORLD);
    };
    const Clear data(16);
    std::function<void()> while_freed;
    job.fails = [&](int rank, const std::string& procedure, std::uint64_t) {
        if (rank == 0 && procedure == "Type_free" && while_freed) std::exchange(while_freed, nullptr)();
        return false;
    };
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 1) {
            Bytes into(16);
            for (const int size : {4, 16}) {
                MPI_Status status;
                EXPECT_EQ(Recv(rank.layer, into.data(), 16, MPI_BYTE, 0, size, MPI_COMM_WORLD, &status), MPI_SUCCESS);
                int count = 0;
                rank.mpi.Get_count(&status, MPI_BYTE, &count);
                EXPECT_EQ(count, size);
            }
            EXPECT_EQ(into, data.bytes());
            return;
        }
        MPI_Datatype type = MPI_DATATYPE_NULL;
        rank.mpi.Type_contiguous(4, MPI_BYTE, &type);
        rank.mpi.Type_commit(&type);
        const MPI_Datatype freed = type;
        while_freed = [&] { EXPECT_EQ(send_one(rank, data, freed, 4), MPI_SUCCESS); };
        EXPECT_EQ(Type_free(rank.layer, &type), MPI_SUCCESS);
        rank.mpi.Type_contiguous(16, MPI_BYTE, &type);
        rank.mpi.Type_commit(&type);
        EXPECT_EQ(type, freed);
        EXPECT_EQ(send_one(rank, data, type, 16), MPI_SUCCESS);
        EXPECT_EQ(Type_free(rank.layer, &type), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Mistakes, SeveralRequestsTellTheCommunicatorOfTheFirstThatFailed) {
    for (const bool some : {false, true}) {
        Job job(2);
        const Ending ending = job.run([&](Rank& rank) {
            MPI_Comm comm = make_comm(rank);
            const Clear data(100);
            if (rank.number == 0) {
                EXPECT_EQ(Send(rank.layer, data.bytes().data(), 100, MPI_BYTE, 1, 1, comm), MPI_SUCCESS);
            } else {
                Bytes small(40);
                std::array<MPI_Request, 1> requests{};
                std::array<MPI_Status, 1> statuses{};
                std::array<int, 1> indices{};
                int done = 0;
                Irecv(rank.layer, small.data(), 40, MPI_BYTE, 0, 1, comm, requests.data());
                const int code = some ? Waitsome(rank.layer, 1, requests.data(), &done, indices.data(), statuses.data())
                                      : Waitall(rank.layer, 1, requests.data(), statuses.data());
                EXPECT_EQ(code, MPI_ERR_IN_STATUS);
                EXPECT_EQ(statuses[0].MPI_ERROR, MPI_ERR_TRUNCATE);
                EXPECT_EQ(told, comm);
            }
            Comm_free(rank.layer, &comm);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

TEST(Mistakes, ASendrecvWhoseSendIsWrongTakesNoMessage) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{400000}}) {
        Job job(2);
        const Ending ending = job.run([&](Rank& rank) {
            const Clear data(size);
            const auto count = static_cast<MPI_Count>(size);
            MPI_Comm comm = make_comm(rank);
            if (rank.number == 0) {
                EXPECT_EQ(Send(rank.layer, data.bytes().data(), count, MPI_BYTE, 1, 1, comm), MPI_SUCCESS);
            } else {
                Bytes out(10);
                Bytes into(size);
                EXPECT_EQ(Probe(rank.layer, 0, 1, comm, MPI_STATUS_IGNORE), MPI_SUCCESS);
                const auto sendrecv = [&](int length, MPI_Datatype type, int to, int tag) {
                    return [&, length, type, to, tag](MPI_Comm on) {
                        return Sendrecv(rank.layer, out.data(), length, type, to, tag, into.data(), count, MPI_BYTE, 0,
                                        1, on, MPI_STATUS_IGNORE);
                    };
                };
                expect_told({{"to nobody", MPI_ERR_RANK, sendrecv(10, MPI_BYTE, 2, 1)},
                             {"below every tag", MPI_ERR_TAG, sendrecv(10, MPI_BYTE, 0, -5)},
                             {"past every tag", MPI_ERR_TAG, sendrecv(10, MPI_BYTE, 0, 40000)},
                             {"fewer than none", MPI_ERR_COUNT, sendrecv(-1, MPI_BYTE, 0, 1)},
                             {"of no type", MPI_ERR_TYPE, sendrecv(10, MPI_DATATYPE_NULL, 0, 1)}},
                            comm);
                EXPECT_EQ(Recv(rank.layer, into.data(), count, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE), MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
            }
            Comm_free(rank.layer, &comm);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

// An MPI that calls a success what it has told an error handler of the program's, as MPICH 5.

fake::Options forgetful() {
    fake::Options options;
    options.forgets_told_errors = true;
    return options;
}

/// From here on this rank counts what the handler of MPI_COMM_WORLD is told of.
void count_told_on_world(const Rank& rank) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    rank.mpi.Comm_create_errhandler(count_told, &handler);
    rank.mpi.Comm_set_errhandler(MPI_COMM_WORLD, handler);
    times_told = 0;
}

/// A receive from rank 0 with tag 1, each in its own way. Its result, that of the one request where there are several.
using Receive = std::function<int(Layer& layer, Bytes& into)>;

Receive started(std::function<int(Layer&, MPI_Request*)> end) {
    return [end = std::move(end)](Layer& layer, Bytes& into) {
        MPI_Request request = MPI_REQUEST_NULL;
        Irecv(layer, into.data(), static_cast<MPI_Count>(into.size()), MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
        return end(layer, &request);
    };
}

std::vector<std::pair<std::string, Receive>> ways_to_receive() {
    MPI_Status* const none = MPI_STATUS_IGNORE;
    return {
        {"Recv",
         [=](Layer& layer, Bytes& into) {
             return Recv(layer, into.data(), static_cast<MPI_Count>(into.size()), MPI_BYTE, 0, 1, MPI_COMM_WORLD, none);
         }},
        {"Mrecv",
         [=](Layer& layer, Bytes& into) {
             MPI_Message message = MPI_MESSAGE_NULL;
             Mprobe(layer, 0, 1, MPI_COMM_WORLD, &message, none);
             return Mrecv(layer, into.data(), static_cast<MPI_Count>(into.size()), MPI_BYTE, &message, none);
         }},
        {"Wait", started([=](Layer& layer, MPI_Request* request) { return Wait(layer, request, none); })},
        {"Test", started([=](Layer& layer, MPI_Request* request) {
             int done = 0;
             int code = MPI_SUCCESS;
             while (done == 0) code = Test(layer, request, &done, none);
             return code;
         })},
        {"Waitall", started([](Layer& layer, MPI_Request* request) {
             MPI_Status status = {};
             EXPECT_EQ(Waitall(layer, 1, request, &status), MPI_ERR_IN_STATUS);
             return status.MPI_ERROR;
         })},
        {"Waitsome", started([](Layer& layer, MPI_Request* request) {
             MPI_Status status = {};
             int done = 0;
             int index = 0;
             EXPECT_EQ(Waitsome(layer, 1, request, &done, &index, &status), MPI_ERR_IN_STATUS);
             return status.MPI_ERROR;
         })},
    };
}

void expect_no_alarm_of_what_was_cut_off(std::size_t length) {
    for (const auto& [what, receive] : ways_to_receive()) {
        fake::Options options = forgetful();
        options.length_of_cut_off = length;
        Job job(2, options);
        const Ending ending = job.run([&, &way = receive](Rank& rank) {
            const Clear data(5000);
            if (rank.number == 0) {
                EXPECT_EQ(Send(rank.layer, data.bytes().data(), 5000, MPI_BYTE, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
                EXPECT_EQ(Send(rank.layer, data.bytes().data(), 5000, MPI_BYTE, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
                return;
            }
            count_told_on_world(rank);
            Bytes small(4);
            EXPECT_EQ(way(rank.layer, small), MPI_ERR_TRUNCATE);
            EXPECT_EQ(times_told, length == 0 ? 1 : 2);
            EXPECT_EQ(small, Bytes(4));
            EXPECT_EQ(rank.layer.rank_report().part().cut_off, 1U);
            Bytes into(5000);
            EXPECT_EQ(Recv(rank.layer, into.data(), 5000, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                      MPI_SUCCESS);
            EXPECT_EQ(into, data.bytes());
        });
        EXPECT_TRUE(ending.went_well()) << what << ending.told();
        EXPECT_EQ(ending.said[1].find("shorter"), std::string::npos) << what << ending.told();
        EXPECT_EQ(ending.said[1].find("does not open"), std::string::npos) << what << ending.told();
    }
}

TEST(Forgetful, WhatWasCutOffIsToldOnceAndIsNoAlarm) {
    expect_no_alarm_of_what_was_cut_off(0);
}

TEST(Forgetful, WhatWasCutOffAndHasTheLengthOfAnotherIsNoAlarm) {
    expect_no_alarm_of_what_was_cut_off(64);
}

TEST(Forgetful, AnEmptyMessageThatNobodySentIsAnAlarm) {
    for (const auto& [what, receive] : ways_to_receive()) {
        Job job(2, forgetful());
        job.on_wire = [](fake::Message& message, std::vector<fake::Message>&) {
            if (message.tag == 1 && !message.is_collective()) message.bytes.clear();
            return true;
        };
        const Ending ending = job.run([&, &way = receive](Rank& rank) {
            const Clear data(5000);
            if (rank.number == 0) {
                EXPECT_EQ(Send(rank.layer, data.bytes().data(), 5000, MPI_BYTE, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
                return;
            }
            count_told_on_world(rank);
            Bytes into(5000);
            EXPECT_TRUE(rank.layer.has_complained_of(way(rank.layer, into)));
            EXPECT_EQ(times_told, 1);
            EXPECT_EQ(into, Bytes(5000));
        });
        EXPECT_TRUE(ending.went_well()) << what << ending.told();
        EXPECT_NE(ending.said[1].find("shorter"), std::string::npos) << what << ending.told();
    }
}

TEST(Forgetful, ACallThatMpiDoesNotMakeLeavesNothing) {
    Job job(2, forgetful());
    const Ending ending = job.run([](Rank& rank) {
        count_told_on_world(rank);
        Layer& layer = rank.layer;
        Bytes data = Clear(400000).bytes();
        const int peer = 1 - rank.number;
        MPI_Comm const world = MPI_COMM_WORLD;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Status status = {};
        status.MPI_SOURCE = 77;
        int flag = 7;
        const std::vector<std::function<int()>> calls{
            [&] { return Recv(layer, data.data(), 10, MPI_BYTE, peer, -5, world, &status); },
            [&] { return Irecv(layer, data.data(), 10, MPI_BYTE, peer, -5, world, &request); },
            [&] { return Isend(layer, data.data(), 10, MPI_BYTE, peer, 40000, world, &request); },
            [&] { return Isend(layer, data.data(), 400000, MPI_BYTE, peer, 40000, world, &request); },
            [&] { return Send(layer, data.data(), 400000, MPI_BYTE, peer, 40000, world); },
            [&] { return Probe(layer, 7, 1, world, &status); },
            [&] { return Iprobe(layer, 7, 1, world, &flag, &status); },
        };
        for (std::size_t i = 0; i < calls.size(); ++i) {
            times_told = 0;
            EXPECT_EQ(calls[i](), MPI_SUCCESS) << i;
            EXPECT_EQ(times_told, 1) << i;
            EXPECT_EQ(request, MPI_REQUEST_NULL) << i;
            EXPECT_EQ(status.MPI_SOURCE, 77) << i;
            EXPECT_EQ(flag, 7) << i;
        }
        EXPECT_FALSE(layer.anything_goes_on());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Forgetful, AProbeThatMpiDoesNotMakeEndsWhileMessagesAreUnderWay) {
    Job job(2, forgetful());
    const Ending ending = job.run([](Rank& rank) {
        const Clear data(400000);
        Bytes into(400000);
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank.number == 0) {
            EXPECT_EQ(Send(rank.layer, data.bytes().data(), 400000, MPI_BYTE, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
            return;
        }
        count_told_on_world(rank);
        Irecv(rank.layer, into.data(), 400000, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
        EXPECT_EQ(Probe(rank.layer, 7, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_EQ(times_told, 1);
        EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        EXPECT_EQ(into, data.bytes());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Forgetful, ALargeMessageOfTheOwnNodeThatIsCutOffIsToldToItsCommunicatorAlone) {
    for (const bool persistent : {false, true}) {
        fake::Options options = forgetful();
        options.seals_all = false;
        options.nodes = {0, 0, 1};
        options.errors_return = false;
        Job job(3, options);
        const Ending ending = job.run([&](Rank& rank) {
            MPI_Comm comm = make_comm(rank);
            const Clear data(400000);
            if (rank.number == 0) {
                EXPECT_EQ(Send(rank.layer, data.bytes().data(), 400000, MPI_BYTE, 1, 1, comm), MPI_SUCCESS);
            } else if (rank.number == 1) {
                Bytes small(200000);
                MPI_Request request = MPI_REQUEST_NULL;
                if (persistent) {
                    Recv_init(rank.layer, small.data(), 200000, MPI_BYTE, MPI_ANY_SOURCE, 1, comm, &request);
                    EXPECT_EQ(Start(rank.layer, &request), MPI_SUCCESS);
                } else {
                    Irecv(rank.layer, small.data(), 200000, MPI_BYTE, MPI_ANY_SOURCE, 1, comm, &request);
                }
                told = MPI_COMM_NULL;
                EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
                EXPECT_EQ(told, comm);
                if (persistent) Request_free(rank.layer, &request);
            }
            Comm_free(rank.layer, &comm);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

TEST(Mistakes, APersistentRequestThatIsAlwaysDoneKeepsNoOtherFromEnding) {
    for (const bool waits : {false, true}) {
        Job job(2);
        const Ending ending = job.run([&](Rank& rank) {
            const int last = -1;
            int number = 1;
            Bytes memory(100000);
            Buffer_attach(rank.layer, memory.data(), 100000);
            if (rank.number == 1) {
                EXPECT_EQ(Send(rank.layer, &number, 1, MPI_INT, 0, 2, MPI_COMM_WORLD), MPI_SUCCESS);
                while (number != last) Recv(rank.layer, &number, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                return;
            }
            int got = 0;
            std::array<MPI_Request, 2> requests{};
            Bsend_init(rank.layer, &number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, requests.data());
            Irecv(rank.layer, &got, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &requests[1]);
            for (int round = 0; round < 1000 && requests[1] != MPI_REQUEST_NULL; ++round) {
                EXPECT_EQ(Start(rank.layer, requests.data()), MPI_SUCCESS);
                int done = 0;
                std::array<int, 2> indices{};
                const auto ask = waits ? Waitsome : Testsome;
                EXPECT_EQ(ask(rank.layer, 2, requests.data(), &done, indices.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
                EXPECT_GE(done, 1);
                EXPECT_EQ(indices[0], 0);
            }
            EXPECT_EQ(got, 1);
            EXPECT_EQ(requests[1], MPI_REQUEST_NULL);
            Request_free(rank.layer, requests.data());
            EXPECT_EQ(Send(rank.layer, &last, 1, MPI_INT, 1, 1, MPI_COMM_WORLD), MPI_SUCCESS);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

}  // namespace
}  // namespace cryptmpi::comm
