// The functions behind our objects' tables. Messages are sending.cpp's and receiving.cpp's; these find the object and
// take its lock.
#include "fabric/libfabric/tables.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/pieces.hpp"
#include "fabric/libfabric/information.hpp"
#include "fabric/libfabric/objects.hpp"
#include "fabric/opening.hpp"

namespace cryptmpi::fabric::libfabric {

// Defined at the end, by the generator.
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

namespace {

// Around the process, for the refusing functions, which get objects of many kinds.
Surroundings* surroundings = nullptr;

constexpr const char* kOperations[] = {
#include "names.inc"
};
constexpr std::size_t kBeyond = 16;

template <std::size_t Count>
struct Table {
    std::size_t size;
    std::array<void*, Count> operations;
    std::array<void*, kBeyond> beyond;
};

template <class Function>
void* address(Function function) {
    return reinterpret_cast<void*>(function);
}

template <class Function, std::size_t Index>
struct Refused;
template <class R, class... A, std::size_t Index>
struct Refused<R (*)(A...), Index> {
    static R call(A...) {
        constexpr std::string_view kName = kOperations[Index];
        if (surroundings != nullptr) surroundings->refuse(kOperations[Index], "it is not sealed");
        // An MPI that reads and writes memory although no provider shows it can waits for it for ever.
        if (surroundings != nullptr && (kName.starts_with("fi_ops_rma.") || kName.starts_with("fi_ops_atomic."))) {
            surroundings->give_up("MPI insists on " + std::string(kName) +
                                  ", which the fabric layer does not seal: take another layer for this program");
        }
        if constexpr (std::is_pointer_v<R>) return nullptr;
        if constexpr (std::is_integral_v<R>) return static_cast<R>(-FI_ENOSYS);
    }
};

template <class Shown>
Shown* real_of(Shown* shown) {
    return Object<Shown>::of(shown).real;
}

/// The provider has the object in ours's place. An operation that an older provider has not is -FI_ENOSYS.
template <auto Member>
struct Passed;
template <class T, class R, class Shown, class... A, R (*T::*Member)(Shown*, A...)>
struct Passed<Member> {
    static R call(Shown* shown, A... rest) {
        auto* const real = real_of(shown);
        const T* const operations = real->ops;
        const auto place =
            reinterpret_cast<const char*>(&(operations->*Member)) - reinterpret_cast<const char*>(operations);
        const bool known = operations->size > static_cast<std::size_t>(place);
        if (known && operations->*Member != nullptr) return (operations->*Member)(real, rest...);
        if constexpr (std::is_pointer_v<R>) return nullptr;
        if constexpr (std::is_integral_v<R>) return static_cast<R>(-FI_ENOSYS);
    }
};

template <class Base, class Shown>
Base& mine(Shown* shown) {
    return *static_cast<Base*>(shown);
}

template <class Fid>
Fid* as(fid* object) {
    return reinterpret_cast<Fid*>(object);
}

void show_base(fid& shown, const fid& real, void* context) {
    shown.fclass = real.fclass;
    shown.context = context;
    shown.ops = table<fi_ops>();
}

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
        const std::lock_guard hold(endpoint.domain->lock);
        endpoint.close();
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
            surroundings->refuse("fi_control " + std::to_string(command),
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
    made_here->serves_memory = can_serve_memory(*info);
    made_here->has_memory = ((info->caps | info->tx_attr->caps) & FI_RMA) != 0;
    made_here->note_tag = note_tag(info->ep_attr->mem_tag_format);
    made_here->directed = ((info->caps | info->rx_attr->caps) & FI_DIRECTED_RECV) != 0;
    made_here->send_flags = info->tx_attr->op_flags;
    made_here->receive_flags = info->rx_attr->op_flags;
    made_here->inject_size = info->tx_attr->inject_size;
    made_here->message_size = info->ep_attr->max_msg_size;
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

// No memory of the program is registered with the network: what the program gets for it is a handle of ours. Its key
// opens nothing on the wire; peers of the job read and write by messages of ours (remote.hpp).
namespace on_fi_ops_mr {

int make_region(fid* shown, std::span<const iovec> parts, std::uint64_t access, std::uint64_t key, void* context,
                fid_mr** made) {
    auto& domain = mine<Domain>(as<fid_domain>(shown));
    constexpr std::uint64_t kRemote = FI_REMOTE_READ | FI_REMOTE_WRITE;
    // All memory there is: MPICH asks for it for dynamic windows, and makes messages of them when it gets none.
    if ((access & kRemote) != 0 && parts.size() == 1 && parts[0].iov_base == nullptr && parts[0].iov_len != 0) {
        return -FI_EINVAL;
    }
    const std::lock_guard hold(domain.lock);
    if (domain.makes_keys) {
        do key = ++domain.regions;
        while (domain.shown_regions.contains(key));
    } else if (domain.shown_regions.contains(key)) {
        return -FI_ENOKEY;
    }
    auto* const region = new Region{};
    region->fid.fclass = FI_CLASS_MR;
    region->fid.context = context;
    region->fid.ops = table<fi_ops>();
    region->key = key;
    region->domain = &domain;
    if (parts.size() == 1) {
        region->memory = static_cast<std::uint8_t*>(parts[0].iov_base);
        region->size = parts[0].iov_len;
        region->begin = domain.names_by_address ? reinterpret_cast<std::uint64_t>(region->memory) : 0;
        region->access = access & kRemote;
    }
    domain.shown_regions.emplace(key, region);
    *made = region;
    return 0;
}

int reg(fid* shown, const void* memory, std::size_t size, std::uint64_t access, std::uint64_t, std::uint64_t key,
        std::uint64_t, fid_mr** made, void* context) {
    const iovec one = piece(memory, size);
    return make_region(shown, {&one, 1}, access, key, context, made);
}

int regv(fid* shown, const iovec* parts, std::size_t count, std::uint64_t access, std::uint64_t, std::uint64_t key,
         std::uint64_t, fid_mr** made, void* context) {
    return make_region(shown, {parts, count}, access, key, context, made);
}

int regattr(fid* shown, const fi_mr_attr* wanted, std::uint64_t, fid_mr** made) {
    return make_region(shown, {wanted->mr_iov, wanted->iov_count}, wanted->access, wanted->requested_key,
                       wanted->context, made);
}

}  // namespace on_fi_ops_mr

/// A name is the provider's, then the share of the endpoint that it names.
namespace on_fi_ops_cm {

int getname(fid* shown, void* name, std::size_t* room) {
    if (shown->fclass != FI_CLASS_EP) return -FI_ENOSYS;
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    std::array<std::uint8_t, 1024> own;
    std::size_t size = own.size();
    const int code = endpoint.real->cm->getname(&endpoint.real->fid, own.data(), &size);
    if (code != 0) return code;
    const std::size_t offered = std::exchange(*room, size + kShareSize);
    endpoint.domain->name_size = size;
    if (offered < *room) {
        if (offered >= size) {
            surroundings->refuse("fi_getname into " + std::to_string(offered) + " bytes",
                                 "the provider's names have " + std::to_string(size) + ", and 32 of ours go with them");
        }
        return -FI_ETOOSMALL;
    }
    std::memcpy(name, own.data(), size);
    std::memcpy(static_cast<std::uint8_t*>(name) + size, endpoint.party->share().data(), kShareSize);
    return 0;
}

}  // namespace on_fi_ops_cm

namespace on_fi_ops_av {

int insert(fid_av* shown, const void* names, std::size_t count, fi_addr_t* made, std::uint64_t flags, void* context) {
    auto& addresses = mine<AddressVector>(shown);
    const std::size_t size = addresses.domain->name_size;
    if (size == 0) {
        surroundings->refuse("fi_av_insert before any fi_getname",
                             "the length of the provider's names is not known yet");
        return -FI_EOPNOTSUPP;
    }
    const auto* at = static_cast<const std::uint8_t*>(names);
    std::vector<std::uint8_t> own(size * count);
    std::vector<Share> shares(count);
    for (std::size_t i = 0; i < count; ++i, at += size + kShareSize) {
        std::memcpy(own.data() + i * size, at, size);
        std::memcpy(shares[i].data(), at + size, kShareSize);
    }
    std::vector<fi_addr_t> places(count, FI_ADDR_NOTAVAIL);
    const int code = addresses.real->ops->insert(addresses.real, own.data(), count, places.data(), flags, context);
    const std::lock_guard hold(addresses.domain->lock);
    for (std::size_t i = 0; code > 0 && i < count; ++i) {
        if (places[i] == FI_ADDR_NOTAVAIL) continue;
        addresses.add(places[i], shares[i]);
    }
    if (made != nullptr) std::copy(places.begin(), places.end(), made);
    return code;
}

int remove(fid_av* shown, fi_addr_t* places, std::size_t count, std::uint64_t flags) {
    auto& addresses = mine<AddressVector>(shown);
    const std::lock_guard hold(addresses.domain->lock);
    const int code = addresses.real->ops->remove(addresses.real, places, count, flags);
    if (code != 0) return code;
    for (std::size_t i = 0; i < count; ++i) addresses.remove(places[i]);
    return 0;
}

int lookup(fid_av* shown, fi_addr_t place, void* name, std::size_t* room) {
    auto& addresses = mine<AddressVector>(shown);
    const std::lock_guard hold(addresses.domain->lock);
    std::array<std::uint8_t, 1024> own;
    std::size_t size = own.size() - kShareSize;
    const int code = addresses.real->ops->lookup(addresses.real, place, own.data(), &size);
    const auto share = addresses.shares.find(place);
    if (code != 0 || share == addresses.shares.end()) return code != 0 ? code : -FI_EINVAL;
    std::memcpy(own.data() + size, share->second.data(), kShareSize);
    const std::size_t offered = std::exchange(*room, size + kShareSize);
    std::memcpy(name, own.data(), std::min(offered, *room));
    return 0;
}

}  // namespace on_fi_ops_av

namespace on_fi_ops_ep {

ssize_t cancel(fid* shown, void* context) {
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    const std::lock_guard hold(endpoint.domain->lock);
    return endpoint.cancel(context);
}

/// Options with a size of messages, which is less by ours; those that are no business of ours; no others.
bool is_size(int option) {
    constexpr int kNewer[] = {12, 13, 16, 17};  // MAX_MSG_SIZE, MAX_TAGGED_SIZE, INJECT_MSG_SIZE, INJECT_TAGGED_SIZE
    return option == FI_OPT_MIN_MULTI_RECV || std::count(std::begin(kNewer), std::end(kNewer), option) != 0;
}
bool is_harmless(int option) {
    constexpr int kNewer[] = {10, 11};  // CUDA_API_PERMITTED, SHARED_MEMORY_PERMITTED
    return option == FI_OPT_FI_HMEM_P2P || std::count(std::begin(kNewer), std::end(kNewer), option) != 0;
}

int getopt(fid* shown, int level, int option, void* value, std::size_t* size) {
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    if (level != FI_OPT_ENDPOINT || (!is_size(option) && !is_harmless(option))) return -FI_ENOPROTOOPT;
    const int code = endpoint.real->ops->getopt(&endpoint.real->fid, level, option, value, size);
    if (code != 0 || !is_size(option)) return code;
    auto& bytes = *static_cast<std::size_t*>(value);
    bytes -= std::min(bytes, kOverhead);
    return 0;
}

int setopt(fid* shown, int level, int option, const void* value, std::size_t size) {
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    if (level != FI_OPT_ENDPOINT || (!is_size(option) && !is_harmless(option))) return -FI_ENOPROTOOPT;
    if (!is_size(option)) return endpoint.real->ops->setopt(&endpoint.real->fid, level, option, value, size);
    if (size != sizeof(std::size_t)) return -FI_EINVAL;
    const std::size_t bytes = *static_cast<const std::size_t*>(value) + kOverhead;
    return endpoint.real->ops->setopt(&endpoint.real->fid, level, option, &bytes, sizeof bytes);
}

}  // namespace on_fi_ops_ep

/// The calls of tagged and untagged messages differ in a few parameters only.
ssize_t send(fid_ep* shown, Kind kind, std::span<const iovec> parts, fi_addr_t to, std::uint64_t tag, void* context,
             std::uint64_t data, std::uint64_t flags, bool inject) {
    auto& endpoint = mine<Endpoint>(shown);
    const std::lock_guard hold(endpoint.domain->lock);
    return endpoint.send({kind, parts, to, tag, data, flags, context, inject});
}

std::uint64_t send_flags(fid_ep* shown) {
    return mine<Endpoint>(shown).send_flags;
}

ssize_t receive(fid_ep* shown, Kind kind, std::span<const iovec> parts, fi_addr_t from, std::uint64_t tag,
                std::uint64_t ignore, void* context, std::uint64_t flags) {
    auto& endpoint = mine<Endpoint>(shown);
    const std::lock_guard hold(endpoint.domain->lock);
    return endpoint.receive({kind, parts, from, tag, ignore, flags, context});
}

std::uint64_t receive_flags(fid_ep* shown) {
    return mine<Endpoint>(shown).receive_flags;
}

namespace on_fi_ops_msg {

constexpr Kind kKind = Kind::message;

ssize_t recv(fid_ep* ep, void* bytes, std::size_t size, void*, fi_addr_t from, void* context) {
    const iovec one = piece(bytes, size);
    return receive(ep, kKind, {&one, 1}, from, 0, 0, context, receive_flags(ep));
}
ssize_t recvv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t from, void* context) {
    return receive(ep, kKind, {parts, count}, from, 0, 0, context, receive_flags(ep));
}
ssize_t recvmsg(fid_ep* ep, const fi_msg* message, std::uint64_t flags) {
    return receive(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, 0, 0, message->context, flags);
}
ssize_t send(fid_ep* ep, const void* bytes, std::size_t size, void*, fi_addr_t to, void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, context, 0, send_flags(ep), false);
}
ssize_t sendv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t to, void* context) {
    return libfabric::send(ep, kKind, {parts, count}, to, 0, context, 0, send_flags(ep), false);
}
ssize_t sendmsg(fid_ep* ep, const fi_msg* message, std::uint64_t flags) {
    return libfabric::send(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, 0, message->context,
                           message->data, flags, false);
}
ssize_t inject(fid_ep* ep, const void* bytes, std::size_t size, fi_addr_t to) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, nullptr, 0, 0, true);
}
ssize_t senddata(fid_ep* ep, const void* bytes, std::size_t size, void*, std::uint64_t data, fi_addr_t to,
                 void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, context, data, send_flags(ep) | FI_REMOTE_CQ_DATA, false);
}
ssize_t injectdata(fid_ep* ep, const void* bytes, std::size_t size, std::uint64_t data, fi_addr_t to) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, nullptr, data, FI_REMOTE_CQ_DATA, true);
}

}  // namespace on_fi_ops_msg

