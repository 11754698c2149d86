// Messages between ranks of one process, over a fake MPI.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

constexpr std::uint64_t kSeeds = 12;

/// MPI_Type_dup would call the program's functions that copy the type's attributes.
TEST(PointToPoint, AReceiveThatTheTypeIsFreedUnderMakesNoDuplicateOfIt) {
    for (const int blocks : {10, 20000}) {
        Job job(2);
        bool duplicated = false;
        job.fails = [&](int, const std::string& procedure, std::uint64_t) {
            duplicated = duplicated || procedure == "Type_dup";
            return false;
        };
        const Ending ending = job.run([&](Rank& rank) {
            Clear data(static_cast<std::size_t>(blocks) * 16);
            MPI_Datatype type = MPI_DATATYPE_NULL;
            rank.mpi.Type_vector(blocks, 1, 2, MPI_INT64_T, &type);
            rank.mpi.Type_commit(&type);
            MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
            if (rank.number == 0) {
                Isend(rank.layer, data.bytes().data(), 1, type, 1, 1, MPI_COMM_WORLD, &requests[0]);
                Isend(rank.layer, data.bytes().data(), 1, type, 1, 2, MPI_COMM_WORLD, &requests[1]);
                EXPECT_EQ(Waitall(rank.layer, 2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
                rank.mpi.Type_free(&type);
                return;
            }
            Bytes first(data.bytes().size());
            Bytes second(data.bytes().size());
            Irecv(rank.layer, first.data(), 1, type, 0, 1, MPI_COMM_WORLD, &requests[0]);
            Recv_init(rank.layer, second.data(), 1, type, 0, 2, MPI_COMM_WORLD, &requests[1]);
            rank.mpi.Type_free(&type);
            Start(rank.layer, &requests[1]);
            EXPECT_EQ(Waitall(rank.layer, 2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
            for (const Bytes& into : {first, second}) {
                for (std::size_t i = 0; i < into.size(); ++i) {
                    const std::uint8_t is = i % 16 < 8 ? data.bytes()[i] : std::uint8_t{0};
                    ASSERT_EQ(into[i], is) << i;
                }
            }
            Request_free(rank.layer, &requests[1]);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_FALSE(duplicated);
    }
}

std::size_t size_of(int number) {
    constexpr std::size_t kSizes[] = {1, 40, 0, 3000, 9000, 70000, 200, 300000};
    return kSizes[static_cast<std::size_t>(number) % std::size(kSizes)];
}

int count_in(const Rank& rank, const MPI_Status& status) {
    int count = -1;
    rank.mpi.Get_count(&status, MPI_BYTE, &count);
    return count;
}

TEST(PointToPoint, EachModeOfSendingIsReceived) {
    using Send_ = int (*)(Layer&, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
    for (const Send_ mode : {Send_(Send), Send_(Ssend), Send_(Rsend)}) {
        for (const std::size_t size : {std::size_t{50}, std::size_t{6000}, std::size_t{400000}}) {
            const Clear data(size);
            Job job(2);
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number == 0) {
                    EXPECT_EQ(mode(rank.layer, data.bytes().data(), static_cast<MPI_Count>(size), MPI_BYTE, 1, 3,
                                   MPI_COMM_WORLD),
                              MPI_SUCCESS);
                    return;
                }
                Bytes into(size);
                EXPECT_EQ(receive(rank, into, 0, 3), MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
            });
            EXPECT_TRUE(ending.went_well()) << ending.told();
        }
    }
}

constexpr std::size_t kLarge = 400000;
enum Tag { kFirst = 1, kSecond, kProbed, kGo };

/// What is said to the other rank.
void tell(const Rank& rank, int tag) {
    EXPECT_EQ(Send(rank.layer, nullptr, 0, MPI_BYTE, 1 - rank.number, tag, MPI_COMM_WORLD), MPI_SUCCESS);
}
void wait_to_be_told(const Rank& rank, int tag) {
    EXPECT_EQ(Recv(rank.layer, nullptr, 0, MPI_BYTE, 1 - rank.number, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
              MPI_SUCCESS);
}

/// Longer than a sender is patient.
void expect_unfinished(const Rank& rank, MPI_Request& request) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (std::chrono::steady_clock::now() < end) {
        int done = 0;
        EXPECT_EQ(Test(rank.layer, &request, &done, MPI_STATUS_IGNORE), MPI_SUCCESS);
        ASSERT_EQ(done, 0);
    }
}

/// How a message is received. The first ways probe by themselves what they receive.
enum class Taking { matched, matched_later, at_once, later, persistent };

void take(const Rank& rank, Taking way, int from, int tag, Bytes& into) {
    Layer& layer = rank.layer;
    const auto size = static_cast<MPI_Count>(into.size());
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    switch (way) {
        case Taking::matched:
            EXPECT_EQ(Mprobe(layer, from, tag, MPI_COMM_WORLD, &message, &status), MPI_SUCCESS);
            EXPECT_EQ(Mrecv(layer, into.data(), size, MPI_BYTE, &message, &status), MPI_SUCCESS);
            break;
        case Taking::matched_later:
            EXPECT_EQ(Mprobe(layer, from, tag, MPI_COMM_WORLD, &message, &status), MPI_SUCCESS);
            EXPECT_EQ(Imrecv(layer, into.data(), size, MPI_BYTE, &message, &request), MPI_SUCCESS);
            EXPECT_EQ(Wait(layer, &request, &status), MPI_SUCCESS);
            break;
        case Taking::at_once:
            EXPECT_EQ(receive(rank, into, from, tag, &status), MPI_SUCCESS);
            break;
        case Taking::later:
            EXPECT_EQ(Irecv(layer, into.data(), size, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request), MPI_SUCCESS);
            EXPECT_EQ(Wait(layer, &request, &status), MPI_SUCCESS);
            break;
        case Taking::persistent:
            EXPECT_EQ(Recv_init(layer, into.data(), size, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request), MPI_SUCCESS);
            EXPECT_EQ(Start(layer, &request), MPI_SUCCESS);
            EXPECT_EQ(Wait(layer, &request, &status), MPI_SUCCESS);
            Request_free(layer, &request);
            break;
    }
    EXPECT_EQ(status.MPI_TAG, tag);
    EXPECT_EQ(status.MPI_SOURCE, 0);
}
constexpr Taking kTakings[] = {Taking::matched, Taking::matched_later, Taking::at_once, Taking::later,
                               Taking::persistent};

void end_when_received(std::size_t size) {
    const Clear data(size);
    const auto count = static_cast<MPI_Count>(size);
    for (const Taking way : kTakings) {
        for (const bool persistent : {false, true}) {
            fake::Options options;
            options.seed = static_cast<std::uint64_t>(way) + 7;
            Job job(2, options);
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number == 0) {
                    MPI_Request request = MPI_REQUEST_NULL;
                    if (persistent) {
                        Ssend_init(rank.layer, data.bytes().data(), count, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD,
                                   &request);
                        EXPECT_EQ(Start(rank.layer, &request), MPI_SUCCESS);
                    } else {
                        Issend(rank.layer, data.bytes().data(), count, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD, &request);
                    }
                    wait_to_be_told(rank, kProbed);
                    expect_unfinished(rank, request);
                    tell(rank, kGo);
                    EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
                    if (persistent) Request_free(rank.layer, &request);
                    return;
                }
                Bytes into(size);
                MPI_Message message = MPI_MESSAGE_NULL;
                MPI_Status status;
                if (way == Taking::matched) {
                    EXPECT_EQ(Mprobe(rank.layer, 0, kFirst, MPI_COMM_WORLD, &message, &status), MPI_SUCCESS);
                } else {
                    EXPECT_EQ(Probe(rank.layer, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status), MPI_SUCCESS);
                }
                EXPECT_EQ(count_in(rank, status), static_cast<int>(size));
                tell(rank, kProbed);
                wait_to_be_told(rank, kGo);
                if (way == Taking::matched) {
                    EXPECT_EQ(Mrecv(rank.layer, into.data(), count, MPI_BYTE, &message, &status), MPI_SUCCESS);
                } else {
                    take(rank, way, 0, kFirst, into);
                }
                EXPECT_EQ(into, data.bytes());
            });
            EXPECT_TRUE(ending.went_well()) << ending.told();
        }
    }
}

// protocol: M30
TEST(Synchronous, ALargeMessageEndsWhenItIsReceivedNotWhenItIsProbed) {
    end_when_received(kLarge);
}

/// A probe has to look into it.
TEST(Synchronous, AMessageAsLongAsAnAnnouncementEndsWhenItIsReceivedNotWhenItIsProbed) {
    end_when_received(seal::kAnnouncementSize);
}

/// Nor when a message behind it is.
TEST(Synchronous, AMessageThatAProbeFindsAnotherBehindHasNotEnded) {
    for (const std::size_t size : {std::size_t{100}, kLarge}) {
        const Clear first(size, 1);
        const Clear second(kLarge, 2);
        for (const Taking way : kTakings) {
            Job job(2);
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number == 0) {
                    MPI_Request requests[2];
                    Issend(rank.layer, first.bytes().data(), static_cast<MPI_Count>(size), MPI_BYTE, 1, kFirst,
                           MPI_COMM_WORLD, &requests[0]);
                    Isend(rank.layer, second.bytes().data(), kLarge, MPI_BYTE, 1, kSecond, MPI_COMM_WORLD,
                          &requests[1]);
                    wait_to_be_told(rank, kProbed);
                    expect_unfinished(rank, requests[0]);
                    tell(rank, kGo);
                    EXPECT_EQ(Waitall(rank.layer, 2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
                    return;
                }
                MPI_Status status;
                EXPECT_EQ(Probe(rank.layer, 0, kSecond, MPI_COMM_WORLD, &status), MPI_SUCCESS);
                EXPECT_EQ(count_in(rank, status), static_cast<int>(kLarge));
                tell(rank, kProbed);
                wait_to_be_told(rank, kGo);
                EXPECT_EQ(Probe(rank.layer, 0, kFirst, MPI_COMM_WORLD, &status), MPI_SUCCESS);
                EXPECT_EQ(count_in(rank, status), static_cast<int>(size));
                Bytes into(size);
                take(rank, way, 0, kFirst, into);
                EXPECT_EQ(into, first.bytes());
                into.resize(kLarge);
                take(rank, way, 0, kSecond, into);
                EXPECT_EQ(into, second.bytes());
            });
            EXPECT_TRUE(ending.went_well()) << ending.told();
        }
    }
}

/// Messages as long as an announcement, and announcements in either mode, with one tag.
TEST(Synchronous, EachProbeTellsTheLengthOfTheMessageThatIsNext) {
    constexpr int kMessages = 9;
    const auto size = [](int i) { return i % 3 == 0 ? std::size_t{21} : kLarge + static_cast<std::size_t>(i); };
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        fake::Options options;
        options.seed = seed;
        Job job(2, options);
        const Ending ending = job.run([&](Rank& rank) {
            if (rank.number == 0) {
                std::vector<Clear> data;
                std::vector<MPI_Request> requests(kMessages, MPI_REQUEST_NULL);
                for (int i = 0; i < kMessages; ++i) data.emplace_back(size(i), i);
                for (int i = 0; i < kMessages; ++i) {
                    const auto at = static_cast<std::size_t>(i);
                    const auto mode = i % 3 == 2 ? Issend : Isend;
                    mode(rank.layer, data[at].bytes().data(), static_cast<MPI_Count>(size(i)), MPI_BYTE, 1, kFirst,
                         MPI_COMM_WORLD, &requests[at]);
                }
                EXPECT_EQ(Waitall(rank.layer, kMessages, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
                return;
            }
            std::vector<Bytes> into(kMessages);
            std::vector<MPI_Request> requests(kMessages, MPI_REQUEST_NULL);
            for (int i = 0; i < kMessages; ++i) {
                MPI_Status status;
                EXPECT_EQ(Probe(rank.layer, 0, kFirst, MPI_COMM_WORLD, &status), MPI_SUCCESS);
                ASSERT_EQ(count_in(rank, status), static_cast<int>(size(i)));
                const auto at = static_cast<std::size_t>(i);
                into[at].resize(size(i));
                Irecv(rank.layer, into[at].data(), static_cast<MPI_Count>(size(i)), MPI_BYTE, 0, kFirst, MPI_COMM_WORLD,
                      &requests[at]);
            }
            EXPECT_EQ(Waitall(rank.layer, kMessages, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
            for (int i = 0; i < kMessages; ++i) {
                EXPECT_EQ(into[static_cast<std::size_t>(i)], Clear(size(i), i).bytes());
            }
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

constexpr int kHints = 32766;  // the tag of those, since the fake's last one is 32767

bool is_hint(const Message& message) {
    return message.tag == kHints && !message.is_collective();
}

TEST(Synchronous, OfWholeMessagesThoseHaveAHintThatAreAsLongAsAnAnnouncementAndWhoeverReceivesThemTakesIt) {
    using Send_ = int (*)(Layer&, const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
    for (const Send_ mode : {Send_(Ssend), Send_(Send)}) {
        for (const std::size_t size : {std::size_t{20}, std::size_t{21}, std::size_t{22}}) {
            const Clear data(size);
            int hints = 0;
            Job job(2);
            job.on_wire = [&](Message& message, std::vector<Message>&) {
                if (is_hint(message)) ++hints;
                return true;
            };
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number == 0) {
                    wait_to_be_told(rank, kGo);
                    EXPECT_EQ(mode(rank.layer, data.bytes().data(), static_cast<MPI_Count>(size), MPI_BYTE, 1, kFirst,
                                   MPI_COMM_WORLD),
                              MPI_SUCCESS);
                    return;
                }
                tell(rank, kGo);
                while (size == 21 && mode == Send_(Ssend) && rank.layer.hints().of(0).empty()) {
                }
                Bytes into(size);
                EXPECT_EQ(receive(rank, into, 0, kFirst), MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
                EXPECT_TRUE(rank.layer.hints().of(0).empty());
            });
            EXPECT_TRUE(ending.went_well()) << ending.told();
            EXPECT_EQ(hints, size == 21 && mode == Send_(Ssend) ? 1 : 0);
        }
    }
}

/// The receiver may have the message before its hint, and never look for that again.
TEST(Synchronous, NobodyWaitsForAHintThatIsNotTaken) {
    const Clear data(kLarge);
    fake::Options options;
    options.eager = 40;
    options.longest = std::chrono::milliseconds(2000);
    Job job(2, options);
    int hints = 0;
    job.on_wire = [&](Message& message, std::vector<Message>&) {
        if (is_hint(message)) {
            ++hints;
            message.tag = kHints + 1;
        }
        return true;
    };
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            EXPECT_EQ(Ssend(rank.layer, data.bytes().data(), kLarge, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD), MPI_SUCCESS);
            return;
        }
        Bytes into(kLarge);
        EXPECT_EQ(receive(rank, into, 0, kFirst), MPI_SUCCESS);
        EXPECT_EQ(into, data.bytes());
    });
    EXPECT_TRUE(ending.stuck.empty() && !ending.aborted && ending.complaints.empty()) << ending.told();
    EXPECT_EQ(hints, 1);
}

/// A wildcard's receive may have had the first message or not: no probe tells a length that is not certain.
TEST(Synchronous, AProbeBehindAReceiveForAnyTagTellsTheLengthOfWhatItFound) {
    for (const bool first_is_other : {false, true}) {
        for (std::uint64_t seed = 1; seed <= 4 * kSeeds; ++seed) {
            fake::Options options;
            options.seed = seed;
            Job job(2, options);
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number == 0) {
                    MPI_Request requests[3];
                    const Clear earlier(kLarge, 1);
                    const Clear first(kLarge + 1, 2);
                    const Clear second(kLarge + 2, 3);
                    Issend(rank.layer, earlier.bytes().data(), kLarge, MPI_BYTE, 1, first_is_other ? kSecond : kFirst,
                           MPI_COMM_WORLD, &requests[0]);
                    Issend(rank.layer, first.bytes().data(), kLarge + 1, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD,
                           &requests[1]);
                    Issend(rank.layer, second.bytes().data(), kLarge + 2, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD,
                           &requests[2]);
                    EXPECT_EQ(Waitall(rank.layer, 3, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
                    return;
                }
                Bytes any(kLarge);
                MPI_Request request = MPI_REQUEST_NULL;
                Irecv(rank.layer, any.data(), kLarge, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
                for (const std::size_t size : {kLarge + 1, kLarge + 2}) {
                    MPI_Status status;
                    EXPECT_EQ(Probe(rank.layer, 0, kFirst, MPI_COMM_WORLD, &status), MPI_SUCCESS);
                    EXPECT_EQ(count_in(rank, status), static_cast<int>(size));
                    Bytes into(size);
                    EXPECT_EQ(receive(rank, into, 0, kFirst), MPI_SUCCESS);
                }
                EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
                EXPECT_EQ(any, Clear(kLarge, 1).bytes());
            });
            EXPECT_TRUE(ending.went_well()) << "seed " << seed << "\n" << ending.told();
        }
    }
}

/// Not even memory for so many bytes.
TEST(Attacks, AHintOfAnotherLengthEndsTheJob) {
    const Clear data(kLarge);
    Job job(2);
    job.on_wire = [](Message& message, std::vector<Message>&) {
        if (is_hint(message)) message.bytes.resize(100000);
        return true;
    };
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            Ssend(rank.layer, data.bytes().data(), kLarge, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD);
            return;
        }
        Probe(rank.layer, 0, kFirst, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        Bytes into(kLarge);
        receive(rank, into, 0, kFirst);
        for (;;) rank.layer.hints().of(0);
    });
    EXPECT_TRUE(ending.aborted);
    EXPECT_NE(ending.said[1].find("a message of 100000 bytes from rank 0 where all have 45"), std::string::npos)
        << ending.told();
}

/// And a probe behind them still leaves the message with MPI.
TEST(Attacks, NoMoreThanSomeForgedHintsAreKept) {
    constexpr std::size_t kForged = 5000;
    const Clear data(kLarge);
    Message real;
    Job job(2);
    job.on_wire = [&](Message& message, std::vector<Message>& more) {
        if (!is_hint(message)) return true;
        real = message;
        message.bytes[20] ^= 1;
        more.assign(kForged, message);
        more.push_back(real);
        return true;
    };
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            MPI_Request request = MPI_REQUEST_NULL;
            Issend(rank.layer, data.bytes().data(), kLarge, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD, &request);
            wait_to_be_told(rank, kProbed);
            expect_unfinished(rank, request);
            tell(rank, kGo);
            EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
            return;
        }
        const auto& hints = rank.layer.hints().of(0);
        while (hints.empty() || !std::equal(hints.back().begin(), hints.back().end(), real.bytes.begin())) {
            rank.layer.hints().of(0);
        }
        EXPECT_EQ(hints.size(), 4096U);
        MPI_Status status;
        EXPECT_EQ(Probe(rank.layer, 0, kFirst, MPI_COMM_WORLD, &status), MPI_SUCCESS);
        EXPECT_EQ(count_in(rank, status), static_cast<int>(kLarge));
        tell(rank, kProbed);
        wait_to_be_told(rank, kGo);
        Bytes into(kLarge);
        EXPECT_EQ(receive(rank, into, 0, kFirst), MPI_SUCCESS);
        EXPECT_EQ(into, data.bytes());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// Who sends them without end would hold up whoever takes all that there are.
TEST(Attacks, AFloodOfHintsHoldsUpNoCall) {
    constexpr std::size_t kForged = 5000;
    constexpr int kLast = kHints + 1;
    const Clear data(kLarge);
    Job job(2);
    job.on_wire = [&](Message& message, std::vector<Message>& more) {
        if (!is_hint(message)) return true;
        more.assign(kForged, message);
        for (Message& forged : more) forged.bytes[20] ^= 1;
        more.back().tag = kLast;
        return true;
    };
    std::size_t looks = 0;
    job.fails = [&](int rank, const std::string& procedure, std::uint64_t) {
        if (rank == 1 && procedure == "Improbe") ++looks;
        return false;
    };
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            EXPECT_EQ(Ssend(rank.layer, data.bytes().data(), kLarge, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD), MPI_SUCCESS);
            return;
        }
        // All have come.
        const MPI_Comm comm = rank.layer.transport().comm;
        std::uint8_t last[seal::kAnnouncedWire];
        EXPECT_EQ(rank.mpi.Recv(last, sizeof last, MPI_BYTE, 0, kLast, comm, MPI_STATUS_IGNORE), MPI_SUCCESS);
        const std::size_t before = looks;
        rank.layer.hints().of(0);
        EXPECT_EQ(looks - before, 4096U);
        rank.layer.hints().of(0);
        Bytes into(kLarge);
        EXPECT_EQ(receive(rank, into, 0, kFirst), MPI_SUCCESS);
        EXPECT_EQ(into, data.bytes());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// Nor is there memory for a rest that is longer than its message.
TEST(Attacks, ARestThatIsLongerThanItsMessageIsNotTaken) {
    const Clear data(4 * kLarge);
    fake::Options options;
    options.longest = std::chrono::milliseconds(1000);
    Job job(2, options);
    bool sent = false;
    job.on_wire = [&](Message& message, std::vector<Message>&) {
        const bool is_rest = message.source == 0 && message.tag % 2 == 1 && message.bytes.size() > 100000;
        if (message.is_collective() || !is_rest) return true;
        message.bytes.resize(data.bytes().size() + 100000);
        sent = true;
        return true;
    };
    const Ending ending = job.run([&](Rank& rank) {
        const auto size = static_cast<MPI_Count>(data.bytes().size());
        if (rank.number == 0) {
            Send(rank.layer, data.bytes().data(), size, MPI_BYTE, 1, kSecond, MPI_COMM_WORLD);
            return;
        }
        int found = 0;
        while (!sent) Iprobe(rank.layer, 0, kGo, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        Bytes into(data.bytes().size());
        EXPECT_TRUE(rank.layer.has_complained_of(receive(rank, into, 0, kSecond)));
        EXPECT_EQ(into, Bytes(into.size()));
    });
    EXPECT_NE(ending.said[1].find("more than all of this message"), std::string::npos) << ending.told();
}

/// How a test waits for requests.
enum class Way { all, any, some, test, test_all };

void wait_for(const Rank& rank, Way way, std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses) {
    const auto count = static_cast<int>(requests.size());
    statuses.resize(requests.size());
    if (way == Way::all) {
        EXPECT_EQ(Waitall(rank.layer, count, requests.data(), statuses.data()), MPI_SUCCESS);
        return;
    }
    if (way == Way::test_all) {
        for (int done = 0; done == 0;) {
            EXPECT_EQ(Testall(rank.layer, count, requests.data(), &done, statuses.data()), MPI_SUCCESS);
        }
        return;
    }
    for (std::size_t left = requests.size(); left != 0;) {
        int index = MPI_UNDEFINED;
        int done = 1;
        MPI_Status status = {};
        if (way == Way::any) {
            EXPECT_EQ(Waitany(rank.layer, count, requests.data(), &index, &status), MPI_SUCCESS);
        } else if (way == Way::test) {
            EXPECT_EQ(Testany(rank.layer, count, requests.data(), &index, &done, &status), MPI_SUCCESS);
        } else {
            std::vector<int> indices(requests.size());
            std::vector<MPI_Status> some(requests.size());
            EXPECT_EQ(Waitsome(rank.layer, count, requests.data(), &done, indices.data(), some.data()), MPI_SUCCESS);
            ASSERT_GT(done, 0);
            for (int i = 0; i < done; ++i) {
                statuses[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])] =
                    some[static_cast<std::size_t>(i)];
            }
            left -= static_cast<std::size_t>(done);
            continue;
        }
        if (done == 0) continue;
        ASSERT_NE(index, MPI_UNDEFINED);
        statuses[static_cast<std::size_t>(index)] = status;
        --left;
    }
}

TEST(PointToPoint, ManyMessagesAtATimeComeToTheirReceives) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        const auto way = static_cast<Way>(seed % 5);
        fake::Options options;
        options.seed = seed;
        Job job(3, options);
        constexpr int kMessages = 9;
        const Ending ending = job.run([&](Rank& rank) {
            std::vector<Clear> out;
            std::vector<Bytes> in;
            std::vector<MPI_Request> requests;
            for (int i = 0; i < rank.ranks * kMessages; ++i) in.emplace_back(size_of(i / rank.ranks));
            for (int i = 0; i < rank.ranks * kMessages; ++i) out.emplace_back(size_of(i / rank.ranks), rank.number);
            for (int i = 0; i < rank.ranks * kMessages; ++i) {
                const int peer = i % rank.ranks;
                const int tag = i / rank.ranks % 2;
                auto& into = in[static_cast<std::size_t>(i)];
                auto& from = out[static_cast<std::size_t>(i)];
                const auto size = static_cast<MPI_Count>(into.size());
                requests.resize(requests.size() + 2, MPI_REQUEST_NULL);
                MPI_Request* const two = &requests[requests.size() - 2];
                EXPECT_EQ(Irecv(rank.layer, into.data(), size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, two), MPI_SUCCESS);
                EXPECT_EQ(Isend(rank.layer, from.data(), size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, two + 1),
                          MPI_SUCCESS);
            }
            std::vector<MPI_Status> statuses;
            wait_for(rank, way, requests, statuses);
            for (int i = 0; i < rank.ranks * kMessages; ++i) {
                const auto at = static_cast<std::size_t>(i);
                EXPECT_EQ(in[at], Clear(in[at].size(), i % rank.ranks).bytes()) << "message " << i;
                EXPECT_EQ(statuses[2 * at].MPI_SOURCE, i % rank.ranks);
                EXPECT_EQ(count_in(rank, statuses[2 * at]), static_cast<int>(in[at].size()));
            }
        });
        EXPECT_TRUE(ending.went_well()) << "seed " << seed << "\n" << ending.told();
    }
}

