// The door of libfabric over a provider that obeys the test: what goes out is sealed, what comes in is opened or ends
// the job, and nothing else changes for the program.
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include <chrono>
#include <deque>

#include "fabric/libfabric/information.hpp"
#include "fabric/libfabric/objects.hpp"
#include "fabric/libfabric/tables.hpp"
#include "fabric/opening.hpp"
#include "fake_process.hpp"
#include "fake_provider.hpp"
#include "heap.hpp"
#include "seal/support.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

using test::Attacked;
using test::Bytes;
using test::FakeProvider;
using test::GaveUp;
using test::random_bytes;
using test::Wire;

struct Info {
    Info() {
        info.ep_attr = &ep;
        info.tx_attr = &tx;
        info.rx_attr = &rx;
        info.domain_attr = &domain;
        info.fabric_attr = &fabric;
        ep.type = FI_EP_RDM;
        ep.max_msg_size = 1 << 20;
        tx.inject_size = 128;
        domain.cq_data_size = 8;
        fabric.prov_name = provider.data();
        info.caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_HMEM | FI_DIRECTED_RECV;
        adapt_answer(info, true);
        keeps_data = keep_data_for_lengths(info, nullptr);
    }
    fi_info info = {};
    bool keeps_data = false;
    std::string provider = "tcp";
    fi_ep_attr ep = {};
    fi_tx_attr tx = {};
    fi_rx_attr rx = {};
    fi_domain_attr domain = {};
    fi_fabric_attr fabric = {};
};

/// The program: two endpoints, which know each other as address 0 (the first) and 1; or more.
class Libfabric : public testing::Test {
protected:
    struct End {
        fid_domain* domain = nullptr;
        fid_ep* ep = nullptr;
        fid_cq* cq = nullptr;
        fid_cq* sends = nullptr;  // where it has two queues
        fid_av* av = nullptr;
    };

    void SetUp() override { open(0); }
    void TearDown() override { close(); }

    void close() {
        for (End& end : ends) {
            close(end.ep);
            close(end.av);
            close(end.cq);
            close(end.sends);
            close(end.domain);
        }
        close(fabric);
    }
    template <class Object>
    static void close(Object*& object) {
        if (object != nullptr) fi_close(&object->fid);
        object = nullptr;
    }

    void open(int mr_mode) {
        given.domain.mr_mode = mr_mode;
        fabric = show(&provider.fabric, around, nullptr, given.provider.c_str(), given.keeps_data);
        waits_at_the_end(std::chrono::milliseconds(0));
        for (End& end : ends) open(end);
        Bytes names;
        for (End& end : ends) {
            Bytes name(64);
            std::size_t size = name.size();
            ASSERT_EQ(fi_getname(&end.ep->fid, name.data(), &size), 0);
            EXPECT_EQ(size, FakeProvider::kNameSize + kShareSize);
            names.insert(names.end(), name.begin(), name.begin() + static_cast<std::ptrdiff_t>(size));
        }
        const auto count = static_cast<int>(ends.size());
        for (End& end : ends) ASSERT_EQ(fi_av_insert(end.av, names.data(), ends.size(), nullptr, 0, nullptr), count);
    }
    /// So long does an endpoint that is closed wait for who receives its long messages.
    void waits_at_the_end(std::chrono::milliseconds longest) {
        auto& ours = static_cast<Fabric&>(Fabric::of(fabric));
        ours.longest_leave = longest;
        ours.between_questions = std::chrono::milliseconds(1);
    }
    void open(End& end) {
        ASSERT_EQ(fi_domain(fabric, &given.info, &end.domain, nullptr), 0);
        ASSERT_EQ(fi_endpoint(end.domain, &given.info, &end.ep, nullptr), 0);
        fi_cq_attr queue = {};
        queue.format = FI_CQ_FORMAT_TAGGED;
        queue.wait_obj = has_descriptors ? FI_WAIT_FD : FI_WAIT_NONE;
        ASSERT_EQ(fi_cq_open(end.domain, &queue, &end.cq, nullptr), 0);
        EXPECT_EQ(queue.format, FI_CQ_FORMAT_TAGGED);
        if (has_two_queues) {
            ASSERT_EQ(fi_cq_open(end.domain, &queue, &end.sends, nullptr), 0);
        }
        fi_av_attr addresses = {};
        ASSERT_EQ(fi_av_open(end.domain, &addresses, &end.av, nullptr), 0);
        ASSERT_EQ(fi_ep_bind(end.ep, &end.cq->fid, has_two_queues ? FI_RECV : FI_SEND | FI_RECV), 0);
        if (has_two_queues) {
            ASSERT_EQ(fi_ep_bind(end.ep, &end.sends->fid, FI_SEND), 0);
        }
        ASSERT_EQ(fi_ep_bind(end.ep, &end.av->fid, 0), 0);
        ASSERT_EQ(fi_enable(end.ep), 0);
    }

    /// Everything that the program is told, in order; errors as entries with err.
    std::vector<fi_cq_err_entry> completions(End& end) { return completions(end.cq); }
    static std::vector<fi_cq_err_entry> completions(fid_cq* queue) {
        std::vector<fi_cq_err_entry> all;
        for (;;) {
            fi_cq_err_entry entry = {};
            fi_cq_tagged_entry one = {};
            const ssize_t got = fi_cq_read(queue, &one, 1);
            if (got == -FI_EAGAIN) return all;
            if (got == -FI_EAVAIL) {
                EXPECT_EQ(fi_cq_readerr(queue, &entry, 0), 1);
            } else {
                EXPECT_EQ(got, 1);
                entry.op_context = one.op_context;
                entry.flags = one.flags;
                entry.len = one.len;
                entry.buf = one.buf;
                entry.data = one.data;
                entry.tag = one.tag;
            }
            all.push_back(entry);
        }
    }

    ssize_t send(std::uint64_t tag, const Bytes& bytes, void* context = nullptr) {
        return fi_tsend(ends[0].ep, bytes.data(), bytes.size(), nullptr, 1, tag, context);
    }
    ssize_t receive(std::uint64_t tag, Bytes& into, std::uint64_t ignore = 0, fi_addr_t from = FI_ADDR_UNSPEC,
                    void* context = nullptr) {
        return fi_trecv(ends[1].ep, into.data(), into.size(), nullptr, from, tag, ignore, context);
    }
    static bool holds(const Bytes& wire, const Bytes& plain) {
        return std::search(wire.begin(), wire.end(), plain.begin(), plain.end()) != wire.end();
    }

    Info given;
    FakeProvider provider;
    test::FakeProcess around;
    fid_fabric* fabric = nullptr;
    bool has_two_queues = false;
    bool has_descriptors = false;
    std::vector<End> ends = std::vector<End>(2);
};

TEST_F(Libfabric, ATaggedMessageArrivesAndIsSealedOnItsWay) {
    const Bytes plain = random_bytes(1000);
    Bytes got(1000);
    int mark = 0;
    ASSERT_EQ(receive(5, got, 0, 0, &mark), 0);
    ASSERT_EQ(send(5, plain, &mark), 0);
    ASSERT_EQ(provider.under_way.size(), 1U);
    EXPECT_FALSE(holds(provider.under_way[0].bytes, Bytes(plain.begin(), plain.begin() + 16)));
    EXPECT_EQ(provider.under_way[0].bytes.size(), 1000 + kOverhead);
    provider.deliver();
    const auto sent = completions(ends[0]);
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].op_context, &mark);
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].op_context, &mark);
    EXPECT_EQ(received[0].len, 1000U);
    EXPECT_EQ(received[0].tag, 5U);
    EXPECT_EQ(got, plain);
}

TEST_F(Libfabric, PiecesAreGatheredAndSpread) {
    const Bytes plain = random_bytes(100);
    Bytes got(100);
    const iovec from[] = {{const_cast<std::uint8_t*>(plain.data()), 30},
                          {const_cast<std::uint8_t*>(plain.data()) + 30, 70}};
    const iovec into[] = {{got.data(), 99}, {got.data() + 99, 1}};
    ASSERT_EQ(fi_trecvv(ends[1].ep, into, nullptr, 2, 0, 1, 0, nullptr), 0);
    ASSERT_EQ(fi_tsendv(ends[0].ep, from, nullptr, 2, 1, 1, nullptr), 0);
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(got, plain);
}

TEST_F(Libfabric, WhatIsInjectedHasNoCompletion) {
    const Bytes plain = random_bytes(72);
    Bytes got(72);
    EXPECT_EQ(given.info.tx_attr->inject_size, 128 - kOverhead);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(fi_tinject(ends[0].ep, plain.data(), plain.size(), 1, 1), 0);
    EXPECT_EQ(fi_tinject(ends[0].ep, plain.data(), 73, 1, 1), -FI_EMSGSIZE);
    EXPECT_TRUE(completions(ends[0]).empty());
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(got, plain);
}

TEST_F(Libfabric, AMessageThatTheProviderDoesNotTakeYetKeepsItsPlace) {
    const Bytes first = random_bytes(10);
    const Bytes second = random_bytes(10);
    Bytes one(10);
    Bytes two(10);
    provider.refusals = 2;
    ASSERT_EQ(send(1, first), 0);            // sealed, and ours to hand over
    EXPECT_EQ(send(1, second), -FI_EAGAIN);  // nothing overtakes it
    ASSERT_EQ(send(1, second), 0);
    ASSERT_EQ(receive(1, one), 0);
    ASSERT_EQ(receive(1, two), 0);
    provider.deliver_all();
    EXPECT_EQ(completions(ends[0]).size(), 2U);
    EXPECT_EQ(completions(ends[1]).size(), 2U);
    EXPECT_EQ(one, first);
    EXPECT_EQ(two, second);
}

TEST_F(Libfabric, WhatIsOwedGoesOutWhenTheQueueIsRead) {
    provider.refusals = 1;
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    EXPECT_TRUE(provider.under_way.empty());
    completions(ends[0]);
    EXPECT_EQ(provider.under_way.size(), 1U);
}

// protocol: F11
TEST_F(Libfabric, ImmediateDataIsAuthenticated) {
    const Bytes plain = random_bytes(10);
    Bytes got(10);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(fi_tsenddata(ends[0].ep, plain.data(), plain.size(), nullptr, 42, 1, 1, nullptr), 0);
    ASSERT_EQ(fi_tsenddata(ends[0].ep, plain.data(), plain.size(), nullptr, 42, 1, 1, nullptr), 0);
    provider.deliver();
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].data, 42U);
    provider.deliver(0, [](Wire& wire) { wire.data = 43; });
    EXPECT_THROW(completions(ends[1]), Attacked);
}

