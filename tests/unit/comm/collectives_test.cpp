// Every collective operation that the layer seals, between ranks of one process, over a fake MPI.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
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

/// One rank's part in an operation on a communicator.
struct Part {
    Rank& on;
    MPI_Comm comm;
    int rank;
    int ranks;
    std::size_t size;  // of a block
    Layer& layer() const { return on.layer; }
    MPI_Count count() const { return static_cast<MPI_Count>(size); }
};

/// How it ended on a rank: an operation that succeeds has given the right data.
struct Result_ {
    int code = MPI_SUCCESS;
    bool right = true;
};

Bytes block(std::size_t size, int from, int to) {
    return Clear(size, 16 * from + to).bytes();
}
void append(Bytes& all, const Bytes& more) {
    all.insert(all.end(), more.begin(), more.end());
}
Bytes blocks(const Part& part, const std::function<Bytes(int)>& of) {
    Bytes all;
    for (int i = 0; i < part.ranks; ++i) append(all, of(i));
    return all;
}

int last(const Part& part) {
    return part.ranks - 1;
}

Result_ bcast(Part& part, int root) {
    Bytes data = part.rank == root ? block(part.size, root, 0) : Bytes(part.size);
    const int code = Bcast(part.layer(), data.data(), part.count(), MPI_BYTE, root, part.comm);
    return {code, data == block(part.size, root, 0)};
}

Result_ gather(Part& part, int root, bool in_place) {
    const bool is_root = part.rank == root;
    const Bytes mine = block(part.size, part.rank, 0);
    Bytes all(is_root ? part.size * static_cast<std::size_t>(part.ranks) : 0);
    if (is_root && in_place) std::copy(mine.begin(), mine.end(), all.begin() + root * part.count());
    const void* const out = is_root && in_place ? MPI_IN_PLACE : mine.data();
    const int code =
        Gather(part.layer(), out, part.count(), MPI_BYTE, all.data(), part.count(), MPI_BYTE, root, part.comm);
    return {code, !is_root || all == blocks(part, [&](int i) { return block(part.size, i, 0); })};
}

Result_ scatter(Part& part, int root, bool in_place) {
    const bool is_root = part.rank == root;
    const Bytes all = is_root ? blocks(part, [&](int i) { return block(part.size, root, i); }) : Bytes();
    Bytes mine(part.size);
    const bool stays = is_root && in_place;
    const int code = Scatter(part.layer(), all.data(), part.count(), MPI_BYTE, stays ? MPI_IN_PLACE : mine.data(),
                             part.count(), MPI_BYTE, root, part.comm);
    return {code, stays || mine == block(part.size, root, part.rank)};
}

/// Blocks of different sizes, one byte between them, the last one first.
struct Uneven {
    explicit Uneven(const Part& part) : counts(static_cast<std::size_t>(part.ranks)), places(counts.size()) {
        for (int i = last(part); i >= 0; --i) {
            const auto at = static_cast<std::size_t>(i);
            counts[at] = static_cast<int>(part.size) * (i % 3) + i;
            places[at] = total;
            total += counts[at] + 1;
        }
    }
    Bytes filled(const std::function<Bytes(int, std::size_t)>& of) const {
        Bytes all(static_cast<std::size_t>(total), std::uint8_t{0xee});
        for (std::size_t i = 0; i < counts.size(); ++i) {
            const Bytes one = of(static_cast<int>(i), static_cast<std::size_t>(counts[i]));
            std::copy(one.begin(), one.end(), all.begin() + places[i]);
        }
        return all;
    }
    Bytes empty() const { return Bytes(static_cast<std::size_t>(total), std::uint8_t{0xee}); }
    std::size_t size(int rank) const { return static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]); }
    std::vector<int> counts;
    std::vector<int> places;
    int total = 0;
};

Result_ gatherv(Part& part, int root) {
    const Uneven uneven(part);
    const Bytes mine = block(uneven.size(part.rank), part.rank, 0);
    Bytes all = uneven.empty();
    const int code = Gatherv(part.layer(), mine.data(), static_cast<MPI_Count>(mine.size()), MPI_BYTE, all.data(),
                             uneven.counts.data(), uneven.places.data(), MPI_BYTE, root, part.comm);
    const auto right = uneven.filled([](int i, std::size_t size) { return block(size, i, 0); });
    return {code, part.rank != root || all == right};
}

