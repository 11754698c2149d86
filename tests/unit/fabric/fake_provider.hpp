// A provider of libfabric in one process: endpoints that reach each other by name, and a test that decides what becomes
// of each message on its way. It has one queue for each endpoint, or two, and completes everything at once.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/opening.hpp"

namespace cryptmpi::test {

struct Wire {
    std::vector<std::uint8_t> bytes;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    bool has_data = false;
    bool tagged = false;
    std::size_t to = 0;
    std::size_t told = 0;  // the length that a look tells, where the network says another than came
};

struct FakeEndpoint;

/// The network: messages wait until the test delivers them.
struct FakeProvider {
    static constexpr std::size_t kNameSize = 16;

    fid_fabric fabric = {};
    fid_domain domain = {};
    fi_ops base = {};
    fi_ops_fabric fabric_ops = {};
    fi_ops_domain domain_ops = {};
    fi_ops_mr mr_ops = {};
    std::vector<std::unique_ptr<FakeEndpoint>> endpoints;
    std::deque<Wire> under_way;
    int refusals = 0;                    // how often the next sends are told "again"
    std::optional<std::size_t> refused;  // to whom nothing is taken
    ssize_t refusal = -FI_EAGAIN;        // and why
    int send_error = 0;
    std::uint64_t most_tag = ~std::uint64_t{0};  // no receive of a higher one
    std::function<void(const Wire&)> on_send = [](const Wire&) {};
    std::function<void(std::size_t)> on_read = [](std::size_t) {};  // of the queue of the endpoint of this number
    int opening_when_enabled = 0;                                   // how many endpoints were enabled in an Opening
    std::vector<std::pair<const void*, std::uint64_t>> registered;  // memory and what the network may do with it

    FakeProvider();
    /// Lets the message that waits at `index` arrive; `change` may alter it.
    void deliver(std::size_t index = 0, const std::function<void(Wire&)>& change = {});
    void deliver_all() {
        while (!under_way.empty()) deliver();
    }
    /// As a copy of one that was delivered.
    void deliver_copy(Wire wire);
};

struct FakeReceive {
    iovec into;
    std::uint64_t tag, ignore;
    void* context;
    bool several;
    std::size_t filled = 0;
    bool tagged;
};

struct FakeCounter : fid_cntr {
    fi_ops_cntr cntr_ops = {};
    std::uint64_t value = 0;
    std::uint64_t failed = 0;
};

struct FakeEndpoint : fid_ep {
    FakeProvider* provider = nullptr;
    std::size_t number = 0;
    fi_ops_ep ep_ops = {};
    fi_ops_cm cm_ops = {};
    fi_ops_msg msg_ops = {};
    fi_ops_tagged tagged_ops = {};
    struct Queue : fid_cq {
        fi_ops_cq cq_ops = {};
        std::deque<fi_cq_tagged_entry> done;
        std::deque<fi_cq_err_entry> failed;
        int signals = 0;
        FakeEndpoint* owner = nullptr;
    } queue, sends;         // the second that is opened is for sends
    Queue* sent = nullptr;  // where they complete
    struct Addresses : fid_av {
        fi_ops_av av_ops = {};
        std::vector<std::size_t> places;
    } addresses;
    std::deque<FakeReceive> receives;
    std::deque<Wire> unexpected;
    std::map<void*, Wire> claimed;  // what was looked at and is held for a receive with that context
    std::size_t least_room = 64;

    bool match(FakeReceive& receive, const Wire& wire);
    void arrive(Wire wire);
    ssize_t post(const FakeReceive& receive);
    ssize_t look(const FakeReceive& receive, bool claims);
    ssize_t claim(FakeReceive receive);
    ssize_t send(Wire wire, void* context, bool completes);
};

inline std::size_t gather(const iovec* parts, std::size_t count, std::vector<std::uint8_t>& out) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto* at = static_cast<const std::uint8_t*>(parts[i].iov_base);
        out.insert(out.end(), at, at + parts[i].iov_len);
    }
    return out.size();
}