namespace on_fi_ops_tagged {

constexpr Kind kKind = Kind::tagged;

ssize_t recv(fid_ep* ep, void* bytes, std::size_t size, void*, fi_addr_t from, std::uint64_t tag, std::uint64_t ignore,
             void* context) {
    const iovec one = piece(bytes, size);
    return receive(ep, kKind, {&one, 1}, from, tag, ignore, context, receive_flags(ep));
}
ssize_t recvv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t from, std::uint64_t tag,
              std::uint64_t ignore, void* context) {
    return receive(ep, kKind, {parts, count}, from, tag, ignore, context, receive_flags(ep));
}
ssize_t recvmsg(fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) {
    return receive(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, message->tag, message->ignore,
                   message->context, flags);
}
ssize_t send(fid_ep* ep, const void* bytes, std::size_t size, void*, fi_addr_t to, std::uint64_t tag, void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, context, 0, send_flags(ep), false);
}
ssize_t sendv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t to, std::uint64_t tag,
              void* context) {
    return libfabric::send(ep, kKind, {parts, count}, to, tag, context, 0, send_flags(ep), false);
}
ssize_t sendmsg(fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) {
    return libfabric::send(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, message->tag,
                           message->context, message->data, flags, false);
}
ssize_t inject(fid_ep* ep, const void* bytes, std::size_t size, fi_addr_t to, std::uint64_t tag) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, nullptr, 0, 0, true);
}
ssize_t senddata(fid_ep* ep, const void* bytes, std::size_t size, void*, std::uint64_t data, fi_addr_t to,
                 std::uint64_t tag, void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, context, data, send_flags(ep) | FI_REMOTE_CQ_DATA, false);
}
ssize_t injectdata(fid_ep* ep, const void* bytes, std::size_t size, std::uint64_t data, fi_addr_t to,
                   std::uint64_t tag) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, nullptr, data, FI_REMOTE_CQ_DATA, true);
}

}  // namespace on_fi_ops_tagged

