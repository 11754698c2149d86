// One-sided operations at the door of UCX, over a fake UCP in one process that has active messages alone, and whose
// wire the tests change.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/ucx/around.hpp"
#include "fabric/ucx/blob.hpp"
#include "fabric/ucx/real.hpp"
#include "fake_process.hpp"
#include "seal/support.hpp"

namespace cryptmpi::fabric::ucx {
namespace {

using test::Attacked;
using test::Bytes;
using test::GaveUp;

test::FakeProcess process;

struct FakeWorker {
    std::map<unsigned, ucp_am_handler_param_t> handlers;
};

struct FakeEndpoint {
    FakeWorker* from;
    FakeWorker* to;
};

struct Message {
    FakeEndpoint* by;
    unsigned handler;
    Bytes bytes;
};

std::deque<Message> wire;

/// Sends that UCX has taken, and not made, where a test asks for that.
struct Taken {
    ucp_send_nbx_callback_t callback;
    void* data;
};
std::vector<Taken> taken;
bool takes_its_time = false;
std::deque<FakeEndpoint> endpoints;
std::uint64_t asked_features = 0;

Bytes copy(const void* at, std::size_t size) {
    const auto* const bytes = static_cast<const std::uint8_t*>(at);
    return {bytes, bytes + size};
}

void deliver_first() {
    Message one = std::move(wire.front());
    wire.pop_front();
    const auto& handler = one.by->to->handlers.at(one.handler);
    const ucp_am_recv_param_t params = {};
    handler.cb(handler.arg, nullptr, 0, one.bytes.data(), one.bytes.size(), &params);
}

void deliver() {
    while (!wire.empty()) deliver_first();
}

Real fakes() {
    Real real;
    real.ucp_init_version = [](unsigned, unsigned, const ucp_params_t* params, const ucp_config_t*,
                               ucp_context_h* out) {
        asked_features = params->features;
        static int contexts[1024];
        static int next = 0;
        *out = reinterpret_cast<ucp_context_h>(&contexts[next++]);
        return UCS_OK;
    };
    real.ucp_worker_create = [](ucp_context_h, const ucp_worker_params_t*, ucp_worker_h* out) {
        *out = reinterpret_cast<ucp_worker_h>(new FakeWorker);
        return UCS_OK;
    };
    real.ucp_worker_destroy = [](ucp_worker_h handle) { delete reinterpret_cast<FakeWorker*>(handle); };
    real.ucp_worker_progress = [](ucp_worker_h) {
        if (wire.empty()) throw std::logic_error("nothing comes any more, and somebody waits");
        deliver_first();
        return 1U;
    };
    real.ucp_worker_get_address = [](ucp_worker_h handle, ucp_address_t** address, size_t* size) {
        auto* const at = new FakeWorker*(reinterpret_cast<FakeWorker*>(handle));
        *address = reinterpret_cast<ucp_address_t*>(at);
        *size = sizeof *at;
        return UCS_OK;
    };
    real.ucp_worker_release_address = [](ucp_worker_h, ucp_address_t* address) {
        delete reinterpret_cast<FakeWorker**>(address);
    };
    real.ucp_ep_create = [](ucp_worker_h handle, const ucp_ep_params_t* params, ucp_ep_h* out) {
        FakeWorker* to = nullptr;
        std::memcpy(&to, params->address, sizeof to);
        *out = reinterpret_cast<ucp_ep_h>(
            &endpoints.emplace_back(FakeEndpoint{reinterpret_cast<FakeWorker*>(handle), to}));
        return UCS_OK;
    };
    real.ucp_ep_destroy = [](ucp_ep_h) {};
    real.ucp_dt_create_generic = [](const ucp_generic_dt_ops_t*, void*, ucp_datatype_t* type) {
        *type = UCP_DATATYPE_GENERIC;
        return UCS_OK;
    };
    real.ucp_dt_destroy = [](ucp_datatype_t) {};
    real.ucp_ep_close_nb = [](ucp_ep_h, unsigned) { return static_cast<ucs_status_ptr_t>(nullptr); };
    real.ucp_worker_set_am_recv_handler = [](ucp_worker_h handle, const ucp_am_handler_param_t* params) {
        reinterpret_cast<FakeWorker*>(handle)->handlers[params->id] = *params;
        return UCS_OK;
    };
    real.ucp_am_send_nbx = [](ucp_ep_h ep, unsigned id, const void*, size_t, const void* at, size_t size,
                              const ucp_request_param_t* params) {
        // UCX would send a pointer, in clear, and believe what comes back.
        EXPECT_EQ(params->flags & UCP_AM_SEND_FLAG_REPLY, 0U);
        if (takes_its_time) {
            taken.push_back({params->cb.send, params->user_data});
            return static_cast<ucs_status_ptr_t>(&taken);
        }
        wire.push_back({reinterpret_cast<FakeEndpoint*>(ep), id, copy(at, size)});
        return static_cast<ucs_status_ptr_t>(nullptr);
    };
    real.ucp_request_free = [](void*) {};
    return real;
}

}  // namespace

Surroundings& around() {
    return process;
}
const Real& real() {
    static const Real one = fakes();
    return one;
}
void take_calls() {}

namespace {

/// What Open MPI keeps in a request's memory.
struct Own {
    std::uint64_t mark;
    std::array<std::uint64_t, 8> more;
};
constexpr std::uint64_t kMark = 0x5a5a;
int called_back = 0;

void count(void* request, ucs_status_t status) {
    EXPECT_EQ(status, UCS_OK);
    EXPECT_EQ(static_cast<Own*>(request)->mark, kMark);
    ++called_back;
}

ucp_worker_h make_worker(std::uint64_t features) {
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE | UCP_PARAM_FIELD_REQUEST_INIT;
    params.features = features;
    params.request_size = sizeof(Own);
    params.request_init = [](void* request) { static_cast<Own*>(request)->mark = kMark; };
    ucp_context_h context = nullptr;
    EXPECT_EQ(ucp_init_version(1, 13, &params, nullptr, &context), UCS_OK);
    EXPECT_EQ(params.features, features) << "the program's own";
    ucp_worker_h worker = nullptr;
    const ucp_worker_params_t none = {};
    EXPECT_EQ(ucp_worker_create(context, &none, &worker), UCS_OK);
    return worker;
}

Bytes address_of(ucp_worker_h worker) {
    ucp_address_t* address = nullptr;
    size_t size = 0;
    EXPECT_EQ(ucp_worker_get_address(worker, &address, &size), UCS_OK);
    Bytes bytes = copy(address, size);
    ucp_worker_release_address(worker, address);
    return bytes;
}

ucp_ep_h connect(ucp_worker_h worker, const Bytes& address) {
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    ucp_ep_h ep = nullptr;
    EXPECT_EQ(ucp_ep_create(worker, &params, &ep), UCS_OK);
    return ep;
}

ucp_ep_h connect(ucp_worker_h worker, ucp_worker_h to) {
    return connect(worker, address_of(to));
}

constexpr std::uint64_t kOsc = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;

/// A reaches memory of B's.
class RemoteMemory : public testing::Test {
protected:
    void SetUp() override {
        wire.clear();
        process.refused.clear();
        called_back = 0;
        a_ = make_worker(kOsc);
        b_ = make_worker(kOsc);
        to_b_ = connect(a_, b_);
        memory_.assign(std::size_t{3} << 20, 0);
        key_ = map(memory_.data(), memory_.size());
    }
    void TearDown() override {
        ucp_rkey_destroy(key_);
        EXPECT_EQ(ucp_mem_unmap(nullptr, handle_), UCS_OK);
        ucp_worker_destroy(a_);
        ucp_worker_destroy(b_);
    }

