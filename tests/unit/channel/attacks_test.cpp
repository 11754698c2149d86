// Somebody on the wire: whatever he does is noticed, nothing altered is handed out, nobody is told of an end that was
// none, and nobody waits for ever.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "programs.hpp"

namespace cryptmpi::channel::fake {
namespace {

constexpr std::size_t kThere = 900;
constexpr std::size_t kBack = 300;
constexpr std::size_t kMost = 250;  // bytes in a write: some records

Options seeded(std::uint64_t seed = 1) {
    Options options;
    options.seed = seed;
    return options;
}

/// There: a hello, the confirm record, four records of data, the end. Back: a hello, two of data, the end.
Manner by_records() {
    Manner manner{kThere, kBack, kMost};
    manner.settled = true;
    return manner;
}

void expect_noticed(const Talk& done, const std::string& where) {
    EXPECT_TRUE(done.ending.went_well()) << where << done.told();
    EXPECT_TRUE(done.is_honest(kThere, kBack)) << where << done.told();
    EXPECT_TRUE(done.client_was_told() || done.server_was_told()) << where << done.told();
}

// protocol: R10, R11, R15
TEST(Attacks, EveryFlippedBitIsNoticedBeforeItsBytes) {
    const Talk whole = talk(seeded(), by_records());
    ASSERT_TRUE(whole.is_whole(kThere, kBack));
    for (const int direction : {0, 1}) {
        for (std::size_t place = 0; place < whole.ending.moved[direction]; ++place) {
            Manner manner = by_records();
            manner.before = [&](Job& job) { job.flips[direction] = place; };
            // What is wrong with hellos a process says once.
            const bool in_hello = place < keys::kHelloSize;
            Options options = seeded();
            options.renewed = in_hello && place % 8 == 0;
            const Talk done = talk(options, manner);
            const std::string where = "byte " + std::to_string(place) + (direction == 0 ? " there\n" : " back\n");
            expect_noticed(done, where);
            // A line of who got the byte says why; of a hello, who is refused may say more.
            const std::string from = direction == 0 ? "from 198.18.0.1" : " 198.18.0.2";
            if (!in_hello || options.renewed) {
                EXPECT_GE(done.ending.lines_with(from, 1 - direction), 1) << where << done.told();
            }
            EXPECT_FALSE(direction == 0 ? done.there.ended : done.back.ended) << where << done.told();
        }
    }
}

using Units = std::vector<Bytes>;

/// What he does when this unit passes, of those that go the way that he has chosen.
struct Attack {
    const char* name;
    std::function<Units(const Unit& unit, Bytes& kept)> act;
    bool may_spare_the_last = false;  // it shows only by what follows
};

Bytes changed(Bytes bytes, std::size_t at, std::uint8_t with) {
    bytes[at] = with;
    return bytes;
}

const Attack kAttacks[] = {
    {"Drop", [](const Unit&, Bytes&) { return Units{}; }},
    {"Duplicate",
     [](const Unit& unit, Bytes&) {
         return Units{unit.bytes, unit.bytes};
     },
     true},
    {"Truncate", [](const Unit& unit, Bytes&) { return Units{Bytes(unit.bytes.begin(), unit.bytes.end() - 1)}; }},
    {"Lengthen",
     [](const Unit& unit, Bytes&) {
         Bytes longer = unit.bytes;
         longer.push_back(0);
         return Units{longer};
     },
     true},
    {"MakeShorter", [](const Unit& unit, Bytes&) { return Units{changed(unit.bytes, 0, unit.bytes[0] ^ 1)}; }},
    {"MakeHuge", [](const Unit& unit, Bytes&) { return Units{changed(unit.bytes, 2, 0xff)}; }},
    {"CallItAnEnd",
     [](const Unit& unit, Bytes&) {
         const bool is_end = unit.bytes[3] == static_cast<std::uint8_t>(seal::RecordType::close);
         const auto other = is_end ? seal::RecordType::reset : seal::RecordType::close;
         return Units{changed(unit.bytes, 3, static_cast<std::uint8_t>(other))};
     }},
    {"CallItUnknown", [](const Unit& unit, Bytes&) { return Units{changed(unit.bytes, 3, 77)}; }},
    {"InjectAnEnd",
     [](const Unit& unit, Bytes&) {
         Bytes end(seal::kRecordOverhead);
         end[3] = static_cast<std::uint8_t>(seal::RecordType::close);
         return Units{end, unit.bytes};
     }},
    {"InjectAReset",
     [](const Unit& unit, Bytes&) {
         Bytes end(seal::kRecordOverhead);
         end[3] = static_cast<std::uint8_t>(seal::RecordType::reset);
         return Units{end, unit.bytes};
     }},
    {"InjectData",
     [](const Unit& unit, Bytes&) {
         Bytes data(seal::kRecordOverhead + 10);
         data[0] = 10;
         data[3] = static_cast<std::uint8_t>(seal::RecordType::data);
         return Units{data, unit.bytes};
     }},
    {"InjectGarbage",
     [](const Unit& unit, Bytes&) {
         return Units{Bytes(40, 0xa5), unit.bytes};
     }},
};

class Attacks : public testing::TestWithParam<Attack> {};

/// On each record in turn, in both directions.
// protocol: R8, R10, R11, R12, R15
TEST_P(Attacks, AreNoticed) {
    for (const bool there : {true, false}) {
        bool struck = true;
        std::size_t number = 1;
        for (; struck; ++number) {
            struck = false;
            bool was_last = true;
            Manner manner = by_records();
            Bytes kept;
            manner.before = [&](Job& job) {
                job.on_wire = [&](const Unit& unit) {
                    if (unit.there != there) return Units{unit.bytes};
                    if (unit.number > number) was_last = false;
                    if (unit.number != number) return Units{unit.bytes};
                    struck = true;
                    return GetParam().act(unit, kept);
                };
            };
            const Talk done = talk(seeded(number), manner);
            const std::string where = "record " + std::to_string(number) + (there ? " there\n" : " back\n");
            if (!struck) {
                EXPECT_TRUE(done.is_whole(kThere, kBack)) << where << done.told();
                continue;
            }
            if (was_last && GetParam().may_spare_the_last) {
                EXPECT_TRUE(done.ending.went_well() && done.is_honest(kThere, kBack)) << where << done.told();
                continue;
            }
            expect_noticed(done, where);
            const Read& victim = there ? done.there : done.back;
            EXPECT_FALSE(victim.ended) << where << done.told();
            EXPECT_NE(victim.error + (there ? done.accept_error : done.connect_error), 0) << where << done.told();
        }
        EXPECT_GT(number, 4U);
    }
}

INSTANTIATE_TEST_SUITE_P(OnEachRecord, Attacks, testing::ValuesIn(kAttacks),
                         [](const auto& one) { return std::string(one.param.name); });

/// The line says whose records did not open, and once.
TEST(Attacks, AreSaidOnceByWhoMetThem) {
    for (const bool there : {true, false}) {
        Manner manner = by_records();
        manner.before = [&](Job& job) {
            job.on_wire = [&, there](const Unit& unit) {
                const bool hit = unit.there == there && unit.number == 2;
                return Units{hit ? changed(unit.bytes, 10, unit.bytes[10] ^ 1) : unit.bytes};
            };
        };
        const Talk done = talk(seeded(), manner);
        const int victim = there ? 1 : 0;
        EXPECT_EQ(done.ending.lines_with(there ? "from 198.18.0.1:" : "from 198.18.0.2:", victim), 1) << done.told();
        EXPECT_EQ(done.ending.lines_with("", victim), 1) << done.told();
    }
}

/// A record takes another one's place.
TEST(Attacks, SwappedRecordsAreNoticed) {
    for (const bool there : {true, false}) {
        for (std::size_t number = 1; number < (there ? 6U : 3U); ++number) {
            bool struck = false;
            Bytes kept;
            Manner manner = by_records();
            manner.before = [&](Job& job) {
                job.on_wire = [&](const Unit& unit) {
                    if (unit.there == there && unit.number == number) {
                        kept = unit.bytes;
                        return Units{};
                    }
                    struck = struck || (unit.there == there && unit.number == number + 1);
                    if (unit.there == there && unit.number == number + 1) return Units{unit.bytes, kept};
                    return Units{unit.bytes};
                };
            };
            const Talk done = talk(seeded(), manner);
            expect_noticed(done, "record " + std::to_string(number) + "\n");
            EXPECT_FALSE(there ? done.there.ended : done.back.ended) << done.told();
            EXPECT_TRUE(struck) << number;
        }
    }
}

/// An earlier record comes again in the place of a later one, as long as it.
TEST(Attacks, AnEarlierRecordIsNoticed) {
    for (std::size_t number = 3; number < 5; ++number) {
        Bytes kept;
        Manner manner = by_records();
        manner.before = [&](Job& job) {
            job.on_wire = [&](const Unit& unit) {
                if (unit.there && unit.number == 2) kept = unit.bytes;
                return Units{unit.there && unit.number == number ? kept : unit.bytes};
            };
        };
        expect_noticed(talk(seeded(), manner), "record " + std::to_string(number) + "\n");
    }
}

/// What an end has sent comes back to it.
TEST(Attacks, ReflectedRecordsAreNoticed) {
    for (const bool hellos : {true, false}) {
        Bytes kept;
        Manner manner = by_records();
        manner.before = [&](Job& job) {
            job.on_wire = [&, hellos](const Unit& unit) {
                if (unit.there && unit.number == (hellos ? 0U : 2U)) kept = unit.bytes;
                if (!unit.there && unit.number == (hellos ? 0U : 1U)) return Units{kept};
                return Units{unit.bytes};
            };
        };
        Options options = seeded();
        options.renewed = true;
        const Talk done = talk(options, manner);
        expect_noticed(done, hellos ? "hello\n" : "record\n");
        EXPECT_TRUE(done.client_was_told()) << done.told();
        EXPECT_TRUE(done.back.bytes.empty()) << done.told();
    }
}

/// Of another connection between the same ends, at the same place: one that was before, and one that is there now.
TEST(Attacks, RecordsOfAnotherConnectionAreNoticed) {
    std::map<std::pair<bool, std::size_t>, Bytes> before;
    Manner first = by_records();
    first.before = [&](Job& job) {
        job.on_wire = [&](const Unit& unit) {
            before[{unit.there, unit.number}] = unit.bytes;
            return Units{unit.bytes};
        };
    };
    ASSERT_TRUE(talk(seeded(), first).is_whole(kThere, kBack));
    ASSERT_GE(before.size(), 10U);
    for (const auto& [where, bytes] : before) {
        Manner manner = by_records();
        manner.before = [&, at = where, with = bytes](Job& job) {
            job.on_wire = [at, with](const Unit& unit) {
                return Units{std::pair(unit.there, unit.number) == at ? with : unit.bytes};
            };
        };
        Options options = seeded();
        options.renewed = true;
        const Talk done = talk(options, manner);
        const std::string what = std::string(where.first ? "there " : "back ") + std::to_string(where.second) + "\n";
        expect_noticed(done, what);
        EXPECT_FALSE(where.first ? done.there.ended : done.back.ended) << what << done.told();
    }
}

/// Two connections at once, whose records change places.
TEST(Attacks, SplicedConnectionsAreNoticed) {
    for (std::size_t number = 0; number < 5; ++number) {
        Options options = seeded(number);
        options.renewed = true;
        Job job(options);
        Bytes first;
        int done = 0;
        job.on_wire = [&](const Unit& unit) {
            if (!unit.there || unit.number != number) return Units{unit.bytes};
            if (done++ == 0) first = unit.bytes;
            return Units{first};  // also in the place of the one that comes second
        };
        Read reads[2];
        job.program(1, [&] {
            const Fd listener = listen_at();
            Fd fds[2];
            for (Fd& fd : fds) fd = accept_from(listener);
            for (int i = 0; i < 2; ++i) reads[i] = read_from(fds[i]);
        });
        for (int i = 0; i < 2; ++i) {
            job.program(0, [&] {
                const Fd fd = connected_to(address(1, kPort));
                wait_for(fd, POLLOUT);
                send_all(fd, clear(kThere), kMost);
                ::shutdown(fd, SHUT_WR);
                (void)read_from(fd);
            });
        }
        const Ending ending = job.run();
        const std::string where = "unit " + std::to_string(number) + "\n" + ending.told();
        EXPECT_EQ(done, 2) << where;
        EXPECT_TRUE(ending.went_well()) << where;
        int noticed = 0;
        for (const Read& read : reads) {
            EXPECT_LE(read.bytes.size(), kThere) << where;
            EXPECT_EQ(read.bytes, clear(read.bytes.size())) << where;
            EXPECT_TRUE(!read.ended || read.bytes.size() == kThere) << where;
            noticed += read.error != 0 ? 1 : 0;
        }
        EXPECT_GE(noticed, 1) << where;
        EXPECT_FALSE(ending.said.empty()) << where;
    }
}

// protocol: H1
TEST(Attacks, AReplayedConnectionGetsNoFurther) {
    std::vector<Bytes> recorded;
    Manner manner = by_records();
    manner.before = [&](Job& job) {
        job.on_wire = [&](const Unit& unit) {
            if (unit.there) recorded.push_back(unit.bytes);
            return Units{unit.bytes};
        };
    };
    Options options = seeded();
    options.settings["CRYPTMPI_CHECK_ADDRESSES"] = "false";  // which would give it away
    ASSERT_TRUE(talk(options, manner).is_whole(kThere, kBack));
    options.renewed = true;
    options.of_node[0] = {{"CRYPTMPI_ENABLED", "false"}};
    Job job(options);
    Read read;
    job.program(1, [&] {
        const Fd listener = listen_at();
        read = read_from(accept_from(listener));
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        for (const Bytes& unit : recorded) send_all(fd, unit);
        (void)read_from(fd);
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well()) << ending.told();
    EXPECT_TRUE(read.bytes.empty());
    EXPECT_EQ(read.error, EKEYREJECTED) << name_of(read.error);
    EXPECT_EQ(ending.lines_with("replayed handshake"), 1) << ending.told();
}

TEST(Attacks, AHelloWithAShareOfZerosIsRefused) {
    for (const bool there : {true, false}) {
        Manner manner = by_records();
        manner.before = [&](Job& job) {
            job.on_wire = [there](const Unit& unit) {
                Bytes bytes = unit.bytes;
                if (unit.number == 0 && unit.there == there)
                    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(keys::kPrefixSize), 32, 0);
                return Units{bytes};
            };
        };
        Options options = seeded();
        options.renewed = true;
        const Talk done = talk(options, manner);
        expect_noticed(done, "");
        EXPECT_TRUE(done.there.bytes.empty() && done.back.bytes.empty()) << done.told();
    }
}

/// Where ML-KEM is used, too: all over the hellos.
TEST(Attacks, FlippedBitsOfAHybridHelloAreNoticed) {
    Options options = seeded();
    options.settings["CRYPTMPI_KEY_EXCHANGE"] = "x25519-mlkem768";
    ASSERT_TRUE(talk(options, by_records()).is_whole(kThere, kBack));
    for (const int direction : {0, 1}) {
        const keys::Role role = direction == 0 ? keys::Role::initiator : keys::Role::responder;
        const std::size_t size = keys::hello_size(role, false, true);
        const std::size_t kem = keys::kPrefixSize + 32;  // where what ML-KEM adds begins
        const std::size_t end = kem + keys::kem_part_size(role);
        std::set<std::size_t> places{7, kem - 1, kem, kem + 1, end - 17, end - 16, end - 1, end, size - 1};
        for (std::size_t place = 0; place < size; place += 41) places.insert(place);
        for (const std::size_t place : places) {
            Manner manner = by_records();
            manner.before = [&](Job& job) { job.flips[direction] = place; };
            const Talk done = talk(options, manner);
            const std::string where = "byte " + std::to_string(place) + "\n";
            expect_noticed(done, where);
            EXPECT_TRUE(done.there.bytes.empty() && done.back.bytes.empty()) << where << done.told();
        }
    }
}

/// What ML-KEM adds is left out, or is another connection's; or the whole hello is.
TEST(Attacks, AHybridHelloThatWasChangedIsNoticed) {
    Options options = seeded();
    options.settings["CRYPTMPI_KEY_EXCHANGE"] = "x25519-mlkem768";
    Bytes before[2];
    Manner first = by_records();
    first.before = [&](Job& job) {
        job.on_wire = [&](const Unit& unit) {
            if (unit.number == 0) before[unit.there ? 0 : 1] = unit.bytes;
            return Units{unit.bytes};
        };
    };
    ASSERT_TRUE(talk(options, first).is_whole(kThere, kBack));
    enum class Change { left_out, of_another, all_of_another };
    for (const Change change : {Change::left_out, Change::of_another, Change::all_of_another}) {
        for (const bool there : {true, false}) {
            const keys::Role role = there ? keys::Role::initiator : keys::Role::responder;
            const auto kem = static_cast<std::ptrdiff_t>(keys::kPrefixSize + 32);
            const auto end = kem + static_cast<std::ptrdiff_t>(keys::kem_part_size(role));
            const Bytes& other = before[there ? 0 : 1];
            Manner manner = by_records();
            manner.before = [&](Job& job) {
                job.on_wire = [&](const Unit& unit) {
                    if (unit.number != 0 || unit.there != there) return Units{unit.bytes};
                    Bytes bytes = unit.bytes;
                    if (change == Change::all_of_another) bytes = other;
                    if (change == Change::of_another)
                        std::copy(other.begin() + kem, other.begin() + end, bytes.begin() + kem);
                    if (change == Change::left_out) {
                        bytes.erase(bytes.begin() + kem, bytes.begin() + end);
                        bytes[7] = static_cast<std::uint8_t>(bytes[7] & ~keys::kHybrid);
                    }
                    return Units{bytes};
                };
            };
            options.renewed = true;
            const Talk done = talk(options, manner);
            expect_noticed(done, "");
            EXPECT_TRUE(done.client_was_told() && done.server_was_told()) << done.told();
            EXPECT_TRUE(done.there.bytes.empty() && done.back.bytes.empty()) << done.told();
            EXPECT_FALSE(done.ending.said.empty());
            if (change == Change::left_out) {
                EXPECT_EQ(done.ending.lines_with("give every node the same setting key_exchange", there ? 1 : 0), 1)
                    << done.told();
            }
        }
    }
}

/// The report counts what did not open.
TEST(Attacks, AreCountedInTheReport) {
    for (const bool there : {true, false}) {
        const std::filesystem::path folder =
            std::filesystem::temp_directory_path() / ("cryptmpi-report-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        Options options = seeded();
        options.renewed = true;
        for (const int node : {0, 1}) {
            const auto file = folder / std::to_string(node) / "report.json";
            options.of_node[node] = {{"CRYPTMPI_REPORT_FILE", file}};
        }
        Manner manner = by_records();
        manner.before = [&](Job& job) {
            job.on_wire = [&](const Unit& unit) {
                const bool hit = unit.there == there && unit.number == 2;
                return Units{hit ? changed(unit.bytes, 10, unit.bytes[10] ^ 1) : unit.bytes};
            };
        };
        const Talk done = talk(options, manner);
        expect_noticed(done, "");
        int counted[2] = {0, 0};
        for (const int node : {0, 1}) {
            const auto where = folder / std::to_string(node);
            if (!std::filesystem::exists(where)) continue;
            for (const auto& file : std::filesystem::recursive_directory_iterator(where)) {
                if (!file.is_regular_file()) continue;
                std::ifstream stream(file.path());
                std::string text{std::istreambuf_iterator<char>(stream), {}};
                std::erase(text, ' ');
                counted[node] += text.find("\"failed_opens\":1") != std::string::npos ? 1 : 0;
            }
        }
        EXPECT_EQ(counted[there ? 1 : 0], 1) << done.told();
        EXPECT_EQ(counted[there ? 0 : 1], 0) << done.told();
        std::filesystem::remove_all(folder);
    }
}

// protocol: R8, R9
/// The connection ends, or is reset, behind each byte, although nobody ended it.
TEST(Attacks, ACutConnectionIsNeverTakenForWhole) {
    const Talk whole = talk(seeded(), by_records());
    for (const bool slow : {false, true}) {
        for (const bool resets : {false, true}) {
            for (const bool there : {true, false}) {
                // Behind the last byte, all that there is to say has been said.
                for (std::size_t place = 0; place < whole.ending.moved[there ? 0 : 1]; place += slow     ? 17
                                                                                                : resets ? 3
                                                                                                         : 1) {
                    Options options = seeded(place);
                    options.slow = slow;
                    Manner manner = by_records();
                    manner.before = [&](Job& job) { job.cuts[0] = {there, place, resets}; };
                    const Talk done = talk(options, manner);
                    const std::string where = std::string(resets ? "reset" : "end") + " behind byte " +
                                              std::to_string(place) + (there ? " there\n" : " back\n");
                    expect_noticed(done, where);
                    EXPECT_FALSE(there ? done.there.ended : done.back.ended) << where << done.told();
                }
            }
        }
    }
}

/// Who wrote or reads gets an error, never an end; who does neither has lost nothing, and is not bothered.
// protocol: R9
TEST(Attacks, ACutHandshakeBothersOnlyWhoLostSomething) {
    enum class Does { reads, writes, leaves };
    for (const Does client : {Does::reads, Does::writes, Does::leaves}) {
        for (const Does server : {Does::reads, Does::leaves}) {
            for (const bool there : {true, false}) {
                const std::size_t end = there ? keys::kHelloSize + seal::kRecordOverhead : keys::kHelloSize;
                for (std::size_t place = 0; place < end; place += 10) {
                    Options options = seeded();
                    options.renewed = true;
                    Job job(options);
                    job.cuts[0] = {there, place, false};
                    Result got[2] = {};
                    const auto act = [](const Fd& fd, Does what) {
                        Result all{};
                        std::uint8_t byte = 0;
                        if (what == Does::leaves) sleep_ns(kSecond);
                        if (what == Does::writes) all = result(::send(fd, clear(20).data(), 20, MSG_NOSIGNAL));
                        if (what != Does::leaves && all.n >= 0) all = result(::recv(fd, &byte, 1, 0));
                        return all;
                    };
                    job.program(1, [&] {
                        const Fd listener = listen_at();
                        const Fd fd = accept_from(listener);
                        if (fd >= 0) got[1] = act(fd, server);
                    });
                    job.program(0, [&] {
                        const Fd fd = connected_to(address(1, kPort));
                        got[0] = fd < 0 ? result(-1) : act(fd, client);
                    });
                    const Ending ending = job.run();
                    const std::string where = "byte " + std::to_string(place) + ", " + std::to_string(there) +
                                              std::to_string(static_cast<int>(client)) +
                                              std::to_string(static_cast<int>(server)) + "\n" + ending.told();
                    EXPECT_TRUE(ending.went_well()) << where;
                    EXPECT_EQ(got[0].n, client == Does::leaves ? 0 : -1) << where;
                    EXPECT_EQ(got[1].n, server == Does::leaves ? 0 : -1) << where;
                    if (client == Does::leaves) {
                        EXPECT_EQ(ending.lines_with("", 0), 0) << where;
                    }
                    if (client == Does::writes) {
                        EXPECT_EQ(ending.lines_with("", 0), 1) << where;
                    }
                    if (server == Does::leaves) {
                        EXPECT_EQ(ending.lines_with("", 1), 0) << where;
                    }
                }
            }
        }
    }
}

/// Long writes and reads, which several threads share: a record among those that are opened together.
TEST(Attacks, OnLongMessagesAreNoticed) {
    constexpr std::size_t kLong = 700'000;
    const std::function<Units(const Unit&)> acts[] = {
        [](const Unit& unit) {
            return Units{changed(unit.bytes, unit.bytes.size() / 2, unit.bytes[unit.bytes.size() / 2] ^ 1)};
        },
        [](const Unit& unit) { return Units{changed(unit.bytes, unit.bytes.size() - 1, unit.bytes.back() ^ 1)}; },
        [](const Unit& unit) { return Units{changed(unit.bytes, 0, unit.bytes[0] ^ 1)}; },
        [](const Unit&) { return Units{}; },
        [](const Unit& unit) {
            return Units{unit.bytes, unit.bytes};
        },
    };
    for (const char* const threads : {"1", "4"}) {
        for (const auto& act : acts) {
            for (const std::size_t number : {2U, 4U, 5U, 8U}) {
                Options options = seeded(number);
                options.settings["CRYPTMPI_THREADS"] = threads;
                options.capacity = 1 << 20;
                Job job(options);
                job.on_wire = [&](const Unit& unit) {
                    return unit.there && unit.number == number ? act(unit) : Units{unit.bytes};
                };
                Read read;
                job.program(1, [&] {
                    const Fd listener = listen_at();
                    read = read_from(accept_from(listener), kAll, kLong);
                });
                job.program(0, [&] {
                    const Fd fd = connected_to(address(1, kPort));
                    send_all(fd, clear(kLong));
                    ::shutdown(fd, SHUT_WR);
                    (void)read_from(fd);
                });
                const Ending ending = job.run();
                const std::string where =
                    std::string(threads) + " threads, record " + std::to_string(number) + "\n" + ending.told();
                EXPECT_TRUE(ending.went_well()) << where;
                EXPECT_EQ(read.error, EBADMSG) << where;
                EXPECT_LT(read.bytes.size(), kLong) << where;
                const Bytes sent = clear(kLong);
                EXPECT_TRUE(std::equal(read.bytes.begin(), read.bytes.end(), sent.begin())) << where;
                EXPECT_EQ(ending.lines_with("from 198.18.0.1", 1), 1) << where;
            }
        }
    }
}

/// The program is told that the connection is broken, and closes it without reading; a rank says so all the same.
TEST(Attacks, AnEndThatNobodyReadsIsSaid) {
    for (const bool resets : {true, false}) {
        for (const bool shuts : {true, false}) {
            Options options = seeded();
            options.of_node[0] = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"CRYPTMPI_ABORT_AFTER_S", "0"}};
            options.renewed = true;
            Job job(options);
            job.cuts[0] = {false, keys::kHelloSize + 30, resets};
            job.program(1, [&] {
                const Fd listener = listen_at();
                const Fd fd = accept_from(listener);
                std::uint8_t room[100];
                while (::recv(fd, room, sizeof room, 0) > 0) {
                    if (::send(fd, room, 20, MSG_NOSIGNAL) < 0) break;
                }
            });
            job.program(0, [&] {
                Fd fd = connected_to(address(1, kPort));
                while (wait_for(fd, POLLRDHUP, 10) == 0) {
                    if (::send(fd, clear(50).data(), 50, MSG_NOSIGNAL) < 0) break;
                }
                if (shuts) ::shutdown(fd, SHUT_RDWR);
            });
            const Ending ending = job.run();
            EXPECT_TRUE(ending.went_well()) << ending.told();
            EXPECT_EQ(ending.lines_with("without the authenticated close", 0), 1) << resets << shuts << ending.told();
        }
    }
}

/// He lets the connection stand, and nothing come.
TEST(Attacks, WhatIsWithheldIsMissed) {
    for (const bool there : {true, false}) {
        Options options = seeded();
        options.settings["CRYPTMPI_SILENCE_TIMEOUT_S"] = "1";
        options.renewed = true;
        Job job(options);
        job.on_wire = [there](const Unit& unit) {
            return unit.there == there && unit.number > 2 ? Units{} : Units{unit.bytes};
        };
        Read reads[2];
        std::int64_t began_ns = 0;
        std::int64_t waited_ns = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            if (!there) send_all(fd, clear(100), 20);
            began_ns = time_ns();
            reads[1] = read_from(fd);
            if (there) waited_ns = time_ns() - began_ns;
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            if (there) send_all(fd, clear(100), 20);
            reads[0] = read_from(fd);
            if (!there) waited_ns = time_ns() - began_ns;
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_EQ(reads[there ? 1 : 0].error, ETIMEDOUT) << ending.told();
        EXPECT_GT(waited_ns, kSecond / 2);
        EXPECT_LT(waited_ns, 2 * kSecond);
        EXPECT_EQ(ending.lines_with("no record has come for 1 s (silence_timeout_s)", there ? 1 : 0), 1)
            << ending.told();
    }
}

/// Nobody has anything to say, or the program does not read what was said: that is no withholding.
TEST(Attacks, SilenceIsNoWithholding) {
    for (const bool busy : {true, false}) {
        Options options = seeded();
        options.settings["CRYPTMPI_SILENCE_TIMEOUT_S"] = "1";
        options.renewed = true;
        Job job(options);
        Read read;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            read = read_from(fd, 50);
            if (busy) sleep_ns(10 * kSecond);
            const Read rest = read_from(fd);
            read.bytes.insert(read.bytes.end(), rest.bytes.begin(), rest.bytes.end());
            read.ended = rest.ended;
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            send_all(fd, clear(100), 50);
            if (!busy) sleep_ns(10 * kSecond);
            ::shutdown(fd, SHUT_WR);
            (void)read_from(fd);
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        EXPECT_EQ(read.bytes, clear(100));
        EXPECT_TRUE(read.ended);
    }
}

/// MPICH over libfabric calls a receive complete that an error cut short: a rank's call does not return, and the rank
/// ends when the launcher has not ended it.
TEST(Attacks, ARankLearnsNothingOfABrokenConnection) {
    for (const int how : {0, 1, 2}) {
        Options options = seeded();
        options.of_node[0] = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"CRYPTMPI_ABORT_AFTER_S", "5"}};
        options.renewed = true;
        Job job(options);
        if (how == 0) job.flips[1] = keys::kHelloSize + 30;
        if (how > 0) job.cuts[0] = {false, keys::kHelloSize + 30, how == 2};
        bool returned = false;
        std::int64_t began_ns = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            send_all(fd, clear(100));
            began_ns = time_ns();
            (void)read_from(fd);
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            std::uint8_t room[100];
            (void)::recv(fd, room, sizeof room, 0);
            returned = true;
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.stuck.empty() && ending.complaints.empty()) << ending.told();
        EXPECT_FALSE(returned);
        ASSERT_TRUE(ending.exits.contains(0)) << ending.told();
        EXPECT_EQ(ending.exits.at(0), 125);
        EXPECT_EQ(ending.lines_with("ending this rank", 0), 1) << ending.told();
    }
}

}  // namespace
}  // namespace cryptmpi::channel::fake