namespace on_fi_ops_rma {

using Carry = std::int64_t (Remote::*)(const Wish&);

ssize_t carry(fid_ep* ep, Carry operation, const fi_msg_rma& message, std::uint64_t flags, bool wanted) {
    constexpr std::uint64_t kCarried =
        FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MORE | FI_INJECT;
    auto& endpoint = mine<Endpoint>(ep);
    if (message.rma_iov_count != 1 || (flags & ~kCarried) != 0 || !endpoint.serves_memory || !endpoint.has_memory) {
        surroundings->refuse(
            "a read or write of several regions, with immediate data or a fence, or of an endpoint "
            "without FI_TAGGED or FI_RMA",
            "it is not carried");
        return -FI_EOPNOTSUPP;
    }
    const std::lock_guard hold(endpoint.domain->lock);
    const auto code = (endpoint.remote.*operation)({message.addr,
                                                    {message.msg_iov, message.iov_count},
                                                    message.rma_iov[0].key,
                                                    message.rma_iov[0].addr,
                                                    message.context,
                                                    wanted});
    if (endpoint.sent != nullptr) endpoint.sent->wake();  // one of no bytes has ended already
    return code;
}

bool wants_completion(fid_ep* ep, std::uint64_t flags) {
    return !mine<Endpoint>(ep).selective_sends || (flags & FI_COMPLETION) != 0;
}

ssize_t readmsg(fid_ep* ep, const fi_msg_rma* message, std::uint64_t flags) {
    return carry(ep, &Remote::read, *message, flags, wants_completion(ep, flags));
}
ssize_t readv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t from, std::uint64_t address,
              std::uint64_t key, void* context) {
    const fi_rma_iov region = {address, 0, key};
    const fi_msg_rma message = {parts, nullptr, count, from, &region, 1, context, 0};
    return readmsg(ep, &message, send_flags(ep));
}
ssize_t read(fid_ep* ep, void* bytes, std::size_t size, void*, fi_addr_t from, std::uint64_t address, std::uint64_t key,
             void* context) {
    const iovec one = piece(bytes, size);
    return readv(ep, &one, nullptr, 1, from, address, key, context);
}