/// A provider that says that it carries 4 bytes of immediate data, and has room for 8 on the wire, as EFA's.
class NarrowData : public Libfabric {
protected:
    NarrowData() {
        given.domain.cq_data_size = 4;
        given.keeps_data = false;
    }
};

// protocol: F11
TEST_F(NarrowData, HasNothingOfTheNetworksBesideIt) {
    const Bytes plain = random_bytes(10);
    Bytes got(10);
    Bytes small(5);
    for (Bytes* const into : {&got, &got, &small}) ASSERT_EQ(receive(1, *into), 0);
    ASSERT_EQ(fi_tsenddata(ends[0].ep, plain.data(), plain.size(), nullptr, 42, 1, 1, nullptr), 0);
    ASSERT_EQ(send(1, plain), 0);
    ASSERT_EQ(fi_tsenddata(ends[0].ep, plain.data(), plain.size(), nullptr, 43, 1, 1, nullptr), 0);
    for (int i = 0; i < 3; ++i) provider.deliver(0, [](Wire& wire) { wire.data |= std::uint64_t{7} << 32; });
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 3U);
    EXPECT_EQ(received[0].data, 42U);
    EXPECT_EQ(received[1].data, 0U);
    EXPECT_EQ(received[2].data, 43U);
    EXPECT_EQ(received[2].err, FI_ETRUNC);
}

// protocol: F11
TEST_F(NarrowData, HasNothingOfTheNetworksBesideOneAmongMany) {
    Bytes into(1000);
    const iovec all = {into.data(), into.size()};
    const fi_msg message = {&all, nullptr, 1, FI_ADDR_UNSPEC, nullptr, 0};
    ASSERT_EQ(fi_recvmsg(ends[1].ep, &message, FI_MULTI_RECV), 0);
    const Bytes plain = random_bytes(10);
    ASSERT_EQ(fi_senddata(ends[0].ep, plain.data(), plain.size(), nullptr, 42, 1, nullptr), 0);
    ASSERT_EQ(fi_send(ends[0].ep, plain.data(), plain.size(), nullptr, 1, nullptr), 0);
    for (int i = 0; i < 2; ++i) provider.deliver(0, [](Wire& wire) { wire.data |= std::uint64_t{7} << 32; });
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 2U);
    EXPECT_EQ(received[0].data, 42U);
    EXPECT_EQ(received[1].data, 0U);
}

/// What an attacker may do to one of two messages; each ends the job, and the program's memory holds nothing of it.
class Attack : public Libfabric, public testing::WithParamInterface<std::function<void(Wire&)>> {};

TEST_P(Attack, EndsTheJob) {
    Bytes got(200, 0xAA);
    ASSERT_EQ(receive(0, got, ~std::uint64_t{0}), 0);
    ASSERT_EQ(send(7, random_bytes(200)), 0);
    provider.deliver(0, GetParam());
    EXPECT_THROW(completions(ends[1]), Attacked);
    const bool untouched = got == Bytes(200, 0xAA);
    EXPECT_TRUE(untouched || std::count(got.begin(), got.end(), 0xAA) + std::count(got.begin(), got.end(), 0) == 200);
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, Attack,
                         testing::Values([](Wire& wire) { wire.bytes[0] ^= 1; },                  // the share
                                         [](Wire& wire) { wire.bytes[kShareSize] ^= 1; },         // the number
                                         [](Wire& wire) { wire.bytes[kPrefixSize + 100] ^= 1; },  // the ciphertext
                                         [](Wire& wire) { wire.bytes.back() ^= 1; },  // the tag of the cipher
                                         [](Wire& wire) { wire.tag ^= 1; },           // MPI's tag
                                         [](Wire& wire) { wire.has_data = true; },    // immediate data that nobody sent
                                         [](Wire& wire) { wire.bytes.pop_back(); },   // truncated
                                         [](Wire& wire) { wire.bytes.resize(kOverhead - 1); },  // shorter than any
                                         [](Wire& wire) { wire.bytes.assign(wire.bytes.size(), 0); }  // forged
                                         ));

TEST_F(Libfabric, AReplayEndsTheJob) {
    Bytes got(10);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    const Wire copy = provider.under_way[0];
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    provider.deliver_copy(copy);
    EXPECT_THROW(completions(ends[1]), Attacked);
}

TEST_F(Libfabric, ADroppedMessageIsMissedByTheNext) {
    Bytes got(10);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    provider.under_way.pop_front();
    provider.deliver();
    EXPECT_THROW(completions(ends[1]), Attacked);
}

