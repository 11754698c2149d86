#include "comm/members.hpp"

#include <algorithm>
#include <numeric>

#include "comm/collective.hpp"
#include "comm/layer.hpp"

namespace cryptmpi::comm {

std::vector<int> world_ranks(const interpose::Native& mpi, MPI_Group group) {
    MPI_Group world = MPI_GROUP_NULL;
    mpi.Comm_group(MPI_COMM_WORLD, &world);
    int size = 0;
    mpi.Group_size(group, &size);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<int> result(ranks.size());
    mpi.Group_translate_ranks(group, size, ranks.data(), world, result.data());
    mpi.Group_free(&world);
    return result;
}

std::vector<int> world_ranks_of(const interpose::Native& mpi, MPI_Comm comm) {
    MPI_Group group = MPI_GROUP_NULL;
    mpi.Comm_group(comm, &group);
    auto result = world_ranks(mpi, group);
    mpi.Group_free(&group);
    return result;
}

void end_for_other_members(Layer& layer, const std::string& by_what) {
    layer.end_job("the communicator that " + by_what +
                  " made has other members, or another order of them, than was asked for: MPI's own messages, by "
                  "which its ranks agree on that, were altered on their way");
}

// protocol: M16
void require_members(Layer& layer, MPI_Comm made, const std::vector<int>& expected, const std::string& by_what) {
    if (made == MPI_COMM_NULL) layer.end_job("MPI did not make a communicator that " + by_what + " has to have");
    if (world_ranks_of(layer.mpi, made) != expected) end_for_other_members(layer, by_what);
}

namespace {

/// Sealed blocks between two members, outside of any operation of the program's. What fails ends the job.
class Exchanged {
public:
    Exchanged(Layer& layer, Communicator& communicator, const char* about)
        : call_(begin_call(layer, communicator, CollectiveKind::construction)), about_(about) {}

    int rank() const { return call_.communicator.rank(); }
    int ranks() const { return call_.communicator.size(); }

    void send(int to, std::span<const std::uint8_t> bytes) {
        const auto wire = call_.layer.buffer(bytes.size() + seal::kMessageOverhead);
        check(to, [&] {
            return call_.communicator.seal_for(to, call_.lane, call_.number, bytes.data(), bytes.size(), wire.data());
        });
        const auto address = call_.communicator.address(call_.layer.mpi, to);
        check(to, call_.layer.mpi.Send(wire.data(), static_cast<int>(wire.size()), MPI_BYTE, address.rank, address.tag,
                                       address.comm));
    }

    void receive(int from, std::span<std::uint8_t> bytes) {
        const auto wire = call_.layer.buffer(bytes.size() + seal::kMessageOverhead);
        const auto address = call_.communicator.address(call_.layer.mpi, from);
        check(from, call_.layer.mpi.Recv(wire.data(), static_cast<int>(wire.size()), MPI_BYTE, address.rank,
                                         address.tag, address.comm, MPI_STATUS_IGNORE));
        check(from, [&] {
            return call_.communicator.open_from(from, call_.lane, call_.number, wire.data(), wire.size(), bytes.data());
        });
    }

private:
    template <class Work>
    void check(int peer, Work work) {
        const auto done = [&] {
            const auto guard = call_.layer.guard();
            return work();
        }();
        if (!done) end(peer, done.error().line);
    }
    void check(int peer, int code) {
        if (code != MPI_SUCCESS) end(peer, "was lost by MPI");
    }
    [[noreturn]] void end(int peer, const std::string& why) {
        call_.layer.rank_report().count_failed_open();
        call_.layer.end_job("what rank " + std::to_string(peer) + " of a communicator " + about_ + " " + why);
    }

    Call call_;
    const char* about_;
};

class Telling {
public:
    Telling(Layer& layer, Communicator& communicator, std::span<const std::uint8_t> mine)
        : with_(layer, communicator, "says of another one that is being made of it"),
          each_(mine.size()),
          all_(each_ * static_cast<std::size_t>(communicator.size())) {
        std::copy(mine.begin(), mine.end(), of(communicator.rank(), 1).begin());
    }

    std::vector<std::uint8_t> run() {
        const int me = with_.rank();
        const int size = with_.ranks();
        int step = 1;
        for (; step < size && (me & step) == 0; step <<= 1) {
            if (me + step < size) with_.receive(me + step, of(me + step, std::min(step, size - me - step)));
        }
        if (me != 0) {
            with_.send(me - step, of(me, std::min(step, size - me)));
            with_.receive(me - step, all_);
        }
        while ((step >>= 1) != 0) {
            if (me + step < size) with_.send(me + step, all_);
        }
        return std::move(all_);
    }

private:
    /// What the ranks from `first` on have.
    std::span<std::uint8_t> of(int first, int ranks) {
        return std::span(all_).subspan(each_ * static_cast<std::size_t>(first),
                                       each_ * static_cast<std::size_t>(ranks));
    }

    Exchanged with_;
    std::size_t each_;
    std::vector<std::uint8_t> all_;
};

}  // namespace

std::vector<std::uint8_t> tell_all(Layer& layer, Communicator& communicator, std::span<const std::uint8_t> mine) {
    return Telling(layer, communicator, mine).run();
}

void hand_down(Layer& layer, Communicator& communicator, std::span<std::uint8_t> bytes) {
    Exchanged with(layer, communicator, "tells of the secret of what is sealed for all");
    const int me = with.rank();
    int step = 1;
    while (step < with.ranks() && (me & step) == 0) step <<= 1;
    if (me != 0) with.receive(me - step, bytes);
    while ((step >>= 1) != 0) {
        if (me + step < with.ranks()) with.send(me + step, bytes);
    }
}

}  // namespace cryptmpi::comm