Result_ scatterv(Part& part, int root) {
    const Uneven uneven(part);
    const Bytes all = uneven.filled([&](int i, std::size_t size) { return block(size, root, i); });
    Bytes mine(uneven.size(part.rank));
    const int code = Scatterv(part.layer(), all.data(), uneven.counts.data(), uneven.places.data(), MPI_BYTE,
                              mine.data(), static_cast<MPI_Count>(mine.size()), MPI_BYTE, root, part.comm);
    return {code, mine == block(mine.size(), root, part.rank)};
}

Result_ allgather(Part& part, bool in_place) {
    const Bytes mine = block(part.size, part.rank, 0);
    Bytes all(part.size * static_cast<std::size_t>(part.ranks));
    if (in_place) std::copy(mine.begin(), mine.end(), all.begin() + part.rank * part.count());
    const int code = Allgather(part.layer(), in_place ? MPI_IN_PLACE : mine.data(), part.count(), MPI_BYTE, all.data(),
                               part.count(), MPI_BYTE, part.comm);
    return {code, all == blocks(part, [&](int i) { return block(part.size, i, 0); })};
}

Result_ allgatherv(Part& part, bool in_place) {
    const Uneven uneven(part);
    const Bytes mine = block(uneven.size(part.rank), part.rank, 0);
    Bytes all = uneven.empty();
    const auto place = uneven.places[static_cast<std::size_t>(part.rank)];
    if (in_place) std::copy(mine.begin(), mine.end(), all.begin() + place);
    const int code =
        Allgatherv(part.layer(), in_place ? MPI_IN_PLACE : mine.data(), static_cast<MPI_Count>(mine.size()), MPI_BYTE,
                   all.data(), uneven.counts.data(), uneven.places.data(), MPI_BYTE, part.comm);
    return {code, all == uneven.filled([](int i, std::size_t size) { return block(size, i, 0); })};
}

Result_ alltoall(Part& part, bool in_place) {
    const Bytes out = blocks(part, [&](int i) { return block(part.size, part.rank, i); });
    Bytes in = in_place ? out : Bytes(out.size());
    const int code = Alltoall(part.layer(), in_place ? MPI_IN_PLACE : out.data(), part.count(), MPI_BYTE, in.data(),
                              part.count(), MPI_BYTE, part.comm);
    return {code, in == blocks(part, [&](int i) { return block(part.size, i, part.rank); })};
}

/// From rank i to rank k go size * ((i + k) % 3) + 1 bytes.
struct Each_ {
    explicit Each_(const Part& part) {
        for (int i = 0; i < part.ranks; ++i) {
            counts.push_back(static_cast<int>(part.size) * ((part.rank + i) % 3) + 1);
            places.push_back(total);
            total += counts.back();
        }
    }
    std::vector<int> counts;
    std::vector<int> places;
    int total = 0;
};

Result_ alltoallv(Part& part, bool in_place, bool w) {
    const Each_ each(part);
    const auto size = [&](int i) { return static_cast<std::size_t>(each.counts[static_cast<std::size_t>(i)]); };
    const Bytes out = blocks(part, [&](int i) { return block(size(i), part.rank, i); });
    Bytes in = in_place ? out : Bytes(out.size());
    const void* const from = in_place ? MPI_IN_PLACE : out.data();
    const std::vector<MPI_Datatype> types(each.counts.size(), MPI_BYTE);
    const int* const counts = each.counts.data();
    const int* const places = each.places.data();
    const int code =
        w ? Alltoallw(part.layer(), from, counts, places, types.data(), in.data(), counts, places, types.data(),
                      part.comm)
          : Alltoallv(part.layer(), from, counts, places, MPI_BYTE, in.data(), counts, places, MPI_BYTE, part.comm);
    return {code, in == blocks(part, [&](int i) { return block(size(i), i, part.rank); })};
}