TEST_F(Libfabric, SwappedMessagesOfALaneEndTheJob) {
    Bytes one(10);
    Bytes two(10);
    ASSERT_EQ(receive(1, one, 0, 0), 0);
    ASSERT_EQ(receive(1, two, 0, 0), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    provider.deliver(1);
    provider.deliver(0);
    EXPECT_THROW(completions(ends[1]), Attacked);
}

TEST_F(Libfabric, MessagesOfOtherTagsComeInAnyOrder) {
    Bytes one(10);
    Bytes two(10);
    ASSERT_EQ(receive(1, one), 0);
    ASSERT_EQ(receive(2, two), 0);
    const Bytes first = random_bytes(10);
    ASSERT_EQ(send(1, first), 0);
    ASSERT_EQ(send(2, random_bytes(10)), 0);
    provider.deliver(1);
    provider.deliver(0);
    EXPECT_EQ(completions(ends[1]).size(), 2U);
    EXPECT_EQ(one, first);
}

TEST_F(Libfabric, AMessageToSomebodyElseEndsTheJob) {
    // To the sender itself: reflected.
    Bytes got(10);
    ASSERT_EQ(fi_trecv(ends[0].ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    provider.deliver(0, [](Wire& wire) { wire.to = 0; });
    EXPECT_THROW(completions(ends[0]), Attacked);
}

/// The provider here does not look whom a receive is for: as where somebody forges the source of a packet.
TEST_F(Libfabric, AMessageAtAReceiveForAnotherSenderEndsTheJob) {
    Bytes plain = random_bytes(32);
    Bytes got(32);
    ASSERT_EQ(receive(1, got, 0, 0), 0);
    ASSERT_EQ(fi_tsend(ends[1].ep, plain.data(), plain.size(), nullptr, 1, 1, nullptr), 0);
    provider.deliver();
    EXPECT_THROW(completions(ends[1]), Attacked);
    EXPECT_EQ(got, Bytes(32));
}

TEST_F(Libfabric, AnUntaggedMessageAtAReceiveForAnotherSenderEndsTheJob) {
    Bytes plain = random_bytes(32);
    Bytes got(32);
    ASSERT_EQ(fi_recv(ends[1].ep, got.data(), got.size(), nullptr, 0, nullptr), 0);
    ASSERT_EQ(fi_send(ends[1].ep, plain.data(), plain.size(), nullptr, 1, nullptr), 0);
    provider.deliver();
    EXPECT_THROW(completions(ends[1]), Attacked);
}

/// The second has never sent anything to the first, and gets no other's address for it.
TEST_F(Libfabric, TheSourceOfAMessageIsTheAddressThatTheProgramHasOfIt) {
    Bytes got(8);
    const Bytes plain = random_bytes(8);
    const auto source_of_one_from_0 = [&] {
        EXPECT_EQ(receive(1, got), 0);
        EXPECT_EQ(send(1, plain), 0);
        provider.deliver();
        fi_addr_t from = 77;
        fi_cq_tagged_entry entry = {};
        EXPECT_EQ(fi_cq_readfrom(ends[1].cq, &entry, 1, &from), 1);
        completions(ends[0]);
        return from;
    };
    EXPECT_EQ(source_of_one_from_0(), 0U);
    fi_addr_t gone = 0;
    ASSERT_EQ(fi_av_remove(ends[1].av, &gone, 1, 0), 0);
    EXPECT_EQ(source_of_one_from_0(), FI_ADDR_NOTAVAIL);
}

TEST_F(Libfabric, WhatEnablingAnEndpointOpensIsForMpi) {
    // As verbs;ofi_rxm opens the device of its connections.
    EXPECT_EQ(provider.opening_when_enabled, 2);
    EXPECT_EQ(cryptmpi_fabric_is_opening(), 0);
}

TEST_F(Libfabric, TruncationIsToldWithTheProgramsLengths) {
    const Bytes plain = random_bytes(10);
    Bytes small(4, 0xAA);
    Bytes next(10);
    ASSERT_EQ(receive(1, small), 0);
    ASSERT_EQ(receive(1, next), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    ASSERT_EQ(send(1, plain), 0);
    provider.deliver_all();
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 2U);
    EXPECT_EQ(received[0].err, FI_ETRUNC);
    EXPECT_EQ(received[0].len, 4U);
    EXPECT_EQ(received[0].olen, 6U);
    EXPECT_EQ(small, Bytes(4, 0xAA));
    EXPECT_EQ(next, plain);  // the lane goes on
    EXPECT_EQ(around.cut_off, std::vector<std::string>()) << "it opened";
}

TEST_F(Libfabric, WhatAProviderCutsOffIsSaid) {
    const Bytes plain = random_bytes(10);
    Bytes small(4, 0xAA);
    Bytes next(10);
    ASSERT_EQ(receive(1, small), 0);
    ASSERT_EQ(receive(1, next), 0);
    ASSERT_EQ(send(1, random_bytes(1000)), 0);
    ASSERT_EQ(send(1, plain), 0);
    provider.deliver_all();
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 2U);
    EXPECT_EQ(received[0].err, FI_ETRUNC);
    EXPECT_EQ(received[0].len, 4U);
    EXPECT_EQ(received[0].olen, 996U);
    EXPECT_EQ(small, Bytes(4, 0xAA));  // none of it is authentic
    EXPECT_EQ(next, plain);            // and the lane goes on
    EXPECT_EQ(around.cut_off.size(), 1U);
}

TEST_F(Libfabric, WhatAProviderCutsOffMakesNobodyAPeer) {
    const Bytes plain = random_bytes(10);
    Bytes small(4);
    Bytes next(10);
    ASSERT_EQ(receive(1, small), 0);
    ASSERT_EQ(receive(1, next), 0);
    ASSERT_EQ(send(1, random_bytes(4)), 0);
    ASSERT_EQ(send(1, plain), 0);
    provider.deliver(0, [](Wire& wire) {
        wire.bytes.resize(5000);
        std::fill_n(wire.bytes.begin(), kShareSize, std::uint8_t{1});
    });
    provider.deliver_all();
    EXPECT_EQ(completions(ends[1]).size(), 2U);
    EXPECT_EQ(next, plain);
    EXPECT_EQ(static_cast<Endpoint*>(ends[1].ep)->party->counters().peers, 1U);
}

TEST_F(Libfabric, AnUntaggedMessageThatAProviderCutsOffIsNotMissed) {
    const Bytes plain = random_bytes(10);
    Bytes small(4);
    Bytes next(10);
    ASSERT_EQ(fi_recv(ends[1].ep, small.data(), small.size(), nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    ASSERT_EQ(fi_recv(ends[1].ep, next.data(), next.size(), nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    for (const Bytes& bytes : {random_bytes(1000), plain}) {
        ASSERT_EQ(fi_send(ends[0].ep, bytes.data(), bytes.size(), nullptr, 1, nullptr), 0);
    }
    provider.deliver_all();
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 2U);
    EXPECT_EQ(received[0].err + received[1].err, FI_ETRUNC);
    EXPECT_EQ(next, plain);
    EXPECT_EQ(around.cut_off.size(), 1U);
    EXPECT_TRUE(static_cast<Endpoint*>(ends[1].ep)->party->expect_none_missing());
}

TEST_F(Libfabric, WhatWasMadeLongerOnItsWayDoesNotOpen) {
    for (const std::size_t more : {1, 20, 100}) {
        Bytes got(10);
        ASSERT_EQ(receive(1, got), 0);
        ASSERT_EQ(send(1, random_bytes(10)), 0);
        provider.deliver(0, [&](Wire& wire) { wire.bytes.resize(wire.bytes.size() + more); });
        EXPECT_THROW(completions(ends[1]), Attacked) << more;
        EXPECT_EQ(got, Bytes(10));
    }
}

TEST_F(Libfabric, WhatAProviderCutsOffSilentlyMayBeTruncationAndSaysSo) {
    Bytes small(30);
    ASSERT_EQ(receive(1, small), 0);
    ASSERT_EQ(send(1, random_bytes(1000)), 0);
    engine::BufferPool pool(0);
    const std::size_t room = pool.take(small.size() + kOverhead).room();
    provider.deliver(0, [&](Wire& wire) { wire.bytes.resize(room); });
    try {
        completions(ends[1]);
        ADD_FAILURE() << "it was opened";
    } catch (const Attacked& ended) {
        EXPECT_NE(std::string(ended.what()).find("longer than its receive"), std::string::npos) << ended.what();
    }
    EXPECT_EQ(small, Bytes(30));
}

/// Two endpoints of which each has heard of the other, so that long messages go in pieces.
class LongMessages : public Libfabric {
protected:
    void SetUp() override {
        Libfabric::SetUp();
        Bytes word(1);
        const Bytes one(1);
        ASSERT_EQ(fi_trecv(ends[0].ep, word.data(), 1, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
        ASSERT_EQ(fi_tsend(ends[1].ep, one.data(), 1, nullptr, 0, 1, nullptr), 0);
        provider.deliver_all();
        ASSERT_EQ(completions(ends[0]).size(), 1U);
        ASSERT_EQ(completions(ends[1]).size(), 1U);
    }
    /// Until nothing more happens: what each end was told. `change` may alter what is on its way.
    void run(const std::function<void(Wire&)>& change = {}) {
        for (int round = 0; round < 100; ++round) {
            while (!provider.under_way.empty()) provider.deliver(0, change);
            for (std::size_t i = 0; i < ends.size(); ++i) {
                const auto more = completions(ends[i]);
                told[i].insert(told[i].end(), more.begin(), more.end());
            }
        }
    }
    const Bytes plain = random_bytes(900'000);
    Bytes got = Bytes(900'000);
    std::array<std::vector<fi_cq_err_entry>, 2> told;
};

TEST_F(LongMessages, AreFetchedInPieces) {
    int sends = 0, receives = 0;
    std::vector<std::size_t> sizes;
    provider.on_send = [&](const Wire& wire) {
        sizes.push_back(wire.bytes.size());
        EXPECT_FALSE(holds(wire.bytes, Bytes(plain.begin(), plain.begin() + 16)));
    };
    ASSERT_EQ(send(5, plain, &sends), 0);
    ASSERT_EQ(provider.under_way.size(), 1U);
    EXPECT_EQ(provider.under_way[0].bytes.size(), kHeadSize + kOverhead);
    EXPECT_TRUE(completions(ends[0]).empty()) << "the program may not write there yet";
    got.resize(plain.size() + 100);
    ASSERT_EQ(receive(5, got, 0, FI_ADDR_UNSPEC, &receives), 0);
    run();
    ASSERT_EQ(told[0].size(), 1U);
    EXPECT_EQ(told[0][0].op_context, &sends);
    EXPECT_EQ(told[0][0].flags, static_cast<std::uint64_t>(FI_SEND | FI_TAGGED));
    ASSERT_EQ(told[1].size(), 1U);
    EXPECT_EQ(told[1][0].op_context, &receives);
    EXPECT_EQ(told[1][0].len, plain.size());
    EXPECT_EQ(told[1][0].tag, 5U);
    EXPECT_EQ(told[1][0].flags & FI_REMOTE_CQ_DATA, 0U);
    got.resize(plain.size());
    EXPECT_EQ(got, plain);
    EXPECT_GT(std::count_if(sizes.begin(), sizes.end(), [](std::size_t size) { return size > 60'000; }), 3);
    EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), kLongestPiece + kPieceHeader + kOverhead);
}

TEST_F(LongMessages, BringTheProgramsImmediateData) {
    ASSERT_EQ(receive(5, got), 0);
    ASSERT_EQ(fi_tsenddata(ends[0].ep, plain.data(), plain.size(), nullptr, 0x12345678, 1, 5, nullptr), 0);
    run();
    ASSERT_EQ(told[1].size(), 1U);
    EXPECT_EQ(told[1][0].data, 0x12345678U);
    EXPECT_NE(told[1][0].flags & FI_REMOTE_CQ_DATA, 0U);
    EXPECT_EQ(got, plain);
    EXPECT_NE(fi_tsenddata(ends[0].ep, plain.data(), 10, nullptr, 0x112345678, 1, 5, nullptr), 0)
        << "more than it was shown: it would be taken for a length";
}

TEST_F(LongMessages, KeepTheOrderOfTheirLane) {
    Bytes few(10), second(plain.size());
    ASSERT_EQ(receive(5, got), 0);
    ASSERT_EQ(receive(5, few), 0);
    ASSERT_EQ(receive(5, second), 0);
    const Bytes few_sent = random_bytes(10), other = random_bytes(plain.size());
    ASSERT_EQ(send(5, plain), 0);
    ASSERT_EQ(send(5, few_sent), 0);
    ASSERT_EQ(send(5, other), 0);
    run();
    EXPECT_EQ(told[0].size(), 3U);
    EXPECT_EQ(told[1].size(), 3U);
    EXPECT_EQ(got, plain);
    EXPECT_EQ(few, few_sent);
    EXPECT_EQ(second, other);
}

TEST_F(LongMessages, ThatDoNotFitAreCutOffAndTheirSenderGoesOn) {
    for (const std::size_t room : {std::size_t{4}, plain.size() - 1}) {
        told = {};
        Bytes small(room), next(10);
        ASSERT_EQ(receive(5, small), 0);
        ASSERT_EQ(receive(5, next), 0);
        ASSERT_EQ(send(5, plain), 0);
        const Bytes few = random_bytes(10);
        ASSERT_EQ(send(5, few), 0);
        run();
        EXPECT_EQ(told[0].size(), 2U);
        ASSERT_EQ(told[1].size(), 2U);
        const auto cut = std::find_if(told[1].begin(), told[1].end(), [](const auto& one) { return one.err != 0; });
        ASSERT_NE(cut, told[1].end());
        EXPECT_EQ(cut->err, FI_ETRUNC);
        EXPECT_EQ(cut->len, room);
        EXPECT_EQ(cut->olen, plain.size() - room);
        EXPECT_EQ(small, Bytes(room)) << "nothing of it was fetched";
        EXPECT_EQ(next, few);
    }
}

TEST_F(LongMessages, CannotBeCancelledOnceTheirHeadHasCome) {
    int mark = 0;
    ASSERT_EQ(receive(5, got, 0, FI_ADDR_UNSPEC, &mark), 0);
    ASSERT_EQ(send(5, plain), 0);
    provider.deliver();
    EXPECT_TRUE(completions(ends[1]).empty());
    EXPECT_EQ(fi_cancel(&ends[1].ep->fid, &mark), -FI_ENOENT);
    run();
    EXPECT_EQ(told[1].size(), 1U);
    EXPECT_EQ(got, plain);
}

// protocol: F20
TEST_F(LongMessages, OfWhichAnythingIsAlteredEndTheJob) {
    const auto tried = [&](const std::function<void(Wire&)>& change) {
        LongMessages::TearDown();
        provider.under_way.clear();
        provider.endpoints.clear();
        LongMessages::SetUp();
        ASSERT_EQ(receive(5, got), 0);
        ASSERT_EQ(send(5, plain), 0);
        EXPECT_THROW(run(change), Attacked);
        provider.under_way.clear();
    };
    tried([](Wire& wire) { wire.data ^= std::uint64_t{1} << 40; });
    tried([](Wire& wire) { wire.data &= 0xffffffff; });
    tried([](Wire& wire) { wire.has_data = false; });
    for (const std::size_t at : {std::size_t{0}, std::size_t{33}, kPrefixSize, kPrefixSize + kHeadSize - 1}) {
        tried([at](Wire& wire) {
            if (wire.bytes.size() == kHeadSize + kOverhead) wire.bytes[at] ^= 1;
        });
    }
    for (const std::size_t at : {kPrefixSize, kPrefixSize + kPieceHeader, std::size_t{50'000}}) {
        tried([at](Wire& wire) {
            if (wire.bytes.size() > 60'000) wire.bytes[at] ^= 1;
        });
    }
}

/// A head opens as one alone, so that its numbers are never taken for a message.
// protocol: F20
TEST_F(LongMessages, AreRefusedByWhoDoesNotKnowOfHeads) {
    static_cast<Domain&>(*ends[1].domain).tells_lengths = false;
    ASSERT_EQ(receive(5, got), 0);
    ASSERT_EQ(send(5, plain), 0);
    provider.deliver();
    EXPECT_THROW(completions(ends[1]), Attacked);
    EXPECT_EQ(Bytes(got.begin(), got.begin() + 64), Bytes(64));
}

/// The first endpoint closes, and waits for the second, which has not received yet.
class LongMessagesAtTheEnd : public LongMessages {
protected:
    void SetUp() override {
        LongMessages::SetUp();
        waits_at_the_end(std::chrono::minutes(1));
        ASSERT_EQ(send(5, plain), 0);
        provider.deliver_all();
    }
    void TearDown() override {
        provider.on_read = [](std::size_t) {};
        waits_at_the_end(std::chrono::milliseconds(0));
        LongMessages::TearDown();
    }
    /// How long it takes. The others go on whenever the first endpoint looks, and before that `then` happens, which is
    /// told how often it has looked before.
    std::chrono::steady_clock::duration close_the_first(const std::function<void(int)>& then) {
        int looks = 0;
        provider.on_read = [&](std::size_t who) {
            if (who != 0) return;
            then(looks++);
            provider.deliver_all();
            const auto more = completions(ends[1]);
            told[1].insert(told[1].end(), more.begin(), more.end());
            provider.deliver_all();
        };
        const auto begun = std::chrono::steady_clock::now();
        close(ends[0].ep);
        provider.on_read = [](std::size_t) {};
        return std::chrono::steady_clock::now() - begun;
    }
};

TEST_F(LongMessagesAtTheEnd, AreServedUntilTheyWereFetched) {
    close_the_first([&](int looks) {
        if (looks == 100) {
            EXPECT_EQ(receive(5, got), 0);
        }
    });
    EXPECT_EQ(got, plain);
    EXPECT_EQ(told[1].size(), 1U);
}

TEST_F(LongMessagesAtTheEnd, AreNotKeptForWhoClosesAsWell) {
    static_cast<Endpoint&>(Endpoint::of(ends[1].ep)).remote.leave();
    EXPECT_LT(close_the_first([](int) {}), std::chrono::seconds(30));
    EXPECT_TRUE(told[1].empty());
}

TEST_F(LongMessagesAtTheEnd, AreNotKeptForWhoIsGone) {
    provider.refused = 1;
    provider.refusal = -FI_ENOTCONN;
    EXPECT_LT(close_the_first([](int) {}), std::chrono::seconds(30));
}

/// As tcp does of a peer that is gone: it connects again and again.
TEST_F(LongMessagesAtTheEnd, AreNotKeptForWhomTheProviderTakesNothing) {
    provider.refused = 1;
    EXPECT_LT(close_the_first([](int) {}), std::chrono::seconds(30));
}

TEST_F(LongMessagesAtTheEnd, AreNotKeptForWhomTheProviderCallsGone) {
    fi_cq_err_entry error = {};
    provider.on_send = [&](const Wire&) { error.err = FI_ECONNRESET; };
    EXPECT_LT(close_the_first([&](int) {
                  auto& queue = provider.endpoints[0]->queue;
                  if (error.err == 0 || queue.done.empty()) return;
                  error.op_context = queue.done.back().op_context;  // of the question
                  queue.done.pop_back();
                  queue.failed.push_back(error);
                  error.err = 0;
                  provider.under_way.clear();
              }),
              std::chrono::seconds(30));
}

TEST_F(LongMessagesAtTheEnd, AreNotKeptForEverForWhoSaysNothing) {
    waits_at_the_end(std::chrono::milliseconds(20));
    EXPECT_GE(close_the_first([](int) {}), std::chrono::milliseconds(20));
    completions(ends[1]);
    EXPECT_TRUE(told[1].empty()) << "a question tells the program nothing";
}

// protocol: F10
TEST_F(LongMessagesAtTheEnd, AreGivenUpByNobodyWhoWasNotAsked) {
    std::size_t questions = 0;
    provider.on_send = [&](const Wire& wire) { questions += wire.to == 1 ? 1 : 0; };
    auto& second = static_cast<Endpoint&>(Endpoint::of(ends[1].ep));
    ASSERT_EQ(receive(5, got), 0);
    run();
    EXPECT_EQ(got, plain);
    ASSERT_EQ(fi_tsend(ends[1].ep, plain.data(), plain.size(), nullptr, 0, 7, nullptr), 0);
    second.remote.leave();
    // The first one answers a question with nothing, as long as it does not close.
    second.remote.ask_who_fetches();
    run();
    EXPECT_TRUE(second.remote.has_messages());
}

TEST_F(Libfabric, ALongMessageGoesWholeToWhoMayNotKnowTheWayBack) {
    const Bytes plain = random_bytes(900'000);
    Bytes got(plain.size());
    ASSERT_EQ(receive(5, got), 0);
    ASSERT_EQ(send(5, plain), 0);
    ASSERT_EQ(provider.under_way.size(), 1U);
    EXPECT_EQ(provider.under_way[0].bytes.size(), plain.size() + kOverhead);
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(got, plain);
}

TEST(KeepDataForLengths, OnlyOfWhoAsksForNoMoreAndWhereThereIsEnough) {
    Info given;
    EXPECT_TRUE(given.keeps_data);
    EXPECT_EQ(given.domain.cq_data_size, kShownDataSize);
    given.domain.cq_data_size = 4;
    EXPECT_FALSE(keep_data_for_lengths(given.info, nullptr));
    given.domain.cq_data_size = 8;
    Info hints;
    hints.domain.cq_data_size = 8;
    EXPECT_FALSE(keep_data_for_lengths(given.info, &hints.info));
    EXPECT_EQ(given.domain.cq_data_size, 8U);
    hints.domain.cq_data_size = 4;
    given.provider = "udp;ofi_rxd";
    given.fabric.prov_name = given.provider.data();
    EXPECT_FALSE(keep_data_for_lengths(given.info, &hints.info)) << "its probes tell no immediate data";
    EXPECT_EQ(given.domain.cq_data_size, 8U);
    given.provider = "tcp";
    given.fabric.prov_name = given.provider.data();
    EXPECT_TRUE(keep_data_for_lengths(given.info, &hints.info));
}

/// The program looks at a message that waits, and takes it with a receive of its own.
class Claims : public Libfabric {
protected:
    ssize_t ask(Bytes& into, std::uint64_t flags) {
        const iovec part = {into.data(), into.size()};
        const fi_msg_tagged message = {&part, nullptr, 1, FI_ADDR_UNSPEC, 5, 0, &mark, 0};
        return fi_trecvmsg(ends[1].ep, &message, flags);
    }
    /// Sends one, of which the network tells the length `told`. True: it is found.
    bool find(const Bytes& plain, std::size_t told = 0) {
        EXPECT_EQ(send(5, plain), 0);
        provider.deliver(0, [&](Wire& wire) { wire.told = told; });
        Bytes none;
        EXPECT_EQ(ask(none, FI_PEEK | FI_CLAIM), 0);
        const auto found = completions(ends[1]);
        return found.size() == 1 && found[0].err == 0 && found[0].len == (told == 0 ? plain.size() : told - kOverhead);
    }

    static constexpr std::size_t kForged = std::size_t{1} << 60;
    int mark = 0;
};

TEST_F(Claims, TakeWhatWasLookedAt) {
    const Bytes plain = random_bytes(1000);
    ASSERT_TRUE(find(plain));
    Bytes got(2000);
    ASSERT_EQ(ask(got, FI_CLAIM), 0);
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].len, plain.size());
    got.resize(plain.size());
    EXPECT_EQ(got, plain);
}

TEST_F(Claims, GetNoMemoryForALengthThatNobodyHasAuthenticated) {
    const Bytes plain = random_bytes(1000);
    ASSERT_TRUE(find(plain, kForged));
    Bytes got(1000);
    ASSERT_EQ(ask(got, FI_CLAIM), 0);
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(got, plain);
    // One that is as long is cut off, as at any other receive.
    ASSERT_TRUE(find(random_bytes(200'000)));
    got.assign(1000, 0xaa);
    ASSERT_EQ(ask(got, FI_CLAIM), 0);
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].err, FI_ETRUNC);
    EXPECT_EQ(received[0].len, 1000U);
    EXPECT_EQ(received[0].olen, 199'000U);
    EXPECT_EQ(got, Bytes(1000, 0xaa));
    EXPECT_EQ(around.cut_off.size(), 1U);
}

TEST_F(Claims, ThatDiscardOpenAllOfIt) {
    ASSERT_TRUE(find(random_bytes(200'000)));
    Bytes none;
    ASSERT_EQ(ask(none, FI_CLAIM | FI_DISCARD), 0);
    auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].err, 0);
    EXPECT_EQ(received[0].len, 0U);
#ifndef __SANITIZE_ADDRESS__  // ends the process where there is not so much memory
    ASSERT_TRUE(find(random_bytes(100), kForged));
    EXPECT_THROW(ask(none, FI_CLAIM | FI_DISCARD), Attacked);
#endif
}

TEST_F(Libfabric, ACancelledReceiveIsTheProgramsOwn) {
    Bytes got(10);
    int mark = 0;
    ASSERT_EQ(receive(1, got, 0, 0, &mark), 0);
    ASSERT_EQ(fi_cancel(&ends[1].ep->fid, &mark), 0);
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].err, FI_ECANCELED);
    EXPECT_EQ(received[0].op_context, &mark);
    EXPECT_EQ(fi_cancel(&ends[1].ep->fid, &mark), -FI_ENOENT);
}

TEST_F(Libfabric, OneBufferTakesManyMessages) {
    Bytes into(1000);
    int mark = 0;
    const iovec all = {into.data(), into.size()};
    const std::size_t least = 100;
    ASSERT_EQ(fi_setopt(&ends[1].ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
    const fi_msg message = {&all, nullptr, 1, FI_ADDR_UNSPEC, &mark, 0};
    ASSERT_EQ(fi_recvmsg(ends[1].ep, &message, FI_MULTI_RECV), 0);
    std::vector<Bytes> sent;
    for (int i = 0; i < 6; ++i) {
        sent.push_back(random_bytes(93));
        ASSERT_EQ(fi_send(ends[0].ep, sent.back().data(), 93, nullptr, 1, nullptr), 0);
        provider.deliver();
    }
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i) {
        const auto* const at = static_cast<const std::uint8_t*>(received[i].buf);
        ASSERT_GE(at, into.data());
        ASSERT_LE(at + received[i].len, into.data() + into.size());
        EXPECT_EQ(Bytes(at, at + received[i].len), sent[i]);
        EXPECT_EQ((received[i].flags & FI_MULTI_RECV) != 0, i == 5);
    }
}

TEST_F(Libfabric, NoMemoryOfTheProgramIsRegistered) {
    Bytes memory(100);
    fid_mr* region = nullptr;
    ASSERT_EQ(fi_mr_reg(ends[0].domain, memory.data(), memory.size(), FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 9, 0,
                        &region, nullptr),
              0);
    EXPECT_TRUE(provider.registered.empty());
    EXPECT_EQ(fi_mr_key(region), 9U);
    EXPECT_EQ(fi_close(&region->fid), 0);
}

/// The first endpoint reads and writes memory of the second.
class Memory : public Libfabric {
protected:
    void SetUp() override {
        Libfabric::SetUp();
        region = show_memory(FI_REMOTE_READ | FI_REMOTE_WRITE, kKey);
        fi_cntr_attr attributes = {};
        ASSERT_EQ(fi_cntr_open(ends[0].domain, &attributes, &counter, nullptr), 0);
        ASSERT_EQ(fi_ep_bind(ends[0].ep, &counter->fid, FI_READ | FI_WRITE), 0);
    }
    void TearDown() override {
        close(region);
        close(ends[0].ep);
        close(counter);
        Libfabric::TearDown();
    }
    fid_mr* show_memory(std::uint64_t access, std::uint64_t key) {
        fid_mr* made = nullptr;
        EXPECT_EQ(fi_mr_reg(ends[1].domain, memory.data(), memory.size(), access, 0, key, 0, &made, nullptr), 0);
        return made;
    }
    ssize_t read(std::uint64_t at, std::size_t size, std::uint64_t key = kKey) {
        got.assign(size, 0);
        return fi_read(ends[0].ep, got.data(), size, nullptr, 1, at, key, &got);
    }
    ssize_t write(const Bytes& bytes, std::uint64_t at, std::uint64_t key = kKey) {
        return fi_write(ends[0].ep, bytes.data(), bytes.size(), nullptr, 1, at, key, &got);
    }
    /// Lets both go on until nothing is under way. What the first is told.
    std::vector<fi_cq_err_entry> settle() {
        std::vector<fi_cq_err_entry> told;
        do {
            provider.deliver_all();
            EXPECT_TRUE(completions(ends[1]).empty());
            for (const auto& one : completions(ends[0])) told.push_back(one);
        } while (!provider.under_way.empty());
        return told;
    }
    /// Delivers everything until the `count`th message of all that are long enough to hold data is the next.
    void settle_until_a_long_one() {
        for (;;) {
            ASSERT_FALSE(provider.under_way.empty());
            if (provider.under_way[0].bytes.size() > 1000) return;
            provider.deliver();
            completions(ends[1]);
            completions(ends[0]);
        }
    }
    Bytes part_of_memory(std::size_t at, std::size_t size) const {
        const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(at);
        return {begin, begin + static_cast<std::ptrdiff_t>(size)};
    }
    void expect_told_once(const std::vector<fi_cq_err_entry>& told, std::uint64_t flags) {
        ASSERT_EQ(told.size(), 1U);
        EXPECT_EQ(told[0].op_context, &got);
        EXPECT_EQ(told[0].flags, flags);
    }

    static constexpr std::uint64_t kKey = 9;
    static constexpr std::size_t kLong = 700'000;  // more than two pieces
    Bytes memory = random_bytes(kLong + 1000);
    fid_mr* region = nullptr;
    fid_cntr* counter = nullptr;
    Bytes got;
};

TEST_F(Memory, IsReadBySealedMessagesAndToldAsARead) {
    ASSERT_EQ(read(100, 2000), 0);
    provider.deliver();
    EXPECT_TRUE(completions(ends[1]).empty());
    ASSERT_EQ(provider.under_way.size(), 1U);
    EXPECT_TRUE(provider.under_way[0].tagged);  // it takes no buffer of the program's
    EXPECT_FALSE(holds(provider.under_way[0].bytes, part_of_memory(100, 16)));
    expect_told_once(settle(), FI_RMA | FI_READ);
    EXPECT_EQ(got, part_of_memory(100, 2000));
    EXPECT_EQ(fi_cntr_read(counter), 1U);
}

TEST_F(Memory, IsReadInPieces) {
    ASSERT_EQ(read(7, kLong), 0);
    expect_told_once(settle(), FI_RMA | FI_READ);
    EXPECT_EQ(got, part_of_memory(7, kLong));
}

TEST_F(Memory, IsWrittenWhenThePeerHasSaidSo) {
    const Bytes plain = random_bytes(2000);
    const Bytes before = memory;
    ASSERT_EQ(write(plain, 500), 0);
    ASSERT_EQ(provider.under_way.size(), 1U);
    EXPECT_FALSE(holds(provider.under_way[0].bytes, Bytes(plain.begin(), plain.begin() + 16)));
    EXPECT_EQ(memory, before);
    provider.deliver();
    EXPECT_TRUE(completions(ends[1]).empty());
    EXPECT_EQ(part_of_memory(500, 2000), plain);
    EXPECT_TRUE(completions(ends[0]).empty());  // its answer is still under way
    EXPECT_EQ(fi_cntr_read(counter), 0U);
    expect_told_once(settle(), FI_RMA | FI_WRITE);
    EXPECT_EQ(fi_cntr_read(counter), 1U);
    EXPECT_EQ(Bytes(memory.begin(), memory.begin() + 500), Bytes(before.begin(), before.begin() + 500));
    EXPECT_EQ(Bytes(memory.begin() + 2500, memory.end()), Bytes(before.begin() + 2500, before.end()));
}

TEST_F(Memory, IsWrittenInPieces) {
    const Bytes plain = random_bytes(kLong);
    const iovec parts[] = {{const_cast<std::uint8_t*>(plain.data()), 300'001},
                           {const_cast<std::uint8_t*>(plain.data()) + 300'001, kLong - 300'001}};
    ASSERT_EQ(fi_writev(ends[0].ep, parts, nullptr, 2, 1, 13, kKey, &got), 0);
    expect_told_once(settle(), FI_RMA | FI_WRITE);
    EXPECT_EQ(part_of_memory(13, kLong), plain);
}

TEST_F(Memory, IsReadAndWrittenByManyAtOnce) {
    std::vector<Bytes> plain;
    for (std::size_t i = 0; i < 5; ++i) {
        plain.push_back(random_bytes(100'000));
        ASSERT_EQ(write(plain[i], i * 100'000), 0);
    }
    ASSERT_EQ(read(kLong - 1000, 2000), 0);
    EXPECT_EQ(settle().size(), 6U);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(part_of_memory(i * 100'000, 100'000), plain[i]);
    EXPECT_EQ(got, part_of_memory(kLong - 1000, 2000));
    EXPECT_EQ(fi_cntr_wait(counter, 6, 0), 0);
    EXPECT_EQ(fi_cntr_wait(counter, 7, 0), -FI_ETIMEDOUT);
}

TEST_F(Memory, WhatIsInjectedIsCopiedAndToldToTheCounterAlone) {
    Bytes bytes = random_bytes(72);
    const Bytes plain = bytes;
    provider.refusals = 1;
    ASSERT_EQ(fi_inject_write(ends[0].ep, bytes.data(), bytes.size(), 1, 0, kKey), 0);
    bytes.assign(bytes.size(), 0);
    EXPECT_EQ(fi_inject_write(ends[0].ep, memory.data(), 73, 1, 0, kKey), -FI_EMSGSIZE);
    completions(ends[0]);
    EXPECT_TRUE(settle().empty());
    EXPECT_EQ(part_of_memory(0, 72), plain);
    EXPECT_EQ(fi_cntr_read(counter), 1U);
}

TEST_F(Memory, ACounterMakesProgressAndKeepsWhatComesForTheQueue) {
    const Bytes plain = random_bytes(10);
    Bytes into(10);
    ASSERT_EQ(fi_trecv(ends[0].ep, into.data(), into.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &into), 0);
    ASSERT_EQ(fi_tsend(ends[1].ep, plain.data(), plain.size(), nullptr, 0, 1, nullptr), 0);
    ASSERT_EQ(write(plain, 0), 0);
    provider.deliver_all();
    completions(ends[1]);
    provider.deliver_all();
    EXPECT_EQ(fi_cntr_read(counter), 1U);
    const auto told = completions(ends[0]);
    ASSERT_EQ(told.size(), 2U);
    EXPECT_EQ(told[0].op_context, &into);
    EXPECT_EQ(told[1].op_context, &got);
    EXPECT_EQ(into, plain);
}

/// The provider's descriptor tells nothing of what we have opened, or have to send: who sleeps on it would sleep on.
TEST_F(Memory, WhoWaitsIsToldToReadFirstWhatHasComeForIt) {
    fid* const queue = &ends[0].cq->fid;
    fid* waits[] = {queue};
    EXPECT_EQ(fi_trywait(fabric, waits, 1), 0);
    const Bytes plain = random_bytes(10);
    ASSERT_EQ(write(plain, 0), 0);
    provider.deliver_all();
    completions(ends[1]);
    provider.deliver_all();
    EXPECT_EQ(fi_cntr_read(counter), 1U);  // reads the queue for us
    EXPECT_EQ(fi_trywait(fabric, waits, 1), -FI_EAGAIN);
    EXPECT_EQ(completions(ends[0]).size(), 1U);
    EXPECT_EQ(fi_trywait(fabric, waits, 1), 0);
    provider.refusals = 1;
    ASSERT_EQ(send(1, plain), 0);
    EXPECT_EQ(fi_trywait(fabric, waits, 1), -FI_EAGAIN);
    fid* counts[] = {&counter->fid};
    EXPECT_EQ(fi_trywait(fabric, counts, 1), -FI_EAGAIN);
}

TEST_F(Memory, OfNoLengthIsReadAndWrittenAtOnce) {
    ASSERT_EQ(read(0, 0), 0);
    ASSERT_EQ(write({}, 0), 0);
    EXPECT_TRUE(provider.under_way.empty());
    EXPECT_EQ(completions(ends[0]).size(), 2U);
    EXPECT_EQ(fi_cntr_read(counter), 2U);
}

TEST_F(Memory, GoesOnWhenTheProviderIsFull) {
    const Bytes plain = random_bytes(kLong);
    provider.refusals = 2;
    ASSERT_EQ(write(plain, 0), 0);
    EXPECT_TRUE(provider.under_way.empty());
    for (int i = 0; i < 3; ++i) completions(ends[0]);
    provider.deliver_all();
    provider.refusals = 3;
    for (int i = 0; i < 6; ++i) completions(ends[1]);
    provider.deliver();
    provider.refusals = 2;
    expect_told_once(settle(), FI_RMA | FI_WRITE);
    EXPECT_EQ(part_of_memory(0, kLong), plain);
}

TEST_F(Memory, TellsTheProgramToWaitBeforeTooMuchDoes) {
    const Bytes plain = random_bytes(8);
    provider.refusals = 1 << 20;
    ssize_t code = 0;
    std::size_t taken = 0;
    for (; (code = write(plain, 0)) == 0; ++taken) ASSERT_LT(taken, 100'000U);
    EXPECT_EQ(code, -FI_EAGAIN);
    provider.refusals = 0;
    EXPECT_EQ(settle().size(), taken);
    EXPECT_EQ(fi_cntr_read(counter), taken);
}

/// What no region of the peer's is open for; each ends the job at its asker's, which is no attack, and touches nothing.
struct Closed {
    std::uint64_t at;
    std::size_t size;
    std::uint64_t key;
};
class ClosedMemory : public Memory, public testing::WithParamInterface<Closed> {
protected:
    static constexpr std::uint64_t kNeither = 11;
    void SetUp() override {
        Memory::SetUp();
        neither = show_memory(0, kNeither);
    }
    void TearDown() override {
        close(neither);
        Memory::TearDown();
    }
    fid_mr* neither = nullptr;
};

// protocol: F9
TEST_P(ClosedMemory, IsNotRead) {
    const auto [at, size, key] = GetParam();
    ASSERT_EQ(read(at, size, key), 0);
    EXPECT_THROW(settle(), GaveUp);
    EXPECT_EQ(got, Bytes(size));
}

// protocol: F9
TEST_P(ClosedMemory, IsNotWritten) {
    const auto [at, size, key] = GetParam();
    const Bytes before = memory;
    const Bytes plain = random_bytes(size);
    ASSERT_EQ(write(plain, at, key), 0);
    EXPECT_THROW(settle(), GaveUp);
    EXPECT_EQ(memory, before);
    EXPECT_EQ(fi_cntr_read(counter), 0U);
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, ClosedMemory,
                         testing::Values(Closed{0, 10, 10},                    // no such key
                                         Closed{0, 10, 11},                    // open to nobody
                                         Closed{700'000, 1001, 9},             // behind its end
                                         Closed{701'000, 1, 9},                // after it
                                         Closed{~std::uint64_t{0}, 10, 9},     // an overflow
                                         Closed{~std::uint64_t{0} - 5, 6, 9},  // another
                                         Closed{0, 100'000, 10},               // long ones
                                         Closed{0, 100'000, 11},               //
                                         Closed{650'000, 100'000, 9},          //
                                         Closed{~std::uint64_t{0}, 100'000, 9}));

TEST_F(Memory, ThatIsOpenForReadingIsNotWritten) {
    fid_mr* other = show_memory(FI_REMOTE_READ, 12);
    const Bytes before = memory;
    ASSERT_EQ(write(random_bytes(10), 0, 12), 0);
    EXPECT_THROW(settle(), GaveUp);
    EXPECT_EQ(memory, before);
    close(other);
}

TEST_F(Memory, ThatIsOpenForWritingIsNotRead) {
    fid_mr* other = show_memory(FI_REMOTE_WRITE, 12);
    ASSERT_EQ(read(0, 10, 12), 0);
    EXPECT_THROW(settle(), GaveUp);
    close(other);
}

// protocol: F9
TEST_F(Memory, ThatIsClosedMeanwhileIsNotWrittenFromThenOn) {
    const Bytes plain = random_bytes(kLong);
    ASSERT_EQ(write(plain, 0), 0);
    settle_until_a_long_one();
    close(region);
    const Bytes before = memory;
    EXPECT_THROW(settle(), GaveUp);
    EXPECT_EQ(memory, before);
}

TEST_F(Memory, ThatIsAllThereIsIsNotShown) {
    fid_mr* all = nullptr;
    EXPECT_EQ(fi_mr_reg(ends[1].domain, nullptr, SIZE_MAX, FI_REMOTE_WRITE, 0, 12, 0, &all, nullptr), -FI_EINVAL);
    EXPECT_EQ(fi_mr_reg(ends[1].domain, nullptr, SIZE_MAX, FI_SEND, 0, 12, 0, &all, nullptr), 0);
    close(all);
}

/// What an attacker may do to each message of a write and of a read; each ends the job, and no memory has changed.
class AttackOnMemory : public Memory, public testing::WithParamInterface<std::function<void(Wire&)>> {};

TEST_P(AttackOnMemory, ByAShortWrite) {
    const Bytes before = memory;
    ASSERT_EQ(write(random_bytes(2000), 0), 0);
    provider.deliver(0, GetParam());
    EXPECT_THROW(completions(ends[1]), Attacked);
    EXPECT_EQ(memory, before);
}

TEST_P(AttackOnMemory, ByAPieceOfALongWrite) {
    const Bytes before = memory;
    const Bytes plain = random_bytes(kLong);
    ASSERT_EQ(write(plain, 0), 0);
    settle_until_a_long_one();
    provider.deliver(0, GetParam());
    EXPECT_THROW(completions(ends[1]), Attacked);
    EXPECT_EQ(memory, before);
}

// protocol: F8
TEST_P(AttackOnMemory, ByTheEndOfAWrite) {
    ASSERT_EQ(write(random_bytes(2000), 0), 0);
    provider.deliver();
    completions(ends[1]);
    provider.deliver(0, GetParam());
    EXPECT_THROW(completions(ends[0]), Attacked);
    EXPECT_EQ(fi_cntr_read(counter), 0U);
}

TEST_P(AttackOnMemory, ByAQuestion) {
    ASSERT_EQ(read(0, 2000), 0);
    provider.deliver(0, GetParam());
    EXPECT_THROW(completions(ends[1]), Attacked);
}

TEST_P(AttackOnMemory, ByAnAnswer) {
    ASSERT_EQ(read(0, 2000), 0);
    provider.deliver();
    completions(ends[1]);
    provider.deliver(0, GetParam());
    EXPECT_THROW(completions(ends[0]), Attacked);
    EXPECT_EQ(got, Bytes(2000));
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, AttackOnMemory,
                         testing::Values([](Wire& wire) { wire.bytes[0] ^= 1; },                // the share
                                         [](Wire& wire) { wire.bytes[kShareSize] ^= 1; },       // the number
                                         [](Wire& wire) { wire.bytes[kPrefixSize] ^= 1; },      // what is asked
                                         [](Wire& wire) { wire.bytes[kPrefixSize + 4] ^= 1; },  // of what
                                         [](Wire& wire) { wire.bytes.back() ^= 1; },
                                         [](Wire& wire) { wire.has_data = true; },
                                         [](Wire& wire) { wire.bytes.pop_back(); },
                                         [](Wire& wire) { wire.bytes.resize(kOverhead - 1); },
                                         [](Wire& wire) { wire.bytes.assign(wire.bytes.size(), 0); }));

TEST_F(Memory, AReplayedWriteChangesNothing) {
    ASSERT_EQ(write(random_bytes(2000), 0), 0);
    const Wire note = provider.under_way[0];
    settle();
    memory.assign(memory.size(), 1);  // the program's, from now on
    provider.deliver_copy(note);
    EXPECT_THROW(completions(ends[1]), Attacked);
    EXPECT_EQ(memory, Bytes(memory.size(), 1));
}

TEST_F(Memory, AReplayedPieceChangesNothing) {
    const Bytes plain = random_bytes(kLong);
    ASSERT_EQ(write(plain, 0), 0);
    settle_until_a_long_one();
    const Wire piece = provider.under_way[0];
    provider.deliver();
    EXPECT_TRUE(completions(ends[1]).empty());
    const Bytes before = memory;
    // In the place of the one that is due.
    provider.deliver(0, [&](Wire& wire) { wire.bytes = piece.bytes; });
    EXPECT_THROW(completions(ends[1]), Attacked);
    EXPECT_EQ(memory, before);
    // Once more at its own place: nobody waits for it there.
    provider.deliver_copy(piece);
    EXPECT_TRUE(completions(ends[1]).empty());
    EXPECT_EQ(memory, before);
}

// protocol: F10
TEST_F(Memory, AReplayedEndEndsTheJob) {
    ASSERT_EQ(write(random_bytes(2000), 0), 0);
    provider.deliver();
    completions(ends[1]);
    const Wire done = provider.under_way[0];
    settle();
    provider.deliver_copy(done);
    EXPECT_THROW(completions(ends[0]), Attacked);
    EXPECT_EQ(fi_cntr_read(counter), 1U);
}

/// Found by a fuzzer: the bytes of such a note are nowhere, which memcpy must not get (the sanitizers see it).
TEST_F(Memory, OfWhichAMemberWritesNothingStaysAsItIs) {
    const Bytes before = memory;
    Bytes note(kNoteSize);
    const std::uint64_t numbers[] = {2, 1, kKey, 0, 0};  // a write of 0 bytes
    for (std::size_t i = 0; i < std::size(numbers); ++i) store_little(numbers[i], note.data() + 8 * i);
    const iovec part = {note.data(), note.size()};
    auto& member = static_cast<Endpoint&>(*ends[0].ep);
    ASSERT_EQ(member.send({Kind::active, {&part, 1}, 1, member.note_tag, 0, 0, nullptr, false}), 0);
    provider.deliver();
    EXPECT_TRUE(completions(ends[1]).empty());
    EXPECT_EQ(provider.under_way.size(), 1U) << "it is done";
    EXPECT_EQ(memory, before);
}

// protocol: F12
TEST_F(Memory, TheProgramsMessagesCannotPassForOurs) {
    const Bytes plain = random_bytes(kNoteSize + 10);
    constexpr std::uint64_t kTag = note_tag(0);
    EXPECT_EQ(send(kTag, plain), -FI_EOPNOTSUPP);
    EXPECT_EQ(send(kTag + 1, plain), -FI_EOPNOTSUPP);
    ASSERT_EQ(send(kTag - 1, plain), 0);
    provider.deliver(0, [](Wire& wire) { wire.tag = kTag; });
    EXPECT_THROW(completions(ends[1]), Attacked);
}

// protocol: F12
TEST_F(Memory, OursCannotPassForTheProgramsMessages) {
    Bytes into(3000);
    ASSERT_EQ(receive(5, into), 0);
    ASSERT_EQ(write(random_bytes(2000), 0), 0);
    provider.deliver(0, [](Wire& wire) { wire.tag = 5; });
    EXPECT_THROW(completions(ends[1]), Attacked);
}

TEST_F(Memory, WhatCannotBeKeptIsRefused) {
    Bytes some(8);
    const iovec one = {some.data(), some.size()};
    const std::array<fi_rma_iov, 2> regions = {{{0, 4, kKey}, {8, 4, kKey}}};
    const fi_msg_rma several = {&one, nullptr, 1, 1, regions.data(), 2, nullptr, 0};
    const fi_msg_rma single = {&one, nullptr, 1, 1, regions.data(), 1, nullptr, 0};
    EXPECT_EQ(fi_writemsg(ends[0].ep, &several, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_readmsg(ends[0].ep, &several, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_writemsg(ends[0].ep, &single, FI_REMOTE_CQ_DATA), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_writemsg(ends[0].ep, &single, FI_FENCE), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_ep_bind(ends[0].ep, &counter->fid, FI_REMOTE_WRITE), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_ep_bind(ends[0].ep, &counter->fid, FI_RECV), -FI_EOPNOTSUPP);
    EXPECT_THROW(fi_writedata(ends[0].ep, some.data(), 8, nullptr, 1, 1, 0, kKey, nullptr), GaveUp);
    EXPECT_TRUE(provider.under_way.empty());
}

/// A provider whose messages are small.
class SmallMessages : public Memory {
protected:
    SmallMessages() { given.ep.max_msg_size = 10'000 - kOverhead; }
};

TEST_F(SmallMessages, HoldAllThatIsReadAndWritten) {
    const Bytes plain = random_bytes(kLong);
    std::size_t longest = 0;
    provider.on_send = [&](const Wire& wire) { longest = std::max(longest, wire.bytes.size()); };
    ASSERT_EQ(write(plain, 0), 0);
    expect_told_once(settle(), FI_RMA | FI_WRITE);
    EXPECT_EQ(part_of_memory(0, kLong), plain);
    ASSERT_EQ(read(1, kLong), 0);
    expect_told_once(settle(), FI_RMA | FI_READ);
    EXPECT_EQ(got, part_of_memory(1, kLong));
    EXPECT_EQ(longest, 10'000U);
    const Bytes middle = random_bytes(12'000);  // neither a note nor a piece holds it
    ASSERT_EQ(write(middle, 5), 0);
    expect_told_once(settle(), FI_RMA | FI_WRITE);
    EXPECT_EQ(part_of_memory(5, 12'000), middle);
}

/// Another peer, which makes no progress.
class Standstill : public Memory {
protected:
    static constexpr std::size_t kStill = 2;
    Standstill() { ends.resize(3); }
    /// Lets the two others go on until nothing between them is under way.
    void settle_without_it() {
        for (int round = 0; round < 100; ++round) {
            for (std::size_t i = 0; i < provider.under_way.size();) {
                if (provider.under_way[i].to == kStill) {
                    ++i;
                } else {
                    provider.deliver(i);
                }
            }
            completions(ends[1]);
            for (const auto& one : completions(ends[0])) told.push_back(one);
        }
    }
    std::vector<fi_cq_err_entry> told;
};

TEST_F(Standstill, HoldsUpNoReadOfAnothers) {
    Bytes never(kLong);
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(fi_read(ends[0].ep, never.data(), never.size(), nullptr, kStill, 0, kKey, nullptr), 0);
    }
    ASSERT_EQ(read(7, kLong), 0);
    settle_without_it();
    expect_told_once(told, FI_RMA | FI_READ);
    EXPECT_EQ(got, part_of_memory(7, kLong));
}

TEST_F(Standstill, HoldsUpNoWriteToAnother) {
    const Bytes plain = random_bytes(kLong);
    for (int i = 0; i < 1000; ++i) {
        const ssize_t code = fi_write(ends[0].ep, plain.data(), 8, nullptr, kStill, 0, kKey, nullptr);
        ASSERT_TRUE(code == 0 || code == -FI_EAGAIN);
    }
    completions(ends[0]);
    ASSERT_EQ(write(plain, 13), 0);
    settle_without_it();
    expect_told_once(told, FI_RMA | FI_WRITE);
    EXPECT_EQ(part_of_memory(13, kLong), plain);
}

TEST_F(Standstill, IsNoAttackWhereItIsGone) {
    provider.refused = kStill;
    provider.refusal = -FI_ENOTCONN;
    const Bytes plain = random_bytes(8);
    const auto write_to_it = [&] {
        (void)fi_write(ends[0].ep, plain.data(), plain.size(), nullptr, kStill, 0, kKey, nullptr);
        completions(ends[0]);
    };
    EXPECT_THROW(write_to_it(), GaveUp);
}

/// The provider takes nothing for it, as where its queue of an address is full.
TEST_F(Standstill, HoldsUpNothingToAnotherWhereTheProviderTakesNothing) {
    provider.refused = kStill;
    const Bytes first = random_bytes(10);
    const Bytes second = random_bytes(10);
    const auto to_it = [&](const Bytes& bytes) {
        return fi_tsend(ends[0].ep, bytes.data(), bytes.size(), nullptr, kStill, 1, nullptr);
    };
    EXPECT_EQ(to_it(first), 0);
    EXPECT_EQ(to_it(second), -FI_EAGAIN) << "nothing overtakes it";
    Bytes into(10);
    ASSERT_EQ(receive(1, into), 0);
    ASSERT_EQ(send(1, second), 0);
    ASSERT_EQ(provider.under_way.size(), 1U);
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(into, second);
    Bytes never(kLong);
    ASSERT_EQ(fi_read(ends[0].ep, never.data(), never.size(), nullptr, kStill, 0, kKey, nullptr), 0);
    ASSERT_EQ(read(7, kLong), 0);
    settle_without_it();
    EXPECT_EQ(got, part_of_memory(7, kLong));
    provider.refused.reset();
    completions(ends[0]);
    Bytes late(10);
    ASSERT_EQ(fi_trecv(ends[kStill].ep, late.data(), late.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    provider.deliver_all();
    completions(ends[kStill]);
    EXPECT_EQ(late, first);
}

TEST_F(Standstill, GetsNoMoreThanItsShare) {
    Bytes never(kLong);
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(fi_read(ends[0].ep, never.data(), never.size(), nullptr, kStill, 0, kKey, nullptr), 0);
    }
    settle_without_it();
    EXPECT_EQ(provider.under_way.size(), 2U) << "two pieces are asked for";
}

/// An endpoint that tells of sends at another queue than of receives.
class TwoQueues : public Memory {
protected:
    TwoQueues() { has_two_queues = true; }
};

TEST_F(TwoQueues, OfWhichOneIsReadMakeProgressAndKeepWhatIsTheOthers) {
    const Bytes plain = random_bytes(10);
    Bytes into(10);
    ASSERT_EQ(fi_trecv(ends[0].ep, into.data(), into.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &into), 0);
    ASSERT_EQ(fi_tsend(ends[1].ep, plain.data(), plain.size(), nullptr, 0, 1, nullptr), 0);
    const Bytes written = random_bytes(kLong);
    ASSERT_EQ(write(written, 0), 0);
    fid* waits[] = {&ends[0].sends->fid};
    EXPECT_EQ(fi_trywait(fabric, waits, 1), -FI_EAGAIN) << "its end comes to the other";
    std::vector<fi_cq_err_entry> told;
    for (int round = 0; round < 100; ++round) {
        provider.deliver_all();
        completions(ends[1].sends);
        for (const auto& one : completions(ends[0].sends)) told.push_back(one);
    }
    expect_told_once(told, FI_RMA | FI_WRITE);
    EXPECT_EQ(part_of_memory(0, kLong), written);
    const auto received = completions(ends[0]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].op_context, &into);
    EXPECT_EQ(into, plain);
    EXPECT_EQ(fi_trywait(fabric, waits, 1), 0);
}

/// Another thread, which reads the other queue, or a counter, must not take away what one sleeps for.
class TwoDescriptors : public TwoQueues {
protected:
    TwoDescriptors() { has_descriptors = true; }
    int signals() const { return provider.endpoints[0]->sends.signals; }
};

TEST_F(TwoDescriptors, WakeWhoWaitsForWhatAnotherHasOpened) {
    fid* waits[] = {&ends[0].sends->fid};
    for (int time = 1; time <= 2; ++time) {
        ASSERT_EQ(fi_trywait(fabric, waits, 1), 0);
        ASSERT_EQ(send(1, random_bytes(10)), 0);
        EXPECT_TRUE(completions(ends[0].cq).empty());
        EXPECT_TRUE(completions(ends[0].cq).empty());
        EXPECT_EQ(signals(), time) << "once for all that has come";
        EXPECT_EQ(fi_trywait(fabric, waits, 1), -FI_EAGAIN);
        EXPECT_EQ(completions(ends[0].sends).size(), 1U);
    }
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    (void)fi_cntr_read(counter);
    EXPECT_EQ(signals(), 3);
    EXPECT_EQ(completions(ends[0].sends).size(), 1U);
    ASSERT_EQ(write({}, 0), 0);
    EXPECT_EQ(signals(), 4) << "it has ended at once";
}

TEST_F(TwoQueues, WithoutDescriptorsSignalNobody) {
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    EXPECT_TRUE(completions(ends[0].cq).empty());
    EXPECT_EQ(provider.endpoints[0]->sends.signals, 0);
}

TEST_F(Libfabric, WhoWaitsAtAQueueIsWokenByASignal) {
    fi_cq_tagged_entry entry = {};
    ASSERT_EQ(fi_cq_signal(ends[0].cq), 0);
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(fi_cq_sread(ends[0].cq, &entry, 1, nullptr, 30'000), -FI_EAGAIN);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
    EXPECT_EQ(fi_cq_sread(ends[0].cq, &entry, 1, nullptr, 0), -FI_EAGAIN);
}

/// Who was shown no memory, as it asked for none, or for an order.
class NotShown : public Memory {
protected:
    NotShown() {
        for (std::uint64_t* const caps : {&given.info.caps, &given.tx.caps, &given.rx.caps}) {
            *caps &= ~kMemoryCapabilities;
        }
    }
};

TEST_F(NotShown, IsNeitherReadNorWritten) {
    EXPECT_EQ(read(0, 8), -FI_EOPNOTSUPP);
    EXPECT_EQ(write(random_bytes(8), 0), -FI_EOPNOTSUPP);
    EXPECT_TRUE(provider.under_way.empty());
}

/// A provider that loses what is one of two long messages.
class OverRxd : public Memory {
protected:
    OverRxd() {
        given.provider = "udp;ofi_rxd";
        given.keeps_data = false;
    }
};

TEST_F(OverRxd, OnePieceIsUnderWayAtATime) {
    std::size_t most = 0;
    provider.on_send = [&](const Wire& wire) {
        const auto is_long = [](const Wire& one) { return one.bytes.size() > 1000; };
        const auto others = std::count_if(provider.under_way.begin(), provider.under_way.end(), is_long);
        if (is_long(wire)) most = std::max(most, static_cast<std::size_t>(others) + 1);
    };
    ASSERT_EQ(read(1, kLong), 0);
    expect_told_once(settle(), FI_RMA | FI_READ);
    EXPECT_EQ(got, part_of_memory(1, kLong));
    EXPECT_EQ(most, 1U);
}

/// A provider whose tags have 48 bits.
class ShortTags : public Memory {
protected:
    ShortTags() { given.ep.mem_tag_format = 0x0000'aaaa'aaaa'aaaa; }
};

TEST_F(ShortTags, AreThoseOfOurs) {
    provider.on_send = [&](const Wire& wire) { EXPECT_EQ(wire.tag >> 24, 0xff'ffffU); };
    const Bytes plain = random_bytes(kLong);
    ASSERT_EQ(write(plain, 0), 0);
    expect_told_once(settle(), FI_RMA | FI_WRITE);
    EXPECT_EQ(part_of_memory(0, kLong), plain);
}

/// A provider that does not take our tags.
class OtherTags : public Libfabric {
protected:
    OtherTags() { provider.most_tag = 1000; }
};

TEST_F(OtherTags, LeaveMessagesAndNoMemory) {
    const Bytes plain = random_bytes(10);
    Bytes into(10);
    ASSERT_EQ(receive(1000, into), 0);
    ASSERT_EQ(send(1000, plain), 0);
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(into, plain);
    EXPECT_EQ(fi_write(ends[0].ep, plain.data(), plain.size(), nullptr, 1, 0, 1, nullptr), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_read(ends[0].ep, into.data(), into.size(), nullptr, 1, 0, 1, nullptr), -FI_EOPNOTSUPP);
}

TEST_F(Libfabric, ACounterOfSendsCountsThoseOfTheProgram) {
    fid_cntr* counter = nullptr;
    fi_cntr_attr attributes = {};
    ASSERT_EQ(fi_cntr_open(ends[0].domain, &attributes, &counter, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(ends[0].ep, &counter->fid, FI_SEND), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    ASSERT_EQ(fi_tinject(ends[0].ep, &counter, sizeof counter, 1, 1), 0);
    ASSERT_EQ(fi_read(ends[0].ep, &counter, 0, nullptr, 1, 0, 1, nullptr), 0);
    EXPECT_EQ(fi_cntr_read(counter), 2U);
    close(ends[0].ep);
    close(counter);
}

class LocalMemory : public Libfabric {
protected:
    void SetUp() override { open(FI_MR_LOCAL); }
};

TEST_F(LocalMemory, OnlyOurBuffersAreRegisteredAndForNoRemoteAccess) {
    const Bytes plain = random_bytes(100);
    Bytes got(100);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(send(1, plain), 0);
    EXPECT_GT(provider.registered.size(), 2U);
    for (const auto& [memory, access] : provider.registered) {
        EXPECT_NE(memory, plain.data());
        EXPECT_NE(memory, got.data());
        EXPECT_EQ(access & ~std::uint64_t{FI_SEND | FI_RECV}, 0U);
    }
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(got, plain);
}

TEST_F(LocalMemory, ThatTheProviderHadNeverHasWhatIsOpen) {
    Bytes got(100);
    for (int round = 0; round < 10; ++round) {
        ASSERT_EQ(receive(1, got), 0);
        ASSERT_EQ(send(1, random_bytes(100)), 0);
        provider.deliver();
        EXPECT_EQ(completions(ends[0]).size(), 1U);
        EXPECT_EQ(completions(ends[1]).size(), 1U);
    }
    for (const End& end : ends) {
        const auto open = static_cast<Domain*>(end.domain)->pool.take(100);
        for (const auto& [memory, access] : provider.registered) EXPECT_NE(memory, open.data());
    }
}

/// The provider may keep it registered when a message is over, and so may a forged packet write there.
TEST_F(LocalMemory, ThatTheProviderHadIsNeitherTheHeapsNorBelieved) {
    const Bytes plain = random_bytes(100);
    Bytes got(100);
    for (int round = 0; round < 10; ++round) {
        ASSERT_EQ(receive(1, got), 0);
        ASSERT_EQ(send(1, plain), 0);
        provider.deliver();
        EXPECT_EQ(completions(ends[0]).size(), 1U);
        EXPECT_EQ(completions(ends[1]).size(), 1U);
        EXPECT_EQ(got, plain);
        for (const auto& [memory, access] : provider.registered) {
            EXPECT_FALSE(test::is_in_heap(memory));
            std::memset(const_cast<void*>(memory), 0xEE, kOverhead + 100);
        }
    }
}

TEST_F(Libfabric, AClosedEndpointLeavesAQueueThatCanBeRead) {
    Bytes got(10);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    provider.deliver();
    ASSERT_EQ(fi_close(&ends[1].ep->fid), 0);
    ends[1].ep = nullptr;
    EXPECT_TRUE(completions(ends[1]).empty());
    EXPECT_EQ(got, Bytes(10));
}

TEST_F(Libfabric, WhatIsNotSealedIsRefused) {
    Bytes some(8);
    // Not as if a message did not open: that reads as an attack.
    EXPECT_THROW(fi_atomic(ends[0].ep, some.data(), 1, nullptr, 1, 0, 0, FI_UINT64, FI_SUM, nullptr), GaveUp);
    EXPECT_EQ(ends[0].ep->cm->connect(ends[0].ep, nullptr, nullptr, 0), -FI_ENOSYS);
    EXPECT_EQ(around.refused.size(), 2U);
}

TEST_F(Libfabric, WhatANewerLibfabricAddsIsCutOffOrRefused) {
    const auto* const shown = ends[0].ep->ops;
    EXPECT_EQ(shown->size, sizeof(fi_ops_ep));
    using Unknown = int (*)();
    Unknown newer = nullptr;
    std::memcpy(&newer, reinterpret_cast<const char*>(shown) + shown->size, sizeof newer);
    EXPECT_EQ(newer(), -FI_ENOSYS);
    EXPECT_EQ(around.refused.size(), 1U);
}

TEST_F(Libfabric, OnlyWhatASealedEndpointDoesIsShown) {
    constexpr std::uint64_t kMessages = FI_TAGGED | FI_MSG | FI_DIRECTED_RECV;
    EXPECT_EQ(given.info.caps, kMessages | kMemoryCapabilities);
    EXPECT_EQ(given.info.ep_attr->max_msg_size, (1U << 20) - kOverhead);
    {
        const AsGiven given_back(given.info);
        EXPECT_EQ(given.info.caps, kMessages);  // the provider is to open no memory
        EXPECT_EQ(given.info.ep_attr->max_msg_size, 1U << 20);
        EXPECT_EQ(given.info.tx_attr->inject_size, 128U);
    }
    EXPECT_EQ(given.info.ep_attr->max_msg_size, (1U << 20) - kOverhead);
    EXPECT_EQ(given.info.caps, kMessages | kMemoryCapabilities);
    EXPECT_EQ(unusable(given.info), nullptr);
    given.info.mode = FI_MSG_PREFIX;
    EXPECT_NE(unusable(given.info), nullptr);
}

TEST(Information, MemoryIsShownToWhomItCanBeKept) {
    EXPECT_EQ(memory_wish(nullptr), MemoryWish::can_be_kept);
    fi_info hints = {};
    fi_tx_attr tx = {};
    fi_domain_attr domain = {};
    hints.tx_attr = &tx;
    hints.domain_attr = &domain;
    EXPECT_EQ(memory_wish(&hints), MemoryWish::can_be_kept);
    tx.msg_order = FI_ORDER_RAW;
    EXPECT_EQ(memory_wish(&hints), MemoryWish::none);
    hints.caps = FI_TAGGED;
    EXPECT_EQ(memory_wish(&hints), MemoryWish::none);
    hints.caps = FI_TAGGED | FI_RMA;
    tx.msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAW;
    EXPECT_EQ(memory_wish(&hints), MemoryWish::can_be_kept);
    tx.msg_order = FI_ORDER_SAS | FI_ORDER_RAW;
    EXPECT_EQ(memory_wish(&hints), MemoryWish::cannot_be_kept);
    tx.msg_order = 0;
    domain.data_progress = FI_PROGRESS_AUTO;
    EXPECT_EQ(memory_wish(&hints), MemoryWish::cannot_be_kept);
    domain.data_progress = FI_PROGRESS_MANUAL;
    hints.caps |= FI_FENCE;
    EXPECT_EQ(memory_wish(&hints), MemoryWish::cannot_be_kept);
}

TEST_F(Libfabric, ANameCarriesTheShareAndHasItAgainWhenLookedUp) {
    Bytes name(64);
    std::size_t size = name.size();
    ASSERT_EQ(fi_getname(&ends[1].ep->fid, name.data(), &size), 0);
    Bytes found(64);
    std::size_t found_size = found.size();
    ASSERT_EQ(fi_av_lookup(ends[0].av, 1, found.data(), &found_size), 0);
    EXPECT_EQ(found_size, size);
    EXPECT_EQ(found, name);
    std::size_t small = 40;
    EXPECT_EQ(fi_getname(&ends[1].ep->fid, name.data(), &small), -FI_ETOOSMALL);
    EXPECT_EQ(small, size);
    EXPECT_EQ(around.refused.size(), 1U);  // it says why
}

}  // namespace
}  // namespace cryptmpi::fabric::libfabric