inline ssize_t FakeEndpoint::send(Wire wire, void* context, bool completes) {
    if (provider->refused == wire.to) return provider->refusal;
    if (provider->refusals > 0) {
        --provider->refusals;
        return -FI_EAGAIN;
    }
    if (provider->send_error != 0) return -provider->send_error;
    provider->on_send(wire);
    provider->under_way.push_back(std::move(wire));
    if (completes) sent->done.push_back({context, FI_SEND, 0, nullptr, 0, 0});
    return 0;
}

/// True: it ended, by completion or error.
inline bool FakeEndpoint::match(FakeReceive& receive, const Wire& wire) {
    auto* const at = static_cast<std::uint8_t*>(receive.into.iov_base) + receive.filled;
    const std::size_t room = receive.into.iov_len - receive.filled;
    const std::size_t size = wire.bytes.size();
    if (size != 0) std::memcpy(at, wire.bytes.data(), std::min(size, room));
    if (size > room) {
        fi_cq_err_entry error = {};
        error.op_context = receive.context;
        error.flags = FI_RECV;
        error.len = room;
        error.olen = size - room;
        error.tag = wire.tag;
        error.err = FI_ETRUNC;
        queue.failed.push_back(error);
        return true;
    }
    std::uint64_t flags = FI_RECV | (wire.has_data ? FI_REMOTE_CQ_DATA : 0);
    receive.filled += size;
    const bool ended = !receive.several || receive.into.iov_len - receive.filled < least_room;
    if (receive.several && ended) flags |= FI_MULTI_RECV;
    queue.done.push_back({receive.context, flags, size, at, wire.data, wire.tag});
    return ended;
}

inline void FakeEndpoint::arrive(Wire wire) {
    for (auto receive = receives.begin(); receive != receives.end(); ++receive) {
        if (receive->tagged != wire.tagged || ((receive->tag ^ wire.tag) & ~receive->ignore) != 0) continue;
        if (match(*receive, wire)) receives.erase(receive);
        return;
    }
    unexpected.push_back(std::move(wire));
}

inline ssize_t FakeEndpoint::post(const FakeReceive& receive) {
    receives.push_back(receive);
    std::deque<Wire> waiting;
    waiting.swap(unexpected);
    for (Wire& wire : waiting) arrive(std::move(wire));
    return 0;
}

/// Whether something waits that the receive would take. `claims`: it is held.
inline ssize_t FakeEndpoint::look(const FakeReceive& receive, bool claims) {
    for (auto wire = unexpected.begin(); wire != unexpected.end(); ++wire) {
        if (!wire->tagged || ((receive.tag ^ wire->tag) & ~receive.ignore) != 0) continue;
        const std::uint64_t flags = FI_RECV | (wire->has_data ? FI_REMOTE_CQ_DATA : 0);
        const std::size_t told = wire->told != 0 ? wire->told : wire->bytes.size();
        queue.done.push_back({receive.context, flags, told, nullptr, wire->data, wire->tag});
        if (!claims) return 0;
        claimed[receive.context] = std::move(*wire);
        unexpected.erase(wire);
        return 0;
    }
    fi_cq_err_entry error = {};
    error.op_context = receive.context;
    error.err = FI_ENOMSG;
    queue.failed.push_back(error);
    return 0;
}

inline ssize_t FakeEndpoint::claim(FakeReceive receive) {
    const auto held = claimed.find(receive.context);
    if (held == claimed.end()) return -FI_EINVAL;
    match(receive, held->second);
    claimed.erase(held);
    return 0;
}

inline void FakeProvider::deliver(std::size_t index, const std::function<void(Wire&)>& change) {
    Wire wire = under_way.at(index);
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(index));
    if (change) change(wire);
    endpoints.at(wire.to)->arrive(std::move(wire));
}

