// How the program gets our objects, binds them, waits for them and closes them.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fabric/libfabric/information.hpp"
#include "fabric/libfabric/table_making.hpp"
#include "fabric/opening.hpp"

namespace cryptmpi::fabric::libfabric {

Surroundings* surroundings = nullptr;

namespace {

/// The provider's object behind any of ours that can be bound or waited for; nullptr: not ours.
fid* real_behind(fid* object) {
    if (object == nullptr || !is_ours(object)) return nullptr;
    switch (object->fclass) {
        case FI_CLASS_FABRIC:
            return &real_of(as<fid_fabric>(object))->fid;
        case FI_CLASS_DOMAIN:
            return &real_of(as<fid_domain>(object))->fid;
        case FI_CLASS_EP:
            return &real_of(as<fid_ep>(object))->fid;
        case FI_CLASS_AV:
            return &real_of(as<fid_av>(object))->fid;
        case FI_CLASS_CQ:
            return &real_of(as<fid_cq>(object))->fid;
        case FI_CLASS_CNTR:
            return &real_of(as<fid_cntr>(object))->fid;
        default:
            return nullptr;
    }
}

namespace on_fi_ops {

void forget(Counter& counter) {
    const std::lock_guard hold(counter.domain->lock);
    for (const auto& counted : counter.counted) std::erase(counted.endpoint->counters, &counter);
}

/// The provider gets no counter to bind: it would count what is not opened, and what is ours.
int bind_counter(Endpoint& endpoint, Counter& counter, std::uint64_t flags) {
    constexpr std::uint64_t kCounted = FI_SEND | FI_READ | FI_WRITE;
    if ((flags & ~kCounted) != 0) {
        surroundings->refuse("fi_ep_bind of a counter for other than FI_SEND, FI_READ, FI_WRITE",
                             "what peers do, and what is not opened yet, is not counted");
        return -FI_EOPNOTSUPP;
    }
    const std::lock_guard hold(endpoint.domain->lock);
    counter.counted.push_back({&endpoint, flags});
    if (std::find(endpoint.counters.begin(), endpoint.counters.end(), &counter) == endpoint.counters.end()) {
        endpoint.counters.push_back(&counter);
    }
    return 0;
}

/// Memory of the program, which the provider never had.
void close_region(Region* region) {
    if (region->domain != nullptr) {
        const std::lock_guard hold(region->domain->lock);
        region->domain->shown_regions.erase(region->key);
    }
    delete region;
}

void delete_domain(Domain& domain) {
    for (const auto& [key, region] : domain.shown_regions) region->domain = nullptr;
    delete &domain;
}

void delete_endpoint(Endpoint& endpoint) {
    {
        const std::lock_guard hold(endpoint.domain->lock);
        endpoint.leave();
    }
    delete &endpoint;
}

void delete_counter(Counter& counter) {
    forget(counter);
    delete &counter;
}

/// Of an object whose provider's object is closed.
void delete_ours(fid* object) {
    switch (object->fclass) {
        case FI_CLASS_FABRIC:
            delete &mine<Fabric>(as<fid_fabric>(object));
            break;
        case FI_CLASS_DOMAIN:
            delete_domain(mine<Domain>(as<fid_domain>(object)));
            break;
        case FI_CLASS_EP:
            delete_endpoint(mine<Endpoint>(as<fid_ep>(object)));
            break;
        case FI_CLASS_AV:
            delete &mine<AddressVector>(as<fid_av>(object));
            break;
        case FI_CLASS_CQ:
            delete &mine<Queue>(as<fid_cq>(object));
            break;
        default:
            delete_counter(mine<Counter>(as<fid_cntr>(object)));
    }
}

int close(fid* object) {
    if (object->fclass == FI_CLASS_MR) {
        close_region(static_cast<Region*>(as<fid_mr>(object)));
        return 0;
    }
    fid* const real = real_behind(object);
    if (real == nullptr) return -FI_EINVAL;
    if (object->fclass == FI_CLASS_EP) {
        auto& endpoint = mine<Endpoint>(as<fid_ep>(object));
        std::unique_lock hold(endpoint.domain->lock);
        endpoint.close(hold);
    }
    if (object->fclass == FI_CLASS_DOMAIN) mine<Domain>(as<fid_domain>(object)).close_regions();
    const int code = real->ops->close(real);
    if (code == 0) delete_ours(object);
    return code;
}

int bind(fid* object, fid* other, std::uint64_t flags) {
    if (object->fclass == FI_CLASS_MR) return 0;
    fid* const real = real_behind(object);
    fid* const real_other = real_behind(other);
    if (real == nullptr || real_other == nullptr || object->fclass != FI_CLASS_EP) return -FI_EINVAL;
    auto& endpoint = mine<Endpoint>(as<fid_ep>(object));
    if (other->fclass == FI_CLASS_CNTR) return bind_counter(endpoint, mine<Counter>(as<fid_cntr>(other)), flags);
    const int code = real->ops->bind(real, real_other, flags);
    if (code != 0) return code;
    const std::lock_guard hold(endpoint.domain->lock);
    if (other->fclass == FI_CLASS_AV) endpoint.addresses = &mine<AddressVector>(as<fid_av>(other));
    if (other->fclass != FI_CLASS_CQ) return 0;
    auto& queue = mine<Queue>(as<fid_cq>(other));
    if (std::find(queue.endpoints.begin(), queue.endpoints.end(), &endpoint) == queue.endpoints.end()) {
        queue.endpoints.push_back(&endpoint);
    }
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    if ((flags & FI_SEND) != 0) {
        endpoint.sent = &queue;
        endpoint.selective_sends = selective;
    }
    if ((flags & FI_RECV) != 0) {
        endpoint.received = &queue;
        endpoint.selective_receives = selective;
    }
    return 0;
}

/// The flags of calls that have none of their own, in the provider and here.
int set_flags(Endpoint& endpoint, const std::uint64_t* flags) {
    const int code =
        endpoint.real->fid.ops->control(&endpoint.real->fid, FI_SETOPSFLAG, const_cast<std::uint64_t*>(flags));
    if (code != 0) return code;
    if ((*flags & FI_TRANSMIT) != 0) endpoint.send_flags = *flags & ~FI_TRANSMIT;
    if ((*flags & FI_RECV) != 0) endpoint.receive_flags = *flags & ~FI_RECV;
    return 0;
}

int enable(Endpoint& endpoint) {
    const Opening opening;
    const int code = endpoint.real->fid.ops->control(&endpoint.real->fid, FI_ENABLE, nullptr);
    if (code != 0) return code;
    const std::lock_guard hold(endpoint.domain->lock);
    endpoint.listen();
    return 0;
}

int control(fid* object, int command, void* argument) {
    if (object->fclass == FI_CLASS_MR) return command == FI_ENABLE ? 0 : -FI_ENOSYS;
    fid* const real = real_behind(object);
    if (real == nullptr) return -FI_EINVAL;
    if (object->fclass == FI_CLASS_EP) {
        auto& endpoint = mine<Endpoint>(as<fid_ep>(object));
        if (command == FI_SETOPSFLAG) return set_flags(endpoint, static_cast<const std::uint64_t*>(argument));
        if (command == FI_ENABLE && (endpoint.sent == nullptr || endpoint.received == nullptr)) {
            surroundings->refuse("fi_enable of an endpoint without completion queues for both directions",
                                 "messages are opened when they complete");
            return -FI_ENOCQ;
        }
        if (command == FI_ENABLE) return enable(endpoint);
    }
    switch (command) {
        case FI_GETWAIT:
        case FI_GETOPSFLAG:
        case FI_GETFIDFLAG:
        case FI_GETWAITOBJ:
            return real->ops->control(real, command, argument);
        default:
            surroundings->refuse(fmt::format("fi_control {}", command),
                                 "what it does is not known to keep messages sealed");
            return -FI_ENOSYS;
    }
}

int tostr(const fid*, char*, std::size_t) {
    return -FI_ENOSYS;
}

}  // namespace on_fi_ops

namespace on_fi_ops_fabric {

int domain(fid_fabric* shown, fi_info* info, fid_domain** made, void* context) {
    auto& fabric = mine<Fabric>(shown);
    fid_domain* real = nullptr;
    {
        const AsGiven given(*info);
        const Opening opening;
        const int code = fabric.real->ops->domain(fabric.real, info, &real, context);
        if (code != 0) return code;
    }
    auto* const domain = new Domain;
    domain->real = real;
    domain->fabric = &fabric;
    domain->ops = table<fi_ops_domain>();
    domain->mr = table<fi_ops_mr>();
    show_base(domain->fid, real->fid, context);
    if (info->domain_attr != nullptr) {
        domain->tells_lengths = fabric.keeps_data && info->domain_attr->cq_data_size <= kShownDataSize;
        domain->data_size = domain->tells_lengths ? 8 : std::min<std::size_t>(info->domain_attr->cq_data_size, 8);
        const auto mode = static_cast<unsigned>(info->domain_attr->mr_mode);
        domain->registers_local = (mode & FI_MR_LOCAL) != 0;
        domain->makes_keys = (mode & (FI_MR_PROV_KEY | FI_MR_BASIC)) != 0;
        domain->names_by_address = (mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC)) != 0;
    }
    if ((info->mode & FI_LOCAL_MR) != 0) domain->registers_local = true;
    domain->pool.share();
    domain->wires.share();
    *made = domain;
    return 0;
}

int domain2(fid_fabric* shown, fi_info* info, fid_domain** made, std::uint64_t flags, void* context) {
    if (flags == 0) return domain(shown, info, made, context);
    surroundings->refuse("fi_domain2 with flags", "a domain of peers is not sealed");
    return -FI_ENOSYS;
}

/// May something wait here, or be owed, of which the provider's descriptor will never tell? Who waits then reads first.
bool has_news(fid* object) {
    // The provider counts nothing: no descriptor of its tells of a counter.
    if (object->fclass == FI_CLASS_CNTR) return true;
    if (object->fclass != FI_CLASS_CQ) return false;
    auto& queue = mine<Queue>(as<fid_cq>(object));
    const std::lock_guard hold(queue.domain->lock);
    return !queue.ready.empty() || !queue.failed.empty() ||
           std::any_of(queue.endpoints.begin(), queue.endpoints.end(),
                       [](const Endpoint* endpoint) { return endpoint->owes() || endpoint->waits_at_both(); });
}

int trywait(fid_fabric* shown, fid** objects, int count) {
    auto& fabric = mine<Fabric>(shown);
    std::vector<fid*> real;
    real.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) real.push_back(real_behind(objects[i]));
    if (std::find(real.begin(), real.end(), nullptr) != real.end()) return -FI_EINVAL;
    if (std::any_of(objects, objects + count, has_news)) return -FI_EAGAIN;
    return fabric.real->ops->trywait(fabric.real, real.data(), count);
}

}  // namespace on_fi_ops_fabric

