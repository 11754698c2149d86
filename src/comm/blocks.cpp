#include "comm/blocks.hpp"

#include <algorithm>

namespace cryptmpi::comm {

using seal::kMessageOverhead;

std::size_t largest_together(const Communicator& communicator) {
    return static_cast<std::size_t>(INT_MAX / communicator.size());
}
bool goes_alone(const Communicator& communicator, const UserBuffer& block) {
    return block.size() + kMessageOverhead > largest_together(communicator);
}

WireLayout::WireLayout(const std::vector<UserBuffer>& blocks, std::size_t most) {
    for (const UserBuffer& block : blocks) {
        const std::size_t whole = block.size() + kMessageOverhead;
        const std::size_t size = whole > most ? 0 : whole;
        sizes_.push_back(static_cast<int>(size));
        places_.push_back(static_cast<int>(total_));
        total_ += size;
    }
}

std::vector<Block> blocks_of_others(int me, const std::vector<UserBuffer>& blocks, std::uint8_t* wires,
                                    const WireLayout& layout) {
    std::vector<Block> others;
    for (int i = 0; i < static_cast<int>(blocks.size()); ++i) {
        if (i == me || layout.sizes()[i] == 0) continue;
        others.push_back({i, wires + layout.place(i), &blocks[static_cast<std::size_t>(i)]});
    }
    return others;
}

Blocks alone_of_root(const Communicator& communicator, const std::vector<UserBuffer>& blocks) {
    Blocks alone;
    for (const UserBuffer& block : blocks) alone.push_back(goes_alone(communicator, block) ? &block : nullptr);
    return alone;
}

Blocks alone_with_root(const Communicator& communicator, const UserBuffer& block, int root) {
    Blocks alone(static_cast<std::size_t>(communicator.size()), nullptr);
    alone[static_cast<std::size_t>(root)] = &block;
    return alone;
}

Blocks no_blocks(const Communicator& communicator) {
    return Blocks(static_cast<std::size_t>(communicator.size()), nullptr);
}

bool has_any(const Blocks& blocks) {
    return std::any_of(blocks.begin(), blocks.end(), [](const UserBuffer* block) { return block != nullptr; });
}

int make_own(Layer& layer, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type, bool may_be_in_place,
             UserBuffer& own) {
    if (at != MPI_IN_PLACE) return make_buffer(layer, comm, at, count, type, false, own);
    return may_be_in_place ? MPI_SUCCESS : refuse_in_place(layer, comm);
}

int make_equal_blocks(Layer& layer, MPI_Comm comm, int ranks, void* at, MPI_Count count, MPI_Datatype type,
                      std::vector<UserBuffer>& blocks) {
    Shape shape;
    if (const int code = layer.types().find(type, comm, shape); code != MPI_SUCCESS) return code;
    const MPI_Aint step = shape.extent * static_cast<MPI_Aint>(count);
    return make_blocks(
        layer, comm, ranks, at, [&](int) { return count; }, [&](int i) { return i * step; }, [&](int) { return type; },
        blocks);
}

}  // namespace cryptmpi::comm
