// Sessions beside MPI_Init, over a fake MPI: those that are open longer than MPI_COMM_WORLD, and those with threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
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
using Path = std::filesystem::path;

/// Sizes of a message, and of one that travels in segments.
constexpr std::size_t kSmall = 50;
constexpr std::size_t kLarge = 300000;

MPI_Session begin_session(const Rank& rank) {
    MPI_Session session = MPI_SESSION_NULL;
    EXPECT_EQ(Session_init(rank.layer, MPI_INFO_NULL, MPI_ERRORS_RETURN, &session), MPI_SUCCESS);
    return session;
}

/// From rank 0 to rank 1. Returns what the receive says.
int pass(Layer& layer, int rank, std::size_t size) {
    const Clear data(size);
    const auto count = static_cast<MPI_Count>(size);
    if (rank == 0) return Send(layer, data.bytes().data(), count, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
    Bytes into(size);
    const int code = Recv(layer, into.data(), count, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT_TRUE(code != MPI_SUCCESS || into == data.bytes());
    return code;
}

/// A report of a job, in a folder that is gone with it.
class Report {
public:
    explicit Report(const std::string& name)
        : folder_(Path(testing::TempDir()) / (name + "-" + std::to_string(getpid()))) {}
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    ~Report() { std::filesystem::remove_all(folder_); }

    Path file() const { return folder_ / "job.json"; }
    /// All parts, of which each says what a rank did.
    std::string parts() const {
        std::string text;
        const Path parts = file().string() + ".parts";
        if (!std::filesystem::exists(parts)) return text;
        for (const auto& entry : std::filesystem::directory_iterator(parts)) {
            std::ifstream stream(entry.path());
            text.append(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
        }
        return text;
    }
    bool says(const std::string& what) const { return parts().find(what) != std::string::npos; }

private:
    Path folder_;
};

/// An MPI that ends with the last session.
fake::Options ends_with_sessions(const Report& report) {
    fake::Options options;
    options.ends_with_sessions = true;
    options.settings["CRYPTMPI_REPORT_FILE"] = report.file();
    return options;
}

TEST(Sessions, WhatIsSentBesideOneAfterFinalizeIsSealedAndReported) {
    const Report report("sessions-open");
    Job job(2, ends_with_sessions(report));
    std::vector<MPI_Session> sessions(2);
    const auto number = [](const Rank& rank) { return static_cast<std::size_t>(rank.number); };
    job.after = [&](Rank& rank) {
        EXPECT_TRUE(rank.layer.begun());
        for (const std::size_t size : {kSmall, kLarge}) EXPECT_EQ(pass(rank.layer, rank.number, size), MPI_SUCCESS);
        EXPECT_EQ(Session_finalize(rank.layer, &sessions[number(rank)]), MPI_SUCCESS);
        EXPECT_FALSE(rank.layer.begun());
    };
    const Ending ending = job.run([&](Rank& rank) {
        sessions[number(rank)] = begin_session(rank);
        EXPECT_EQ(pass(rank.layer, rank.number, kSmall), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    EXPECT_TRUE(report.says("\"sealed_records_sent\": 3")) << report.parts();
    EXPECT_TRUE(report.says("\"sealed_records_received\": 3")) << report.parts();
}

TEST(Sessions, OnlyTheLastOneEndsTheWorld) {
    const Report report("sessions-two");
    Job job(2, ends_with_sessions(report));
    job.after = [&](Rank& rank) {
        for (int i = 0; i < 2; ++i) {
            EXPECT_TRUE(rank.layer.begun());
            MPI_Session any = MPI_SESSION_NULL;
            Session_finalize(rank.layer, &any);
        }
        EXPECT_FALSE(rank.layer.begun());
    };
    const Ending ending = job.run([&](Rank& rank) {
        for (int i = 0; i < 2; ++i) begin_session(rank);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(Sessions, OneThatNeverEndsLeavesAReport) {
    const Report report("sessions-never");
    Job job(2, ends_with_sessions(report));
    const Ending ending = job.run([&](Rank& rank) {
        begin_session(rank);
        EXPECT_EQ(pass(rank.layer, rank.number, kSmall), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    EXPECT_TRUE(report.says("\"rank\": 0,")) << report.parts();
    EXPECT_TRUE(report.says("\"rank\": 1,")) << report.parts();
    EXPECT_TRUE(report.says("\"sealed_records_received\": 1")) << report.parts();
}

/// The report that is there already is not the last word.
TEST(Sessions, WhatFailsAfterFinalizeComesIntoTheReport) {
    const Report report("sessions-altered");
    Job job(2, ends_with_sessions(report));
    bool alters = false;
    job.on_wire = [&](Message& message, std::vector<Message>&) {
        if (alters && message.bytes.size() > kSmall) message.bytes[20] ^= 1;
        return true;
    };
    job.after = [&](Rank& rank) {
        alters = true;
        const int code = pass(rank.layer, rank.number, kSmall);
        EXPECT_EQ(code != MPI_SUCCESS, rank.number == 1);
    };
    const Ending ending = job.run([&](Rank& rank) {
        begin_session(rank);
        EXPECT_EQ(pass(rank.layer, rank.number, kSmall), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    EXPECT_TRUE(report.says("\"failed_opens\": 1")) << report.parts();
}

extern "C" {
int copies_none(MPI_Comm /*comm*/, int /*key*/, void* /*state*/, void* /*value*/, void* /*copy*/, int* flag) {
    *flag = 0;
    return MPI_SUCCESS;
}
int runs_function(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* state) {
    (*static_cast<std::function<void()>*>(state))();
    return MPI_SUCCESS;
}
}

/// They are run when MPI ends, be it with a session, and may send.
TEST(Sessions, FunctionsThatDeleteAttributesOfCommSelfSendWhenTheLastOneEnds) {
    const Report report("sessions-deleted");
    Job job(2, ends_with_sessions(report));
    std::vector<std::function<void()>> at_deletion(2);
    int deleted = 0;
    job.after = [&](Rank& rank) {
        MPI_Session any = MPI_SESSION_NULL;
        Session_finalize(rank.layer, &any);
    };
    const Ending ending = job.run([&](Rank& rank) {
        begin_session(rank);
        auto& mine = at_deletion[static_cast<std::size_t>(rank.number)];
        mine = [&deleted, &layer = rank.layer, number = rank.number] {
            EXPECT_EQ(pass(layer, number, kSmall), MPI_SUCCESS);
            ++deleted;
        };
        int key = MPI_KEYVAL_INVALID;
        rank.mpi.Comm_create_keyval(copies_none, runs_function, &key, &mine);
        rank.mpi.Comm_set_attr(MPI_COMM_SELF, key, nullptr);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    EXPECT_EQ(deleted, 2);
    EXPECT_TRUE(report.says("\"sealed_records_received\": 1")) << report.parts();
}

/// As under Open MPI, whose MPI_COMM_WORLD is no more.
TEST(Sessions, WhereFinalizeEndsTheWorldTheKeysGoWithIt) {
    Job job(2);
    job.after = [&](Rank& rank) {
        EXPECT_FALSE(rank.layer.begun());
        MPI_Session any = MPI_SESSION_NULL;
        EXPECT_EQ(Session_finalize(rank.layer, &any), MPI_SUCCESS);
    };
    const Ending ending = job.run([&](Rank& rank) { begin_session(rank); });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

// Threads.

/// A job of two ranks, of which the second has a session whose level is said to be this.
fake::Options with_level(const std::string& level) {
    fake::Options options;
    options.session_level = level;
    return options;
}

TEST(SessionThreads, OneOfThreadsBeforeInitIsAsIfAllHadThem) {
    Job job(2, with_level("MPI_THREAD_MULTIPLE"));
    job.before = [](Rank& rank) {
        if (rank.number == 1) begin_session(rank);
    };
    const Ending ending = job.run([](Rank& rank) {
        EXPECT_EQ(rank.layer.threads(), rank.number == 1);
        EXPECT_TRUE(rank.layer.threads_somewhere());
        EXPECT_TRUE(rank.layer.lets_sessions_in());
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

TEST(SessionThreads, OneOfThreadsAfterInitHasLocksToo) {
    for (const char* level : {"MPI_THREAD_MULTIPLE", "MPI_THREAD_SERIALIZED", ""}) {
        const bool has_threads = std::string(level) != "MPI_THREAD_SERIALIZED";  // what says nothing may have them
        Job job(2, with_level(level));
        const Ending ending = job.run([&](Rank& rank) {
            EXPECT_FALSE(rank.layer.threads());
            begin_session(rank);
            EXPECT_EQ(rank.layer.threads(), has_threads);
            EXPECT_TRUE(rank.layer.lets_sessions_in());
            for (const std::size_t size : {kSmall, kLarge}) EXPECT_EQ(pass(rank.layer, rank.number, size), MPI_SUCCESS);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

/// Of MPI_COMM_WORLD's processes.
int make_of_group(const Rank& rank, MPI_Comm* made) {
    MPI_Group group = MPI_GROUP_NULL;
    rank.mpi.Comm_group(MPI_COMM_WORLD, &group);
    const int code = Comm_create_from_group(rank.layer, group, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, made);
    rank.mpi.Group_free(&group);
    return code;
}

/// A call of the first thread may be on its way, which has no lock.
TEST(SessionThreads, OneOfThreadsInAnotherThreadIsLetNowhere) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        std::thread([&] { rank.layer.take_session_of_threads(); }).join();
        EXPECT_FALSE(rank.layer.threads());
        MPI_Comm made = MPI_COMM_WORLD;
        EXPECT_EQ(make_of_group(rank, &made), rank.layer.refused_code());
        EXPECT_EQ(made, MPI_COMM_NULL);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    for (const std::string& said : ending.said) {
        EXPECT_NE(said.find("MPI_Comm_create_from_group is refused: a session of MPI_THREAD_MULTIPLE"),
                  std::string::npos)
            << said;
    }
}

/// The session's threads may be in a collective operation while that of MPI_COMM_WORLD is in another.
TEST(SessionThreads, WhatIsMadeOfAGroupAloneSharesNothing) {
    Job job(2);
    const Ending ending = job.run([&](Rank& rank) {
        MPI_Comm made = MPI_COMM_NULL;
        MPI_Comm copy = MPI_COMM_NULL;
        MPI_Comm other = MPI_COMM_NULL;
        EXPECT_EQ(make_of_group(rank, &made), MPI_SUCCESS);
        EXPECT_EQ(Comm_dup(rank.layer, made, &copy), MPI_SUCCESS);
        EXPECT_EQ(Comm_dup(rank.layer, MPI_COMM_WORLD, &other), MPI_SUCCESS);
        const auto traffic_of = [&](MPI_Comm comm) {
            return rank.layer.find(comm)->address(rank.mpi, 1 - rank.number).comm;
        };
        EXPECT_EQ(traffic_of(other), traffic_of(MPI_COMM_WORLD));
        EXPECT_NE(traffic_of(made), traffic_of(MPI_COMM_WORLD));
        EXPECT_NE(traffic_of(copy), traffic_of(MPI_COMM_WORLD));
        EXPECT_NE(traffic_of(copy), traffic_of(made));
        for (MPI_Comm* const one : {&made, &copy, &other}) {
            int sum = rank.number;
            EXPECT_EQ(Allreduce(rank.layer, MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, *one), MPI_SUCCESS);
            EXPECT_EQ(sum, 1);
            EXPECT_EQ(Comm_free(rank.layer, one), MPI_SUCCESS);
        }
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

}  // namespace
}  // namespace cryptmpi::comm