inline void FakeProvider::deliver_copy(Wire wire) {
    endpoints.at(wire.to)->arrive(std::move(wire));
}

inline FakeProvider::FakeProvider() {
    base.size = sizeof base;
    base.close = [](fid* one) {
        const auto kind = one->fclass;
        if (kind == FI_CLASS_MR) delete reinterpret_cast<fid_mr*>(one);
        if (kind == FI_CLASS_CNTR) delete static_cast<FakeCounter*>(reinterpret_cast<fid_cntr*>(one));
        return 0;
    };
    base.bind = [](fid*, fid*, std::uint64_t) { return 0; };
    base.control = [](fid* one, int command, void*) {
        if (one->fclass != FI_CLASS_EP || command != FI_ENABLE || cryptmpi_fabric_is_opening() == 0) return 0;
        ++static_cast<FakeEndpoint*>(reinterpret_cast<fid_ep*>(one))->provider->opening_when_enabled;
        return 0;
    };
    fabric_ops.size = sizeof fabric_ops;
    fabric.fid = {FI_CLASS_FABRIC, this, &base};
    fabric.ops = &fabric_ops;
    fabric_ops.trywait = [](fid_fabric*, fid**, int) { return 0; };
    fabric_ops.domain = [](fid_fabric* from, fi_info*, fid_domain** made, void*) {
        *made = &static_cast<FakeProvider*>(from->fid.context)->domain;
        return 0;
    };
    domain.fid = {FI_CLASS_DOMAIN, this, &base};
    domain.ops = &domain_ops;
    domain.mr = &mr_ops;
    mr_ops.size = sizeof mr_ops;
    mr_ops.reg = [](fid* from, const void* memory, std::size_t, std::uint64_t access, std::uint64_t, std::uint64_t,
                    std::uint64_t, fid_mr** made, void*) {
        auto& provider = *static_cast<FakeProvider*>(from->context);
        provider.registered.emplace_back(memory, access);
        *made = new fid_mr{{FI_CLASS_MR, nullptr, &provider.base}, nullptr, 0};
        return 0;
    };
    domain_ops.size = sizeof domain_ops;
    // Each endpoint is made with its queue and addresses, which are opened after it: the tests keep to that order.
    domain_ops.endpoint = [](fid_domain* from, fi_info*, fid_ep** made, void*) {
        auto& provider = *static_cast<FakeProvider*>(from->fid.context);
        auto one = std::make_unique<FakeEndpoint>();
        FakeEndpoint& ep = *one;
        ep.provider = &provider;
        ep.number = provider.endpoints.size();
        static_cast<fid_ep&>(ep).fid = {FI_CLASS_EP, nullptr, &provider.base};
        ep.ops = &ep.ep_ops;
        ep.cm = &ep.cm_ops;
        ep.msg = &ep.msg_ops;
        ep.tagged = &ep.tagged_ops;
        ep.ep_ops.size = sizeof ep.ep_ops;
        ep.ep_ops.cancel = [](fid* from_ep, void* context) -> ssize_t {
            auto& self = *static_cast<FakeEndpoint*>(reinterpret_cast<fid_ep*>(from_ep));
            for (auto at = self.receives.begin(); at != self.receives.end(); ++at) {
                if (at->context != context) continue;
                fi_cq_err_entry error = {};
                error.op_context = context;
                error.err = FI_ECANCELED;
                self.queue.failed.push_back(error);
                self.receives.erase(at);
                break;
            }
            return 0;
        };
        ep.ep_ops.setopt = [](fid* from_ep, int, int, const void* value, std::size_t) {
            static_cast<FakeEndpoint*>(reinterpret_cast<fid_ep*>(from_ep))->least_room =
                *static_cast<const std::size_t*>(value);
            return 0;
        };
        ep.cm_ops.size = sizeof ep.cm_ops;
        ep.cm_ops.getname = [](fid* from_ep, void* name, std::size_t* size) {
            auto& self = *static_cast<FakeEndpoint*>(reinterpret_cast<fid_ep*>(from_ep));
            std::memset(name, 0, kNameSize);
            std::memcpy(name, &self.number, sizeof self.number);
            *size = kNameSize;
            return 0;
        };
        ep.tagged_ops.size = sizeof ep.tagged_ops;
        ep.tagged_ops.sendmsg = [](fid_ep* from_ep, const fi_msg_tagged* message, std::uint64_t flags) {
            auto& self = *static_cast<FakeEndpoint*>(from_ep);
            Wire wire = {{},
                         message->tag,
                         message->data,
                         (flags & FI_REMOTE_CQ_DATA) != 0,
                         true,
                         self.addresses.places.at(message->addr)};
            gather(message->msg_iov, message->iov_count, wire.bytes);
            return self.send(std::move(wire), message->context, (flags & FI_COMPLETION) != 0);
        };
        ep.tagged_ops.inject = [](fid_ep* from_ep, const void* bytes, std::size_t size, fi_addr_t to,
                                  std::uint64_t tag) {
            auto& self = *static_cast<FakeEndpoint*>(from_ep);
            const auto* at = static_cast<const std::uint8_t*>(bytes);
            return self.send({{at, at + size}, tag, 0, false, true, self.addresses.places.at(to)}, nullptr, false);
        };
        ep.tagged_ops.recvmsg = [](fid_ep* from_ep, const fi_msg_tagged* message, std::uint64_t flags) -> ssize_t {
            auto& self = *static_cast<FakeEndpoint*>(from_ep);
            if (message->tag > self.provider->most_tag) return -FI_EINVAL;
            const FakeReceive receive = {
                message->msg_iov[0], message->tag, message->ignore, message->context, false, 0, true};
            if ((flags & FI_PEEK) != 0) return self.look(receive, (flags & FI_CLAIM) != 0);
            return (flags & FI_CLAIM) != 0 ? self.claim(receive) : self.post(receive);
        };
        ep.msg_ops.size = sizeof ep.msg_ops;
        ep.msg_ops.sendmsg = [](fid_ep* from_ep, const fi_msg* message, std::uint64_t flags) {
            auto& self = *static_cast<FakeEndpoint*>(from_ep);
            Wire wire = {
                {}, 0, message->data, (flags & FI_REMOTE_CQ_DATA) != 0, false, self.addresses.places.at(message->addr)};
            gather(message->msg_iov, message->iov_count, wire.bytes);
            return self.send(std::move(wire), message->context, (flags & FI_COMPLETION) != 0);
        };
        ep.msg_ops.recvmsg = [](fid_ep* from_ep, const fi_msg* message, std::uint64_t flags) {
            auto& self = *static_cast<FakeEndpoint*>(from_ep);
            return self.post({message->msg_iov[0], 0, 0, message->context, (flags & FI_MULTI_RECV) != 0, 0, false});
        };
        *made = &ep;
        provider.endpoints.push_back(std::move(one));
        return 0;
    };
    domain_ops.cq_open = [](fid_domain* from, fi_cq_attr* attributes, fid_cq** made, void*) {
        auto& provider = *static_cast<FakeProvider*>(from->fid.context);
        if (attributes->format != FI_CQ_FORMAT_TAGGED) return -FI_ENOSYS;
        FakeEndpoint& ep = *provider.endpoints.back();
        auto& queue = ep.sent == nullptr ? ep.queue : ep.sends;
        ep.sent = &queue;
        queue.owner = &ep;
        static_cast<fid_cq&>(queue).fid = {FI_CLASS_CQ, nullptr, &provider.base};
        queue.ops = &queue.cq_ops;
        queue.cq_ops.size = sizeof queue.cq_ops;
        queue.cq_ops.read = [](fid_cq* from_queue, void* out, std::size_t count) -> ssize_t {
            auto& self = *static_cast<FakeEndpoint::Queue*>(from_queue);
            if (self.owner != nullptr) self.owner->provider->on_read(self.owner->number);
            if (!self.failed.empty()) return -FI_EAVAIL;
            std::size_t given = 0;
            for (; given < count && !self.done.empty(); ++given) {
                static_cast<fi_cq_tagged_entry*>(out)[given] = self.done.front();
                self.done.pop_front();
            }
            return given == 0 ? -FI_EAGAIN : static_cast<ssize_t>(given);
        };
        queue.cq_ops.signal = [](fid_cq* from_queue) {
            ++static_cast<FakeEndpoint::Queue*>(from_queue)->signals;
            return 0;
        };
        queue.cq_ops.readerr = [](fid_cq* from_queue, fi_cq_err_entry* out, std::uint64_t) -> ssize_t {
            auto& self = *static_cast<FakeEndpoint::Queue*>(from_queue);
            if (self.failed.empty()) return -FI_EAGAIN;
            *out = self.failed.front();
            self.failed.pop_front();
            return 1;
        };
        *made = &queue;
        return 0;
    };
    domain_ops.cntr_open = [](fid_domain* from, fi_cntr_attr*, fid_cntr** made, void*) {
        auto* const counter = new FakeCounter;
        static_cast<fid_cntr&>(*counter).fid = {FI_CLASS_CNTR, nullptr,
                                                &static_cast<FakeProvider*>(from->fid.context)->base};
        counter->ops = &counter->cntr_ops;
        counter->cntr_ops.size = sizeof counter->cntr_ops;
        counter->cntr_ops.add = [](fid_cntr* one, std::uint64_t more) {
            static_cast<FakeCounter*>(one)->value += more;
            return 0;
        };
        counter->cntr_ops.adderr = [](fid_cntr* one, std::uint64_t more) {
            static_cast<FakeCounter*>(one)->failed += more;
            return 0;
        };
        counter->cntr_ops.read = [](fid_cntr* one) { return static_cast<FakeCounter*>(one)->value; };
        counter->cntr_ops.readerr = [](fid_cntr* one) { return static_cast<FakeCounter*>(one)->failed; };
        *made = counter;
        return 0;
    };
    domain_ops.av_open = [](fid_domain* from, fi_av_attr*, fid_av** made, void*) {
        auto& provider = *static_cast<FakeProvider*>(from->fid.context);
        auto& addresses = provider.endpoints.back()->addresses;
        static_cast<fid_av&>(addresses).fid = {FI_CLASS_AV, nullptr, &provider.base};
        addresses.ops = &addresses.av_ops;
        addresses.av_ops.size = sizeof addresses.av_ops;
        addresses.av_ops.insert = [](fid_av* from_av, const void* names, std::size_t count, fi_addr_t* places,
                                     std::uint64_t, void*) {
            auto& self = *static_cast<FakeEndpoint::Addresses*>(from_av);
            for (std::size_t i = 0; i < count; ++i) {
                std::size_t number = 0;
                std::memcpy(&number, static_cast<const char*>(names) + i * kNameSize, sizeof number);
                places[i] = self.places.size();
                self.places.push_back(number);
            }
            return static_cast<int>(count);
        };
        addresses.av_ops.remove = [](fid_av*, fi_addr_t*, std::size_t, std::uint64_t) { return 0; };
        addresses.av_ops.lookup = [](fid_av* from_av, fi_addr_t place, void* name, std::size_t* size) {
            auto& self = *static_cast<FakeEndpoint::Addresses*>(from_av);
            std::memset(name, 0, kNameSize);
            std::memcpy(name, &self.places.at(place), sizeof(std::size_t));
            *size = kNameSize;
            return 0;
        };
        *made = &addresses;
        return 0;
    };
}

}  // namespace cryptmpi::test