/// A short write is copied at once, and no longer one is injected.
bool may_be_injected(fid_ep* ep, std::size_t size) {
    return size <= std::min(mine<Endpoint>(ep).inject_size, kShort);
}

ssize_t writemsg(fid_ep* ep, const fi_msg_rma* message, std::uint64_t flags) {
    if ((flags & FI_INJECT) != 0 && !may_be_injected(ep, total({message->msg_iov, message->iov_count}))) {
        return -FI_EMSGSIZE;
    }
    return carry(ep, &Remote::write, *message, flags, wants_completion(ep, flags));
}
ssize_t writev(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t to, std::uint64_t address,
               std::uint64_t key, void* context) {
    const fi_rma_iov region = {address, 0, key};
    const fi_msg_rma message = {parts, nullptr, count, to, &region, 1, context, 0};
    return writemsg(ep, &message, send_flags(ep));
}
ssize_t write(fid_ep* ep, const void* bytes, std::size_t size, void*, fi_addr_t to, std::uint64_t address,
              std::uint64_t key, void* context) {
    const iovec one = piece(bytes, size);
    return writev(ep, &one, nullptr, 1, to, address, key, context);
}
ssize_t inject(fid_ep* ep, const void* bytes, std::size_t size, fi_addr_t to, std::uint64_t address,
               std::uint64_t key) {
    if (!may_be_injected(ep, size)) return -FI_EMSGSIZE;
    const iovec one = piece(bytes, size);
    const fi_rma_iov region = {address, 0, key};
    return carry(ep, &Remote::write, {&one, nullptr, 1, to, &region, 1, nullptr, 0}, FI_INJECT, false);
}

}  // namespace on_fi_ops_rma