// Reductions, of 8-byte numbers that are Clear on the wire, and of others that are not.

using Numbers = std::vector<std::int64_t>;

std::int64_t marker() {
    std::int64_t number = 0;
    std::memcpy(&number, Clear(8).bytes().data(), sizeof number);
    return number;
}

/// Of a rank: the greatest of all ranks' are markers, and its own are when it is the last one.
Numbers numbers(const Part& part, int rank) {
    Numbers all(part.size / 8 + 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = i % 2 == 0 ? marker() - (last(part) - rank) * 256 : static_cast<std::int64_t>(i) * (rank + 1);
    }
    return all;
}
Numbers sum(const Part& part, int ranks) {
    Numbers all = numbers(part, 0);
    for (int rank = 1; rank < ranks; ++rank) {
        const Numbers more = numbers(part, rank);
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] =
                static_cast<std::int64_t>(static_cast<std::uint64_t>(all[i]) + static_cast<std::uint64_t>(more[i]));
        }
    }
    return all;
}

Result_ reduce(Part& part, int root, bool in_place) {
    const Numbers mine = numbers(part, part.rank);
    const bool is_root = part.rank == root;
    Numbers in = is_root && in_place ? mine : Numbers(mine.size());
    const int code = Reduce(part.layer(), is_root && in_place ? MPI_IN_PLACE : mine.data(), in.data(),
                            static_cast<MPI_Count>(mine.size()), MPI_INT64_T, MPI_SUM, root, part.comm);
    return {code, !is_root || in == sum(part, part.ranks)};
}

Result_ allreduce(Part& part, bool in_place) {
    const Numbers mine = numbers(part, part.rank);
    Numbers in = in_place ? mine : Numbers(mine.size());
    const int code = Allreduce(part.layer(), in_place ? MPI_IN_PLACE : mine.data(), in.data(),
                               static_cast<MPI_Count>(mine.size()), MPI_INT64_T, MPI_SUM, part.comm);
    return {code, in == sum(part, part.ranks)};
}

Result_ scan(Part& part, bool exclusive) {
    const Numbers mine = numbers(part, part.rank);
    Numbers in(mine.size());
    const auto count = static_cast<MPI_Count>(mine.size());
    const int code = exclusive ? Exscan(part.layer(), mine.data(), in.data(), count, MPI_INT64_T, MPI_SUM, part.comm)
                               : Scan(part.layer(), mine.data(), in.data(), count, MPI_INT64_T, MPI_SUM, part.comm);
    if (exclusive && part.rank == 0) return {code, true};
    return {code, in == sum(part, part.rank + (exclusive ? 0 : 1))};
}

Result_ reduce_scatter(Part& part, bool of_blocks) {
    std::vector<int> counts(static_cast<std::size_t>(part.ranks), 2);
    if (!of_blocks) std::iota(counts.begin(), counts.end(), 0);
    const int total = std::accumulate(counts.begin(), counts.end(), 0);
    Part sized = part;
    sized.size = static_cast<std::size_t>(total - 1) * 8;
    const Numbers mine = numbers(sized, part.rank);
    const int own = counts[static_cast<std::size_t>(part.rank)];
    const int before = std::accumulate(counts.begin(), counts.begin() + part.rank, 0);
    Numbers in(static_cast<std::size_t>(own));
    const int code =
        of_blocks
            ? Reduce_scatter_block(part.layer(), mine.data(), in.data(), 2, MPI_INT64_T, MPI_SUM, part.comm)
            : Reduce_scatter(part.layer(), mine.data(), in.data(), counts.data(), MPI_INT64_T, MPI_SUM, part.comm);
    const Numbers all = sum(sized, part.ranks);
    return {code, in == Numbers(all.begin() + before, all.begin() + before + own)};
}

/// x -> a x + b: what one does after the other, which does not commute.
struct Map {
    std::uint64_t a;
    std::uint64_t b;
    bool operator==(const Map&) const = default;
};
extern "C" void compose(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
    const auto* first = static_cast<const Map*>(in);
    auto* second = static_cast<Map*>(inout);
    for (int i = 0; i < *count; ++i) second[i] = {first[i].a * second[i].a, first[i].b * second[i].a + second[i].b};
}

