// Records of a stream that several threads seal and open together: as one thread does it, bit for bit and error for
// error.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "seal/nonce_ledger.hpp"
#include "seal/stream.hpp"
#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::Direction;
using test::random_bytes;
using test::records_of;

constexpr std::size_t kThreads = 4;

Crypto shared_crypto(aead::Suite suite = aead::Suite::aes_256_gcm) {
    Crypto made = test::crypto(suite);
    made.threads = kThreads;
    return made;
}

/// All threads take part, each with its number.
constexpr auto kOnAllThreads = [](std::size_t count, const auto& work) {
    std::vector<std::thread> others;
    const auto serve = [&, count](std::size_t thread) {
        for (std::size_t i = thread; i < count; i += kThreads) work(i, thread);
    };
    for (std::size_t thread = 1; thread < kThreads; ++thread) others.emplace_back(serve, thread);
    serve(0);
    for (std::thread& other : others) other.join();
};
constexpr auto kNever = [](std::size_t, const auto&) { ADD_FAILURE() << "there was nothing to share"; };

std::vector<Bytes> random_plains(std::size_t count, std::size_t most = 5000) {
    std::vector<Bytes> plains;
    for (std::size_t i = 0; i < count; ++i) plains.push_back(random_bytes(test::random_below(most + 1)));
    return plains;
}

Bytes seal_one_by_one(StreamSealer& sealer, const std::vector<Bytes>& plains) {
    Bytes all;
    for (const Bytes& plain : plains) {
        const Bytes wire = test::seal_data(sealer, plain);
        all.insert(all.end(), wire.begin(), wire.end());
    }
    return all;
}

/// As channel/ does it: several where several can be, else one.
Bytes seal_together(StreamSealer& sealer, std::vector<Bytes>& plains, std::size_t at_a_time) {
    Bytes all;
    for (std::size_t next = 0; next < plains.size();) {
        const std::size_t most = std::min(at_a_time, plains.size() - next);
        std::vector<std::vector<iovec>> pieces;
        std::vector<Bytes> wires;
        std::vector<ToSeal> records;
        for (std::size_t i = next; i < next + most; ++i) {
            pieces.push_back(test::random_pieces(plains[i].data(), plains[i].size()));
            wires.emplace_back(plains[i].size() + kRecordOverhead);
        }
        for (std::size_t i = 0; i < most; ++i) records.push_back({pieces[i], plains[next + i].size(), wires[i].data()});
        const auto sealed = sealer.seal_several(records, kOnAllThreads);
        EXPECT_TRUE(sealed.has_value());
        const std::size_t count = sealed.value_or(0);
        for (std::size_t i = 0; i < count; ++i) all.insert(all.end(), wires[i].begin(), wires[i].end());
        if (count == 0) {
            const Bytes wire = test::seal_data(sealer, plains[next]);
            all.insert(all.end(), wire.begin(), wire.end());
        }
        next += std::max(count, std::size_t{1});
    }
    return all;
}