// Between two looks of who waits.
constexpr auto kPause = std::chrono::microseconds(20);

namespace on_fi_ops_cq {

std::size_t size_of(fi_cq_format format) {
    switch (format) {
        case FI_CQ_FORMAT_MSG:
            return sizeof(fi_cq_msg_entry);
        case FI_CQ_FORMAT_DATA:
            return sizeof(fi_cq_data_entry);
        case FI_CQ_FORMAT_TAGGED:
            return sizeof(fi_cq_tagged_entry);
        default:
            return sizeof(fi_cq_entry);
    }
}

void give(const fi_cq_tagged_entry& entry, fi_cq_format format, void* entries, std::size_t place) {
    const std::size_t size = size_of(format);
    std::memcpy(static_cast<char*>(entries) + place * size, &entry, size);
}

/// HOT PATH. What has been opened, of what the provider has completed. Each smaller format is the beginning of the
/// largest.
ssize_t readfrom(fid_cq* shown, void* entries, std::size_t count, fi_addr_t* sources) {
    auto& queue = mine<Queue>(shown);
    const std::lock_guard hold(queue.domain->lock);
    queue.is_woken = false;
    ssize_t code = 0;
    while (queue.ready.empty() && queue.failed.empty() && (code = queue.make_progress(count)) > 0) {
    }
    if (queue.ready.empty()) {
        if (!queue.failed.empty()) return -FI_EAVAIL;
        return code < 0 ? code : -FI_EAGAIN;
    }
    std::size_t given = 0;
    for (; given < count && !queue.ready.empty(); ++given, queue.ready.pop_front()) {
        give(queue.ready.front().entry, queue.format, entries, given);
        if (sources != nullptr) sources[given] = queue.ready.front().from;
    }
    return static_cast<ssize_t>(given);
}

ssize_t read(fid_cq* shown, void* entries, std::size_t count) {
    return readfrom(shown, entries, count, nullptr);
}

ssize_t readerr(fid_cq* shown, fi_cq_err_entry* entry, std::uint64_t) {
    auto& queue = mine<Queue>(shown);
    const std::lock_guard hold(queue.domain->lock);
    if (queue.failed.empty()) return -FI_EAGAIN;
    void* const room = entry->err_data;
    *entry = queue.failed.front();
    entry->err_data = room;
    queue.failed.pop_front();
    return 1;
}

/// Who waits at the provider's descriptor is woken by it; who waits in sreadfrom, or will next, is woken here.
int signal(fid_cq* shown) {
    mine<Queue>(shown).is_signalled.store(true);
    return Passed<&::fi_ops_cq::signal>::call(shown);
}

/// Waits by looking: the provider's own wait would end at completions that the program does not get.
ssize_t sreadfrom(fid_cq* shown, void* entries, std::size_t count, fi_addr_t* sources, const void*, int timeout) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
    for (;;) {
        const ssize_t got = readfrom(shown, entries, count, sources);
        if (got != -FI_EAGAIN || mine<Queue>(shown).is_signalled.exchange(false)) return got;
        if (timeout >= 0 && std::chrono::steady_clock::now() >= until) return got;
        std::this_thread::sleep_for(kPause);
    }
}