Result_ reduce_in_order(Part& part, int root) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op op = MPI_OP_NULL;
    part.on.mpi.Type_contiguous(2, MPI_UINT64_T, &type);
    part.on.mpi.Type_commit(&type);
    part.on.mpi.Op_create(compose, 0, &op);
    const auto of = [](int rank) {
        return Map{static_cast<std::uint64_t>(rank) + 2, static_cast<std::uint64_t>(rank)};
    };
    std::vector<Map> mine(3, of(part.rank));
    std::vector<Map> in(3);
    const int code = root < 0 ? Allreduce(part.layer(), mine.data(), in.data(), 3, type, op, part.comm)
                              : Reduce(part.layer(), mine.data(), in.data(), 3, type, op, root, part.comm);
    std::vector<Map> right(3, of(last(part)));
    for (int i = last(part) - 1; i >= 0; --i) {
        const std::vector<Map> before(3, of(i));
        int count = 3;
        compose(const_cast<Map*>(before.data()), right.data(), &count, &type);
    }
    part.on.mpi.Op_free(&op);
    Type_free(part.layer(), &type);
    return {code, (root >= 0 && part.rank != root) || in == right};
}

struct Operation_ {
    const char* name;
    std::function<Result_(Part&)> run;
};

const std::vector<Operation_>& operations() {
    static const std::vector<Operation_> all{
        {"Bcast of the first", [](Part& p) { return bcast(p, 0); }},
        {"Bcast of the last", [](Part& p) { return bcast(p, last(p)); }},
        {"Gather", [](Part& p) { return gather(p, last(p), false); }},
        {"Gather in place", [](Part& p) { return gather(p, 0, true); }},
        {"Scatter", [](Part& p) { return scatter(p, last(p), false); }},
        {"Scatter in place", [](Part& p) { return scatter(p, 0, true); }},
        {"Gatherv", [](Part& p) { return gatherv(p, last(p)); }},
        {"Scatterv", [](Part& p) { return scatterv(p, last(p)); }},
        {"Allgather", [](Part& p) { return allgather(p, false); }},
        {"Allgather in place", [](Part& p) { return allgather(p, true); }},
        {"Allgatherv", [](Part& p) { return allgatherv(p, false); }},
        {"Allgatherv in place", [](Part& p) { return allgatherv(p, true); }},
        {"Alltoall", [](Part& p) { return alltoall(p, false); }},
        {"Alltoall in place", [](Part& p) { return alltoall(p, true); }},
        {"Alltoallv", [](Part& p) { return alltoallv(p, false, false); }},
        {"Alltoallv in place", [](Part& p) { return alltoallv(p, true, false); }},
        {"Alltoallw", [](Part& p) { return alltoallv(p, false, true); }},
        {"Reduce", [](Part& p) { return reduce(p, last(p), false); }},
        {"Reduce in place", [](Part& p) { return reduce(p, 0, true); }},
        {"Allreduce", [](Part& p) { return allreduce(p, false); }},
        {"Allreduce in place", [](Part& p) { return allreduce(p, true); }},
        {"Scan", [](Part& p) { return scan(p, false); }},
        {"Exscan", [](Part& p) { return scan(p, true); }},
        {"Reduce_scatter_block", [](Part& p) { return reduce_scatter(p, true); }},
        {"Reduce_scatter", [](Part& p) { return reduce_scatter(p, false); }},
        {"Reduce that does not commute", [](Part& p) { return reduce_in_order(p, last(p)); }},
        {"Allreduce that does not commute", [](Part& p) { return reduce_in_order(p, -1); }},
    };
    return all;
}

void expect_all_right(Rank& rank, MPI_Comm comm, std::size_t size) {
    int number = 0;
    int ranks = 0;
    rank.mpi.Comm_rank(comm, &number);
    rank.mpi.Comm_size(comm, &ranks);
    Part part{rank, comm, number, ranks, size};
    for (const Operation_& operation : operations()) {
        const Result_ result = operation.run(part);
        EXPECT_EQ(result.code, MPI_SUCCESS) << operation.name << " of " << ranks << " ranks, " << size << " bytes";
        EXPECT_TRUE(result.right) << operation.name << " of " << ranks << " ranks, " << size << " bytes";
    }
}

