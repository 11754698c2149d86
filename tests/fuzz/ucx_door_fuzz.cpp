// What comes through the door of UCX as active messages: requests for memory, answers, messages for the program and
// parts of long ones. Members say what they like in messages that open, strangers send bytes of any kind, and meanwhile
// the program puts, gets, changes numbers, fences, and closes endpoints.
//
// Input, again and again: what happens (1 byte) | a member (1) | then by what happens:
//   the program's operation:    kind (1) | region (1) | where (3) | size (3)
//   a request of the member's:  slip (1) | kind (1) | region (1) | where (3) | size (3) | length of the way (1) | how
//   many
//     bytes (1) | the bytes
//   an answer of the member's:  slip (1) | id (1) | done (1) | how many bytes (2)
//   arbitrary bytes:            handler (1) | header (1) | how many (1) | the bytes
//   a message for the program:  slip (1) | handler (1) | length of its header (2) | how many bytes (1) | the bytes
//   a part of one:              slip (1) | handler (1) | message (1) | part (1) | size of the whole (2) | how much more
//   (1)
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/ucx/around.hpp"
#include "fabric/ucx/blob.hpp"
#include "fabric/ucx/memory.hpp"
#include "fabric/ucx/parts.hpp"
#include "fabric/ucx/real.hpp"
#include "fabric/ucx/remote.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"
#include "toy_process.hpp"
#include "toy_wire.hpp"

using namespace cryptmpi;
using namespace cryptmpi::fabric;
using namespace cryptmpi::fabric::ucx;
using fuzz::Bytes;
using fuzz::Ended;
using fuzz::require;
using fuzz::ToyProcess;

namespace {

constexpr unsigned kRequests = 0, kAnswers = 1;
constexpr unsigned kNew = 7, kOld = 8;  // the program's handlers, of either form
constexpr std::uint64_t kForMemory = std::uint64_t{1} << 32;

struct ToyWorker {
    std::array<ucp_am_handler_param_t, 16> handlers = {};
};

struct ToyEndpoint {
    std::uint8_t member;
};

struct Sent {
    unsigned handler;
    std::uint8_t member;
    Bytes plain;  // toy_crypto hides nothing
};

std::deque<ToyEndpoint> endpoints;
ToyEndpoint way_back = {0};  // that UCX knows for answers
std::vector<Sent> sent;

ucp_ep_h handle_of(ToyEndpoint& endpoint) {
    return reinterpret_cast<ucp_ep_h>(&endpoint);
}

Real toys() {
    Real real;
    real.ucp_init_version = [](unsigned, unsigned, const ucp_params_t*, const ucp_config_t*, ucp_context_h* out) {
        static std::array<int, 2> contexts;
        static std::size_t next = 0;
        *out = reinterpret_cast<ucp_context_h>(&contexts[next++ % contexts.size()]);
        return UCS_OK;
    };
    real.ucp_worker_create = [](ucp_context_h, const ucp_worker_params_t*, ucp_worker_h* out) {
        *out = reinterpret_cast<ucp_worker_h>(new ToyWorker);
        return UCS_OK;
    };
    real.ucp_worker_destroy = [](ucp_worker_h handle) { delete reinterpret_cast<ToyWorker*>(handle); };
    real.ucp_worker_get_address = [](ucp_worker_h, ucp_address_t** address, size_t* size) {
        static std::uint8_t own[] = {1, 2, 3};
        *address = reinterpret_cast<ucp_address_t*>(own);
        *size = sizeof own;
        return UCS_OK;
    };
    real.ucp_worker_release_address = [](ucp_worker_h, ucp_address_t*) {};
    real.ucp_ep_create = [](ucp_worker_h, const ucp_ep_params_t* params, ucp_ep_h* out) {
        std::uint8_t member = 0;
        std::memcpy(&member, params->address, sizeof member);
        *out = handle_of(endpoints.emplace_back(ToyEndpoint{static_cast<std::uint8_t>(member % fuzz::kMembers)}));
        return UCS_OK;
    };
    real.ucp_ep_close_nb = [](ucp_ep_h, unsigned) { return static_cast<ucs_status_ptr_t>(nullptr); };
    real.ucp_worker_set_am_recv_handler = [](ucp_worker_h handle, const ucp_am_handler_param_t* params) {
        reinterpret_cast<ToyWorker*>(handle)->handlers.at(params->id) = *params;
        return UCS_OK;
    };
    real.ucp_am_send_nbx = [](ucp_ep_h ep, unsigned id, const void*, size_t, const void* at, size_t size,
                              const ucp_request_param_t*) {
        const auto* const bytes = static_cast<const std::uint8_t*>(at);
        require(size >= kOverhead);
        sent.push_back({id,
                        reinterpret_cast<const ToyEndpoint*>(ep)->member,
                        {bytes + kPrefixSize, bytes + size - seal::kTagSize}});
        return static_cast<ucs_status_ptr_t>(nullptr);
    };
    real.ucp_request_check_status = [](void*) { return UCS_OK; };
    real.ucp_request_free = [](void*) {};
    real.ucp_request_release = [](void*) {};
    return real;
}

}  // namespace

