// The tables of operations that our objects show, one for each of libfabric's. A caller that knows more operations than
// we do finds them cut off by the table's size; one that does not look at the size, as newer inline functions do not,
// meets a refusing one.
#pragma once

#include <rdma/fabric.h>

namespace cryptmpi::fabric::libfabric {

/// Of fi_ops, fi_ops_fabric, fi_ops_domain, fi_ops_mr, fi_ops_av, fi_ops_cq, fi_ops_cntr, fi_ops_ep, fi_ops_cm,
/// fi_ops_msg, fi_ops_tagged, fi_ops_rma, fi_ops_atomic, fi_ops_collective.
template <class Operations>
Operations* table();

}  // namespace cryptmpi::fabric::libfabric
