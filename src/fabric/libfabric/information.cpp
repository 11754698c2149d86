#include "fabric/libfabric/information.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "fabric/flows.hpp"
#include "fabric/libfabric/remote.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

constexpr std::uint64_t kUsableModes = FI_CONTEXT | FI_CONTEXT2 | FI_ASYNC_IOV | FI_RX_CQ_DATA | FI_LOCAL_MR;
// That of messages among each other, the only one that can be promised.
constexpr std::uint64_t kOrder = FI_ORDER_SAS;
// Of atomics alone, which are not shown, whatever their order.
constexpr std::uint64_t kOrderOfAtomics =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;

/// Of an info, and of its halves.
std::array<std::uint64_t*, 3> capabilities_of(fi_info& info) {
    return {&info.caps, info.tx_attr != nullptr ? &info.tx_attr->caps : nullptr,
            info.rx_attr != nullptr ? &info.rx_attr->caps : nullptr};
}

void limit_capabilities(fi_info& info) {
    for (std::uint64_t* const capabilities : capabilities_of(info)) {
        if (capabilities != nullptr) *capabilities &= kShownCapabilities;
    }
}

/// The peers do it, by tagged messages and as they make progress; nothing of it is ordered, and no send waits for it.
void show_memory(fi_info& answer) {
    answer.caps |= kMemoryCapabilities;
    answer.caps &= ~FI_FENCE;
    answer.tx_attr->caps |= FI_RMA | FI_READ | FI_WRITE;
    answer.tx_attr->caps &= ~FI_FENCE;
    answer.tx_attr->rma_iov_limit = 1;
    answer.rx_attr->caps |= FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE;
    answer.ep_attr->max_order_raw_size = answer.ep_attr->max_order_war_size = answer.ep_attr->max_order_waw_size = 0;
    answer.domain_attr->mr_key_size = sizeof(std::uint64_t);
    answer.domain_attr->data_progress = FI_PROGRESS_MANUAL;
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

MemoryWish memory_wish(const fi_info* hints) {
    if (hints == nullptr) return MemoryWish::can_be_kept;
    const bool must_have = (hints->caps & FI_RMA) != 0;
    if (!must_have && hints->caps != 0) return MemoryWish::none;
    const bool fenced = (hints->caps & FI_FENCE) != 0;
    const bool ordered = hints->tx_attr != nullptr && (hints->tx_attr->msg_order & ~(kOrder | kOrderOfAtomics)) != 0;
    const bool in_background = hints->domain_attr != nullptr && hints->domain_attr->data_progress == FI_PROGRESS_AUTO;
    if (!fenced && !ordered && !in_background) return MemoryWish::can_be_kept;
    return must_have ? MemoryWish::cannot_be_kept : MemoryWish::none;
}

bool can_serve_memory(const fi_info& shown) {
    return (shown.caps & FI_TAGGED) != 0 && shown.ep_attr->max_msg_size > kNoteSize;
}

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

void adapt_answer(fi_info& answer, bool with_memory) {
    limit_capabilities(answer);
    answer.tx_attr->msg_order &= kOrder;
    answer.rx_attr->msg_order &= kOrder;
    forget_objects(answer);
    answer.ep_attr->max_msg_size -= kOverhead;
    answer.tx_attr->inject_size -= std::min(answer.tx_attr->inject_size, kOverhead);
    answer.domain_attr->max_ep_tx_ctx = std::min<std::size_t>(answer.domain_attr->max_ep_tx_ctx, 1);
    answer.domain_attr->max_ep_rx_ctx = std::min<std::size_t>(answer.domain_attr->max_ep_rx_ctx, 1);
    answer.domain_attr->max_ep_stx_ctx = 0;
    answer.domain_attr->max_ep_srx_ctx = 0;
    if (with_memory && can_serve_memory(answer)) show_memory(answer);
}

namespace {

/// Of a message that only waits, some providers tell no immediate data (rxm of 1.17, rxd of 2.5), or nobody has seen.
bool tells_data_of_what_waits(const char* provider) {
    return provider != nullptr && std::string_view(provider) == "tcp";
}

}  // namespace

bool keep_data_for_lengths(fi_info& answer, const fi_info* hints) {
    const bool wants_more =
        hints != nullptr && hints->domain_attr != nullptr && hints->domain_attr->cq_data_size > kShownDataSize;
    if (wants_more || !tells_data_of_what_waits(answer.fabric_attr->prov_name) || !can_serve_memory(answer) ||
        answer.domain_attr->cq_data_size < sizeof(std::uint64_t))
        return false;
    answer.domain_attr->cq_data_size = kShownDataSize;
    return true;
}

AsGiven::AsGiven(fi_info& shown) : info_(shown) {
    const auto places = capabilities_of(info_);
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i] == nullptr) continue;
        capabilities_[i] = *places[i];
        *places[i] &= kShownCapabilities;
    }
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
    const auto places = capabilities_of(info_);
    for (std::size_t i = 0; i < places.size(); ++i) {
        if (places[i] != nullptr) *places[i] = capabilities_[i];
    }
    if (info_.ep_attr != nullptr) info_.ep_attr->max_msg_size = message_;
    if (info_.tx_attr != nullptr) info_.tx_attr->inject_size = inject_;
}

}  // namespace cryptmpi::fabric::libfabric
