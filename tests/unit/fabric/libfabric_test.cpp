// The door of libfabric over a provider that obeys the test: what goes out is sealed, what comes in is opened or ends
// the job, and nothing else changes for the program.
#include <rdma/fi_rma.h>

#include <deque>
#include <stdexcept>

#include "fabric/libfabric/information.hpp"
#include "fabric/libfabric/objects.hpp"
#include "fabric/libfabric/tables.hpp"
#include "fake_provider.hpp"
#include "seal/support.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

using test::Bytes;
using test::crypto;
using test::FakeProvider;
using test::random_bytes;
using test::Wire;

struct Ended : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct GaveUp : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Around final : Surroundings {
    Around() {
        keys::JobKey key;
        key.bytes[0] = 7;
        auto joined = Job::join(crypto(), key, "job");
        EXPECT_TRUE(joined);
        job_.emplace(std::move(*joined));
    }
    Result<const Job*> job() override { return &*job_; }
    [[noreturn]] void end(const std::string& line) override { throw Ended(line); }
    [[noreturn]] void give_up(const std::string& line) override { throw GaveUp(line); }
    void refuse(const std::string& operation, const std::string&) override { refused.push_back(operation); }
    void begin(const Party&) override {}
    void end(const Party& party) override { sent += party.counters().sent[0].messages; }

    std::vector<std::string> refused;
    std::uint64_t sent = 0;

private:
    std::optional<Job> job_;
};

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
        info.caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_HMEM | FI_DIRECTED_RECV;
        adapt_answer(info);
    }
    fi_info info = {};
    fi_ep_attr ep = {};
    fi_tx_attr tx = {};
    fi_rx_attr rx = {};
    fi_domain_attr domain = {};
    fi_fabric_attr fabric = {};
};

/// The program: two endpoints, which know each other as address 0 (the first) and 1.
class Libfabric : public testing::Test {
protected:
    struct End {
        fid_domain* domain = nullptr;
        fid_ep* ep = nullptr;
        fid_cq* cq = nullptr;
        fid_av* av = nullptr;
    };

    void SetUp() override { open(0); }
    void TearDown() override { close(); }

