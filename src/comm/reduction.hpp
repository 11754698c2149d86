// What all reductions have in common (reduce.cpp, allreduce.cpp, reduce_scatter.cpp, scan.cpp).
//
// Reductions cannot run on ciphertext: sealed partial results travel between ranks (partials.hpp), and each combines
// what it opened. Partial results are combined in the order of ranks, so that operations that do not commute give what
// MPI promises. Of operations that do, what the ranks of one node have is summed up first, by MPI and in clear; only
// scans go from rank to rank.
#pragma once

#include <mpi.h>

#include "comm/arguments.hpp"
#include "comm/blocks.hpp"
#include "comm/collective.hpp"
#include "comm/meeting.hpp"
#include "comm/partials.hpp"
#include "engine/buffer_pool.hpp"

#define CRYPTMPI_TRY(expression) \
    if (const int code_ = (expression); code_ != MPI_SUCCESS) return code_

namespace cryptmpi::comm {

/// `count` elements of a datatype in memory of ours, laid out as the datatype says.
class Vector {
public:
    static int make(Layer& layer, MPI_Count count, MPI_Datatype type, Vector& out);
    const UserBuffer& view() const { return view_; }

private:
    engine::Buffer memory_;
    UserBuffer view_;
};

/// What a reduction is asked to do: each rank's contribution is `own`, in the user's memory at `from`.
struct Reduction {
    Layer& layer;
    Communicator& communicator;
    const Operator& op;
    const UserBuffer& own;
    const void* from;

    const Nodes& nodes() const { return nodes_of(layer, communicator); }
    bool commutes() const;
    /// Of this node's contributions, `result` of the rank `to` gets the sum, as of all operations here.
    int on_node(int to, const UserBuffer& result) const;
};

/// The arguments of a reduction as buffers: what this rank puts in, and where the result goes.
struct ReductionArguments {
    UserBuffer own;
    UserBuffer in;
    const void* from = nullptr;  // where `own` is, as the user said it
};

/// Looked at before anything is sent; what is wrong has been raised on `comm`. `ask` calls MPI's own.
int make_arguments(const Operator& op, MPI_Comm comm, const void* out, void* in, bool has_result, Question ask,
                   ReductionArguments& arguments);

}  // namespace cryptmpi::comm
