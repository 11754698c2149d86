#include "fabric/libfabric/information.hpp"

#include <algorithm>
#include <cstdint>

#include "fabric/flows.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

constexpr std::uint64_t kUsableModes = FI_CONTEXT | FI_CONTEXT2 | FI_ASYNC_IOV | FI_RX_CQ_DATA | FI_LOCAL_MR;

void limit_capabilities(fi_info& info) {
    info.caps &= kShownCapabilities;
    if (info.tx_attr != nullptr) info.tx_attr->caps &= kShownCapabilities;
    if (info.rx_attr != nullptr) info.rx_attr->caps &= kShownCapabilities;
}

void forget_objects(fi_info& info) {
    info.handle = nullptr;
    if (info.fabric_attr != nullptr) info.fabric_attr->fabric = nullptr;
    if (info.domain_attr != nullptr) info.domain_attr->domain = nullptr;
}

void add(std::size_t& size) {
    if (size != 0 && size <= SIZE_MAX - kOverhead) size += kOverhead;
}

}  // namespace

void adapt_hints(fi_info& hints) {
    limit_capabilities(hints);
    forget_objects(hints);
    if (hints.ep_attr != nullptr) add(hints.ep_attr->max_msg_size);
    if (hints.tx_attr != nullptr) add(hints.tx_attr->inject_size);
}

const char* unusable(const fi_info& answer) {
    if (answer.ep_attr == nullptr || answer.tx_attr == nullptr || answer.rx_attr == nullptr)
        return "it says too little";
    if (answer.domain_attr == nullptr || answer.fabric_attr == nullptr) return "it says too little";
    if (answer.ep_attr->type != FI_EP_RDM) return "it is no FI_EP_RDM: messages get lost, or need connections";
    if ((answer.mode & ~kUsableModes) != 0) return "it asks for a mode such as FI_MSG_PREFIX";
    if (answer.addr_format == FI_ADDR_STR) return "its names have no fixed length (FI_ADDR_STR)";
    if (answer.ep_attr->max_msg_size <= kOverhead) return "its messages are too small";
    return nullptr;
}

void adapt_answer(fi_info& answer) {
    limit_capabilities(answer);
    forget_objects(answer);
    answer.ep_attr->max_msg_size -= kOverhead;
    answer.tx_attr->inject_size -= std::min(answer.tx_attr->inject_size, kOverhead);
    answer.domain_attr->max_ep_tx_ctx = std::min<std::size_t>(answer.domain_attr->max_ep_tx_ctx, 1);
    answer.domain_attr->max_ep_rx_ctx = std::min<std::size_t>(answer.domain_attr->max_ep_rx_ctx, 1);
    answer.domain_attr->max_ep_stx_ctx = 0;
    answer.domain_attr->max_ep_srx_ctx = 0;
}

AsGiven::AsGiven(fi_info& shown) : info_(shown) {
    if (info_.ep_attr != nullptr) {
        message_ = info_.ep_attr->max_msg_size;
        add(info_.ep_attr->max_msg_size);
    }
    if (info_.tx_attr != nullptr) {
        inject_ = info_.tx_attr->inject_size;
        add(info_.tx_attr->inject_size);
    }
}

AsGiven::~AsGiven() {
    if (info_.ep_attr != nullptr) info_.ep_attr->max_msg_size = message_;
    if (info_.tx_attr != nullptr) info_.tx_attr->inject_size = inject_;
}

}  // namespace cryptmpi::fabric::libfabric