    ucp_rkey_h map(void* at, std::size_t length, std::uint64_t more = 0, unsigned access = 0) {
        ucp_mem_map_params_t params = {};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | more;
        params.address = at;
        params.length = length;
        params.prot = access;
        EXPECT_EQ(ucp_mem_map(nullptr, &params, &handle_), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        EXPECT_EQ(ucp_rkey_pack(nullptr, handle_, &packed, &size), UCS_OK);
        ucp_rkey_h key = nullptr;
        EXPECT_EQ(ucp_ep_rkey_unpack(to_b_, packed, &key), UCS_OK);
        ucp_rkey_buffer_release(packed);
        return key;
    }

    std::uint64_t at(std::size_t offset) const { return reinterpret_cast<std::uint64_t>(memory_.data()) + offset; }
    std::uint64_t number(std::size_t offset) const { return load_little(memory_.data() + offset); }
    ucs_status_ptr_t flush() { return ucp_ep_flush_nb(to_b_, 0, count); }

    static bool shows(const std::string& secret) {
        return std::any_of(wire.begin(), wire.end(), [&](const Message& one) {
            return std::search(one.bytes.begin(), one.bytes.end(), secret.begin(), secret.end()) != one.bytes.end();
        });
    }

    ucp_worker_h a_ = nullptr, b_ = nullptr;
    ucp_ep_h to_b_ = nullptr;
    std::vector<std::uint8_t> memory_;
    ucp_mem_h handle_ = nullptr;
    ucp_rkey_h key_ = nullptr;
};

TEST_F(RemoteMemory, AsksUcxForMessagesAndForNoMemory) {
    EXPECT_EQ(asked_features, std::uint64_t{UCP_FEATURE_AM});
    ucp_worker_destroy(make_worker(kOsc | UCP_FEATURE_WAKEUP));
    EXPECT_EQ(asked_features, std::uint64_t{UCP_FEATURE_AM | UCP_FEATURE_WAKEUP});
    ucp_worker_destroy(make_worker(UCP_FEATURE_TAG));
    EXPECT_EQ(asked_features, std::uint64_t{UCP_FEATURE_TAG});
}

TEST_F(RemoteMemory, OfAnMpiThatCanSendMessagesIsOutOfReach) {
    const ucp_worker_h c = make_worker(kOsc | UCP_FEATURE_AM | UCP_FEATURE_TAG);
    // UCX would read and write any address for whoever sends it a packet.
    EXPECT_EQ(asked_features, std::uint64_t{UCP_FEATURE_AM | UCP_FEATURE_TAG});
    ucp_rkey_h key = nullptr;
    EXPECT_EQ(ucp_ep_rkey_unpack(connect(c, b_), "cmpfrkey00000000", &key), UCS_ERR_UNREACHABLE);
    EXPECT_TRUE(process.refused.empty());
    ucp_worker_destroy(c);
}

TEST_F(RemoteMemory, IsWrittenAndReadAndNothingOfItIsShown) {
    const std::string secret = "a secret of some length";
    ASSERT_EQ(ucp_put_nbi(to_b_, secret.data(), secret.size(), at(5), key_), UCS_OK) << "it may be changed now";
    EXPECT_FALSE(shows(secret));
    deliver();
    EXPECT_EQ(std::memcmp(memory_.data() + 5, secret.data(), secret.size()), 0);
    std::string got(secret.size(), '?');
    ASSERT_EQ(ucp_get_nbi(to_b_, got.data(), got.size(), at(5), key_), UCS_INPROGRESS);
    deliver_first();
    EXPECT_FALSE(shows(secret));
    deliver();
    EXPECT_EQ(got, secret);
}

TEST_F(RemoteMemory, OfManyPiecesComesWholeAndWithoutTooManyUnderWay) {
    std::vector<std::uint8_t> much(memory_.size());
    for (std::size_t i = 0; i < much.size(); ++i) much[i] = static_cast<std::uint8_t>(i * 7 + (i >> 11));
    for (int round = 0; round < 8; ++round) ucp_put_nbi(to_b_, much.data(), much.size(), at(0), key_);
    std::size_t under_way = 0;
    for (const Message& one : wire) under_way += one.bytes.size();
    EXPECT_LT(under_way, std::size_t{17} << 20);
    ASSERT_EQ(ucp_ep_flush(to_b_), UCS_OK);
    EXPECT_EQ(memory_, much);
    std::vector<std::uint8_t> got(much.size());
    ASSERT_EQ(ucp_get(to_b_, got.data(), got.size(), at(0), key_), UCS_OK);
    EXPECT_EQ(got, much);
}

TEST_F(RemoteMemory, OfManyOperationsKeepsWithinWhatAFlowAllows) {
    std::uint64_t value = 0;
    for (value = 0; value < 10'000; ++value) ucp_atomic_post(to_b_, UCP_ATOMIC_POST_OP_ADD, 1, 8, at(0), key_);
    EXPECT_LT(wire.size(), kMostEarly);
    ASSERT_EQ(ucp_worker_flush(a_), UCS_OK);
    EXPECT_EQ(number(0), value);
}

TEST_F(RemoteMemory, DoesEachAtomicOperation) {
    const auto fetched = [&](ucp_atomic_fetch_op_t operation, std::uint64_t value, std::uint64_t result = 0) {
        void* const request = ucp_atomic_fetch_nb(to_b_, operation, value, &result, 8, at(8), key_, count);
        EXPECT_TRUE(UCS_PTR_IS_PTR(request));
        deliver();
        EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
        ucp_request_free(request);
        return result;
    };
    EXPECT_EQ(fetched(UCP_ATOMIC_FETCH_OP_FADD, 5), 0U);
    EXPECT_EQ(fetched(UCP_ATOMIC_FETCH_OP_FXOR, 3), 5U);
    EXPECT_EQ(fetched(UCP_ATOMIC_FETCH_OP_FOR, 9), 6U);
    EXPECT_EQ(fetched(UCP_ATOMIC_FETCH_OP_FAND, 13), 15U);
    EXPECT_EQ(fetched(UCP_ATOMIC_FETCH_OP_SWAP, 100), 13U);
    EXPECT_EQ(fetched(UCP_ATOMIC_FETCH_OP_CSWAP, 99, 200), 100U) << "it is not 99";
    EXPECT_EQ(fetched(UCP_ATOMIC_FETCH_OP_CSWAP, 100, 200), 100U);
    EXPECT_EQ(number(8), 200U);
    EXPECT_EQ(called_back, 7);

    std::uint32_t before = 0;
    store_little(0xffffffff'ffffffff, memory_.data() + 16);
    ASSERT_EQ(ucp_atomic_fadd32(to_b_, 1, at(16), key_, &before), UCS_OK);
    EXPECT_EQ(before, 0xffffffffU);
    EXPECT_EQ(number(16), 0xffffffff'00000000) << "its neighbour is not touched";

    std::uint64_t reply = 7;
    const std::uint64_t compared = 200;
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_REPLY_BUFFER | UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_contig(8);
    params.reply_buffer = &reply;
    void* const request = ucp_atomic_op_nbx(to_b_, UCP_ATOMIC_OP_CSWAP, &compared, 1, at(8), key_, &params);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    deliver();
    EXPECT_EQ(reply, 200U);
    EXPECT_EQ(number(8), 7U);
    ucp_request_free(request);
}

/// A datatype of the program's own: every byte of it is turned over as it is packed, and back.
std::uint8_t turned(std::uint8_t byte) {
    return static_cast<std::uint8_t>(~byte);
}
struct Turning {
    std::uint8_t* at;
    std::size_t count;
};
int finished = 0;
const ucp_generic_dt_ops_t turning = {
    [](void*, const void* at, size_t count) -> void* {
        return new Turning{static_cast<std::uint8_t*>(const_cast<void*>(at)), count};
    },
    [](void*, void* at, size_t count) -> void* {
        return new Turning{static_cast<std::uint8_t*>(at), count};
    },
    [](void* state) { return static_cast<Turning*>(state)->count; },
    [](void* state, size_t offset, void* to, size_t most) {
        const auto& [at, count] = *static_cast<Turning*>(state);
        const std::size_t size = std::min(most, count - offset);
        std::transform(at + offset, at + offset + size, static_cast<std::uint8_t*>(to), turned);
        return size;
    },
    [](void* state, size_t offset, const void* from, size_t size) {
        const auto* const bytes = static_cast<const std::uint8_t*>(from);
        std::transform(bytes, bytes + size, static_cast<Turning*>(state)->at + offset, turned);
        return UCS_OK;
    },
    [](void* state) {
        delete static_cast<Turning*>(state);
        ++finished;
    },
};

TEST_F(RemoteMemory, IsReadAndWrittenByADatatypeOfTheProgramsOwn) {
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    ASSERT_EQ(ucp_dt_create_generic(&turning, nullptr, &params.datatype), UCS_OK);
    finished = 0;
    const Bytes told = test::random_bytes(1000);
    ASSERT_EQ(ucp_put_nbx(to_b_, told.data(), told.size(), at(0), key_, &params), nullptr);
    EXPECT_EQ(memory_[7], turned(told[7]));
    EXPECT_EQ(finished, 1);
    Bytes got(told.size());
    ASSERT_EQ(ucp_get_nbx(to_b_, got.data(), got.size(), at(0), key_, &params), nullptr);
    EXPECT_EQ(got, told);
    ucp_dt_destroy(params.datatype);
}

TEST_F(RemoteMemory, IsFlushedWhenThePeerHasAnsweredAll) {
    EXPECT_EQ(flush(), nullptr) << "nothing is under way";
    const std::uint64_t value = 1;
    ucp_put_nbi(to_b_, &value, sizeof value, at(0), key_);
    void* const request = flush();
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    deliver_first();
    EXPECT_EQ(ucp_request_check_status(request), UCS_INPROGRESS);
    EXPECT_EQ(called_back, 0);
    ucp_put_nbi(to_b_, &value, sizeof value, at(8), key_);
    deliver_first();
    EXPECT_EQ(ucp_request_check_status(request), UCS_OK) << "what came later does not count";
    EXPECT_EQ(called_back, 1);
    ucp_request_free(request);
    deliver();
}

TEST_F(RemoteMemory, IsNotReachedAfterAFenceBeforeAllIsAnswered) {
    const std::uint64_t one = 1, two = 2;
    ucp_put_nbi(to_b_, &one, sizeof one, at(0), key_);
    ASSERT_EQ(ucp_worker_fence(a_), UCS_OK);
    EXPECT_EQ(ucp_put_nbi(to_b_, &two, sizeof two, at(0), key_), UCS_INPROGRESS) << "it is read later";
    EXPECT_EQ(wire.size(), 1U);
    deliver_first();
    EXPECT_EQ(wire.size(), 1U) << "the answer";
    deliver_first();
    EXPECT_EQ(wire.size(), 1U) << "the second put";
    deliver();
    EXPECT_EQ(number(0), 2U);
}

/// A reaches C, and B makes no progress.
class Standstill : public RemoteMemory {
protected:
    void SetUp() override {
        RemoteMemory::SetUp();
        c_ = make_worker(kOsc);
        to_c_ = connect(a_, c_);
    }
    void TearDown() override {
        wire.clear();
        ucp_worker_destroy(c_);
        RemoteMemory::TearDown();
    }
    /// Delivers what is not from A to B.
    void deliver_without_b() {
        const auto* const still = reinterpret_cast<FakeEndpoint*>(to_b_);
        const auto moves = [&](const Message& one) { return one.by != still; };
        for (auto one = std::find_if(wire.begin(), wire.end(), moves); one != wire.end();
             one = std::find_if(wire.begin(), wire.end(), moves)) {
            std::rotate(wire.begin(), one, std::next(one));
            deliver_first();
        }
    }

    ucp_worker_h c_ = nullptr;
    ucp_ep_h to_c_ = nullptr;
};

TEST_F(Standstill, HoldsUpNobodyElseByItsBytes) {
    const std::vector<std::uint8_t> much(memory_.size(), 7);
    for (int round = 0; round < 8; ++round) ucp_put_nbi(to_b_, much.data(), much.size(), at(0), key_);
    const std::uint64_t value = 5;
    EXPECT_EQ(ucp_put_nbi(to_c_, &value, sizeof value, at(8), key_), UCS_OK);
    deliver_without_b();
    EXPECT_EQ(number(8), value);
    EXPECT_EQ(ucp_ep_flush_nb(to_c_, 0, count), nullptr);
}

TEST_F(Standstill, HoldsUpNobodyElseByItsRequests) {
    for (int i = 0; i < 3000; ++i) ucp_atomic_post(to_b_, UCP_ATOMIC_POST_OP_ADD, 1, 8, at(0), key_);
    for (int i = 0; i < 3000; ++i) {
        ucp_atomic_post(to_c_, UCP_ATOMIC_POST_OP_ADD, 1, 8, at(8), key_);
        deliver_without_b();
    }
    EXPECT_EQ(number(8), 3000U);
    EXPECT_EQ(number(0), 0U);
    deliver();
    EXPECT_EQ(number(0), 3000U);
}

TEST_F(Standstill, IsWaitedForByAFenceAtItsEndpointAlone) {
    const std::uint64_t value = 5;
    ucp_put_nbi(to_b_, &value, sizeof value, at(0), key_);
    ASSERT_EQ(ucp_worker_fence(a_), UCS_OK);
    EXPECT_EQ(ucp_put_nbi(to_c_, &value, sizeof value, at(8), key_), UCS_OK);
    EXPECT_EQ(ucp_put_nbi(to_b_, &value, sizeof value, at(16), key_), UCS_INPROGRESS);
    deliver_without_b();
    EXPECT_EQ(number(8), value);
    EXPECT_EQ(number(16), 0U);
    deliver();
    EXPECT_EQ(number(16), value);
}

TEST_F(Standstill, OfManyKeepsWithinTheMemoryOfAll) {
    const std::vector<std::uint8_t> much(std::size_t{20} << 20, 7);
    std::vector<ucp_ep_h> others;
    for (int i = 0; i < 8; ++i) others.push_back(connect(a_, b_));
    for (ucp_ep_h const other : others) ucp_put_nbi(other, much.data(), much.size(), at(0), key_);
    std::size_t under_way = 0;
    for (const Message& one : wire) under_way += one.bytes.size();
    EXPECT_LT(under_way, std::size_t{67} << 20);
    EXPECT_GT(under_way, std::size_t{60} << 20);
    wire.clear();
}

/// UCX has taken it, and nobody will ever answer.
TEST_F(RemoteMemory, IsGivenUpWhereUcxCannotSendARequestAfterAll) {
    const std::uint64_t value = 5;
    takes_its_time = true;
    ucp_put_nbi(to_b_, &value, sizeof value, at(0), key_);
    takes_its_time = false;
    ASSERT_EQ(taken.size(), 1U);
    const auto [callback, data] = taken.front();
    taken.clear();
    EXPECT_THROW(callback(&taken, UCS_ERR_CONNECTION_RESET, data), GaveUp);
}

TEST_F(RemoteMemory, TellsNobodyOfARequestThatWasFreedBefore) {
    std::uint64_t result = 0;
    const auto fetch = [&] {
        return ucp_atomic_fetch_nb(to_b_, UCP_ATOMIC_FETCH_OP_FADD, 1, &result, 8, at(0), key_, count);
    };
    ucp_request_free(fetch());
    deliver();
    EXPECT_EQ(called_back, 0);
    ucp_request_release(fetch());
    deliver();
    EXPECT_EQ(called_back, 1) << "as UCX does after a release";
}

TEST_F(RemoteMemory, IsWaitedForBeforeAnEndpointIsClosed) {
    const std::uint64_t value = 3;
    ucp_put_nbi(to_b_, &value, sizeof value, at(0), key_);
    ucp_ep_destroy(to_b_);
    EXPECT_EQ(number(0), 3U);
    EXPECT_TRUE(wire.empty());
}

TEST_F(RemoteMemory, IsNotWaitedForWhenAnEndpointIsClosedByForce) {
    std::uint64_t result = 0;
    static ucs_status_t told = UCS_OK;
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.user_data = &told;
    params.cb.send = [](void*, ucs_status_t status, void* data) { *static_cast<ucs_status_t*>(data) = status; };
    void* const request = ucp_get_nbx(to_b_, &result, sizeof result, at(0), key_, &params);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    ucp_ep_close_nb(to_b_, UCP_EP_CLOSE_MODE_FORCE);
    EXPECT_EQ(told, UCS_ERR_CANCELED);
    ucp_request_free(request);
    memory_[0] = 0x77;
    deliver();
    EXPECT_EQ(result, 0U) << "what comes now is for nobody";
}

// protocol: F9
TEST_F(RemoteMemory, IsReachedWhereItIsMappedAlone) {
    std::uint64_t value = 1;
    const auto reaches = [&](std::uint64_t address, std::size_t size, ucp_rkey_h key) {
        std::vector<std::uint8_t> bytes(size, 0xee);
        ucp_put_nbi(to_b_, bytes.data(), size, address, key);
        try {
            deliver();
        } catch (const GaveUp&) {
            wire.clear();
            return false;
        }
        return true;
    };
    EXPECT_TRUE(reaches(at(memory_.size() - 8), 8, key_));
    // Each job that ends leaves what it waited for.
    EXPECT_FALSE(reaches(at(memory_.size() - 7), 8, key_));
    EXPECT_FALSE(reaches(at(0) - 1, 8, key_));
    EXPECT_FALSE(reaches(~std::uint64_t{0} - 3, 8, key_));

    ucp_mem_h const all = handle_;
    ucp_rkey_h const to_read = map(&value, sizeof value, UCP_MEM_MAP_PARAM_FIELD_PROT, UCP_MEM_MAP_PROT_REMOTE_READ);
    EXPECT_FALSE(reaches(reinterpret_cast<std::uint64_t>(&value), 8, to_read));
    EXPECT_EQ(value, 1U);
    EXPECT_EQ(ucp_mem_unmap(nullptr, handle_), UCS_OK);
    ucp_rkey_h const closed = map(&value, sizeof value);
    EXPECT_EQ(ucp_mem_unmap(nullptr, handle_), UCS_OK);
    EXPECT_FALSE(reaches(reinterpret_cast<std::uint64_t>(&value), 8, closed));
    EXPECT_EQ(value, 1U);
    ucp_rkey_destroy(to_read);
    ucp_rkey_destroy(closed);
    handle_ = all;
}

// protocol: F10
TEST_F(RemoteMemory, IsLeftAloneByWhatIsAltered) {
    const std::uint64_t value = 0x0123456789abcdef;
    ucp_put_nbi(to_b_, &value, sizeof value, at(0), key_);
    const Message whole = wire.front();
    for (std::size_t at = 0; at < whole.bytes.size(); ++at) {
        wire.assign(1, whole);
        wire.front().bytes[at] ^= 1;
        EXPECT_THROW(deliver_first(), Attacked) << at;
        EXPECT_EQ(number(0), 0U);
    }
    for (std::size_t size = 0; size < whole.bytes.size(); ++size) {
        wire.assign(1, whole);
        wire.front().bytes.resize(size);
        EXPECT_THROW(deliver_first(), Attacked) << size;
    }
    wire.assign(1, whole);
    wire.front().handler = 1;
    wire.front().by = &endpoints.emplace_back(FakeEndpoint{whole.by->from, whole.by->to});
    EXPECT_THROW(deliver_first(), Attacked) << "a request as an answer";
    wire.assign(2, whole);
    deliver_first();
    EXPECT_EQ(number(0), value);
    memory_[0] = 0;
    EXPECT_THROW(deliver_first(), Attacked) << "replayed";
    EXPECT_EQ(memory_[0], 0);
}

TEST_F(RemoteMemory, GivesNoAlteredAnswerToTheProgram) {
    memory_[0] = 0x77;
    std::uint64_t got = 0;
    ucp_get_nbi(to_b_, &got, sizeof got, at(0), key_);
    deliver_first();
    const Message whole = wire.front();
    for (std::size_t at = 0; at < whole.bytes.size(); ++at) {
        wire.assign(1, whole);
        wire.front().bytes[at] ^= 1;
        EXPECT_THROW(deliver_first(), Attacked) << at;
        EXPECT_EQ(got, 0U);
    }
    wire.assign(2, whole);
    deliver_first();
    EXPECT_EQ(got, 0x77U);
    EXPECT_THROW(deliver_first(), Attacked) << "replayed";
}

TEST_F(RemoteMemory, IsAnsweredOnAWayThatIsMadeOnce) {
    const std::size_t before = endpoints.size();
    std::uint64_t value = 1;
    for (int round = 0; round < 3; ++round) ucp_put_nbi(to_b_, &value, sizeof value, at(0), key_);
    deliver();
    EXPECT_EQ(endpoints.size(), before + 1);
    const std::size_t first = [&] {
        ucp_put_nbi(to_b_, &value, sizeof value, at(0), key_);
        return wire.front().bytes.size();
    }();
    EXPECT_EQ(first, kOverhead + 48 + sizeof value) << "the way is known";
    deliver();

    // B's own endpoint serves, and is closed.
    const ucp_worker_h c = make_worker(kOsc);
    const ucp_ep_h c_to_b = connect(c, b_);
    const ucp_ep_h b_to_c = connect(b_, c);
    const std::size_t made = endpoints.size();
    ucp_put_nbi(c_to_b, &value, sizeof value, at(0), key_);
    deliver();
    EXPECT_EQ(endpoints.size(), made);
    ucp_ep_destroy(b_to_c);
    ucp_put_nbi(c_to_b, &value, sizeof value, at(0), key_);
    deliver();
    EXPECT_EQ(endpoints.size(), made + 1);
    ucp_worker_destroy(c);
}

// protocol: F18
TEST_F(RemoteMemory, OfOnePeerIsNotAnsweredByAnother) {
    const ucp_worker_h c = make_worker(kOsc);
    const ucp_ep_h to_c = connect(a_, c);
    std::uint64_t at_b = 0, at_c = 0;
    ucp_get_nbi(to_b_, &at_b, sizeof at_b, at(0), key_);  // its id is 1
    const ucp_worker_h d = make_worker(kOsc);
    const ucp_ep_h d_to_c = connect(d, c);
    ucp_get_nbi(d_to_c, &at_c, sizeof at_c, at(0), key_);  // and this one's, too
    wire.pop_front();
    deliver_first();
    wire.front().by = &endpoints.emplace_back(FakeEndpoint{nullptr, reinterpret_cast<FakeEndpoint*>(to_c)->from});
    EXPECT_THROW(deliver_first(), Attacked) << "an answer for another asker";
    EXPECT_EQ(at_b, 0U);
    ucp_worker_destroy(c);
    ucp_worker_destroy(d);
}

/// A member of the job that says by its right what it should not.
class Member {
public:
    Member() : party_(std::move(*Party::make(**process.job()))) {
        Bytes address(kBlobPrefix + sizeof(FakeWorker*));
        FakeWorker* const nowhere = &worker_;
        EXPECT_TRUE(write_blob(*party_, copy(&nowhere, sizeof nowhere), address.data()));
        address_ = std::move(address);
    }

    ucp_ep_h reached_from(ucp_worker_h worker) const { return connect(worker, address_); }

    /// To the handler of `to`: 0 takes requests, 1 answers.
    void say(ucp_worker_h to, unsigned handler, std::vector<std::uint64_t> numbers, const std::string& bytes = "") {
        const Bytes address = address_of(to);
        auto blob = read_blob(*party_, address.data());
        ASSERT_TRUE(blob);
        auto peer = party_->meet(blob->share);
        ASSERT_TRUE(peer);
        const std::size_t size = numbers.size() * sizeof numbers[0] + bytes.size();
        const iovec pieces[] = {{numbers.data(), size - bytes.size()}, {const_cast<char*>(bytes.data()), bytes.size()}};
        Bytes sealed(size + kOverhead);
        const Envelope envelope = {handler == 0 ? Kind::active : Kind::message, std::uint64_t{1} << 32};
        ASSERT_TRUE(party_->seal(**peer, envelope, pieces, size, sealed.data()));
        const auto& taker = reinterpret_cast<FakeWorker*>(to)->handlers.at(handler);
        const ucp_am_recv_param_t params = {};
        taker.cb(taker.arg, nullptr, 0, sealed.data(), sealed.size(), &params);
    }

private:
    FakeWorker worker_;
    std::unique_ptr<Party> party_;
    Bytes address_;
};

// protocol: F18
TEST_F(RemoteMemory, OfOnePeerIsNotAnsweredByAMemberThatWasNotAsked) {
    Member member;
    std::uint64_t got = 0;
    ucp_get_nbi(to_b_, &got, sizeof got, at(0), key_);
    EXPECT_THROW(member.say(a_, 1, {1, 1}, "8 bytes!"), Attacked);
    EXPECT_EQ(got, 0U);
    deliver();
    // What was asked and answered is answered no more, and what never was, never.
    EXPECT_THROW(member.say(a_, 1, {1, 1}, "8 bytes!"), Attacked);
    EXPECT_THROW(member.say(a_, 1, {1'000, 1}, "8 bytes!"), Attacked);
}

TEST_F(RemoteMemory, IsAnsweredInTheLengthThatWasAsked) {
    Member member;
    const ucp_ep_h to_member = member.reached_from(a_);
    std::string got(8, '?');
    ucp_get_nbi(to_member, got.data(), got.size(), 0, key_);
    EXPECT_THROW(member.say(a_, 1, {1, 1}, "7 bytes"), Attacked);
    EXPECT_THROW(member.say(a_, 1, {1, 1}, "more bytes than were asked for"), Attacked);
    EXPECT_EQ(got, std::string(8, '?'));
    member.say(a_, 1, {1, 1}, "8 bytes!");
    EXPECT_EQ(got, "8 bytes!");
    EXPECT_THROW(member.say(a_, 1, {1, 1}, "8 bytes!"), Attacked) << "twice";
}

// protocol: F10
TEST_F(RemoteMemory, IsLeftAloneByRequestsThatNobodyMakes) {
    Member member;
    const std::uint64_t key = 1'000'000;
    using Numbers = std::vector<std::uint64_t>;
    const auto refused = [&](const Numbers& numbers, const std::string& bytes) {
        EXPECT_THROW(member.say(b_, 0, numbers, bytes), Attacked) << numbers[0] << " of " << numbers[4];
    };
    const std::string way(8, 'w');
    refused({0, 1, key, at(0), 8, 8}, way);  // of no kind
    refused({9, 1, key, at(0), 8, 8}, way);
    refused({1, 1, key, at(0), (256 << 10) + 1, 8}, way);  // longer than any
    refused({2, 1, key, at(0), 8, 8}, way + "short");      // of another length than it says
    refused({2, 1, key, at(0), 8, ~std::uint64_t{0} - 7}, way + "8 bytes!");
    refused({3, 1, key, at(0), 2, 8}, way + "8 bytes!");  // of no number
    refused({3, 1, key, at(0), 8, 8}, way);
    refused({8, 1, key, at(0), 8, 8}, way + "8 bytes!");
    refused({2, 1, key, at(0), 8, 0}, "8 bytes!");  // nobody knows where the answer goes
    EXPECT_EQ(number(0), 0U);
}

}  // namespace
}  // namespace cryptmpi::fabric::ucx
