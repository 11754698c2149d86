// The door of UCX over a fake UCP in one process, whose wire the tests change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "fabric/ucx/around.hpp"
#include "fabric/ucx/blob.hpp"
#include "fabric/ucx/ends.hpp"
#include "fabric/ucx/parts.hpp"
#include "fabric/ucx/real.hpp"
#include "fake_process.hpp"
#include "heap.hpp"
#include "seal/support.hpp"

namespace cryptmpi::fabric::ucx {
namespace {

using test::Attacked;
using test::Bytes;

test::FakeProcess process;

struct Message {
    struct FakeWorker* to;
    std::uint64_t tag;
    Bytes bytes;
    Bytes header = {};
};

struct FakeWorker {
    std::deque<Message> tagged;
    std::map<unsigned, ucp_am_handler_param_t> handlers;
};

/// A receive that is over.
struct FakeRequest {
    ucs_status_t status;
    ucp_tag_recv_info_t info;
};
int requests = 0;  // that nobody has freed
std::vector<void*> released;
std::deque<FakeRequest> allocated;  // since a job that ends frees none

std::deque<Message> wire, active;

/// A receive that is completed later, by another thread: first its status, then its callback.
struct Later {
    FakeWorker* worker = nullptr;
    void* at = nullptr;
    FakeRequest request = {UCS_INPROGRESS, {}};
    ucp_tag_recv_nbx_callback_t callback = nullptr;
    void* data = nullptr;
};
Later* later = nullptr;  // where a receive is to be so
std::function<void(ucp_worker_h)> on_destroy;

FakeWorker* fake(ucp_worker_h handle) {
    return reinterpret_cast<FakeWorker*>(handle);
}
FakeWorker* fake(ucp_ep_h handle) {
    return reinterpret_cast<FakeWorker*>(handle);
}

/// Memory that UCX got for messages. It keeps it registered with the network, and whoever has seen a key may read
/// there.
std::vector<std::pair<const std::uint8_t*, std::size_t>> lent;
void lend(const void* at, std::size_t size) {
    lent.emplace_back(static_cast<const std::uint8_t*>(at), size);
}
bool was_lent(const void* at) {
    return std::any_of(lent.begin(), lent.end(),
                       [&](const auto& one) { return at >= one.first && at < one.first + one.second; });
}

Bytes copy(const void* at, std::size_t size) {
    const auto* const bytes = static_cast<const std::uint8_t*>(at);
    return {bytes, bytes + size};
}

/// Datatypes with functions, as UCX keeps them; it moves so many bytes at once.
std::deque<ucp_generic_dt_ops_t> generics;
constexpr std::size_t kFragment = 10'000;

const ucp_generic_dt_ops_t* generic_of(const ucp_request_param_t& params) {
    if ((params.op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) == 0) return nullptr;
    if ((params.datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_GENERIC) return nullptr;
    return &generics.at(params.datatype >> UCP_DATATYPE_SHIFT);
}

/// Of messages in segments, which the door has as elements of a datatype: where their segments lie.
std::vector<const std::uint8_t*> in_segments;

/// The bytes that a send means.
Bytes packed(const void* at, std::size_t count, const ucp_request_param_t& params) {
    const auto* const generic = generic_of(params);
    if (generic == nullptr) return copy(at, count);
    in_segments.push_back(static_cast<const Operation*>(at)->wire.data());
    void* const state = generic->start_pack(nullptr, at, count);
    Bytes bytes(generic->packed_size(state));
    for (std::size_t done = 0; done < bytes.size();)
        done += generic->pack(state, done, bytes.data() + done, std::min(kFragment, bytes.size() - done));
    generic->finish(state);
    return bytes;
}

bool backwards = false;  // fragments come in the wrong order

/// False: there is no room for that, which UCX sees at the first fragment that does not fit, as those before it are
/// there.
bool unpacked(const Bytes& bytes, void* at, std::size_t count, const ucp_request_param_t& params) {
    const auto* const generic = generic_of(params);
    if (generic == nullptr) {
        if (bytes.size() > count) return false;
        std::memcpy(at, bytes.data(), bytes.size());
        return true;
    }
    in_segments.push_back(static_cast<const Operation*>(at)->wire.data());
    void* const state = generic->start_unpack(nullptr, at, count);
    std::vector<std::size_t> offsets;
    for (std::size_t done = 0; done < bytes.size(); done += kFragment) offsets.push_back(done);
    if (backwards) std::reverse(offsets.begin(), offsets.end());
    bool fits = true;
    for (const std::size_t offset : offsets) {
        const std::size_t size = std::min(kFragment, bytes.size() - offset);
        fits = offset + size <= generic->packed_size(state);
        if (!fits) break;
        EXPECT_EQ(generic->unpack(state, offset, bytes.data() + offset, size), UCS_OK);
    }
    generic->finish(state);
    return fits;
}

Real fakes() {
    Real real;
    real.ucp_dt_create_generic = [](const ucp_generic_dt_ops_t* operations, void*, ucp_datatype_t* type) {
        *type = generics.size() << UCP_DATATYPE_SHIFT | UCP_DATATYPE_GENERIC;
        generics.push_back(*operations);
        return UCS_OK;
    };
    real.ucp_worker_address_query = [](ucp_address_t*, ucp_worker_address_attr_t* attributes) {
        attributes->worker_uid = 42;
        return UCS_OK;
    };
    real.ucp_init_version = [](unsigned, unsigned, const ucp_params_t*, const ucp_config_t*, ucp_context_h* out) {
        *out = reinterpret_cast<ucp_context_h>(new int);
        return UCS_OK;
    };
    real.ucp_dt_destroy = [](ucp_datatype_t) {};
    real.ucp_worker_create = [](ucp_context_h, const ucp_worker_params_t*, ucp_worker_h* out) {
        *out = reinterpret_cast<ucp_worker_h>(new FakeWorker);
        return UCS_OK;
    };
    real.ucp_worker_destroy = [](ucp_worker_h handle) {
        if (on_destroy) on_destroy(handle);
        delete fake(handle);
    };
    real.ucp_worker_get_address = [](ucp_worker_h handle, ucp_address_t** address, size_t* size) {
        auto* const at = new FakeWorker*(fake(handle));
        *address = reinterpret_cast<ucp_address_t*>(at);
        *size = sizeof *at;
        return UCS_OK;
    };
    real.ucp_worker_release_address = [](ucp_worker_h, ucp_address_t* address) {
        delete reinterpret_cast<FakeWorker**>(address);
    };
    real.ucp_ep_create = [](ucp_worker_h, const ucp_ep_params_t* params, ucp_ep_h* out) {
        FakeWorker* to = nullptr;
        std::memcpy(&to, params->address, sizeof to);
        *out = reinterpret_cast<ucp_ep_h>(to);
        return UCS_OK;
    };
    real.ucp_tag_send_nbx = [](ucp_ep_h ep, const void* at, size_t size, ucp_tag_t tag,
                               const ucp_request_param_t* params) {
        lend(at, size);
        wire.push_back({fake(ep), tag, packed(at, size, *params)});
        return static_cast<ucs_status_ptr_t>(nullptr);
    };
    real.ucp_tag_recv_nbx = [](ucp_worker_h handle, void* at, size_t size, ucp_tag_t tag, ucp_tag_t mask,
                               const ucp_request_param_t* params) -> ucs_status_ptr_t {
        lend(at, size);
        auto& queue = fake(handle)->tagged;
        if (later != nullptr) {
            *later = {fake(handle), at, {UCS_INPROGRESS, {}}, params->cb.recv, params->user_data};
            return &later->request;
        }
        for (auto one = queue.begin(); one != queue.end(); ++one) {
            if (((one->tag ^ tag) & mask) != 0) continue;
            const ucp_tag_recv_info_t info = {one->tag, one->bytes.size()};
            const Bytes bytes = one->bytes;
            queue.erase(one);
            const bool fits = unpacked(bytes, at, size, *params);
            const ucs_status_t status = fits ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED;
            const bool own = (params->op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST) != 0;
            auto* const request = own ? static_cast<FakeRequest*>(params->request) : &allocated.emplace_back();
            *request = {status, info};
            if ((params->op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) == 0) {
                return UCS_STATUS_PTR(status);  // UCX 1.13 tells nothing of the message here
            }
            ++requests;
            params->cb.recv(request, status, &info, params->user_data);
            return request;
        }
        return UCS_STATUS_PTR(UCS_ERR_NO_MESSAGE);
    };
    real.ucp_tag_probe_nb = [](ucp_worker_h handle, ucp_tag_t tag, ucp_tag_t mask, int remove,
                               ucp_tag_recv_info_t* info) -> ucp_tag_message_h {
        EXPECT_EQ(remove, 0);
        for (Message& one : fake(handle)->tagged) {
            if (((one.tag ^ tag) & mask) != 0) continue;
            *info = {one.tag, one.bytes.size()};
            return reinterpret_cast<ucp_tag_message_h>(&one);
        }
        return nullptr;
    };
    real.ucp_request_check_status = [](void* request) { return static_cast<FakeRequest*>(request)->status; };
    real.ucp_request_test = [](void* request, ucp_tag_recv_info_t* info) {
        *info = static_cast<FakeRequest*>(request)->info;
        return static_cast<FakeRequest*>(request)->status;
    };
    real.ucp_tag_recv_request_test = real.ucp_request_test;
    real.ucp_request_free = [](void*) { --requests; };
    real.ucp_request_release = [](void* request) { released.push_back(request); };
    real.ucp_worker_set_am_recv_handler = [](ucp_worker_h handle, const ucp_am_handler_param_t* params) {
        fake(handle)->handlers[params->id] = *params;
        return UCS_OK;
    };
    real.ucp_am_send_nbx = [](ucp_ep_h ep, unsigned id, const void* header, size_t header_size, const void* at,
                              size_t size, const ucp_request_param_t*) {
        lend(at, size);
        active.push_back({fake(ep), id, copy(at, size), copy(header, header_size)});
        return static_cast<ucs_status_ptr_t>(nullptr);
    };
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

struct Came {
    Bytes header, data;
};
std::vector<Came> came;

ucs_status_t on_active(void*, const void* header, size_t header_size, void* data, size_t size,
                       const ucp_am_recv_param_t*) {
    EXPECT_FALSE(was_lent(header));
    EXPECT_FALSE(was_lent(data));
    came.push_back({copy(header, header_size), copy(data, size)});
    return UCS_OK;
}

/// A sender and a receiver with an endpoint between them.
class Door : public testing::Test {
protected:
    void SetUp() override {
        wire.clear();
        active.clear();
        allocated.clear();
        came.clear();
        lent.clear();
        const ucp_worker_params_t params = {};
        ASSERT_EQ(ucp_worker_create(nullptr, &params, &a_), UCS_OK);
        ASSERT_EQ(ucp_worker_create(nullptr, &params, &b_), UCS_OK);
        to_b_ = connect(a_, address_of(b_));
        ucp_am_handler_param_t handler = {};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
        handler.id = 7;
        handler.cb = on_active;
        ASSERT_EQ(ucp_worker_set_am_recv_handler(b_, &handler), UCS_OK);
    }
    void TearDown() override {
        ucp_worker_destroy(a_);
        if (b_ != nullptr) ucp_worker_destroy(b_);
    }

    static ucp_worker_h worker_of_several_threads() {
        ucp_worker_params_t several = {};
        several.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        several.thread_mode = UCS_THREAD_MODE_MULTI;
        ucp_worker_h worker = nullptr;
        EXPECT_EQ(ucp_worker_create(nullptr, &several, &worker), UCS_OK);
        return worker;
    }

    static Bytes address_of(ucp_worker_h worker) {
        ucp_address_t* address = nullptr;
        size_t size = 0;
        EXPECT_EQ(ucp_worker_get_address(worker, &address, &size), UCS_OK);
        Bytes bytes = copy(address, size);
        ucp_worker_release_address(worker, address);
        return bytes;
    }
    static ucp_ep_h connect(ucp_worker_h worker, const Bytes& address) {
        ucp_ep_params_t params = {};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(address.data());
        ucp_ep_h ep = nullptr;
        EXPECT_EQ(ucp_ep_create(worker, &params, &ep), UCS_OK);
        return ep;
    }
    void send(ucp_tag_t tag, const std::string& text) {
        const ucp_request_param_t params = {};
        EXPECT_EQ(ucp_tag_send_nbx(to_b_, text.data(), text.size(), tag, &params), nullptr);
    }
    static void deliver() {
        for (; !wire.empty(); wire.pop_front()) wire.front().to->tagged.push_back(wire.front());
    }
    /// What a receive of at most 64 bytes gets.
    std::string receive(ucp_tag_t tag, std::size_t room = 64) {
        std::string text(room, '?');
        ucp_tag_recv_info_t info = {};
        ucp_request_param_t params = {};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO;
        params.recv_info.tag_info = &info;
        const auto answer = ucp_tag_recv_nbx(b_, text.data(), room, tag, ~ucp_tag_t{0}, &params);
        if (answer != nullptr) return ucs_status_string_of(UCS_PTR_STATUS(answer));
        EXPECT_EQ(info.sender_tag, tag);
        return text.substr(0, info.length);
    }
    static std::string ucs_status_string_of(ucs_status_t status) { return "status " + std::to_string(status); }
    void send_active(const std::string& header, const std::string& text) {
        const ucp_request_param_t params = {};
        EXPECT_EQ(ucp_am_send_nbx(to_b_, 7, header.data(), header.size(), text.data(), text.size(), &params), nullptr);
    }
    static void deliver_active() {
        for (; !active.empty(); active.pop_front()) {
            Message& one = active.front();
            const auto& handler = one.to->handlers[static_cast<unsigned>(one.tag)];
            const ucp_am_recv_param_t params = {};
            handler.cb(handler.arg, one.header.data(), one.header.size(), one.bytes.data(), one.bytes.size(), &params);
        }
    }
    /// The parts of a message with this text; nothing is on its way afterwards.
    std::deque<Message> parts_of(const std::string& text) {
        active.clear();
        send_active("header", text);
        return std::exchange(active, {});
    }
    static void deliver_parts(const std::deque<Message>& parts) {
        active = parts;
        deliver_active();
    }
    static void expect_refused(const std::deque<Message>& parts, const char* why) {
        active = parts;
        EXPECT_THROW(deliver_active(), Attacked) << why;
    }

    ucp_worker_h a_ = nullptr, b_ = nullptr;
    ucp_ep_h to_b_ = nullptr;
};

/// UCX may give its address to a new one at once.
TEST_F(Door, ForgetsAWorkerBeforeUcxDestroysIt) {
    int asked = 0;
    on_destroy = [&](ucp_worker_h handle) {
        EXPECT_EQ(Ends::get().find(handle), nullptr);
        ++asked;
    };
    ucp_worker_destroy(std::exchange(b_, nullptr));
    on_destroy = nullptr;
    EXPECT_EQ(asked, 1);
}

/// Each thread has a worker of its own, and looks for the request that it frees at all of them.
TEST(Workers, AreLookedThroughWhileTheirThreadsUseThem) {
    constexpr int kRounds = 200'000;
    Worker worker(Ends::get().pool());
    const int theirs = 0;
    std::thread other([&] {
        for (int i = 0; i < kRounds; ++i) EXPECT_EQ(worker.find(&theirs), nullptr);
    });
    for (int i = 0; i < kRounds; ++i) {
        const auto first = std::make_unique<Operation>();
        const auto second = std::make_unique<Operation>();
        worker.add(*first);
        worker.add(*second);
        worker.remove(*first);
        worker.remove(*second);
    }
    other.join();
}

TEST_F(Door, CarriesTaggedMessagesAndHidesThem) {
    send(5, "a secret");
    ASSERT_EQ(wire.size(), 1U);
    EXPECT_EQ(wire.front().bytes.size(), 8 + kOverhead);
    EXPECT_EQ(std::string(wire.front().bytes.begin(), wire.front().bytes.end()).find("secret"), std::string::npos);
    deliver();
    EXPECT_EQ(receive(5), "a secret");
}

TEST_F(Door, FindsEveryFlippedByte) {
    send(5, "a secret");
    const Message whole = wire.front();
    wire.clear();
    for (std::size_t at = 0; at < whole.bytes.size(); ++at) {
        wire.push_back(whole);
        wire.front().bytes[at] ^= 1;
        deliver();
        EXPECT_THROW(receive(5), Attacked) << at;
    }
}

TEST_F(Door, FindsReplayDropSwapAndAnotherTag) {
    send(5, "one");
    wire.push_back(wire.front());
    deliver();
    EXPECT_EQ(receive(5), "one");
    EXPECT_THROW(receive(5), Attacked) << "replayed";

    send(6, "one");
    send(6, "two");
    wire.pop_front();
    deliver();
    EXPECT_THROW(receive(6), Attacked) << "dropped";

    send(7, "one");
    send(7, "two");
    std::swap(wire[0], wire[1]);
    deliver();
    EXPECT_THROW(receive(7), Attacked) << "swapped";

    send(8, "one");
    wire.front().tag = 9;
    deliver();
    EXPECT_THROW(receive(9), Attacked) << "under another tag";
}

TEST_F(Door, FindsShortenedAndForgedMessages) {
    send(5, "one");
    wire.front().bytes.resize(kOverhead - 1);
    deliver();
    EXPECT_THROW(receive(5), Attacked);
    wire.push_back({fake(b_), 6, Bytes(kOverhead + 3, 0x55)});
    deliver();
    EXPECT_THROW(receive(6), Attacked);
}

// protocol: F16
TEST_F(Door, LeavesNothingOfAnAlteredMessageInTheBuffer) {
    send(5, "a secret");
    wire.front().bytes.back() ^= 1;
    deliver();
    char text[8];
    std::memset(text, '?', sizeof text);
    const ucp_request_param_t params = {};
    EXPECT_THROW(ucp_tag_recv_nbx(b_, text, sizeof text, 5, ~ucp_tag_t{0}, &params), Attacked);
    EXPECT_EQ(std::string(text, sizeof text), std::string(8, '\0'));
}

TEST_F(Door, TruncatesAsUcxDoes) {
    send(5, "too long for it");
    send(5, "fits");
    deliver();
    process.cut_off.clear();
    EXPECT_EQ(receive(5, 4), ucs_status_string_of(UCS_ERR_MESSAGE_TRUNCATED));
    EXPECT_EQ(process.cut_off, std::vector<std::string>()) << "it opened";
    EXPECT_EQ(receive(5), "fits");
}

TEST_F(Door, SaysWhatUcxCutOff) {
    send(5, std::string(1000, 'x'));
    send(5, "fits");
    deliver();
    process.cut_off.clear();
    EXPECT_EQ(receive(5, 4), ucs_status_string_of(UCS_ERR_MESSAGE_TRUNCATED));
    EXPECT_EQ(process.cut_off.size(), 1U);
    EXPECT_EQ(receive(5), "fits");
}

TEST_F(Door, OpensNoMessageThatWasMadeLongerOnItsWay) {
    for (const std::size_t more : {1, 20, 100}) {
        for (const std::size_t room : {13, 4}) {
            send(5, "as long as it");
            wire.back().bytes.resize(wire.back().bytes.size() + more);
            deliver();
            EXPECT_THROW(receive(5, room), Attacked) << more << " more, " << room;
        }
    }
}

std::string long_text(std::size_t size) {
    std::string text(size, ' ');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i * 7 + i / 1000) % 26);
    return text;
}

// protocol: F19
TEST_F(Door, CarriesLongMessagesInSegmentsAndHidesThem) {
    const std::string text = long_text(kLongestWhole + 50'001);
    for (const bool wrong_order : {false, true}) {
        backwards = wrong_order;
        send(5, text);
        ASSERT_EQ(wire.size(), 1U);
        const Bytes& bytes = wire.front().bytes;
        EXPECT_EQ(bytes.size(), wire_size_of(text.size()));
        EXPECT_EQ(std::search(bytes.begin(), bytes.end(), text.begin(), text.begin() + 16), bytes.end());
        deliver();
        ucp_tag_recv_info_t info = {};
        ASSERT_NE(ucp_tag_probe_nb(b_, 5, ~ucp_tag_t{0}, 0, &info), nullptr);
        EXPECT_EQ(info.length, text.size());
        EXPECT_EQ(receive(5, text.size() + 1000), text);
    }
    backwards = false;
    send(5, "short");
    deliver();
    EXPECT_EQ(receive(5, text.size()), "short");
}

/// A network card may write where UCX once got memory, while a segment is opened or authenticated.
TEST_F(Door, SealsAndOpensSegmentsWhereUcxGetsNoMemory) {
    const std::string text = long_text(300'000);
    const std::uint8_t* given = nullptr;
    {
        const auto wire_of_another = Ends::get().wires().take(wire_size_of(text.size()));
        given = wire_of_another.data();
    }
    in_segments.clear();
    send(5, text);
    deliver();
    EXPECT_EQ(receive(5, text.size()), text);
    ASSERT_EQ(in_segments.size(), 2U);
    for (const auto* const at : in_segments) EXPECT_NE(at, given);
}

TEST_F(Door, FindsWhatIsDoneToLongMessages) {
    const std::string text = long_text(kLongestWhole + 50'001);
    send(5, text);
    const Message whole = wire.front();
    wire.clear();
    for (std::size_t at = 0; at < whole.bytes.size(); at += at < kLongPrefixSize ? 1 : 4999) {
        for (const bool wrong_order : {false, true}) {
            backwards = wrong_order;
            wire.push_back(whole);
            wire.front().bytes[at] ^= 1;
            deliver();
            EXPECT_THROW(receive(5, text.size()), Attacked) << at;
        }
    }
    backwards = false;
    for (const std::size_t less : {std::size_t{1}, seal::kTagSize, kSegment + seal::kTagSize, std::size_t{50'000}}) {
        wire.push_back(whole);
        wire.front().bytes.resize(whole.bytes.size() - less);
        deliver();
        EXPECT_THROW(receive(5, text.size()), Attacked) << less;
    }
    wire.push_back(whole);
    wire.push_back(whole);
    deliver();
    EXPECT_EQ(receive(5, text.size()), text);
    EXPECT_THROW(receive(5, text.size()), Attacked) << "replayed";
}

TEST_F(Door, TruncatesLongMessagesAsUcxDoes) {
    const std::string text = long_text(kLongestWhole + 50'001);
    for (const std::size_t room : {std::size_t{4}, kLongestWhole, text.size() - 1}) {
        send(5, text);
        send(5, "fits");
        deliver();
        EXPECT_EQ(receive(5, room), ucs_status_string_of(UCS_ERR_MESSAGE_TRUNCATED)) << room;
        EXPECT_EQ(receive(5), "fits");
    }
}

// protocol: F16
/// An attacker moves one fragment, so that UCX cuts the message off after segments of it have opened: here those of
/// another one than the one that is due.
TEST_F(Door, LeavesNothingOfALongMessageThatUcxCutOff) {
    send(7, long_text(kLongestWhole + 200'000));
    wire.front().tag = 5;
    deliver();
    const std::size_t room = kLongestWhole + 150'000;
    std::string got(room, '?');
    const ucp_request_param_t params = {};
    const auto answer = ucp_tag_recv_nbx(b_, got.data(), room, 5, ~ucp_tag_t{0}, &params);
    EXPECT_EQ(UCS_PTR_STATUS(answer), UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(got.find_first_not_of(std::string("?\0", 2)), std::string::npos);
}

/// A datatype of the program's own that has every second byte.
TEST_F(Door, CarriesLongMessagesOfDatatypesWithFunctions) {
    ucp_generic_dt_ops_t every_second = {};
    every_second.start_pack = [](void*, const void* at, size_t) { return const_cast<void*>(at); };
    every_second.start_unpack = [](void*, void* at, size_t) { return at; };
    every_second.packed_size = [](void*) { return kLongestWhole + 30'000; };
    every_second.pack = [](void* state, size_t offset, void* to, size_t most) {
        const size_t size = std::min(most, kLongestWhole + 30'000 - offset);
        for (size_t i = 0; i < size; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(state)[2 * (offset + i)];
        return size;
    };
    every_second.unpack = [](void* state, size_t offset, const void* from, size_t size) {
        for (size_t i = 0; i < size; ++i)
            static_cast<char*>(state)[2 * (offset + i)] = static_cast<const char*>(from)[i];
        return UCS_OK;
    };
    every_second.finish = [](void*) {};
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    ASSERT_EQ(ucp_dt_create_generic(&every_second, nullptr, &params.datatype), UCS_OK);
    const std::string text = long_text(2 * (kLongestWhole + 30'000));
    ASSERT_EQ(ucp_tag_send_nbx(to_b_, text.data(), 1, 5, &params), nullptr);
    deliver();
    std::string got(text.size(), '?');
    ASSERT_EQ(ucp_tag_recv_nbx(b_, got.data(), 1, 5, ~ucp_tag_t{0}, &params), nullptr);
    for (std::size_t i = 0; i < text.size(); ++i) ASSERT_EQ(got[i], i % 2 == 0 ? text[i] : '?') << i;
    ucp_dt_destroy(params.datatype);
}

/// Open MPI 4.1.4 receives so, and UCX 1.13 tells what came in the request alone.
TEST_F(Door, TellsOfAReceiveInARequestOfTheProgram) {
    send(5, "one");
    deliver();
    FakeRequest request = {};
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST;
    params.request = &request;
    char text[8] = {};
    EXPECT_EQ(ucp_tag_recv_nbx(b_, text, sizeof text, 5, ~ucp_tag_t{0}, &params), nullptr);
    EXPECT_STREQ(text, "one");
    ucp_tag_recv_info_t info = {};
    EXPECT_EQ(ucp_request_test(&request, &info), UCS_OK);
    EXPECT_EQ(info.sender_tag, 5U);
    EXPECT_EQ(info.length, 3U);
}

/// UCX gets more room than the program has, so that it thinks well of what is too long for that.
TEST_F(Door, TellsOfTruncationInARequest) {
    for (const bool at_once : {true, false}) {
        send(5, "too long for it");
        send(5, "one");
        deliver();
        FakeRequest request = {};
        ucp_request_param_t params = {};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | (at_once ? 0 : UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
        params.request = &request;
        char text[4] = {};
        ucp_tag_recv_nbx(b_, text, sizeof text, 5, ~ucp_tag_t{0}, &params);
        ucp_tag_recv_info_t info = {};
        EXPECT_EQ(ucp_request_test(&request, &info), UCS_ERR_MESSAGE_TRUNCATED);
        EXPECT_EQ(ucp_tag_recv_request_test(&request, &info), UCS_ERR_MESSAGE_TRUNCATED);
        EXPECT_EQ(ucp_request_check_status(&request), UCS_ERR_MESSAGE_TRUNCATED);
        EXPECT_EQ(info.length, 15U);
        // The request is for what the program makes of it.
        ucp_tag_recv_nbx(b_, text, sizeof text, 5, ~ucp_tag_t{0}, &params);
        EXPECT_STREQ(text, "one");
        EXPECT_EQ(ucp_request_test(&request, &info), UCS_OK);
        EXPECT_EQ(ucp_request_check_status(&request), UCS_OK);
    }
}

TEST_F(Door, KeepsNoRequestOfWhatItTellsAtOnce) {
    const int before = requests;
    send(5, "one");
    send(5, "longer than it");
    deliver();
    EXPECT_EQ(receive(5), "one");
    EXPECT_EQ(receive(5, 4), ucs_status_string_of(UCS_ERR_MESSAGE_TRUNCATED));
    EXPECT_EQ(requests, before);
}

TEST_F(Door, CallsBackOnceWhereTheProgramIsNotToldAtOnce) {
    send(5, "one");
    deliver();
    std::vector<ucp_tag_recv_info_t> told;
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.user_data = &told;
    params.cb.recv = [](void*, ucs_status_t, const ucp_tag_recv_info_t* info, void* data) {
        static_cast<std::vector<ucp_tag_recv_info_t>*>(data)->push_back(*info);
    };
    char text[8] = {};
    void* const request = ucp_tag_recv_nbx(b_, text, sizeof text, 5, ~ucp_tag_t{0}, &params);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].length, 3U);
    EXPECT_STREQ(text, "one");
    ucp_request_free(request);
}

TEST_F(Door, TellsNoThreadOfAMessageThatIsNotOpen) {
    const ucp_worker_h worker = worker_of_several_threads();
    const ucp_ep_h there = connect(a_, address_of(worker));
    const ucp_request_param_t plain = {};
    ASSERT_EQ(ucp_tag_send_nbx(there, "hello", 5, 9, &plain), nullptr);

    Later one;
    later = &one;
    std::string text(5, '?');
    ucs_status_ptr_t const request = ucp_tag_recv_nbx(worker, text.data(), text.size(), 9, ~ucp_tag_t{0}, &plain);
    later = nullptr;
    ASSERT_EQ(request, &one.request);
    const Bytes& bytes = wire.front().bytes;
    std::memcpy(one.at, bytes.data(), bytes.size());
    one.request = {UCS_OK, {9, bytes.size()}};
    // UCX says so, and has not called us.
    ucp_tag_recv_info_t info = {};
    EXPECT_EQ(ucp_request_check_status(request), UCS_INPROGRESS);
    EXPECT_EQ(ucp_request_is_completed(request), 0);
    EXPECT_EQ(ucp_request_test(request, &info), UCS_INPROGRESS);
    EXPECT_EQ(text, "?????");
    one.callback(request, UCS_OK, &one.request.info, one.data);
    EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
    EXPECT_EQ(ucp_request_is_completed(request), 1);
    EXPECT_EQ(ucp_request_test(request, &info), UCS_OK);
    EXPECT_EQ(info.length, 5U);
    EXPECT_EQ(text, "hello");
    ucp_worker_destroy(worker);
}

TEST_F(Door, OpensWhatComesForARequestThatAThreadFreedBefore) {
    const ucp_worker_h worker = worker_of_several_threads();
    const ucp_ep_h there = connect(a_, address_of(worker));
    const ucp_request_param_t plain = {};
    ASSERT_EQ(ucp_tag_send_nbx(there, "hello", 5, 9, &plain), nullptr);

    Later one;
    later = &one;
    int called = 0;
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.user_data = &called;
    params.cb.recv = [](void*, ucs_status_t, const ucp_tag_recv_info_t*, void* data) { ++*static_cast<int*>(data); };
    std::string text(5, '?');
    ucs_status_ptr_t const request = ucp_tag_recv_nbx(worker, text.data(), text.size(), 9, ~ucp_tag_t{0}, &params);
    later = nullptr;
    ASSERT_EQ(request, &one.request);
    ucp_request_free(request);
    EXPECT_EQ(released, std::vector<void*>{request}) << "UCX would not call back what was freed";
    const Bytes& bytes = wire.front().bytes;
    std::memcpy(one.at, bytes.data(), bytes.size());
    one.request = {UCS_OK, {9, bytes.size()}};
    one.callback(request, UCS_OK, &one.request.info, one.data);
    EXPECT_EQ(text, "hello");
    EXPECT_EQ(called, 0);
    // UCX may give the same request for another operation.
    EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
    ucp_worker_destroy(worker);
}

// protocol: F7
TEST_F(Door, CarriesActiveMessagesAndHidesThem) {
    send_active("header", "a secret");
    const Bytes& bytes = active.front().bytes;
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()).find("secret"), std::string::npos);
    deliver_active();
    ASSERT_EQ(came.size(), 1U);
    EXPECT_EQ(std::string(came[0].header.begin(), came[0].header.end()), "header");
    EXPECT_EQ(std::string(came[0].data.begin(), came[0].data.end()), "a secret");
}

TEST_F(Door, FindsFlippedReplayedAndMovedActiveMessages) {
    send_active("header", "a secret");
    const Message whole = active.front();
    active.clear();
    for (std::size_t at = 0; at < whole.bytes.size(); ++at) {
        active.assign(1, whole);
        active.front().bytes[at] ^= 1;
        EXPECT_THROW(deliver_active(), Attacked) << at;
    }
    active.assign(2, whole);
    EXPECT_THROW(deliver_active(), Attacked) << "replayed";
    EXPECT_EQ(came.size(), 1U);
}

// protocol: F21
TEST_F(Door, CarriesLongActiveMessagesInPartsAndHidesThem) {
    const std::string text = long_text(3 * kPart + 30'001);
    for (const bool wrong_order : {false, true}) {
        auto parts = parts_of(text);
        ASSERT_EQ(parts.size(), 4U);
        for (const Message& part : parts) {
            EXPECT_LE(part.bytes.size(), kPart + kOverhead);
            EXPECT_EQ(std::search(part.bytes.begin(), part.bytes.end(), text.begin(), text.begin() + 16),
                      part.bytes.end());
        }
        if (wrong_order) std::reverse(parts.begin(), parts.end());
        const std::deque<Message> last(1, parts.back());
        parts.pop_back();
        deliver_parts(parts);
        EXPECT_TRUE(came.empty());
        deliver_parts(last);
        ASSERT_EQ(came.size(), 1U);
        EXPECT_EQ(std::string(came[0].header.begin(), came[0].header.end()), "header");
        EXPECT_EQ(std::string(came[0].data.begin(), came[0].data.end()), text);
        came.clear();
    }
}

// protocol: F22
TEST_F(Door, GivesActiveMessagesInTheOrderInWhichTheyWereSent) {
    const std::vector<std::string> texts = {"first", long_text(2 * kPart), "third", "fourth"};
    for (const std::string& text : texts) send_active("header", text);
    ASSERT_EQ(active.size(), 6U) << "the second goes in three parts";
    std::deque<Message> swapped;
    for (const std::size_t place : {5U, 3U, 4U, 1U, 0U, 2U}) swapped.push_back(active[place]);
    active.clear();
    for (std::size_t i = 0; i < swapped.size(); ++i) {
        deliver_parts({1, swapped[i]});
        EXPECT_EQ(came.size(), i < 4 ? 0U : i == 4 ? 1U : 4U) << i;
    }
    ASSERT_EQ(came.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(std::string(came[i].data.begin(), came[i].data.end()), texts[i]);
    send_active("header", "fifth");
    deliver_active();
    EXPECT_EQ(came.size(), 5U);
}

/// Who withholds the last part shows no gap in the numbers.
TEST_F(Door, MissesThePartsThatHaveNotComeAtTheEnd) {
    process.missed.clear();
    auto parts = parts_of(long_text(2 * kPart));
    parts.pop_back();
    deliver_parts(parts);
    EXPECT_TRUE(came.empty());
    ucp_worker_destroy(std::exchange(b_, nullptr));
    ASSERT_EQ(process.missed.size(), 1U);
    EXPECT_NE(process.missed[0].find("a part of a long active message has not come"), std::string::npos);
}

TEST_F(Door, GoesInPartsWhereItIsTooLongForOne) {
    constexpr std::size_t kMore = 6 + 4;  // "header" and its length
    for (const std::size_t size :
         {kLongestWhole - kMore, kLongestWhole - kMore + 1, 2 * kPart - kMore, 2 * kPart - kMore + 1}) {
        const std::string text = long_text(size);
        const auto parts = parts_of(text);
        const std::size_t all = size + kMore;
        EXPECT_EQ(parts.size(), all <= kLongestWhole ? 1 : (all + kPart - 1) / kPart) << size;
        deliver_parts(parts);
        ASSERT_EQ(came.size(), 1U);
        EXPECT_EQ(std::string(came[0].data.begin(), came[0].data.end()), text);
        came.clear();
    }
}

TEST_F(Door, KeepsTheLongActiveMessagesOfSeveralSendersApart) {
    ucp_worker_h c = nullptr;
    const ucp_worker_params_t params = {};
    ASSERT_EQ(ucp_worker_create(nullptr, &params, &c), UCS_OK);
    const std::string first = long_text(2 * kPart), second(2 * kPart, 'x');
    const auto from_a = parts_of(first);
    to_b_ = connect(c, address_of(b_));
    const auto from_c = parts_of(second);
    for (std::size_t i = 0; i < from_a.size(); ++i) deliver_parts({from_a[i], from_c[i]});
    ASSERT_EQ(came.size(), 2U);
    EXPECT_EQ(std::string(came[0].data.begin(), came[0].data.end()), first);
    EXPECT_EQ(std::string(came[1].data.begin(), came[1].data.end()), second);
    ucp_worker_destroy(c);
}

TEST_F(Door, FindsWhatIsDoneToThePartsOfActiveMessages) {
    const auto parts = parts_of(long_text(2 * kPart + 100));
    const auto others = parts_of(long_text(2 * kPart + 100));
    ASSERT_EQ(parts.size(), 3U);
    // What comes first has memory of its own, what comes later goes to its place at once.
    for (const std::size_t before : {0U, 1U}) {
        if (before == 1) deliver_parts({parts[0]});
        for (std::size_t at = 0; at < kPlaceSize; ++at) {
            Message altered = parts[1];
            altered.header[at] ^= 1;
            expect_refused({altered}, "another place");
        }
        Message altered = parts[1];
        altered.header = parts[2].header;
        expect_refused({altered}, "the place of another part");
        altered.header = others[1].header;
        expect_refused({altered}, "the place in another message");
        altered.header.clear();
        expect_refused({altered}, "no place");
        altered = parts[1];
        altered.bytes.back() ^= 1;
        expect_refused({altered}, "other bytes");
        altered = parts[1];
        altered.bytes.resize(altered.bytes.size() - 1);
        expect_refused({altered}, "fewer bytes");
    }
    expect_refused({parts[0]}, "replayed");
    EXPECT_TRUE(came.empty());
    deliver_parts({parts[1], parts[2]});
    EXPECT_EQ(came.size(), 1U);
    expect_refused({parts[2]}, "replayed");
    EXPECT_EQ(came.size(), 1U);
}

/// UCX may keep it registered with the network when a message is over.
TEST_F(Door, GivesUcxNoMemoryOfTheHeap) {
    send(7, std::string(100, 'x'));
    send(7, std::string(20'000, 'x'));
    ASSERT_FALSE(lent.empty());
    for (const auto& [at, size] : lent) EXPECT_FALSE(test::is_in_heap(at)) << size;
}

/// What a member of the job may send that does not do as we do.
TEST(Gathering, TakesEachPartOnceAndOnlyInItsPlace) {
    engine::BufferPool pool(0);
    Gathering gathering(pool);
    const Share from = {};
    constexpr std::uint64_t kWhole = 2 * kPart + 100;
    const Bytes part(kPart), last(100);
    const auto refuses = [&](std::uint16_t handler, const Place& place, const Bytes& bytes) {
        return !gathering.add(from, handler, place, bytes);
    };
    EXPECT_TRUE(refuses(7, {1, 0, kLongestWhole}, part)) << "not long";
    EXPECT_TRUE(refuses(7, {1, 1, kWhole}, part)) << "no beginning of a part";
    EXPECT_TRUE(refuses(7, {1, kWhole, kWhole}, part)) << "behind the end";
    EXPECT_TRUE(refuses(7, {1, ~std::uint64_t{0}, kWhole}, part)) << "far behind the end";
    EXPECT_TRUE(refuses(7, {1, 0, kWhole}, last)) << "too short";
    EXPECT_TRUE(refuses(7, {1, 2 * kPart, kWhole}, part)) << "too long";
#ifndef __SANITIZE_ADDRESS__  // ends the process where there is not so much memory
    EXPECT_TRUE(refuses(7, {1, 0, ~std::uint64_t{0}}, part)) << "more than there is memory for";
#endif
    EXPECT_EQ(gathering.room_for(from, {1, 0, kWhole}), nullptr);
    ASSERT_TRUE(gathering.add(from, 7, {1, 0, kWhole}, part));
    EXPECT_NE(gathering.room_for(from, {1, kPart, kWhole}), nullptr);
    EXPECT_EQ(gathering.room_for(from, {1, kPart, kWhole + 1}), nullptr);
    EXPECT_EQ(gathering.room_for(from, {2, kPart, kWhole}), nullptr);
    EXPECT_TRUE(refuses(7, {1, 0, kWhole}, part)) << "twice";
    EXPECT_TRUE(refuses(8, {1, kPart, kWhole}, part)) << "for another handler";
    EXPECT_TRUE(refuses(7, {1, kPart, kWhole + 1}, part)) << "of another size";
    auto more = gathering.add(from, 7, {1, kPart, kWhole}, part);
    ASSERT_TRUE(more);
    EXPECT_FALSE(*more);
    more = gathering.add(from, 7, {1, 2 * kPart, kWhole}, last);
    ASSERT_TRUE(more && *more);
    EXPECT_EQ((*more)->size(), kWhole);
    EXPECT_EQ(gathering.room_for(from, {1, kPart, kWhole}), nullptr);
}

TEST_F(Door, HasNothingOfTheProgramWhereUcxEverHadAMessage) {
    for (int round = 0; round < 3; ++round) {
        send(5, "a secret");
        deliver();
        EXPECT_EQ(receive(5), "a secret");
        send_active("header", "a secret");
        deliver_active();
        send_active("header", long_text(2 * kPart));
        deliver_active();
        ASSERT_EQ(came.size(), static_cast<std::size_t>(2 * round + 2));
    }
    ucp_generic_dt_ops_t packed = {};
    packed.start_pack = [](void*, const void* at, size_t) { return const_cast<void*>(at); };
    packed.packed_size = [](void*) { return size_t{8}; };
    packed.pack = [](void* state, size_t, void* to, size_t) {
        EXPECT_FALSE(was_lent(to));
        std::memcpy(to, state, 8);
        return size_t{8};
    };
    packed.finish = [](void*) {};
    ucp_request_param_t params = {};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    ASSERT_EQ(ucp_dt_create_generic(&packed, nullptr, &params.datatype), UCS_OK);
    EXPECT_EQ(ucp_tag_send_nbx(to_b_, "a secret", 1, 5, &params), nullptr);
    ucp_dt_destroy(params.datatype);
}

// protocol: F4
TEST_F(Door, LetsUcxLookAtNoAddressThatIsAltered) {
    Bytes address = address_of(b_);
    ucp_worker_address_attr_t attributes = {};
    const auto look = [&] {
        return ucp_worker_address_query(reinterpret_cast<ucp_address_t*>(address.data()), &attributes);
    };
    EXPECT_EQ(look(), UCS_OK);
    EXPECT_EQ(attributes.worker_uid, 42U);
    attributes = {};
    for (std::size_t at = 0; at < address.size(); ++at) {
        if (at >= 4 && at < 8) continue;  // its length: of memory that is not ours
        address[at] ^= 1;
        EXPECT_THROW(look(), Attacked) << at;
        address[at] ^= 1;
    }
    EXPECT_EQ(attributes.worker_uid, 0U);
}

// protocol: F4
TEST_F(Door, TakesNoAddressThatIsAltered) {
    const Bytes address = address_of(b_);
    for (std::size_t at = 0; at < address.size(); ++at) {
        Bytes altered = address;
        altered[at] ^= 1;
        if (at >= 4 && at < 8) continue;  // its length: of memory that is not ours
        EXPECT_THROW(connect(a_, altered), Attacked) << at;
    }
}

TEST_F(Door, OpensNoMemory) {
    char memory[64];
    ucp_mem_map_params_t params = {};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = memory;
    params.length = sizeof memory;
    ucp_mem_h handle = nullptr;
    // The fake UCX has no ucp_mem_map: a call of it would end this process.
    ASSERT_EQ(ucp_mem_map(nullptr, &params, &handle), UCS_OK);
    void* key = nullptr;
    size_t size = 0;
    ASSERT_EQ(ucp_rkey_pack(nullptr, handle, &key, &size), UCS_OK);
    ucp_rkey_h unpacked = nullptr;
    EXPECT_EQ(ucp_ep_rkey_unpack(to_b_, key, &unpacked), UCS_ERR_UNREACHABLE);
    ucp_rkey_buffer_release(key);
    EXPECT_EQ(ucp_mem_unmap(nullptr, handle), UCS_OK);
}

/// MPICH 5 frees the address of an empty window itself.
TEST_F(Door, AllocatesNothingForNothing) {
    ucp_mem_map_params_t params = {};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    for (const std::size_t length : {std::size_t{0}, std::size_t{64}}) {
        params.length = length;
        ucp_mem_h handle = nullptr;
        ASSERT_EQ(ucp_mem_map(nullptr, &params, &handle), UCS_OK);
        ucp_mem_attr_t told = {};
        told.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
        EXPECT_EQ(ucp_mem_query(handle, &told), UCS_OK);
        EXPECT_EQ(told.address == nullptr, length == 0);
        EXPECT_EQ(told.length, length);
        EXPECT_EQ(ucp_mem_unmap(nullptr, handle), UCS_OK);
    }
}

}  // namespace
}  // namespace cryptmpi::fabric::ucx
