// The tables of operations that our objects show, one for each of libfabric's. A caller that knows more operations than
// we do finds them cut off by the table's size; one that does not look at the size, as newer inline functions do not,
// meets a refusing one.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

namespace cryptmpi::fabric::libfabric {

/// Of fi_ops, fi_ops_fabric, fi_ops_domain, fi_ops_mr, fi_ops_av, fi_ops_cq, fi_ops_cntr, fi_ops_ep, fi_ops_cm,
/// fi_ops_msg, fi_ops_tagged, fi_ops_rma, fi_ops_atomic, fi_ops_collective.
template <class Operations>
Operations* table();

// Defined by the generator, beside the functions (calls_*.cpp).
template <>
fi_ops* table<fi_ops>();
template <>
fi_ops_fabric* table<fi_ops_fabric>();
template <>
fi_ops_av* table<fi_ops_av>();
template <>
fi_ops_domain* table<fi_ops_domain>();
template <>
fi_ops_mr* table<fi_ops_mr>();
template <>
fi_ops_cq* table<fi_ops_cq>();
template <>
fi_ops_cntr* table<fi_ops_cntr>();
template <>
fi_ops_ep* table<fi_ops_ep>();
template <>
fi_ops_msg* table<fi_ops_msg>();
template <>
fi_ops_cm* table<fi_ops_cm>();
template <>
fi_ops_tagged* table<fi_ops_tagged>();
template <>
fi_ops_rma* table<fi_ops_rma>();
template <>
fi_ops_atomic* table<fi_ops_atomic>();
template <>
fi_ops_collective* table<fi_ops_collective>();

}  // namespace cryptmpi::fabric::libfabric
