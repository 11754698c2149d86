#include "comm/meeting.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/secret.hpp"
#include "comm/lanes.hpp"

namespace cryptmpi::comm {
namespace {

/// Sealed blocks between two members, outside of any operation of the program's. What fails ends the job.
class Exchanged {
public:
    Exchanged(Layer& layer, Communicator& communicator, const char* about)
        : layer_(layer), communicator_(communicator), number_(communicator.next_call()), about_(about) {}

    int rank() const { return communicator_.rank(); }
    int ranks() const { return communicator_.size(); }

    void send(int to, std::span<const std::uint8_t> bytes) {
        const auto wire = layer_.buffer(bytes.size() + seal::kMessageOverhead);
        check(to, [&] { return communicator_.seal_for(to, lane_, number_, bytes.data(), bytes.size(), wire.data()); });
        const auto address = communicator_.address(layer_.mpi, to);
        check(to, layer_.mpi.Send(wire.data(), static_cast<int>(wire.size()), MPI_BYTE, address.rank, address.tag,
                                  address.comm));
    }

    void receive(int from, std::span<std::uint8_t> bytes) {
        const auto wire = layer_.buffer(bytes.size() + seal::kMessageOverhead);
        const auto address = communicator_.address(layer_.mpi, from);
        check(from, layer_.mpi.Recv(wire.data(), static_cast<int>(wire.size()), MPI_BYTE, address.rank, address.tag,
                                    address.comm, MPI_STATUS_IGNORE));
        check(from,
              [&] { return communicator_.open_from(from, lane_, number_, wire.data(), wire.size(), bytes.data()); });
    }

private:
    template <class Work>
    void check(int peer, Work work) {
        const auto done = [&] {
            const auto guard = layer_.guard();
            return work();
        }();
        if (!done) end(peer, done.error().line);
    }
    void check(int peer, int code) {
        if (code != MPI_SUCCESS) end(peer, "was lost by MPI");
    }
    [[noreturn]] void end(int peer, const std::string& why) {
        layer_.rank_report().count_failed_open();
        layer_.end_job(fmt::format("what rank {} of a communicator {} {}", peer, about_, why));
    }

    Layer& layer_;
    Communicator& communicator_;
    const std::uint32_t lane_ = lane_of(CollectiveKind::construction, 0);
    const std::uint64_t number_;
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

/// What rank 0 has in `bytes` comes to those of all others, down the same tree, in the same way.
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

// protocol: M10
/// By the member of lowest rank, down the tree of the members.
void share_group_secret(Layer& layer, Communicator& communicator) {
    Secret<32> drawn;
    const auto& kex = *layer.keys().crypto().kex;
    if (communicator.rank() == 0 && kex.random(drawn.data(), drawn.size()) != CRYPTMPI_OK) {
        layer.end_job("the crypto module's random generator failed");
    }
    hand_down(layer, communicator, drawn.bytes);
    if (auto done = communicator.take_group_secret(drawn); !done) layer.end_job(done.error().line);
}

}  // namespace

std::vector<std::uint8_t> tell_all(Layer& layer, Communicator& communicator, std::span<const std::uint8_t> mine) {
    return Telling(layer, communicator, mine).run();
}

const Nodes& nodes_of(Layer& layer, Communicator& communicator) {
    if (communicator.nodes() == nullptr) {
        // While all members are here.
        communicator.make_nodes(layer.mpi);
        if (communicator.lacks_group_secret()) share_group_secret(layer, communicator);
    }
    return *communicator.nodes();
}

}  // namespace cryptmpi::comm