/// How the ranks of a job are on nodes.
struct Layout_ {
    bool seals_all;
    int on_node;
};

void expect_job_of_all(int ranks, Layout_ layout, std::size_t size, std::uint64_t seed) {
    fake::Options options;
    options.seed = seed;
    options.seals_all = layout.seals_all;
    for (int i = 0; i < ranks; ++i) options.nodes.push_back(i / layout.on_node);
    Job job(ranks, options);
    const Ending ending = job.run([&](Rank& rank) { expect_all_right(rank, MPI_COMM_WORLD, size); });
    EXPECT_TRUE(ending.went_well()) << ranks << " ranks, " << layout.on_node << " a node\n" << ending.told();
}

TEST(Collectives, AllGiveTheRightDataAtTwoToNineRanks) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
        for (const Layout_ layout : {Layout_{true, 1}, Layout_{false, 1}, Layout_{false, 2}, Layout_{false, 3}}) {
            if (layout.on_node >= ranks && !layout.seals_all) continue;  // all of it stays on a node: MPI does it
            expect_job_of_all(ranks, layout, 40, static_cast<std::uint64_t>(ranks));
        }
    }
}

TEST(Collectives, LargeBlocksToo) {
    for (const int ranks : {3, 4, 6}) {
        for (const Layout_ layout : {Layout_{true, 1}, Layout_{false, 2}}) {
            expect_job_of_all(ranks, layout, 150000, static_cast<std::uint64_t>(ranks));
        }
    }
}

// Bytes of a vector, and of no other block, that Bcast and reductions send in five pieces: four whole ones and a
// shorter one, of which no more than four are with MPI at a time.
constexpr std::size_t kInPieces = 600000;
constexpr std::size_t kOnlyWholePieces = 100000;  // are longer than this on the wire

TEST(Collectives, BlocksOfSeveralPiecesToo) {
    expect_job_of_all(3, {true, 1}, kInPieces, 1);
    expect_job_of_all(4, {false, 2}, kInPieces, 2);
}

TEST(Collectives, EmptyBlocksToo) {
    expect_job_of_all(4, {true, 1}, 0, 1);
    expect_job_of_all(4, {false, 2}, 0, 2);
}