namespace on_fi_ops_domain {

int av_open(fid_domain* shown, fi_av_attr* attributes, fid_av** made, void* context) {
    auto& domain = mine<Domain>(shown);
    // One that is shared by name has addresses whose shares we never saw; MPIs go on without.
    if (attributes != nullptr && (attributes->name != nullptr || (attributes->flags & ~FI_SYMMETRIC) != 0)) {
        return -FI_ENOSYS;
    }
    fid_av* real = nullptr;
    const Opening opening;
    const int code = domain.real->ops->av_open(domain.real, attributes, &real, context);
    if (code != 0) return code;
    auto* const addresses = new AddressVector;
    addresses->real = real;
    addresses->domain = &domain;
    addresses->ops = table<fi_ops_av>();
    show_base(addresses->fid, real->fid, context);
    *made = addresses;
    return 0;
}

int cq_open(fid_domain* shown, fi_cq_attr* attributes, fid_cq** made, void* context) {
    auto& domain = mine<Domain>(shown);
    if (attributes->wait_set != nullptr || (attributes->flags & ~FI_AFFINITY) != 0) {
        surroundings->refuse("fi_cq_open with a wait set or flags", "the queue would be read by others than us");
        return -FI_ENOSYS;
    }
    fid_cq* real = nullptr;
    // Ours needs tag, data and lengths of every message; a newer caller's attributes are larger than we know: changed
    // in place.
    const fi_cq_format format = std::exchange(attributes->format, FI_CQ_FORMAT_TAGGED);
    const Opening opening;
    const int code = domain.real->ops->cq_open(domain.real, attributes, &real, context);
    attributes->format = format;
    if (code != 0) return code;
    auto* const queue = new Queue;
    queue->real = real;
    queue->domain = &domain;
    queue->format = format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : format;
    queue->has_descriptor = attributes->wait_obj != FI_WAIT_NONE && attributes->wait_obj != FI_WAIT_UNSPEC;
    queue->ops = table<fi_ops_cq>();
    show_base(queue->fid, real->fid, context);
    *made = queue;
    return 0;
}

/// What the program was shown that it can do.
void take_terms(Endpoint& endpoint, const fi_info& info) {
    endpoint.serves_memory = can_serve_memory(info);
    endpoint.has_memory = ((info.caps | info.tx_attr->caps) & FI_RMA) != 0;
    endpoint.note_tag = note_tag(info.ep_attr->mem_tag_format);
    endpoint.directed = ((info.caps | info.rx_attr->caps) & FI_DIRECTED_RECV) != 0;
    endpoint.send_flags = info.tx_attr->op_flags;
    endpoint.receive_flags = info.rx_attr->op_flags;
    endpoint.inject_size = info.tx_attr->inject_size;
    endpoint.message_size = info.ep_attr->max_msg_size;
}

int endpoint(fid_domain* shown, fi_info* info, fid_ep** made, void* context) {
    auto& domain = mine<Domain>(shown);
    Surroundings& around = *domain.fabric->around;
    if (const char* const why = unusable(*info); why != nullptr) {
        around.refuse("fi_endpoint", why);
        return -FI_EOPNOTSUPP;
    }
    const auto job = around.job();
    if (!job) around.give_up(job.error().line);
    auto party = Party::make(**job);
    if (!party) around.give_up(party.error().line);
    fid_ep* real = nullptr;
    {
        const AsGiven given(*info);
        const Opening opening;
        const int code = domain.real->ops->endpoint(domain.real, info, &real, context);
        if (code != 0) return code;
    }
    auto* const made_here = new Endpoint;
    made_here->real = real;
    made_here->domain = &domain;
    made_here->party = std::move(*party);
    made_here->ops = table<fi_ops_ep>();
    made_here->cm = table<fi_ops_cm>();
    made_here->msg = table<fi_ops_msg>();
    made_here->rma = table<fi_ops_rma>();
    made_here->tagged = table<fi_ops_tagged>();
    made_here->atomic = table<fi_ops_atomic>();
    made_here->collective = table<fi_ops_collective>();
    take_terms(*made_here, *info);
    show_base(made_here->fid, real->fid, context);
    around.begin(*made_here->party);
    *made = made_here;
    return 0;
}

int endpoint2(fid_domain* shown, fi_info* info, fid_ep** made, std::uint64_t flags, void* context) {
    if (flags == 0) return endpoint(shown, info, made, context);
    surroundings->refuse("fi_endpoint2 with flags", "an endpoint of peers is not sealed");
    return -FI_ENOSYS;
}

int cntr_open(fid_domain* shown, fi_cntr_attr* attributes, fid_cntr** made, void* context) {
    auto& domain = mine<Domain>(shown);
    if (attributes->wait_set != nullptr || attributes->flags != 0) return -FI_ENOSYS;
    fid_cntr* real = nullptr;
    const Opening opening;
    const int code = domain.real->ops->cntr_open(domain.real, attributes, &real, context);
    if (code != 0) return code;
    auto* const counter = new Counter;
    counter->real = real;
    counter->domain = &domain;
    counter->ops = table<fi_ops_cntr>();
    show_base(counter->fid, real->fid, context);
    *made = counter;
    return 0;
}

int query_atomic(fid_domain*, fi_datatype, fi_op, fi_atomic_attr*, std::uint64_t) {
    return -FI_EOPNOTSUPP;
}

int query_collective(fid_domain*, fi_collective_op, fi_collective_attr*, std::uint64_t) {
    return -FI_EOPNOTSUPP;
}

}  // namespace on_fi_ops_domain

}  // namespace

#include "fi_ops.inc"
#include "fi_ops_domain.inc"
#include "fi_ops_fabric.inc"

bool is_ours(const fid* object) {
    return object->ops == table<fi_ops>();
}

fid_fabric* show(fid_fabric* real, Surroundings& around, void* context, const char* provider, bool keeps_data) {
    surroundings = &around;
    Opening::has_given_fabric();
    auto* const fabric = new Fabric;
    fabric->real = real;
    fabric->around = &around;
    fabric->keeps_data = keeps_data;
    fabric->provider = provider != nullptr ? provider : "a provider without a name";
    // udp;ofi_rxd (libfabric 2.5.1) with two of them calls a message sent that its peer then never gets.
    if (fabric->provider.find("ofi_rxd") != std::string::npos) fabric->most_pieces = 1;
    fabric->ops = table<fi_ops_fabric>();
    show_base(fabric->fid, real->fid, context);
    return fabric;
}

}  // namespace cryptmpi::fabric::libfabric