    void close() {
        for (End& end : ends) {
            close(end.ep);
            close(end.av);
            close(end.cq);
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
        fabric = show(&provider.fabric, around, nullptr, "fake");
        for (End& end : ends) {
            ASSERT_EQ(fi_domain(fabric, &given.info, &end.domain, nullptr), 0);
            ASSERT_EQ(fi_endpoint(end.domain, &given.info, &end.ep, nullptr), 0);
            fi_cq_attr queue = {};
            queue.format = FI_CQ_FORMAT_TAGGED;
            ASSERT_EQ(fi_cq_open(end.domain, &queue, &end.cq, nullptr), 0);
            EXPECT_EQ(queue.format, FI_CQ_FORMAT_TAGGED);
            fi_av_attr addresses = {};
            ASSERT_EQ(fi_av_open(end.domain, &addresses, &end.av, nullptr), 0);
            ASSERT_EQ(fi_ep_bind(end.ep, &end.cq->fid, FI_SEND | FI_RECV), 0);
            ASSERT_EQ(fi_ep_bind(end.ep, &end.av->fid, 0), 0);
            ASSERT_EQ(fi_enable(end.ep), 0);
        }
        Bytes names;
        for (End& end : ends) {
            Bytes name(64);
            std::size_t size = name.size();
            ASSERT_EQ(fi_getname(&end.ep->fid, name.data(), &size), 0);
            EXPECT_EQ(size, FakeProvider::kNameSize + kShareSize);
            names.insert(names.end(), name.begin(), name.begin() + static_cast<std::ptrdiff_t>(size));
        }
        for (End& end : ends) ASSERT_EQ(fi_av_insert(end.av, names.data(), 2, nullptr, 0, nullptr), 2);
    }

    /// Everything that the program is told, in order; errors as entries with err.
    std::vector<fi_cq_err_entry> completions(End& end) {
        std::vector<fi_cq_err_entry> all;
        for (;;) {
            fi_cq_err_entry entry = {};
            fi_cq_tagged_entry one = {};
            const ssize_t got = fi_cq_read(end.cq, &one, 1);
            if (got == -FI_EAGAIN) return all;
            if (got == -FI_EAVAIL) {
                EXPECT_EQ(fi_cq_readerr(end.cq, &entry, 0), 1);
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
    Around around;
    fid_fabric* fabric = nullptr;
    std::array<End, 2> ends;
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
    EXPECT_THROW(completions(ends[1]), Ended);
}

/// What an attacker may do to one of two messages; each ends the job, and the program's memory holds nothing of it.
class Attack : public Libfabric, public testing::WithParamInterface<std::function<void(Wire&)>> {};

TEST_P(Attack, EndsTheJob) {
    Bytes got(200, 0xAA);
    ASSERT_EQ(receive(0, got, ~std::uint64_t{0}), 0);
    ASSERT_EQ(send(7, random_bytes(200)), 0);
    provider.deliver(0, GetParam());
    EXPECT_THROW(completions(ends[1]), Ended);
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
    EXPECT_THROW(completions(ends[1]), Ended);
}

TEST_F(Libfabric, ADroppedMessageIsMissedByTheNext) {
    Bytes got(10);
    ASSERT_EQ(receive(1, got), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    provider.under_way.pop_front();
    provider.deliver();
    EXPECT_THROW(completions(ends[1]), Ended);
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
    EXPECT_THROW(completions(ends[1]), Ended);
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
    EXPECT_THROW(completions(ends[0]), Ended);
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
    EXPECT_EQ(small, Bytes(4, 0xAA));  // none of it is authentic
    EXPECT_EQ(next, plain);            // and the lane goes on
}

TEST_F(Libfabric, WhatAProviderCutsOffSilentlyMayBeTruncationAndSaysSo) {
    Bytes small(4);
    ASSERT_EQ(receive(1, small), 0);
    ASSERT_EQ(send(1, random_bytes(10)), 0);
    provider.deliver(0, [](Wire& wire) { wire.bytes.resize(4 + kOverhead); });
    try {
        completions(ends[1]);
        ADD_FAILURE() << "it was opened";
    } catch (const Ended& ended) {
        EXPECT_NE(std::string(ended.what()).find("longer than its receive"), std::string::npos) << ended.what();
    }
    EXPECT_EQ(small, Bytes(4));
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

/// The first endpoint reads memory of the second; both have a buffer for untagged messages.
class Reading : public Libfabric {
protected:
    void SetUp() override {
        Libfabric::SetUp();
        for (std::size_t i = 0; i < 2; ++i) {
            const std::size_t least = 600;
            ASSERT_EQ(fi_setopt(&ends[i].ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
        }
        ASSERT_EQ(fi_mr_reg(ends[1].domain, memory.data(), memory.size(), FI_REMOTE_READ, 0, kKey, 0, &region, nullptr),
                  0);
    }
    void TearDown() override {
        close(region);
        Libfabric::TearDown();
    }
    void post(std::size_t end, std::size_t size) {
        rooms[end].resize(size);
        const iovec all = {rooms[end].data(), size};
        const fi_msg message = {&all, nullptr, 1, FI_ADDR_UNSPEC, &rooms[end], 0};
        ASSERT_EQ(fi_recvmsg(ends[end].ep, &message, FI_MULTI_RECV), 0);
    }
    ssize_t read(std::uint64_t at, std::size_t size, std::uint64_t key = kKey) {
        got.resize(size);
        return fi_read(ends[0].ep, got.data(), size, nullptr, 1, at, key, &got);
    }

    static constexpr std::uint64_t kKey = 9;
    const Bytes memory = random_bytes(3000);
    fid_mr* region = nullptr;
    std::array<Bytes, 2> rooms;
    Bytes got;
};

TEST_F(Reading, IsCarriedBySealedMessagesAndToldAsARead) {
    post(0, 10'000);
    post(1, 10'000);
    ASSERT_EQ(read(100, 2000), 0);
    provider.deliver();
    EXPECT_TRUE(completions(ends[1]).empty());
    ASSERT_EQ(provider.under_way.size(), 1U);
    EXPECT_TRUE(provider.under_way[0].tagged);  // it takes no buffer of the program's
    EXPECT_FALSE(holds(provider.under_way[0].bytes, Bytes(memory.begin() + 100, memory.begin() + 116)));
    provider.deliver_all();
    const auto done = completions(ends[0]);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].op_context, &got);
    EXPECT_EQ(done[0].flags, std::uint64_t{FI_RMA | FI_READ});
    EXPECT_EQ(got, Bytes(memory.begin() + 100, memory.begin() + 2100));
}

TEST_F(Reading, AsksAndAnswersAgainWhenTheProviderIsFull) {
    post(0, 10'000);
    post(1, 10'000);
    provider.refusals = 1;
    ASSERT_EQ(read(0, 3000), 0);
    EXPECT_TRUE(provider.under_way.empty());
    completions(ends[0]);
    provider.deliver();
    provider.refusals = 3;
    completions(ends[1]);
    for (int i = 0; i < 6; ++i) completions(ends[1]);
    provider.deliver_all();
    EXPECT_EQ(completions(ends[0]).size(), 1U);
    EXPECT_EQ(got, memory);
}

TEST_F(Reading, TakesNoReceiveOfTheProgram) {
    Bytes into(600 + 40);
    ASSERT_EQ(fi_recv(ends[1].ep, into.data(), into.size(), nullptr, FI_ADDR_UNSPEC, &into), 0);
    post(0, 10'000);
    ASSERT_EQ(read(0, 10), 0);
    provider.deliver();
    EXPECT_TRUE(completions(ends[1]).empty());
    const Bytes plain = random_bytes(20);
    ASSERT_EQ(fi_send(ends[0].ep, plain.data(), plain.size(), nullptr, 1, nullptr), 0);
    provider.deliver(1);
    const auto received = completions(ends[1]);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].op_context, &into);
    EXPECT_EQ(Bytes(into.begin(), into.begin() + 20), plain);
}

TEST_F(Reading, TellsTheProgramThatItsBufferIsFull) {
    post(1, 600);  // the question leaves less than a message's room of it
    ASSERT_EQ(read(0, 10), 0);
    provider.deliver();
    const auto told = completions(ends[1]);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].op_context, &rooms[1]);
    EXPECT_EQ(told[0].flags & (FI_MULTI_RECV | FI_RECV), std::uint64_t{FI_MULTI_RECV});
    EXPECT_EQ(told[0].len, 0U);
}

TEST_F(Reading, OfWhatIsNotOpenToItFailsAndIsNoAttack) {
    post(0, 10'000);
    post(1, 10'000);
    const auto answered = [&] {
        provider.deliver();
        completions(ends[1]);
        provider.deliver_all();
    };
    ASSERT_EQ(read(0, 10, kKey + 1), 0);  // no such region
    answered();
    EXPECT_THROW(completions(ends[0]), GaveUp);
    ASSERT_EQ(read(2991, 10), 0);  // behind its end
    answered();
    EXPECT_THROW(completions(ends[0]), GaveUp);
    ASSERT_EQ(read(~std::uint64_t{0}, 10), 0);  // an overflow
    answered();
    EXPECT_THROW(completions(ends[0]), GaveUp);
    Bytes local(10);
    fid_mr* other = nullptr;
    ASSERT_EQ(fi_mr_reg(ends[1].domain, local.data(), 10, FI_REMOTE_WRITE, 0, 11, 0, &other, nullptr), 0);
    ASSERT_EQ(read(0, 10, 11), 0);
    answered();
    EXPECT_THROW(completions(ends[0]), GaveUp);
    EXPECT_EQ(fi_close(&other->fid), 0);
}

TEST_F(Reading, AlteredMessagesOfOursEndTheJob) {
    post(0, 10'000);
    post(1, 10'000);
    ASSERT_EQ(read(0, 10), 0);
    const Wire question = provider.under_way[0];
    provider.deliver(0, [](Wire& wire) { wire.bytes.back() ^= 1; });
    EXPECT_THROW(completions(ends[1]), Ended);
    provider.deliver_copy(question);
    completions(ends[1]);
    provider.deliver_copy(question);  // replayed
    EXPECT_THROW(completions(ends[1]), Ended);
    provider.deliver_copy([&] {
        Wire wire = question;
        wire.has_data = false;  // passed off as the program's
        return wire;
    }());
    EXPECT_THROW(completions(ends[1]), Ended);
    provider.deliver(0, [](Wire& wire) { wire.bytes[kPrefixSize] ^= 1; });  // the answer
    EXPECT_THROW(completions(ends[0]), Ended);
    EXPECT_EQ(got, Bytes(10));
}

TEST_F(Reading, TheProgramsMessagesCannotPassForOurs) {
    const Bytes plain = random_bytes(40);
    EXPECT_EQ(fi_senddata(ends[0].ep, plain.data(), plain.size(), nullptr, kOurData, 1, nullptr), -FI_EOPNOTSUPP);
    post(1, 10'000);
    ASSERT_EQ(fi_senddata(ends[0].ep, plain.data(), plain.size(), nullptr, kOurData + 1, 1, nullptr), 0);
    provider.deliver(0, [](Wire& wire) { wire.data = kOurData; });
    EXPECT_THROW(completions(ends[1]), Ended);
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
    ASSERT_EQ(provider.registered.size(), 2U);
    for (const auto& [memory, access] : provider.registered) {
        EXPECT_NE(memory, plain.data());
        EXPECT_NE(memory, got.data());
        EXPECT_EQ(access & ~std::uint64_t{FI_SEND | FI_RECV}, 0U);
    }
    provider.deliver();
    EXPECT_EQ(completions(ends[1]).size(), 1U);
    EXPECT_EQ(got, plain);
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
    EXPECT_THROW(ends[0].ep->rma->write(ends[0].ep, some.data(), 8, nullptr, 1, 0, 0, nullptr), GaveUp);
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
    EXPECT_EQ(given.info.caps, std::uint64_t{FI_TAGGED | FI_MSG | FI_DIRECTED_RECV});
    EXPECT_EQ(given.info.ep_attr->max_msg_size, (1U << 20) - kOverhead);
    {
        const AsGiven given_back(given.info);
        EXPECT_EQ(given.info.ep_attr->max_msg_size, 1U << 20);
        EXPECT_EQ(given.info.tx_attr->inject_size, 128U);
    }
    EXPECT_EQ(given.info.ep_attr->max_msg_size, (1U << 20) - kOverhead);
    EXPECT_EQ(unusable(given.info), nullptr);
    given.info.mode = FI_MSG_PREFIX;
    EXPECT_NE(unusable(given.info), nullptr);
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