TEST(Collectives, WorkOnCommunicatorsOfEachKind) {
    for (const Layout_ layout : {Layout_{true, 1}, Layout_{false, 2}}) {
        fake::Options options;
        options.seals_all = layout.seals_all;
        for (int i = 0; i < 7; ++i) options.nodes.push_back(i / layout.on_node);
        Job job(7, options);
        const Ending ending = job.run([&](Rank& rank) {
            MPI_Comm comms[5] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
            EXPECT_EQ(Comm_dup(rank.layer, MPI_COMM_WORLD, &comms[0]), MPI_SUCCESS);
            EXPECT_EQ(Comm_split(rank.layer, comms[0], rank.number % 2, -rank.number, &comms[1]), MPI_SUCCESS);
            MPI_Group all = MPI_GROUP_NULL;
            MPI_Group some = MPI_GROUP_NULL;
            const int members[] = {5, 0, 3};
            rank.mpi.Comm_group(MPI_COMM_WORLD, &all);
            rank.mpi.Group_incl(all, 3, members, &some);
            EXPECT_EQ(Comm_create(rank.layer, MPI_COMM_WORLD, some, &comms[2]), MPI_SUCCESS);
            const bool is_one = std::find(std::begin(members), std::end(members), rank.number) != std::end(members);
            if (is_one) {
                EXPECT_EQ(Comm_create_group(rank.layer, MPI_COMM_WORLD, some, 4, &comms[3]), MPI_SUCCESS);
            }
            MPI_Request request = MPI_REQUEST_NULL;
            EXPECT_EQ(Comm_idup(rank.layer, MPI_COMM_WORLD, &comms[4], &request), MPI_SUCCESS);
            EXPECT_EQ(Wait(rank.layer, &request, MPI_STATUS_IGNORE), MPI_SUCCESS);
            for (MPI_Comm& comm : comms) {
                if (comm == MPI_COMM_NULL) continue;
                expect_all_right(rank, comm, 24);
                EXPECT_EQ(Comm_free(rank.layer, &comm), MPI_SUCCESS);
            }
            rank.mpi.Group_free(&some);
            rank.mpi.Group_free(&all);
        });
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

// protocol: M26
TEST(Collectives, NoMessageOfAnyCanBeChangedReplayedOrMoved) {
    constexpr int kRanks = 4;
    enum class Attack { flip, replay, exchange };
    int replays = 0;
    for (const Attack attack : {Attack::flip, Attack::replay, Attack::exchange}) {
        for (const Operation_& operation : operations()) {
            bool met = true;
            for (int victim = 0; met && victim < 40; ++victim) {
                fake::Options options;
                options.longest = std::chrono::milliseconds(300);
                Job job(kRanks, options);
                bool attacks = false;
                int number = 0;
                met = false;
                std::map<std::tuple<std::string, int, int>, Bytes> kept;  // of the call before
                bool struck = false;
                job.on_wire = [&](Message& message, std::vector<Message>&) {
                    if (message.bytes.empty()) return true;
                    Bytes& before = kept[{message.operation, message.source, message.to}];
                    if (!attacks) {
                        before = message.bytes;
                        return true;
                    }
                    if (number++ != victim) return true;
                    met = true;
                    if (attack == Attack::flip) message.bytes[message.bytes.size() / 2] ^= 4;
                    struck = attack != Attack::replay || before.size() == message.bytes.size();
                    if (attack == Attack::replay && struck) {
                        message.bytes = before;
                        ++replays;
                    }
                    if (attack == Attack::exchange)
                        std::fill(message.bytes.begin(), message.bytes.end(), std::uint8_t{0});
                    return true;
                };
                std::vector<Result_> results(kRanks);
                std::vector<int> ended(kRanks);
                const Ending ending = job.run([&](Rank& rank) {
                    Part part{rank, MPI_COMM_WORLD, rank.number, kRanks, 64};
                    attacks = false;
                    operation.run(part);
                    rank.mpi.Barrier(MPI_COMM_WORLD);
                    attacks = true;
                    results[static_cast<std::size_t>(rank.number)] = operation.run(part);
                    ended[static_cast<std::size_t>(rank.number)] = 1;
                });
                const std::string what = std::string(operation.name) + ", message " + std::to_string(victim) + "\n";
                EXPECT_TRUE(ending.complaints.empty() && ending.stuck.empty() && !ending.aborted)
                    << what << ending.told();
                bool failed = false;
                for (int i = 0; i < kRanks; ++i) {
                    const Result_& result = results[static_cast<std::size_t>(i)];
                    failed = failed || result.code != MPI_SUCCESS;
                    EXPECT_TRUE(result.right || result.code != MPI_SUCCESS) << what << "rank " << i << " was deceived";
                }
                EXPECT_TRUE(failed || !struck) << what << ending.told();
            }
        }
    }
    EXPECT_GT(replays, 0);
}

// protocol: M4
TEST(Collectives, NoPieceTakesThePlaceOfAnotherOfItsBlock) {
    const std::function<Result_(Part&)> in_pieces[] = {[](Part& p) { return bcast(p, 1); },
                                                       [](Part& p) { return reduce(p, 0, false); }};
    for (const auto& operation : in_pieces) {
        Job job(2);
        Message first;
        int pieces = 0;
        job.on_wire = [&](Message& message, std::vector<Message>& more) {
            if (message.source != 1 || message.bytes.size() < kOnlyWholePieces) return true;
            ++pieces;
            if (pieces == 1) first = message;
            if (pieces == 2) {
                // Pieces of Bcast are told apart by their calls of MPI's, those of a reduction by their order.
                if (message.is_collective()) std::swap(first.bytes, message.bytes);
                more.push_back(first);
            }
            return pieces != 1;
        };
        int code = MPI_SUCCESS;
        const Ending ending = job.run([&](Rank& rank) {
            Part part{rank, MPI_COMM_WORLD, rank.number, 2, kInPieces};
            const Result_ result = operation(part);
            if (rank.number != 0) return;
            code = result.code;
            EXPECT_TRUE(rank.layer.has_complained_of(code));
        });
        EXPECT_EQ(pieces, 4);
        EXPECT_NE(code, MPI_SUCCESS);
        EXPECT_NE(ending.said[0].find("replayed or moved"), std::string::npos) << ending.told();
        EXPECT_TRUE(ending.went_well()) << ending.told();
    }
}

/// Neither the pieces that were authentic nor what the buffer had before may look like the data: on the rank that found
/// it, and on the one of its node that was told.
TEST(Collectives, NothingStaysOfABcastWhoseThirdPieceDoesNotOpen) {
    fake::Options options;
    options.seals_all = false;
    options.nodes = {0, 1, 1};
    Job job(3, options);
    int pieces = 0;
    job.on_wire = [&](Message& message, std::vector<Message>&) {
        if (message.source != 0 || message.bytes.size() < kOnlyWholePieces) return true;
        if (++pieces == 3) message.bytes[message.bytes.size() / 2] ^= 4;
        return true;
    };
    const Ending ending = job.run([&](Rank& rank) {
        const Bytes sent = block(kInPieces, 0, 0);
        Bytes data = rank.number == 0 ? sent : Bytes(kInPieces, std::uint8_t{0x55});
        const int code = Bcast(rank.layer, data.data(), static_cast<MPI_Count>(kInPieces), MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank.number == 0) {
            EXPECT_EQ(code, MPI_SUCCESS);
            EXPECT_TRUE(data == sent);
        } else {
            EXPECT_TRUE(rank.layer.has_complained_of(code)) << code;
            EXPECT_TRUE(data == Bytes(kInPieces)) << "rank " << rank.number;
        }
    });
    EXPECT_EQ(pieces, 4);
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

// Reductions of elements that are none, or larger than their data.

void take_first(void*, void*, int*, MPI_Datatype*) {}

/// Whose error handler was called last on this rank.
thread_local MPI_Comm told = MPI_COMM_NULL;
void tell(MPI_Comm* comm, int*, ...) {
    told = *comm;
}

TEST(Collectives, ReductionsOfNoElementsTellTheirCommunicatorOfABadType) {
    fake::Options options;
    options.errors_return = false;
    Job job(2, options);
    const Ending ending = job.run([](Rank& rank) {
        Layer& layer = rank.layer;
        MPI_Comm comm = MPI_COMM_NULL;
        Comm_dup(layer, MPI_COMM_WORLD, &comm);
        MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
        rank.mpi.Comm_create_errhandler(tell, &handler);
        rank.mpi.Comm_set_errhandler(comm, handler);
        MPI_Op op = MPI_OP_NULL;
        rank.mpi.Op_create(take_first, 1, &op);
        MPI_Datatype uncommitted = MPI_DATATYPE_NULL;
        rank.mpi.Type_contiguous(2, MPI_INT, &uncommitted);
        int out[4] = {};
        int in[4] = {};
        for (MPI_Datatype const type : {MPI_DATATYPE_NULL, uncommitted}) {
            const std::function<int()> reductions[] = {
                [&] { return Allreduce(layer, out, in, 0, type, op, comm); },
                [&] { return Scan(layer, out, in, 0, type, op, comm); },
                [&] { return Exscan(layer, out, in, 0, type, op, comm); },
                [&] { return Reduce(layer, out, in, 0, type, op, 0, comm); },
                [&] { return Reduce_scatter_block(layer, out, in, 0, type, op, comm); },
            };
            for (const auto& reduction : reductions) {
                told = MPI_COMM_NULL;
                EXPECT_EQ(reduction(), MPI_ERR_TYPE);
                EXPECT_EQ(told, comm);
            }
        }
        rank.mpi.Type_free(&uncommitted);
        rank.mpi.Op_free(&op);
        EXPECT_EQ(Comm_free(layer, &comm), MPI_SUCCESS);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// A structure of which the type names one member only.
struct Padded {
    std::uint8_t before[24];
    int number;
    std::uint8_t after[36];
};

/// The fields that the type does not name are zeros wherever the layer made the element.
thread_local bool has_whole_elements = true;
void add_padded(void* from, void* to, int* count, MPI_Datatype*) {
    for (int i = 0; i < *count; ++i) {
        Padded one;
        Padded other;
        std::memcpy(&one, static_cast<Padded*>(from) + i, sizeof one);
        std::memcpy(&other, static_cast<Padded*>(to) + i, sizeof other);
        for (const Padded& each : {one, other}) {
            const auto is_zero = [](std::uint8_t byte) { return byte == 0; };
            has_whole_elements = has_whole_elements && std::all_of(each.before, std::end(each.before), is_zero) &&
                                 std::all_of(each.after, std::end(each.after), is_zero);
        }
        other.number += one.number;
        std::memcpy(static_cast<Padded*>(to) + i, &other, sizeof other);
    }
}

TEST(Collectives, OperationsMayCopyWholeElements) {
    Job job(4);
    const Ending ending = job.run([](Rank& rank) {
        {
            // Memory that the layer uses again is not zero by chance.
            engine::Buffer used[8];
            for (auto& one : used) {
                one = rank.layer.buffer(200);
                std::memset(one.data(), 0xA5, one.room());
            }
        }
        const int length = 1;
        const MPI_Aint place = offsetof(Padded, number);
        MPI_Datatype member = MPI_DATATYPE_NULL;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        rank.mpi.Type_create_hindexed(1, &length, &place, MPI_INT, &member);
        rank.mpi.Type_create_resized(member, 0, sizeof(Padded), &type);
        rank.mpi.Type_commit(&type);
        MPI_Op op = MPI_OP_NULL;
        rank.mpi.Op_create(add_padded, 0, &op);
        has_whole_elements = true;
        Padded out[2] = {};
        Padded in[2] = {};
        for (Padded& each : out) each.number = rank.number + 1;
        EXPECT_EQ(Allreduce(rank.layer, out, in, 2, type, op, MPI_COMM_WORLD), MPI_SUCCESS);
        EXPECT_EQ(in[0].number, 10);
        EXPECT_EQ(in[1].number, 10);
        EXPECT_TRUE(has_whole_elements);
        rank.mpi.Op_free(&op);
        rank.mpi.Type_free(&type);
        rank.mpi.Type_free(&member);
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

// A function of the program's that deletes an attribute uses the communicator that is freed.

int use_once_more(MPI_Comm comm, int, void*, void* state) {
    const int mine = 1;
    int sum = 0;
    EXPECT_EQ(Allreduce(*static_cast<Layer*>(state), &mine, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
    EXPECT_EQ(sum, 4);
    return MPI_SUCCESS;
}

std::vector<std::size_t> communicators_after_freeing(int times) {
    fake::Options options;
    options.thread_level = MPI_THREAD_MULTIPLE;
    options.seals_all = false;
    options.nodes = {0, 0, 1, 1};
    Job job(4, options);
    const Ending ending = job.run([&](Rank& rank) {
        int key = MPI_KEYVAL_INVALID;
        rank.mpi.Comm_create_keyval(nullptr, use_once_more, &key, &rank.layer);
        for (int i = 0; i < times; ++i) {
            MPI_Comm made = MPI_COMM_NULL;
            EXPECT_EQ(Comm_dup(rank.layer, MPI_COMM_WORLD, &made), MPI_SUCCESS);
            rank.mpi.Comm_set_attr(made, key, nullptr);
            EXPECT_EQ(Comm_free(rank.layer, &made), MPI_SUCCESS);
        }
    });
    EXPECT_TRUE(ending.went_well()) << ending.told();
    return ending.communicators;
}

TEST(Collectives, NothingStaysOfACommunicatorThatIsUsedWhileItIsFreed) {
    EXPECT_EQ(communicators_after_freeing(5), communicators_after_freeing(1));
}

}  // namespace
}  // namespace cryptmpi::comm