ssize_t sread(fid_cq* shown, void* entries, std::size_t count, const void* condition, int timeout) {
    return sreadfrom(shown, entries, count, nullptr, condition, timeout);
}

}  // namespace on_fi_ops_cq

/// Who waits for a counter may read no queue: what it counts is opened here, too, and waits there for the program.
namespace on_fi_ops_cntr {

void make_progress(const Counter& counter) {
    const std::lock_guard hold(counter.domain->lock);
    for (const auto& [endpoint, what] : counter.counted) {
        const auto open_all = [](Queue* queue) {
            if (queue == nullptr) return;
            while (queue->make_progress(SIZE_MAX) > 0) {
            }
            queue->wake();
        };
        open_all(endpoint->received);
        if (endpoint->sent != endpoint->received) open_all(endpoint->sent);
    }
}

std::uint64_t read(fid_cntr* shown) {
    auto& counter = mine<Counter>(shown);
    make_progress(counter);
    return counter.real->ops->read(counter.real);
}

std::uint64_t readerr(fid_cntr* shown) {
    auto& counter = mine<Counter>(shown);
    make_progress(counter);
    return counter.real->ops->readerr(counter.real);
}

int wait(fid_cntr* shown, std::uint64_t threshold, int timeout) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
    const std::uint64_t failed = readerr(shown);
    for (;;) {
        if (read(shown) >= threshold) return 0;
        if (readerr(shown) != failed) return -FI_EAVAIL;
        if (timeout >= 0 && std::chrono::steady_clock::now() >= until) return -FI_ETIMEDOUT;
        std::this_thread::sleep_for(kPause);
    }
}

}  // namespace on_fi_ops_cntr

// What a newer caller finds behind a table's end.
int refuse_newer() {
    if (surroundings != nullptr) surroundings->refuse(kOperations[std::size(kOperations) - 1], "it is not known");
    return -FI_ENOSYS;
}

std::array<void*, kBeyond> beyond() {
    std::array<void*, kBeyond> refusing;
    refusing.fill(address<int (*)()>(&refuse_newer));
    return refusing;
}

}  // namespace

#include "tables.inc"

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