namespace cryptmpi::fabric::ucx {

Surroundings& around() {
    static ToyProcess one;
    return one;
}
const Real& real() {
    static const Real one = toys();
    return one;
}
void take_calls() {}

}  // namespace cryptmpi::fabric::ucx

namespace {

ucp_worker_h make_worker(std::uint64_t features) {
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = features;
    ucp_context_h context = nullptr;
    require(ucp_init_version(1, 13, &params, nullptr, &context) == UCS_OK);
    ucp_worker_h worker = nullptr;
    const ucp_worker_params_t none = {};
    require(ucp_worker_create(context, &none, &worker) == UCS_OK);
    return worker;
}

/// Of a member, as MPI passes it on.
const Bytes& address_of(std::uint8_t member) {
    static const auto all = [] {
        std::array<Bytes, fuzz::kMembers> made;
        for (std::uint8_t one = 0; one < fuzz::kMembers; ++one) {
            fuzz::toy_draw = fuzz::draw_of(one);
            const auto party = Party::make(fuzz::toy_job());
            require(party.has_value());
            made[one].resize(kBlobPrefix + 1);
            require(write_blob(**party, {&one, 1}, made[one].data()).has_value());
        }
        fuzz::toy_draw = 0x11;
        return made;
    }();
    return all.at(member % fuzz::kMembers);
}

/// All of it is looked at, and may be.
std::size_t look_at(const void* at, std::size_t size) {
    const auto* const bytes = static_cast<const std::uint8_t*>(at);
    return static_cast<std::size_t>(std::count(bytes, bytes + size, 0x77));
}

std::size_t looked = 0;
std::vector<void*> kept;

ucs_status_t take(void* data, std::size_t size) {
    looked += look_at(data, size);
    if (size % 2 == 0) return UCS_OK;
    kept.push_back(data);
    return UCS_INPROGRESS;
}

/// Where the program's memory is, and what peers may do there.
struct Region {
    Region(std::size_t size, std::uint8_t fill, unsigned its_access) : memory(size, fill), access(its_access) {}
    Bytes memory;
    unsigned access;
    ucp_mem_h handle = nullptr;
    ucp_rkey_h key = nullptr;
    std::uint64_t number() const { return reinterpret_cast<const RemoteKey*>(key)->region; }
};

class Program {
public:
    Program() : osc_(make_worker(UCP_FEATURE_RMA)), pml_(make_worker(UCP_FEATURE_AM)) {
        for (std::uint8_t one = 0; one < fuzz::kMembers; ++one) to_[one] = connect(one);
        for (Region& region : regions_) map(region);
        ucp_am_handler_param_t handler = {};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
        handler.id = kNew;
        handler.cb = [](void*, const void* header, size_t header_size, void* data, size_t size,
                        const ucp_am_recv_param_t*) {
            looked += look_at(header, header_size);
            return take(data, size);
        };
        require(ucp_worker_set_am_recv_handler(pml_, &handler) == UCS_OK);
        const auto of_old_form = [](void*, void* data, size_t size, ucp_ep_h, unsigned) { return take(data, size); };
        require(ucp_worker_set_am_handler(pml_, kOld, of_old_form, nullptr, 0) == UCS_OK);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        for (void* const data : kept) ucp_am_data_release(pml_, data);
        kept.clear();
        for (ucp_ep_h& ep : to_) ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE);
        for (void* const request : requests_) ucp_request_free(request);
        for (const Region& region : regions_) {
            ucp_rkey_destroy(region.key);
            ucp_mem_unmap(nullptr, region.handle);
        }
        ucp_worker_destroy(osc_);
        ucp_worker_destroy(pml_);
        endpoints.clear();
        sent.clear();
    }