/// What a process of its own seals: in a debug build no counter may be used twice otherwise.
Bytes sealed_elsewhere(const Crypto& crypto, DirectionState state, Limits limits, const std::vector<Bytes>& plains,
                       DirectionState& after) {
    struct Result {
        DirectionState state;
        std::size_t size;
        std::uint8_t wire[1 << 20];
    };
    auto* const result =
        static_cast<Result*>(mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t child = fork();
    if (child == 0) {
        leave_nonce_ledger();
        StreamSealer sealer(crypto, state, limits);
        const Bytes wire = seal_one_by_one(sealer, plains);
        std::memcpy(result->wire, wire.data(), wire.size());
        result->size = wire.size();
        result->state = state;
        _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    const Bytes wire(result->wire, result->wire + result->size);
    after = result->state;
    munmap(result, sizeof(Result));
    return wire;
}

/// Several records on their way, and where they are opened to.
struct Arriving {
    explicit Arriving(const std::vector<Bytes>& wire) : wires(wire) {
        for (const Bytes& one : wires) {
            outs.emplace_back(parse_header(one.data())->size, 0xee);
            pieces.push_back(test::random_pieces(outs.back().data(), outs.back().size()));
        }
        for (std::size_t i = 0; i < wires.size(); ++i) records.push_back({wires[i].data(), outs[i].size(), pieces[i]});
    }

    std::vector<Bytes> wires;
    std::vector<Bytes> outs;
    std::vector<std::vector<iovec>> pieces;
    std::vector<ToOpen> records;
};

class SeveralOf : public testing::TestWithParam<aead::Suite> {};
INSTANTIATE_TEST_SUITE_P(Every, SeveralOf, testing::ValuesIn(test::suites()), test::test_name);

TEST_P(SeveralOf, AreSealedAsByOneThread) {
    const Crypto crypto = shared_crypto(GetParam());
    for (const std::uint64_t records : {7, 1 << 20}) {
        const Limits limits{records, 1 << 20};
        Direction line(limits, crypto);
        std::vector<Bytes> plains = random_plains(50);
        DirectionState alone{};
        const Bytes expected = sealed_elsewhere(crypto, line.sending, limits, plains, alone);
        EXPECT_EQ(seal_together(line.sealer, plains, 5), expected);
        EXPECT_EQ(std::memcmp(&line.sending, &alone, sizeof alone), 0);
        EXPECT_EQ(line.sealer.counters().records, 50 + line.sealer.counters().rekeys);
    }
}

TEST_P(SeveralOf, AreOpenedAsByOneThread) {
    Direction line(shared_crypto(GetParam()));
    for (int round = 0; round < 5; ++round) {
        const std::vector<Bytes> plains = random_plains(9);
        Arriving arriving(records_of(seal_one_by_one(line.sealer, plains)));
        std::size_t opened = 0;
        ASSERT_TRUE(line.opener.open_several(arriving.records, opened, kOnAllThreads).has_value());
        EXPECT_EQ(opened, plains.size());
        EXPECT_EQ(arriving.outs, plains);
        EXPECT_EQ(line.receiving.counter, line.sending.counter);
        EXPECT_EQ(line.receiving.bytes, line.sending.bytes);
        EXPECT_EQ(line.opener.counters().records, line.sealer.counters().records);
        EXPECT_EQ(line.opener.counters().bytes, line.sealer.counters().bytes);
    }
}

/// One thread's error for these records, and how many it opened.
std::string line_of_one_thread(DirectionState state, const std::vector<Bytes>& wires, std::size_t& opened) {
    StreamOpener opener(test::crypto(), state);
    for (opened = 0; opened < wires.size(); ++opened) {
        const auto one = test::open_record(opener, wires[opened]);
        if (!one.type) return one.line();
    }
    return "";
}

/// Nothing of the first that is wrong, nor of any after it, shows; and it is said as one thread says it.
void expect_the_rest_refused(const DirectionState& fresh, const std::vector<Bytes>& wires,
                             const std::vector<Bytes>& plains, std::size_t first_wrong) {
    std::size_t alone = 0;
    const std::string line = line_of_one_thread(fresh, wires, alone);
    ASSERT_EQ(alone, first_wrong);
    DirectionState state = fresh;
    StreamOpener opener(shared_crypto(), state);
    Arriving arriving(wires);
    std::size_t opened = 0;
    const auto done = opener.open_several(arriving.records, opened, kOnAllThreads);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, EBADMSG);
    EXPECT_EQ(done.error().line, line);
    EXPECT_EQ(opened, first_wrong);
    for (std::size_t i = 0; i < wires.size(); ++i) {
        if (i < first_wrong) {
            EXPECT_EQ(arriving.outs[i], plains[i]) << i;
        } else {
            EXPECT_TRUE(test::all_zero(arriving.outs[i].data(), arriving.outs[i].size())) << i;
        }
    }
    EXPECT_EQ(opener.counters().records, first_wrong);
    EXPECT_EQ(state.counter, first_wrong);
    EXPECT_EQ(state.failed, 1);
    EXPECT_TRUE(test::all_zero(state.secret, kSecretSize));
    EXPECT_TRUE(opener.open_several(arriving.records, opened, kNever).has_value());
    EXPECT_EQ(opened, 0U);
    EXPECT_EQ(test::open_record(opener, wires[0]).line(), "a record after one that did not open");
}

struct OnTheirWay {
    Direction line;
    std::vector<Bytes> plains;
    std::vector<Bytes> wires;

    OnTheirWay() {
        for (int i = 0; i < 6; ++i) plains.push_back(random_bytes(300));
        wires = records_of(seal_one_by_one(line.sealer, plains));
    }
};

TEST(Several, AnAlteredOneIsSeen) {
    const OnTheirWay sent;
    for (std::size_t i = 0; i < sent.wires.size(); ++i) {
        for (const std::size_t at : {kHeaderSize, std::size_t{150}, sent.wires[i].size() - 1}) {
            auto wires = sent.wires;
            wires[i][at] ^= 0x10;
            expect_the_rest_refused(sent.line.receiving, wires, sent.plains, i);
        }
    }
}

TEST(Several, SeveralAlteredOnesAreSeenAtTheFirst) {
    const OnTheirWay sent;
    auto wires = sent.wires;
    for (const std::size_t i : {2, 3, 5}) wires[i].back() ^= 1;
    expect_the_rest_refused(sent.line.receiving, wires, sent.plains, 2);
}

TEST(Several, ADroppedOneIsSeen) {
    const OnTheirWay sent;
    for (std::size_t i = 0; i + 1 < sent.wires.size(); ++i) {
        auto wires = sent.wires;
        wires.erase(wires.begin() + static_cast<std::ptrdiff_t>(i));
        expect_the_rest_refused(sent.line.receiving, wires, sent.plains, i);
    }
}

TEST(Several, SwappedAndRepeatedOnesAreSeen) {
    const OnTheirWay sent;
    for (std::size_t i = 0; i < sent.wires.size(); ++i) {
        for (std::size_t j = i + 1; j < sent.wires.size(); ++j) {
            auto wires = sent.wires;
            std::swap(wires[i], wires[j]);
            expect_the_rest_refused(sent.line.receiving, wires, sent.plains, i);
            wires = sent.wires;
            wires[j] = wires[i];
            expect_the_rest_refused(sent.line.receiving, wires, sent.plains, j);
        }
    }
}

TEST(Several, StopAtTheEndOfAKey) {
    const Limits limits{5, 1 << 20};
    Direction line(limits, shared_crypto());
    std::vector<Bytes> plains = random_plains(6);
    std::vector<Bytes> wires;
    std::vector<iovec> in;
    std::vector<ToSeal> records;
    for (const Bytes& plain : plains) {
        wires.emplace_back(plain.size() + kRecordOverhead);
        in.push_back({const_cast<std::uint8_t*>(plain.data()), plain.size()});
    }
    for (std::size_t i = 0; i < plains.size(); ++i) records.push_back({{&in[i], 1}, plains[i].size(), wires[i].data()});
    // The fifth place is the rekey record's.
    EXPECT_EQ(line.sealer.seal_several(records, kOnAllThreads).value_or(9), 4U);
    EXPECT_EQ(line.sealer.seal_several(std::span(records).subspan(4), kNever).value_or(9), 0U);
    const auto later = records_of(test::seal_data(line.sealer, plains[4]));
    ASSERT_EQ(later.size(), 2U);

    wires.resize(4);
    wires.insert(wires.end(), later.begin(), later.end());
    Arriving arriving(wires);
    std::size_t opened = 0;
    ASSERT_TRUE(line.opener.open_several(arriving.records, opened, kOnAllThreads).has_value());
    EXPECT_EQ(opened, 4U);
    EXPECT_TRUE(test::open_record(line.opener, later[0]).is(RecordType::rekey));
    ASSERT_TRUE(line.opener.open_several(std::span(arriving.records).subspan(5), opened, kOnAllThreads).has_value());
    EXPECT_EQ(opened, 1U);
    EXPECT_EQ(arriving.outs[5], plains[4]);
}

TEST(Several, AreNotOpenedPastTheLimitOfTheirKey) {
    // A peer that does not change keys where it should.
    Direction line(Limits{1 << 20, 1 << 20}, shared_crypto());
    StreamOpener strict(shared_crypto(), line.receiving, Limits{4, 1 << 20});
    Arriving arriving(records_of(seal_one_by_one(line.sealer, random_plains(6))));
    std::size_t opened = 0;
    ASSERT_TRUE(strict.open_several(arriving.records, opened, kOnAllThreads).has_value());
    EXPECT_EQ(opened, 3U);
    ASSERT_TRUE(strict.open_several(std::span(arriving.records).subspan(3), opened, kNever).has_value());
    EXPECT_EQ(opened, 0U);
    EXPECT_NE(test::open_record(strict, arriving.wires[3]).line().find("past the limit of its key"), std::string::npos);
}

TEST(Several, AreNoneInADirectionThatHasEnded) {
    Direction line(shared_crypto());
    const Bytes close = test::seal_control(line.sealer, RecordType::close);
    std::uint8_t byte = 7;
    const iovec in{&byte, 1};
    Bytes wire(1 + kRecordOverhead);
    const ToSeal record{{&in, 1}, 1, wire.data()};
    EXPECT_EQ(line.sealer.seal_several({&record, 1}, kNever).value_or(9), 0U);
    EXPECT_TRUE(test::all_zero(wire.data(), wire.size()));
    ASSERT_TRUE(test::open_record(line.opener, close).is(RecordType::close));
    wire[0] = 1;
    wire[3] = static_cast<std::uint8_t>(RecordType::data);
    const ToOpen arriving{wire.data(), 1, {&in, 1}};
    std::size_t opened = 9;
    EXPECT_TRUE(line.opener.open_several({&arriving, 1}, opened, kNever).has_value());
    EXPECT_EQ(opened, 0U);
}

TEST(Several, AreDataOnly) {
    Direction line;
    const Bytes confirm = test::seal_control(line.sealer, RecordType::confirm);
    const ToOpen record{confirm.data(), 0, {}};
    std::size_t opened = 9;
    EXPECT_TRUE(line.opener.open_several({&record, 1}, opened, kNever).has_value());
    EXPECT_EQ(opened, 0U);
    EXPECT_EQ(line.receiving.counter, 0U);
}

/// A module that counts the contexts that there are, and may have no more of them, or fail to seal.
struct Module {
    static inline std::atomic<int> contexts;
    static inline std::atomic<int> most;
    static inline std::atomic<bool> seals;

    cryptmpi_aead aead = *test::crypto().aead;
    Crypto crypto = shared_crypto();

    Module() {
        contexts = 0;
        most = 1000;
        seals = true;
        aead.create = [](int suite, const std::uint8_t* key) -> void* {
            if (contexts.fetch_add(1) < most) return test::crypto().aead->create(suite, key);
            --contexts;
            return nullptr;
        };
        aead.destroy = [](void* context) {
            if (context != nullptr) --contexts;
            test::crypto().aead->destroy(context);
        };
        aead.seal = [](void* context, const std::uint8_t* nonce, const std::uint8_t* aad, std::size_t aad_size,
                       const iovec* in, std::size_t count, std::uint8_t* out, std::uint8_t* tag) -> int {
            if (!seals) return CRYPTMPI_FAILED;
            return test::crypto().aead->seal(context, nonce, aad, aad_size, in, count, out, tag);
        };
        crypto.aead = &aead;
    }
};

TEST(Several, LeaveNoContextsOfOtherThreads) {
    const Module module;
    {
        Direction line(module.crypto);
        std::vector<Bytes> plains = random_plains(8);
        Arriving arriving(records_of(seal_together(line.sealer, plains, 8)));
        EXPECT_EQ(Module::contexts, 1);
        std::size_t opened = 0;
        ASSERT_TRUE(line.opener
                        .open_several(arriving.records, opened,
                                      [](std::size_t count, const auto& work) {
                                          kOnAllThreads(count, work);
                                          EXPECT_EQ(Module::contexts, 2 + static_cast<int>(kThreads - 1));
                                      })
                        .has_value());
        EXPECT_EQ(arriving.outs, plains);
        EXPECT_EQ(Module::contexts, 2);
    }
    EXPECT_EQ(Module::contexts, 0);
}

void expect_failure(Direction& line) {
    std::vector<Bytes> wires(8, Bytes(10 + kRecordOverhead));
    Bytes plain(10);
    const iovec in{plain.data(), plain.size()};
    std::vector<ToSeal> records;
    for (Bytes& wire : wires) records.push_back({{&in, 1}, plain.size(), wire.data()});
    const auto sealed = line.sealer.seal_several(records, kOnAllThreads);
    ASSERT_FALSE(sealed.has_value());
    EXPECT_EQ(sealed.error().code, EIO);
    EXPECT_EQ(sealed.error().line, "seal: the crypto module failed to encrypt a record");
    EXPECT_EQ(line.sending.failed, 1);
    EXPECT_EQ(line.sending.counter, wires.size());
    EXPECT_EQ(line.sealer.counters().records, 0U);
    EXPECT_TRUE(test::all_zero(line.sending.secret, kSecretSize));
}

TEST(Several, EndTheDirectionWhereTheModuleFails) {
    const Module module;
    Direction line(module.crypto);
    Module::seals = false;
    expect_failure(line);
}

TEST(Several, EndTheDirectionWhereAThreadHasNoContext) {
    const Module module;
    Direction line(module.crypto);
    Module::most = 2;
    expect_failure(line);
    EXPECT_EQ(Module::contexts, 0);
}

}  // namespace
}  // namespace cryptmpi::seal