TEST(PointToPoint, WildcardsFindEachSendersMessagesInTheirOrder) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        fake::Options options;
        options.seed = seed;
        Job job(4, options);
        constexpr int kMessages = 6;
        const Ending ending = job.run([&](Rank& rank) {
            if (rank.number != 0) {
                for (int i = 0; i < kMessages; ++i) {
                    EXPECT_EQ(send(rank, Clear(size_of(i), 10 * rank.number + i), 0, 1 + i % 3), MPI_SUCCESS);
                }
                return;
            }
            std::vector<int> came(4);
            for (int i = 0; i < 3 * kMessages; ++i) {
                Bytes into(300000);
                MPI_Status status;
                EXPECT_EQ(receive(rank, into, MPI_ANY_SOURCE, MPI_ANY_TAG, &status), MPI_SUCCESS);
                ASSERT_GE(status.MPI_SOURCE, 1);
                ASSERT_LE(status.MPI_SOURCE, 3);
                const int number = came[static_cast<std::size_t>(status.MPI_SOURCE)]++;
                EXPECT_EQ(status.MPI_TAG, 1 + number % 3);
                into.resize(static_cast<std::size_t>(count_in(rank, status)));
                EXPECT_EQ(into, Clear(size_of(number), 10 * status.MPI_SOURCE + number).bytes());
            }
        });
        EXPECT_TRUE(ending.went_well()) << "seed " << seed << "\n" << ending.told();
    }
}