    void act(fuzz::Reader& in) {
        const std::uint8_t what = in.byte();
        const std::uint8_t member = in.byte() % fuzz::kMembers;
        switch (what % 8) {
            case 0:
                operate(in, member);
                break;
            case 1:
                request(in, member);
                break;
            case 2:
                answer(in, member);
                break;
            case 3:
                arbitrary(in, (what & 8) != 0 ? pml_ : osc_);
                break;
            case 4:
                message(in, member);
                break;
            case 5:
                part(in, member);
                break;
            case 6:
                if ((what & 8) != 0) ucp_worker_fence(osc_);
                flush((what & 16) != 0 ? to_[member] : nullptr);
                break;
            default:
                ucp_ep_close_nb(to_[member], UCP_EP_CLOSE_MODE_FORCE);
                to_[member] = connect(member);
        }
        notice();
        require(std::count(only_to_read().begin(), only_to_read().end(), kReadOnly) == kSmall);
    }

private:
    static constexpr std::size_t kLarge = std::size_t{300} << 10, kSmall = 4096;
    static constexpr std::uint8_t kReadOnly = 0xa1;

    const Bytes& only_to_read() const { return regions_[1].memory; }

    ucp_ep_h connect(std::uint8_t member) const {
        ucp_ep_params_t params = {};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(address_of(member).data());
        ucp_ep_h ep = nullptr;
        require(ucp_ep_create(osc_, &params, &ep) == UCS_OK);
        return ep;
    }

    void map(Region& region) {
        ucp_mem_map_params_t params = {};
        params.field_mask =
            UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT;
        params.address = region.memory.data();
        params.length = region.memory.size();
        params.prot = region.access;
        require(ucp_mem_map(nullptr, &params, &region.handle) == UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        require(ucp_rkey_pack(nullptr, region.handle, &packed, &size) == UCS_OK);
        require(ucp_ep_rkey_unpack(to_[0], packed, &region.key) == UCS_OK);
        ucp_rkey_buffer_release(packed);
    }

    /// In the region, or near it.
    std::uint64_t place_in(const Region& region, std::uint64_t where) const {
        const auto begin = reinterpret_cast<std::uint64_t>(region.memory.data());
        return where == 0xffffff ? ~std::uint64_t{0} - 7 : begin + where - (where > 0xf00000 ? 0x1000000 : 0);
    }

    void keep(void* request) {
        require(!UCS_PTR_IS_ERR(request));
        if (UCS_PTR_IS_PTR(request)) requests_.push_back(request);
    }

    void operate(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t kind = in.byte();
        const Region& region = regions_[in.byte() % regions_.size()];
        const std::uint64_t address = place_in(region, in.number(3));
        const std::size_t size = in.number(3) % (std::size_t{1} << 20);
        ucp_ep_h const ep = to_[member];
        // What a put may still read and a get may write.
        auto& local = locals_.emplace_back(size, std::uint8_t{0x55});
        auto& number = numbers_.emplace_back(0);
        const std::size_t short_or_long = kind % 2 != 0 ? 4 : 8;
        switch (kind / 2 % 4) {
            case 0:
                keep(ucp_put_nb(ep, local.data(), size, address, region.key, nullptr));
                break;
            case 1:
                keep(ucp_get_nb(ep, local.data(), size, address, region.key, nullptr));
                break;
            case 2:
                keep(ucp_atomic_fetch_nb(ep, kind < 64 ? UCP_ATOMIC_FETCH_OP_CSWAP : UCP_ATOMIC_FETCH_OP_FADD, 5,
                                         &number, short_or_long, address, region.key, nullptr));
                break;
            default:
                require(ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, 1, short_or_long, address, region.key) == UCS_OK);
        }
    }

    void flush(ucp_ep_h ep) {
        keep(ep != nullptr ? ucp_ep_flush_nb(ep, 0, nullptr) : ucp_worker_flush_nb(osc_, 0, nullptr));
    }

    void request(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t slip = in.byte(), kind = in.byte(), which = in.byte();
        const Region& region = regions_[which % regions_.size()];
        const std::uint64_t where = in.number(3), size = in.number(3);
        const std::uint8_t way = in.byte();
        const Bytes bytes = in.bytes(in.byte());
        Bytes plain;
        for (const std::uint64_t number :
             {std::uint64_t{kind}, std::uint64_t{1}, which < 128 ? region.number() : region.number() + which,
              place_in(region, where), size == 0xffffff ? ~std::uint64_t{0} - 7 : size, std::uint64_t{way}})
            fuzz::append(plain, number);
        plain.insert(plain.end(), bytes.begin(), bytes.end());
        // A long put has more bytes than an input.
        if (kind == static_cast<std::uint8_t>(What::put) && which % 4 == 3)
            plain.resize(48 + way + std::min<std::uint64_t>(size, kLarge), 0x77);
        const std::size_t before = sent.size();
        come(osc_, kRequests, members_.seal(member, Kind::active, kForMemory, slip, plain));
        require(sent.size() == before + 1 && sent.back().handler == kAnswers);
        const Bytes& told = sent.back().plain;
        const bool done = load_little(told.data() + 8) == 1;
        const bool reads = kind == static_cast<std::uint8_t>(What::get);
        require(told.size() == 16 + (done && kind != static_cast<std::uint8_t>(What::put) ? size : 0));
        if (!done) return;
        require(which < 128 && where + size <= region.memory.size());
        require((region.access & (reads ? UCP_MEM_MAP_PROT_REMOTE_READ : UCP_MEM_MAP_PROT_REMOTE_WRITE)) != 0);
    }