TEST(PointToPoint, AReceiveThatIsTooSmallGetsWhatFitsOrNothingAndTheNextOneIsWhole) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{5000}, std::size_t{400000}}) {
        for (std::uint64_t seed = 1; seed <= 4; ++seed) {
            fake::Options options;
            options.seed = seed;
            Job job(2, options);
            const Ending ending = job.run([&](Rank& rank) {
                const Clear data(size);
                if (rank.number == 0) {
                    for (int i = 0; i < 2; ++i) EXPECT_EQ(send(rank, data, 1, 5), MPI_SUCCESS);
                    return;
                }
                Bytes small(40);
                EXPECT_EQ(receive(rank, small, 0, 5), MPI_ERR_TRUNCATE);
                Bytes into(size);
                EXPECT_EQ(receive(rank, into, 0, 5), MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
            });
            EXPECT_TRUE(ending.went_well()) << ending.told();
        }
    }
}

TEST(PointToPoint, PersistentRequestsSealAnewWithEachStart) {
    for (const std::size_t size : {std::size_t{100}, std::size_t{5000}, std::size_t{400000}}) {
        for (std::uint64_t seed = 1; seed <= 4; ++seed) {
            fake::Options options;
            options.seed = seed;
            Job job(2, options);
            std::set<Bytes> wires;
            int messages = 0;
            job.on_wire = [&](Message& message, std::vector<Message>&) {
                if (!message.is_collective() && message.bytes.size() > 40) {
                    wires.insert(message.bytes);
                    ++messages;
                }
                return true;
            };
            const Ending ending = job.run([&](Rank& rank) {
                Bytes into(size);
                Clear data(size, 3);  // the same with each start
                const auto count = static_cast<MPI_Count>(size);
                MPI_Request request = MPI_REQUEST_NULL;
                if (rank.number == 0) {
                    Send_init(rank.layer, data.data(), count, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
                } else {
                    Recv_init(rank.layer, into.data(), count, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request);
                }
                for (int i = 0; i < 4; ++i) {
                    std::fill(into.begin(), into.end(), std::uint8_t{0});
                    EXPECT_EQ(Start(rank.layer, &request), MPI_SUCCESS);
                    EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
                    EXPECT_EQ(into, rank.number == 1 ? data.bytes() : Bytes(size));
                }
                EXPECT_EQ(Request_free(rank.layer, &request), MPI_SUCCESS);
            });
            EXPECT_TRUE(ending.went_well()) << ending.told();
            EXPECT_GE(messages, 4);
            EXPECT_EQ(wires.size(), static_cast<std::size_t>(messages)) << "the same bytes were sent twice";
        }
    }
}

/// The ways in which a request ends, or is asked.
enum class Ends { wait, test, waitall, testall, waitany, testany, waitsome, testsome, asked };
constexpr Ends kEnds[] = {Ends::wait,    Ends::test,     Ends::waitall,  Ends::testall, Ends::waitany,
                          Ends::testany, Ends::waitsome, Ends::testsome, Ends::asked};

int end_request(const Rank& rank, Ends way, MPI_Request& request, MPI_Status& status) {
    Layer& layer = rank.layer;
    int done = 0;
    int index = -1;
    int code = MPI_SUCCESS;
    const auto ask = [&](auto call) {
        while (code == MPI_SUCCESS && done <= 0) code = call();
        return code;
    };
    switch (way) {
        case Ends::wait:
            return Wait(layer, &request, &status);
        case Ends::test:
            return ask([&] { return Test(layer, &request, &done, &status); });
        case Ends::waitall:
            code = Waitall(layer, 1, &request, &status);
            break;
        case Ends::testall:
            ask([&] { return Testall(layer, 1, &request, &done, &status); });
            break;
        case Ends::waitany:
            return Waitany(layer, 1, &request, &index, &status);
        case Ends::testany:
            return ask([&] { return Testany(layer, 1, &request, &index, &done, &status); });
        case Ends::waitsome:
            code = Waitsome(layer, 1, &request, &done, &index, &status);
            break;
        case Ends::testsome:
            ask([&] { return Testsome(layer, 1, &request, &done, &index, &status); });
            break;
        case Ends::asked:
            ask([&] { return Request_get_status(layer, request, &done, &status); });
            return Wait(layer, &request, MPI_STATUS_IGNORE);
    }
    return code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : code;
}

/// Started when a probe that found another message behind its own has taken that out of MPI's queue, whose bytes may
/// have yet to come.
struct Started {
    std::size_t room;
    std::function<void(const Rank& rank, MPI_Request& request, Bytes& into)> end;
    std::function<void(Message& message)> alter = [](Message&) {};
};

constexpr std::size_t kHeldSize = 9000;

Ending start_after_probe(const Started& how) {
    const Clear first(kHeldSize, 1);
    const Clear second(kLarge, 2);
    Job job(2);
    job.on_wire = [&](Message& message, std::vector<Message>&) {
        if (message.tag == kFirst && !message.is_collective() && message.source == 0) how.alter(message);
        return true;
    };
    bool starts = false;
    job.fails = [&](int rank, const std::string& procedure, std::uint64_t) {
        EXPECT_FALSE(rank == 1 && starts && (procedure == "Mrecv" || procedure == "Wait")) << procedure;
        return false;
    };
    return job.run([&](Rank& rank) {
        if (rank.number == 0) {
            MPI_Request requests[2];
            Isend(rank.layer, first.bytes().data(), kHeldSize, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD, &requests[0]);
            Isend(rank.layer, second.bytes().data(), kLarge, MPI_BYTE, 1, kSecond, MPI_COMM_WORLD, &requests[1]);
            EXPECT_EQ(Waitall(rank.layer, 2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
            return;
        }
        MPI_Request request = MPI_REQUEST_NULL;
        Bytes into(how.room);
        Recv_init(rank.layer, into.data(), static_cast<MPI_Count>(how.room), MPI_BYTE, 0, kFirst, MPI_COMM_WORLD,
                  &request);
        EXPECT_EQ(Probe(rank.layer, 0, kSecond, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
        starts = true;
        EXPECT_EQ(Startall(rank.layer, 1, &request), MPI_SUCCESS);
        starts = false;
        EXPECT_EQ(Start(rank.layer, &request), MPI_ERR_REQUEST);
        how.end(rank, request, into);
        Bytes behind(kLarge);
        EXPECT_EQ(receive(rank, behind, 0, kSecond), MPI_SUCCESS);
        EXPECT_EQ(behind, second.bytes());
        if (request != MPI_REQUEST_NULL) Request_free(rank.layer, &request);
    });
}

TEST(PointToPoint, AStartedReceiveWaitsForNoMessageThatAProbeTookOut) {
    const Bytes sent = Clear(kHeldSize, 1).bytes();
    for (const Ends way : kEnds) {
        for (const std::size_t room : {kHeldSize, kLarge}) {
            const auto end = [&](const Rank& rank, MPI_Request& request, Bytes& into) {
                MPI_Status status;
                EXPECT_EQ(end_request(rank, way, request, status), MPI_SUCCESS);
                EXPECT_EQ(count_in(rank, status), static_cast<int>(kHeldSize));
                EXPECT_EQ(status.MPI_SOURCE, 0);
                EXPECT_EQ(status.MPI_TAG, kFirst);
                EXPECT_TRUE(std::equal(sent.begin(), sent.end(), into.begin()));
            };
            const Ending ending = start_after_probe({room, end});
            EXPECT_TRUE(ending.went_well()) << static_cast<int>(way) << ending.told();
        }
    }
}

TEST(PointToPoint, AStartedReceiveThatIsTooSmallForWhatAProbeTookOutGetsWhatFits) {
    const Bytes sent = Clear(kHeldSize, 1).bytes();
    for (const Ends way : kEnds) {
        const auto end = [&](const Rank& rank, MPI_Request& request, Bytes& into) {
            MPI_Status status;
            EXPECT_EQ(end_request(rank, way, request, status), MPI_ERR_TRUNCATE);
            EXPECT_EQ(count_in(rank, status), 4000);
            EXPECT_TRUE(std::equal(into.begin(), into.end(), sent.begin()));
        };
        const Ending ending = start_after_probe({4000, end});
        EXPECT_TRUE(ending.went_well()) << static_cast<int>(way) << ending.told();
    }
}

TEST(PointToPoint, AStartedReceiveOfWhatAProbeTookOutIsNotCancelledAndMayBeGivenUp) {
    const Bytes sent = Clear(kHeldSize, 1).bytes();
    const auto cancel = [&](const Rank& rank, MPI_Request& request, Bytes& into) {
        MPI_Status status;
        int cancelled = -1;
        EXPECT_EQ(Cancel(rank.layer, &request), MPI_SUCCESS);
        EXPECT_EQ(Wait(rank.layer, &request, &status), MPI_SUCCESS);
        rank.mpi.Test_cancelled(&status, &cancelled);
        EXPECT_EQ(cancelled, 0);
        EXPECT_EQ(into, sent);
    };
    const auto give_up = [&](const Rank& rank, MPI_Request& request, Bytes& into) {
        EXPECT_EQ(Request_free(rank.layer, &request), MPI_SUCCESS);
        for (int i = 0; i < 1000 && into != sent; ++i) {
            int found = 0;
            Iprobe(rank.layer, 0, kGo, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        }
        EXPECT_EQ(into, sent);
    };
    for (const auto& end : {std::function(cancel), std::function(give_up)}) {
        const Ending ending = start_after_probe({kHeldSize, end});
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

TEST(Attacks, AnAlteredMessageThatAProbeTookOutIsToldOfByTheStartedReceive) {
    for (const Ends way : kEnds) {
        const auto end = [&](const Rank& rank, MPI_Request& request, Bytes& into) {
            MPI_Status status;
            EXPECT_NE(end_request(rank, way, request, status), MPI_SUCCESS);
            EXPECT_EQ(into, Bytes(kHeldSize));
        };
        const auto alter = [](Message& message) { message.bytes[100] ^= 1; };
        const Ending ending = start_after_probe({kHeldSize, end, alter});
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_NE(ending.said[1].find("does not open"), std::string::npos) << ending.said[1];
    }
}

TEST(PointToPoint, AProbeTellsTheUsersSizeAndTheReceiveGetsThatMessage) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        for (const bool matching : {false, true}) {
            fake::Options options;
            options.seed = seed;
            Job job(3, options);
            constexpr int kMessages = 5;
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number != 0) {
                    for (int i = 0; i < kMessages; ++i) {
                        send(rank, Clear(size_of(i + 3), 10 * rank.number + i), 0, rank.number);
                    }
                    return;
                }
                std::vector<int> came(3);
                for (int i = 0; i < 2 * kMessages; ++i) {
                    MPI_Status status;
                    MPI_Message message = MPI_MESSAGE_NULL;
                    int flag = 0;
                    Layer& layer = rank.layer;
                    if (matching && i % 2 == 0) {
                        EXPECT_EQ(Mprobe(layer, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status),
                                  MPI_SUCCESS);
                    } else if (matching) {
                        while (flag == 0) {
                            EXPECT_EQ(
                                Improbe(layer, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status),
                                MPI_SUCCESS);
                        }
                    } else if (i % 2 == 0) {
                        EXPECT_EQ(Probe(layer, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status), MPI_SUCCESS);
                    } else {
                        while (flag == 0) {
                            EXPECT_EQ(Iprobe(layer, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status),
                                      MPI_SUCCESS);
                        }
                    }
                    const int number = came[static_cast<std::size_t>(status.MPI_SOURCE)]++;
                    ASSERT_EQ(count_in(rank, status), static_cast<int>(size_of(number + 3)));
                    Bytes into(size_of(number + 3));
                    const auto count = static_cast<MPI_Count>(into.size());
                    MPI_Request request = MPI_REQUEST_NULL;
                    if (!matching) {
                        EXPECT_EQ(receive(rank, into, status.MPI_SOURCE, status.MPI_TAG), MPI_SUCCESS);
                    } else if (i % 3 == 0) {
                        EXPECT_EQ(Imrecv(layer, into.data(), count, MPI_BYTE, &message, &request), MPI_SUCCESS);
                        EXPECT_EQ(Wait(layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
                    } else {
                        EXPECT_EQ(Mrecv(layer, into.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE), MPI_SUCCESS);
                    }
                    EXPECT_EQ(into, Clear(into.size(), 10 * status.MPI_SOURCE + number).bytes());
                }
            });
            EXPECT_TRUE(ending.went_well()) << "seed " << seed << "\n" << ending.told();
        }
    }
}

TEST(PointToPoint, ACancelledReceiveTakesNoMessage) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        const Clear data(3000);
        if (rank.number == 0) {
            Bytes go(1);
            receive(rank, go, 1, 1);
            EXPECT_EQ(send(rank, data, 1, 5), MPI_SUCCESS);
            return;
        }
        Bytes never(3000);
        MPI_Request request = MPI_REQUEST_NULL;
        Irecv(rank.layer, never.data(), 3000, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request);
        EXPECT_EQ(Cancel(rank.layer, &request), MPI_SUCCESS);
        MPI_Status status;
        EXPECT_EQ(Wait(rank.layer, &request, &status), MPI_SUCCESS);
        int cancelled = 0;
        rank.mpi.Test_cancelled(&status, &cancelled);
        EXPECT_EQ(cancelled, 1);
        send(rank, Clear(1), 0, 1);
        Bytes into(3000);
        EXPECT_EQ(receive(rank, into, 0, 5), MPI_SUCCESS);
        EXPECT_EQ(into, data.bytes());
        EXPECT_EQ(never, Bytes(3000));
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(PointToPoint, ASendIsNotCancelledSoItsMessageComes) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        const Clear data(3000);
        if (rank.number == 0) {
            MPI_Request request = MPI_REQUEST_NULL;
            Issend(rank.layer, data.bytes().data(), 3000, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
            EXPECT_EQ(Cancel(rank.layer, &request), MPI_SUCCESS);
            send(rank, Clear(1), 1, 1);
            MPI_Status status;
            EXPECT_EQ(Wait(rank.layer, &request, &status), MPI_SUCCESS);
            int cancelled = 1;
            rank.mpi.Test_cancelled(&status, &cancelled);
            EXPECT_EQ(cancelled, 0);
            return;
        }
        Bytes go(1);
        receive(rank, go, 0, 1);  // until then MPI could take the message back
        Bytes into(3000);
        EXPECT_EQ(receive(rank, into, 0, 5), MPI_SUCCESS);
        EXPECT_EQ(into, data.bytes());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(PointToPoint, ASendThatIsDoneIsNotCancelledEither) {
    for (const bool by_bsend : {false, true}) {
        fake::Options options;
        options.takes_back_sent = true;
        Job job(2, options);
        const Ending ending = job.run([&](Rank& rank) {
            const Clear data(30);
            if (rank.number == 1) {
                Bytes go(1);
                receive(rank, go, 0, 1);  // until then MPI could take the message back
                Bytes into(30);
                EXPECT_EQ(receive(rank, into, 0, 5), MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
                return;
            }
            Bytes memory(1000);
            MPI_Request request = MPI_REQUEST_NULL;
            Buffer_attach(rank.layer, memory.data(), 1000);
            (by_bsend ? Ibsend : Isend)(rank.layer, data.bytes().data(), 30, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
            EXPECT_EQ(Cancel(rank.layer, &request), MPI_SUCCESS);
            send(rank, Clear(1), 1, 1);
            MPI_Status status;
            EXPECT_EQ(Wait(rank.layer, &request, &status), MPI_SUCCESS);
            int cancelled = 1;
            rank.mpi.Test_cancelled(&status, &cancelled);
            EXPECT_EQ(cancelled, 0);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

TEST(PointToPoint, RingsOfSendrecvComeRound) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        for (const std::size_t size : {std::size_t{10}, std::size_t{9000}, std::size_t{300000}}) {
            fake::Options options;
            options.seed = seed;
            Job job(5, options);
            const Ending ending = job.run([&](Rank& rank) {
                const int left = (rank.number + 4) % 5;
                const int right = (rank.number + 1) % 5;
                const auto count = static_cast<MPI_Count>(size);
                Clear data(size, rank.number);
                Bytes into(size);
                EXPECT_EQ(Sendrecv(rank.layer, data.data(), count, MPI_BYTE, right, 1, into.data(), count, MPI_BYTE,
                                   left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                          MPI_SUCCESS);
                EXPECT_EQ(into, Clear(size, left).bytes());
                EXPECT_EQ(Sendrecv_replace(rank.layer, data.data(), count, MPI_BYTE, right, 2, left, 2, MPI_COMM_WORLD,
                                           MPI_STATUS_IGNORE),
                          MPI_SUCCESS);
                EXPECT_EQ(data.bytes(), Clear(size, left).bytes());
            });
            EXPECT_TRUE(ending.went_well()) << ending.told();
        }
    }
}

/// Rank 0 has so many receives posted, each with room for a large message, while it and rank 1 send each other small
/// ones. Then their messages come, large and small. Returns how often rank 0 asked MPI whether a request is done.
std::uint64_t looks_beside(int receives, Way way) {
    constexpr int kRounds = 50;
    constexpr std::size_t kRoom = 70000;
    const auto size_at = [](int i) { return i % 3 == 0 ? kRoom : std::size_t{8}; };
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        std::vector<Bytes> in;
        std::vector<MPI_Request> requests(static_cast<std::size_t>(receives), MPI_REQUEST_NULL);
        for (int i = 0; i < receives; ++i) in.emplace_back(kRoom);
        for (int i = 0; rank.number == 0 && i < receives; ++i) {
            const auto at = static_cast<std::size_t>(i);
            EXPECT_EQ(Irecv(rank.layer, in[at].data(), kRoom, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[at]),
                      MPI_SUCCESS);
        }
        const Clear word(8);
        Bytes back(8);
        for (int round = 0; round < kRounds; ++round) {
            const int first = rank.number == 0 ? send(rank, word, 1, 2) : receive(rank, back, 0, 2);
            const int then = rank.number == 0 ? receive(rank, back, 1, 2) : send(rank, word, 0, 2);
            EXPECT_EQ(first, MPI_SUCCESS);
            EXPECT_EQ(then, MPI_SUCCESS);
        }
        if (rank.number == 1) {
            for (int i = 0; i < receives; ++i) EXPECT_EQ(send(rank, Clear(size_at(i), i), 0, 1), MPI_SUCCESS);
            return;
        }
        std::vector<MPI_Status> statuses;
        wait_for(rank, way, requests, statuses);
        for (int i = 0; i < receives; ++i) {
            Bytes& got = in[static_cast<std::size_t>(i)];
            got.resize(size_at(i));
            EXPECT_EQ(got, Clear(size_at(i), i).bytes()) << "message " << i;
        }
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    return ending.looks.at(0);
}

TEST(PointToPoint, ReceivesThatWaitDoNotMakeOtherCallsSlow) {
    for (int way = 0; way < 5; ++way) {
        const std::uint64_t few = looks_beside(20, static_cast<Way>(way));
        const std::uint64_t many = looks_beside(200, static_cast<Way>(way));
        EXPECT_LT(many, 2 * few) << "way " << way << ": " << few << " looks beside 20, " << many << " beside 200";
    }
}

/// Of sends that nobody receives yet, each further one would look at all.
TEST(PointToPoint, SendsThatAreGivenUpDoNotMakeEachOtherSlow) {
    constexpr int kSends = 300;
    for (const bool buffered : {false, true}) {
        Job job(2);
        const Ending ending = job.run([&](Rank& rank) {
            const Clear data(3000);
            Bytes memory(kSends * 4000);
            Bytes into(3000);
            if (rank.number == 0) {
                EXPECT_EQ(Buffer_attach(rank.layer, memory.data(), static_cast<MPI_Count>(memory.size())), MPI_SUCCESS);
                for (int i = 0; i < kSends; ++i) {
                    MPI_Request request = MPI_REQUEST_NULL;
                    const auto* const at = data.bytes().data();
                    if (buffered) {
                        EXPECT_EQ(Bsend(rank.layer, at, 3000, MPI_BYTE, 1, 5, MPI_COMM_WORLD), MPI_SUCCESS);
                    } else {
                        EXPECT_EQ(Issend(rank.layer, at, 3000, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request), MPI_SUCCESS);
                        EXPECT_EQ(Request_free(rank.layer, &request), MPI_SUCCESS);
                    }
                }
                send(rank, Clear(1), 1, 1);
                void* at = nullptr;
                int size = 0;
                EXPECT_EQ(Buffer_detach(rank.layer, &at, &size), MPI_SUCCESS);
                return;
            }
            Bytes go(1);
            receive(rank, go, 0, 1);
            for (int i = 0; i < kSends; ++i) {
                EXPECT_EQ(receive(rank, into, 0, 5), MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
            }
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_LT(ending.looks.at(0), kSends * 60) << (buffered ? "buffered" : "given up");
    }
}

TEST(PointToPoint, BufferedSendsEndBeforeTheirReceives) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        const Clear data(3000);
        if (rank.number == 0) {
            Bytes memory(20000);
            EXPECT_EQ(Buffer_attach(rank.layer, memory.data(), 20000), MPI_SUCCESS);
            for (int i = 0; i < 4; ++i) {
                EXPECT_EQ(Bsend(rank.layer, data.bytes().data(), 3000, MPI_BYTE, 1, 5, MPI_COMM_WORLD), MPI_SUCCESS);
            }
            send(rank, Clear(1), 1, 1);
            void* at = nullptr;
            int size = 0;
            EXPECT_EQ(Buffer_detach(rank.layer, &at, &size), MPI_SUCCESS);
            EXPECT_EQ(size, 20000);
            return;
        }
        Bytes go(1);
        receive(rank, go, 0, 1);
        for (int i = 0; i < 4; ++i) {
            Bytes into(3000);
            EXPECT_EQ(receive(rank, into, 0, 5), MPI_SUCCESS);
            EXPECT_EQ(into, data.bytes());
        }
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(PointToPoint, BytesWithGapsBetweenThemComeToTheirPlaces) {
    for (const int blocks : {3, 2000, 60000}) {
        Job job(2);
        const Ending ending = job.run([&](Rank& rank) {
            MPI_Datatype type = MPI_DATATYPE_NULL;
            rank.mpi.Type_vector(blocks, 1, 2, MPI_INT64_T, &type);
            rank.mpi.Type_commit(&type);
            const std::size_t size = static_cast<std::size_t>(blocks) * 16;
            Clear data(size);
            if (rank.number == 0) {
                EXPECT_EQ(Send(rank.layer, data.data(), 1, type, 1, 4, MPI_COMM_WORLD), MPI_SUCCESS);
            } else {
                Bytes into(size, std::uint8_t{0x55});
                EXPECT_EQ(Recv(rank.layer, into.data(), 1, type, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
                for (std::size_t i = 0; i < size; ++i) {
                    ASSERT_EQ(into[i], i % 16 < 8 ? data.bytes()[i] : 0x55) << "byte " << i;
                }
            }
            EXPECT_EQ(Type_free(rank.layer, &type), MPI_SUCCESS);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

TEST(PointToPoint, RanksOfANodeTalkInClearOnlyWhereTheirNodeIsTrusted) {
    for (const bool seals_all : {false, true}) {
        fake::Options options;
        options.seals_all = seals_all;
        options.nodes = {0, 0, 1};
        Job job(3, options);
        int clear_on_node = 0;
        job.on_wire = [&](Message& message, std::vector<Message>&) {
            if (Clear::is_in(message.bytes)) clear_on_node += message.source != 2 && message.to != 2 ? 1 : 1000;
            return true;
        };
        const Ending ending = job.run([&](Rank& rank) {
            const Clear data(100);
            for (int peer = 0; peer < 3; ++peer) {
                if (peer == rank.number) continue;
                Bytes into(100);
                EXPECT_EQ(Sendrecv(rank.layer, data.bytes().data(), 100, MPI_BYTE, peer, 1, into.data(), 100, MPI_BYTE,
                                   peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                          MPI_SUCCESS);
                EXPECT_EQ(into, data.bytes());
            }
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_EQ(clear_on_node, seals_all ? 0 : 2);
    }
}

// Attackers, who write what is on the wire.

/// Rank 0 sends rank 1 `kSent` messages with one tag, of which the attacker meets those of the program, in order.
constexpr int kSent = 3;
using Attack = std::function<bool(int number, Message& message, std::vector<Message>& more)>;

struct Received {
    std::vector<int> codes;
    std::vector<Bytes> buffers;
    bool by_us = true;  // all errors were those of messages that failed their check
    Ending ending;
};

Received under_attack(std::size_t size, const Attack& attack, int receives = kSent, int sends = kSent) {
    Received received;
    fake::Options options;
    options.longest = std::chrono::milliseconds(500);
    Job job(2, options);
    int number = 0;
    job.on_wire = [&](Message& message, std::vector<Message>& more) {
        return message.source != 0 || message.is_collective() || attack(number++, message, more);
    };
    received.ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            for (int i = 0; i < sends; ++i) EXPECT_EQ(send(rank, Clear(size, i), 1, 7), MPI_SUCCESS);
            return;
        }
        for (int i = 0; i < receives; ++i) {
            received.buffers.emplace_back(size);
            const int code = receive(rank, received.buffers.back(), 0, 7);
            received.codes.push_back(code);
            if (code != MPI_SUCCESS) received.by_us = received.by_us && rank.layer.has_complained_of(code);
        }
    });
    return received;
}

bool is_blank(const Bytes& bytes) {
    return bytes == Bytes(bytes.size());
}

/// The receives from `first` on failed, and left nothing; those before are whole.
void expect_refused(const Received& received, std::size_t first, const std::string& line) {
    ASSERT_GE(received.ending.said.size(), 2U);
    EXPECT_NE(received.ending.said[1].find(line), std::string::npos) << received.ending.told();
    for (std::size_t i = 0; i < received.codes.size(); ++i) {
        if (i < first) {
            EXPECT_EQ(received.codes[i], MPI_SUCCESS) << i << received.ending.told();
            continue;
        }
        EXPECT_NE(received.codes[i], MPI_SUCCESS) << i;
        EXPECT_TRUE(is_blank(received.buffers[i])) << i;
    }
    EXPECT_TRUE(received.by_us);
}

TEST(Attacks, NoBitOfAMessageCanBeChanged) {
    constexpr std::size_t kSize = 5;
    for (std::size_t byte = 0; byte < kSize + seal::kMessageOverhead; ++byte) {
        const auto received = under_attack(kSize, [&](int number, Message& message, std::vector<Message>&) {
            if (number == 1) message.bytes.at(byte) ^= static_cast<std::uint8_t>(1U << byte % 8);
            return true;
        });
        // The message after it comes after one that is missing.
        expect_refused(received, 1, "message from rank 0 with tag 7");
    }
}

TEST(Attacks, NoBitOfALargeMessageCanBeChanged) {
    constexpr std::size_t kSize = 400000;
    for (const bool announcement : {true, false}) {
        for (std::size_t byte = 0; byte < 60; byte += 7) {
            int segments = 0;
            const auto received = under_attack(
                kSize,
                [&](int, Message& message, std::vector<Message>&) {
                    const bool segment = message.bytes.size() > 1000;
                    if (segment != !announcement) return true;
                    if (segments++ == 0) message.bytes[byte % message.bytes.size()] ^= 0x10;
                    return true;
                },
                1, 1);
            EXPECT_NE(received.codes.at(0), MPI_SUCCESS) << byte;
            EXPECT_TRUE(is_blank(received.buffers[0])) << byte;
            EXPECT_TRUE(received.by_us);
        }
    }
}

TEST(Attacks, AMessageThatComesTwiceIsRefused) {
    const auto received = under_attack(100, [](int number, Message& message, std::vector<Message>& more) {
        if (number == 0) more.push_back(message);
        return true;
    });
    expect_refused(received, 1, "came before: it was replayed");
}

TEST(Attacks, AMessageThatIsLostIsMissedByTheNext) {
    const auto received = under_attack(
        100, [](int number, Message&, std::vector<Message>&) { return number != 0; }, kSent - 1);
    expect_refused(received, 0, "lost on the way, or out of order");
}

TEST(Attacks, MessagesThatChangePlacesAreRefused) {
    Message kept;
    const auto received = under_attack(100, [&](int number, Message& message, std::vector<Message>& more) {
        if (number == 0) kept = message;
        if (number == 1) more.push_back(kept);
        return number != 0;
    });
    // The second came too early. The first would be the next in order, but it comes to the second receive.
    ASSERT_EQ(received.codes.size(), 3U);
    expect_refused(received, 0, "lost on the way, or out of order");
}

TEST(Attacks, AMessageThatIsCutOrLengthenedIsRefused) {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{8}, std::size_t{23}, std::size_t{24}, std::size_t{123}}) {
        const auto received = under_attack(100, [&](int number, Message& message, std::vector<Message>&) {
            if (number == 1) message.bytes.resize(size);
            return true;
        });
        expect_refused(received, 1, "message from rank 0 with tag 7");
    }
    const auto longer = under_attack(100, [&](int number, Message& message, std::vector<Message>&) {
        if (number == 1) message.bytes.push_back(0);
        return true;
    });
    EXPECT_NE(longer.codes[1], MPI_SUCCESS);  // MPI itself says that it does not fit
    EXPECT_TRUE(is_blank(longer.buffers[1]));
}

/// A message of one envelope that comes under another one. `move` writes it.
void expect_moved_is_refused(const std::function<void(Message&)>& move) {
    Job job(3);
    job.on_wire = [&](Message& message, std::vector<Message>&) {
        if (!message.is_collective() && message.tag == 7) move(message);
        return true;
    };
    MPI_Comm other[3] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
    const Ending ending = job.run([&](Rank& rank) {
        Comm_dup(rank.layer, MPI_COMM_WORLD, &other[rank.number]);
        if (rank.number == 0) {
            EXPECT_EQ(send(rank, Clear(50), 1, 7), MPI_SUCCESS);
        } else if (rank.number == 1) {
            for (const MPI_Comm comm : {MPI_COMM_WORLD, other[1]}) {
                Bytes into(50);
                MPI_Request request = MPI_REQUEST_NULL;
                Irecv(rank.layer, into.data(), 50, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &request);
                int done = 0;
                int code = MPI_SUCCESS;
                for (int i = 0; i < 200 && done == 0; ++i) code = Test(rank.layer, &request, &done, MPI_STATUS_IGNORE);
                if (done == 0) {
                    Cancel(rank.layer, &request);
                    Wait(rank.layer, &request, MPI_STATUS_IGNORE);
                    continue;
                }
                EXPECT_NE(code, MPI_SUCCESS);
                EXPECT_TRUE(rank.layer.has_complained_of(code));
                EXPECT_TRUE(is_blank(into));
            }
        }
        Comm_free(rank.layer, &other[rank.number]);
    });
    EXPECT_NE(ending.said[1].find("message from rank"), std::string::npos) << ending.told();
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Attacks, AMessageUnderAnotherEnvelopeIsRefused) {
    expect_moved_is_refused([](Message& message) { message.tag = 8; });
    expect_moved_is_refused([](Message& message) { message.rank = 2; });
    int context = 0;
    expect_moved_is_refused([&](Message& message) {
        // The program's communicator is the last that was made before the message.
        context = message.context + 2 * 10;
        message.context = context;
    });
}

TEST(Attacks, ARankDoesNotTakeItsOwnMessageBack) {
    Job job(2);
    job.on_wire = [](Message& message, std::vector<Message>&) {
        if (message.source != 0 || message.is_collective()) return true;
        std::swap(message.source, message.to);
        message.rank = 1;
        return true;
    };
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number != 0) return;
        Bytes into(50);
        EXPECT_EQ(send(rank, Clear(50), 1, 7), MPI_SUCCESS);
        const int code = receive(rank, into, 1, 7);
        EXPECT_TRUE(rank.layer.has_complained_of(code));
        EXPECT_TRUE(is_blank(into));
    });
    EXPECT_TRUE(ending.stuck.empty() && !ending.aborted) << ending.told();
}

/// Has each message of tag 7 changed on its way.
void change_on_the_way(Job& job, std::function<void(Message&)> change) {
    job.on_wire = [change = std::move(change)](Message& message, std::vector<Message>&) {
        if (message.tag == 7 && !message.is_collective()) change(message);
        return true;
    };
}

/// Rank 1's receives that name no sender, each in its own way.
enum class FromAny { receive, start, matched };

int receive_from_any(const Rank& rank, FromAny way, Bytes& into, MPI_Status& status) {
    const auto size = static_cast<MPI_Count>(into.size());
    if (way == FromAny::receive) return receive(rank, into, MPI_ANY_SOURCE, 7, &status);
    MPI_Request request = MPI_REQUEST_NULL;
    if (way == FromAny::start) {
        Irecv(rank.layer, into.data(), size, MPI_BYTE, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &request);
        return Wait(rank.layer, &request, &status);
    }
    MPI_Message message = MPI_MESSAGE_NULL;
    const int code = Mprobe(rank.layer, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &message, &status);
    return code != MPI_SUCCESS ? code : Mrecv(rank.layer, into.data(), size, MPI_BYTE, &message, &status);
}

// protocol: M29
/// Where strangers can speak to MPI, nothing is taken as it is, whoever they say they are: the receiver itself, or a
/// rank that there is not.
TEST(Attacks, NoSenderWhomMpiNamesIsBelieved) {
    for (const int source : {0, 1, 2, 77, -5, int{MPI_PROC_NULL}, int{MPI_ANY_SOURCE}}) {
        for (const FromAny way : {FromAny::receive, FromAny::start, FromAny::matched}) {
            Job job(2);
            change_on_the_way(job, [source](Message& message) {
                message.rank = source;
                message.bytes.assign(50, 0x46);
            });
            const Ending ending = job.run([&](Rank& rank) {
                if (rank.number == 0) {
                    EXPECT_EQ(send(rank, Clear(50), 1, 7), MPI_SUCCESS);
                    return;
                }
                Bytes into(50);
                MPI_Status status = {};
                const int code = receive_from_any(rank, way, into, status);
                EXPECT_TRUE(rank.layer.has_complained_of(code)) << code;
                EXPECT_TRUE(is_blank(into)) << "source " << source << ", way " << static_cast<int>(way);
            });
            EXPECT_TRUE(ending.went_well()) << source << ending.told();
        }
    }
}

TEST(Attacks, AMessageThatIsCutOffBehindAnySenderIsTruncatedAndNoMore) {
    for (const int source : {1, 77, int{MPI_ANY_SOURCE}}) {
        Job job(2);
        change_on_the_way(job, [source](Message& message) {
            message.rank = source;
            message.bytes.resize(5000);
        });
        const Ending ending = job.run([&](Rank& rank) {
            if (rank.number == 0) {
                EXPECT_EQ(send(rank, Clear(50), 1, 7), MPI_SUCCESS);
                return;
            }
            Bytes into(50);
            EXPECT_EQ(receive(rank, into, MPI_ANY_SOURCE, 7), MPI_ERR_TRUNCATE);
            EXPECT_TRUE(is_blank(into));
        });
        EXPECT_TRUE(ending.went_well()) << source << ending.told();
    }
}

/// All that the parts of a job's report say.
std::string parts_of(const std::filesystem::path& report_file) {
    std::string text;
    const std::string parts = report_file.string() + ".parts";
    if (!std::filesystem::exists(parts)) return text;
    for (const auto& entry : std::filesystem::directory_iterator(parts)) {
        std::ifstream stream(entry.path());
        text.append(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
    return text;
}

extern "C" {
int no_copy(MPI_Comm /*comm*/, int /*key*/, void* /*state*/, void* /*value*/, void* /*copy*/, int* flag) {
    *flag = 0;
    return MPI_SUCCESS;
}
int run_function(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* state) {
    (*static_cast<std::function<void()>*>(state))();
    return MPI_SUCCESS;
}
}

void set_attribute(const Rank& rank, std::function<void()>& at_deletion) {
    int key = MPI_KEYVAL_INVALID;
    rank.mpi.Comm_create_keyval(no_copy, run_function, &key, &at_deletion);
    rank.mpi.Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

/// Before anything that waits for other ranks: these may have yet to get a message that lets them come to their end.
TEST(Finalize, FirstOfAllDeletesTheAttributesOfCommSelf) {
    for (const std::size_t size : {std::size_t{50}, std::size_t{300000}}) {
        const Clear data(size);
        std::function<void()> at_deletion;
        bool deleted = false;
        Job job(2);
        const Ending ending = job.run([&](Rank& rank) {
            if (rank.number == 0) {
                at_deletion = [&deleted, &data, &layer = rank.layer] {
                    EXPECT_EQ(Send(layer, data.bytes().data(), static_cast<MPI_Count>(data.bytes().size()), MPI_BYTE, 1,
                                   7, MPI_COMM_WORLD),
                              MPI_SUCCESS);
                    deleted = true;
                };
                set_attribute(rank, at_deletion);
                return;
            }
            Bytes into(size);
            EXPECT_EQ(receive(rank, into, 0, 7), MPI_SUCCESS);
            EXPECT_EQ(into, data.bytes());
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_TRUE(deleted);
    }
}

/// What the program sends there is in the report.
TEST(Finalize, ReportsWhenTheAttributesOfCommSelfAreDeleted) {
    const auto folder = std::filesystem::path(testing::TempDir()) / ("finalize-" + std::to_string(getpid()));
    fake::Options options;
    options.settings["CRYPTMPI_REPORT_FILE"] = folder / "job.json";
    Job job(2, options);
    change_on_the_way(job, [](Message& message) { message.bytes[20] ^= 1; });
    std::function<void()> at_deletion;
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            EXPECT_EQ(send(rank, Clear(50), 1, 7), MPI_SUCCESS);
            return;
        }
        at_deletion = [&folder, &layer = rank.layer] {
            EXPECT_EQ(parts_of(folder / "job.json").find("\"rank\": 1,"), std::string::npos);
            Bytes into(50);
            EXPECT_NE(Recv(layer, into.data(), 50, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
        };
        set_attribute(rank, at_deletion);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    const std::string parts = parts_of(folder / "job.json");
    EXPECT_NE(parts.find("\"rank\": 1,"), std::string::npos);
    EXPECT_NE(parts.find("\"failed_opens\": 1"), std::string::npos);
    std::filesystem::remove_all(folder);
}

TEST(Attacks, WhatFailsAfterTheReportComesIntoIt) {
    const auto folder = std::filesystem::path(testing::TempDir()) / ("point-" + std::to_string(getpid()));
    fake::Options options;
    options.settings["CRYPTMPI_REPORT_FILE"] = folder / "job.json";
    Job job(2, options);
    change_on_the_way(job, [](Message& message) { message.bytes[20] ^= 1; });
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            EXPECT_EQ(send(rank, Clear(50), 1, 7), MPI_SUCCESS);
            return;
        }
        rank.layer.report();
        EXPECT_NE(parts_of(folder / "job.json").find("\"failed_opens\": 0"), std::string::npos);
        Bytes into(50);
        EXPECT_NE(receive(rank, into, 0, 7), MPI_SUCCESS);
        EXPECT_NE(parts_of(folder / "job.json").find("\"failed_opens\": 1"), std::string::npos);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    std::filesystem::remove_all(folder);
}

TEST(Attacks, WhatFailsAndCannotComeIntoTheReportEndsTheJob) {
    const auto folder = std::filesystem::path(testing::TempDir()) / ("point-end-" + std::to_string(getpid()));
    fake::Options options;
    options.settings["CRYPTMPI_REPORT_FILE"] = folder / "job.json";
    Job job(2, options);
    change_on_the_way(job, [](Message& message) { message.bytes[20] ^= 1; });
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) {
            EXPECT_EQ(send(rank, Clear(50), 1, 7), MPI_SUCCESS);
            return;
        }
        rank.layer.report();
        std::filesystem::remove_all(folder);
        std::ofstream(folder) << "no folder";
        Bytes into(50);
        (void)receive(rank, into, 0, 7);
        ADD_FAILURE() << "it goes on";
    });
    EXPECT_TRUE(ending.aborted) << ending.told();
    std::filesystem::remove_all(folder);
}

/// A communicator of this rank alone, and one that was made of it.
void on_own_communicators(const Rank& rank, const std::function<void(MPI_Comm)>& work) {
    MPI_Comm made = MPI_COMM_NULL;
    EXPECT_EQ(Comm_dup(rank.layer, MPI_COMM_SELF, &made), MPI_SUCCESS);
    for (const MPI_Comm comm : {MPI_COMM_SELF, made}) {
        rank.mpi.Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        work(comm);
    }
    EXPECT_EQ(Comm_free(rank.layer, &made), MPI_SUCCESS);
}

TEST(PointToPoint, ARankSendsItselfMessages) {
    for (const bool seals_all : {true, false}) {
        for (const std::size_t size : {std::size_t{0}, std::size_t{50}, std::size_t{300000}}) {
            const Clear data(size);
            fake::Options options;
            options.seals_all = seals_all;
            Job job(2, options);
            bool sealed = true;
            job.on_wire = [&](Message& message, std::vector<Message>&) {
                if (size != 0 && message.source == message.to) sealed = sealed && !Clear::is_in(message.bytes);
                return true;
            };
            const Ending ending = job.run([&](Rank& rank) {
                on_own_communicators(rank, [&](MPI_Comm comm) {
                    MPI_Request request = MPI_REQUEST_NULL;
                    const auto count = static_cast<MPI_Count>(size);
                    EXPECT_EQ(Isend(rank.layer, data.bytes().data(), count, MPI_BYTE, 0, 7, comm, &request),
                              MPI_SUCCESS);
                    MPI_Message message = MPI_MESSAGE_NULL;
                    MPI_Status status = {};
                    EXPECT_EQ(Mprobe(rank.layer, MPI_ANY_SOURCE, 7, comm, &message, &status), MPI_SUCCESS);
                    EXPECT_EQ(count_in(rank, status), static_cast<int>(size));
                    Bytes into(size);
                    EXPECT_EQ(Mrecv(rank.layer, into.data(), count, MPI_BYTE, &message, &status), MPI_SUCCESS);
                    EXPECT_EQ(into, data.bytes());
                    EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
                    EXPECT_EQ(Bcast(rank.layer, into.data(), count, MPI_BYTE, 0, comm), MPI_SUCCESS);
                });
            });
            EXPECT_TRUE(ending.went_well()) << size << ending.told();
            EXPECT_EQ(sealed, seals_all || size == 0);
        }
    }
}

// protocol: M28
TEST(Attacks, NobodySpeaksAsTheReceiverItself) {
    Job job(2);
    change_on_the_way(job, [](Message& message) { message.bytes.assign(50, 0x46); });
    const Ending ending = job.run([&](Rank& rank) {
        on_own_communicators(rank, [&](MPI_Comm comm) {
            MPI_Request request = MPI_REQUEST_NULL;
            Bytes into(50);
            Irecv(rank.layer, into.data(), 50, MPI_BYTE, 0, 7, comm, &request);
            EXPECT_EQ(send(rank, Clear(50), 0, 7, comm), MPI_SUCCESS);
            const int code = Wait(rank.layer, &request, MPI_STATUS_IGNORE);
            EXPECT_TRUE(rank.layer.has_complained_of(code)) << code;
            EXPECT_TRUE(is_blank(into));
        });
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Attacks, ACommunicatorWithOtherMembersEndsTheJob) {
    Job job(4);
    job.on_members = [](int rank, std::vector<int>& members) {
        if (rank == 2 && members.size() == 2) members[0] = 1;
    };
    const Ending ending = job.run([&](Rank& rank) {
        MPI_Comm half = MPI_COMM_NULL;
        Comm_split(rank.layer, MPI_COMM_WORLD, rank.number % 2, 0, &half);
        Comm_free(rank.layer, &half);
    });
    EXPECT_TRUE(ending.aborted);
    EXPECT_EQ(ending.status, kExitRefused);
    EXPECT_NE(ending.said[2].find("other members"), std::string::npos) << ending.told();
}

/// Ranks 2 and 3 are told of themselves in another order than MPI has them in, and both are told the same.
TEST(Attacks, ARankInAnotherPlaceOfACommunicatorThanItsOwnEndsTheJob) {
    fake::Options options;
    options.nodes = {0, 0, 1, 1};
    Job job(4, options);
    job.on_members = [](int rank, std::vector<int>& members) {
        if (rank >= 2 && members.size() == 2) std::swap(members[0], members[1]);
    };
    const Ending ending = job.run([&](Rank& rank) {
        MPI_Comm node = MPI_COMM_NULL;
        Comm_split_type(rank.layer, MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        Comm_free(rank.layer, &node);
    });
    EXPECT_TRUE(ending.aborted);
    EXPECT_EQ(ending.status, kExitRefused);
    EXPECT_NE((ending.said[2] + ending.said[3]).find("another place in a communicator than its own"), std::string::npos)
        << ending.told();
}

// The fake itself: what it is there to find, it finds.

TEST(FakeMpi, FindsBytesInClear) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        Clear data(30);
        if (rank.number == 0) rank.mpi.Send(data.data(), 30, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        if (rank.number == 1) rank.mpi.Recv(data.data(), 30, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    });
    EXPECT_EQ(ending.complaints.size(), 1U) << ending.told();
}

TEST(FakeMpi, FindsWhatIsLeft) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number == 0) send(rank, Clear(30), 1, 1);
    });
    EXPECT_EQ(ending.left.size(), 1U) << ending.told();
}

TEST(FakeMpi, TakesBackASendThatIsCancelledBeforeItsReceive) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        if (rank.number != 0) return;
        Bytes data(30);
        MPI_Request request = MPI_REQUEST_NULL;
        rank.mpi.Issend(data.data(), 30, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
        rank.mpi.Cancel(&request);
        MPI_Status status;
        rank.mpi.Wait(&request, &status);
        int cancelled = 0;
        rank.mpi.Test_cancelled(&status, &cancelled);
        EXPECT_EQ(cancelled, 1);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(FakeMpi, FindsRanksThatWaitForEachOther) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        Bytes into(30);
        receive(rank, into, 1 - rank.number, 1);
    });
    EXPECT_EQ(ending.stuck, "the ranks wait for each other");
}

TEST(FakeMpi, FindsABufferThatChangesWhileItIsSent) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        Bytes data(30);
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank.number == 0) {
            rank.mpi.Issend(data.data(), 30, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
            data[3] = 1;
            rank.mpi.Wait(&request, MPI_STATUS_IGNORE);
        } else {
            rank.mpi.Recv(data.data(), 30, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    });
    EXPECT_EQ(ending.complaints, std::vector<std::string>{"a buffer changed while MPI sent it"});
}

TEST(FakeMpi, FindsRanksThatCallDifferentOperations) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        std::uint8_t byte = 0;
        std::uint8_t all[2] = {};
        if (rank.number == 0) rank.mpi.Bcast(&byte, 1, MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank.number == 1) rank.mpi.Scatter(nullptr, 0, MPI_BYTE, all, 1, MPI_BYTE, 0, MPI_COMM_WORLD);
    });
    EXPECT_EQ(ending.complaints.size(), 1U) << ending.told();
}

TEST(FakeMpi, DoesTheSameAgainWithTheSameSeed) {
    const auto record = [](std::uint64_t seed) {
        fake::Options options;
        options.seed = seed;
        Job job(4, options);
        std::vector<int> order;
        job.on_wire = [&](Message& message, std::vector<Message>&) {
            order.push_back(10 * message.source + message.to);
            return true;
        };
        const Ending ending = job.run([&](Rank& rank) {
            for (int peer = 0; peer < 4; ++peer) {
                std::uint8_t out = 0;
                std::uint8_t in = 0;
                Sendrecv(rank.layer, &out, 1, MPI_BYTE, peer, 1, &in, 1, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            }
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
        return order;
    };
    EXPECT_EQ(record(5), record(5));
    EXPECT_NE(record(5), record(6));
}

}  // namespace
}  // namespace cryptmpi::comm