    void answer(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t slip = in.byte(), id = in.byte(), done = in.byte();
        Bytes plain;
        fuzz::append(plain, id);
        fuzz::append(plain, done);
        plain.resize(plain.size() + in.number(2), 0x77);
        come(osc_, kAnswers, members_.seal(member, Kind::message, kForMemory, slip, plain));
        require(asked_.erase({member, id}) == 1);
    }

    void arbitrary(fuzz::Reader& in, ucp_worker_h worker) {
        const std::uint8_t handler = in.byte(), header_size = in.byte();
        const Bytes bytes = in.bytes(in.byte());
        const Bytes header(header_size % 32, header_size);
        come(worker, worker == osc_ ? handler % 2 : handler % 2 + kNew, bytes, header, (handler & 2) != 0);
    }

    void message(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t slip = in.byte(), handler = in.byte();
        const auto header_size = static_cast<std::uint32_t>(in.number(2));
        Bytes plain = in.bytes(in.byte());
        // The highest bit asks for an answer.
        const std::uint32_t trailer = (header_size & 0x7fff) | (header_size & 0x8000) << 16;
        for (unsigned i = 0; i < 4; ++i) plain.push_back(static_cast<std::uint8_t>(trailer >> 8 * i));
        const unsigned id = handler % 2 + kNew;
        come(pml_, id, members_.seal(member, Kind::active, id, slip, plain), {}, (handler & 2) != 0,
             (handler & 4) != 0);
    }

    void part(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t slip = in.byte(), handler = in.byte();
        Place place;
        place.message = in.byte();
        place.begin = in.byte() * kPart;
        place.whole = kLongestWhole - 16 + in.number(2);
        const std::uint8_t more = in.byte();
        if ((handler & 8) != 0) place.begin += more;
        const std::size_t size = place.size().value_or(0);
        Bytes plain(size + ((handler & 8) != 0 ? 0 : more), 0);  // the last bytes are its trailer
        Bytes header(kPlaceSize);
        place.write(header.data());
        const unsigned id = handler % 2 + kNew;
        come(pml_, id, members_.seal(member, Kind::active, id, slip, plain), header, false, (handler & 4) != 0);
    }

    /// In a buffer of its own, so that nothing behind it is read.
    static void come(ucp_worker_h worker, unsigned id, const Bytes& bytes, const Bytes& header = {},
                     bool rendezvous = false, bool tells_way = false) {
        const auto& handler = reinterpret_cast<const ToyWorker*>(worker)->handlers.at(id);
        ucp_am_recv_param_t params = {};
        if (rendezvous) params.recv_attr |= UCP_AM_RECV_ATTR_FLAG_RNDV;
        if (tells_way) {
            params.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
            params.reply_ep = handle_of(way_back);
        }
        Bytes own = bytes;
        own.shrink_to_fit();
        handler.cb(handler.arg, header.data(), header.size(), own.data(), own.size(), &params);
    }

    /// What was asked of whom since the last time.
    void notice() {
        for (; noticed_ < sent.size(); ++noticed_) {
            const Sent& one = sent[noticed_];
            if (one.handler == kRequests) asked_.emplace(one.member, load_little(one.plain.data() + 8));
        }
    }

    ucp_worker_h osc_, pml_;
    std::array<ucp_ep_h, fuzz::kMembers> to_ = {};
    std::array<Region, 3> regions_ = {Region{kLarge, 0, UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE},
                                      Region{kSmall, kReadOnly, UCP_MEM_MAP_PROT_REMOTE_READ},
                                      Region{kSmall, 0xa2, UCP_MEM_MAP_PROT_REMOTE_WRITE}};
    fuzz::Members members_;
    std::deque<Bytes> locals_;
    std::deque<std::uint64_t> numbers_;
    std::vector<void*> requests_;
    std::set<std::pair<std::uint8_t, std::uint64_t>> asked_;
    std::size_t noticed_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Reader in(data, size);
    Program program;
    try {
        while (!in.is_empty()) program.act(in);
    } catch (const Ended&) {
        // The job is over.
    }
    return 0;
}
