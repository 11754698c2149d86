// A forked child neither seals nor opens with its parent's keys, whatever it was forked by.
#include "seal/own_process.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/secret_memory.hpp"
#include "seal/message.hpp"
#include "seal/nonce_ledger.hpp"
#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;

pid_t fork_by_libc() {
    return fork();
}

/// libc does not see it.
pid_t fork_by_system_call() {
    return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

template <class Work>
int status_of_child(pid_t (*fork_child)(), Work work) {
    const pid_t child = fork_child();
    if (child == 0) _exit(work());
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Forks : public testing::TestWithParam<pid_t (*)()> {};
INSTANTIATE_TEST_SUITE_P(OwnProcess, Forks, testing::Values(fork_by_libc, fork_by_system_call));

TEST_P(Forks, NeitherSealsNorOpens) {
    const Bytes secret = test::random_bytes(kSecretSize);
    MessageSealer sealer(test::crypto(), secret.data());
    MessageOpener opener(test::crypto(), secret.data());
    std::uint8_t plain[16] = {1, 2, 3};
    const iovec in{plain, sizeof plain};
    std::uint8_t wire[sizeof plain + kMessageOverhead];
    const auto seal = [&](std::uint64_t number) { return sealer.seal(1, number, {&in, 1}, sizeof plain, wire); };
    ASSERT_TRUE(seal(0));
    Announcement announcement{100, 100, 100, 0};
    std::uint8_t announced[kAnnouncedWire];
    auto segments = sealer.announce(1, 1, announcement, announced);
    ASSERT_TRUE(segments);
    Bytes data(100);
    Bytes segment(100 + kSegmentOverhead);
    EXPECT_TRUE(owns_keys());
    EXPECT_EQ(status_of_child(GetParam(),
                              [&] {
                                  claim_keys();
                                  const iovec out{plain, sizeof plain};
                                  MessageSealer fresh(test::crypto(), secret.data());
                                  int done = owns_keys() ? 1 : 0;
                                  done += seal(2) ? 2 : 0;
                                  done += fresh.seal(1, 2, {&in, 1}, sizeof plain, wire) ? 4 : 0;
                                  done += opener.open(1, wire, sizeof wire, {&out, 1}) ? 8 : 0;
                                  done += sealer.announce(1, 3, announcement, announced) ? 16 : 0;
                                  done += segments->seal(0, data.data(), segment.data()) ? 32 : 0;
                                  done += segments->open(0, segment.data(), segment.size(), data.data()) ? 64 : 0;
                                  return done;
                              }),
              0);
    EXPECT_TRUE(seal(2));
    EXPECT_TRUE(segments->seal(0, data.data(), segment.data()));
    const iovec out{plain, sizeof plain};
    EXPECT_TRUE(opener.open(1, wire, sizeof wire, {&out, 1}));
}

TEST_P(Forks, FindsZerosWhereSecretsAre) {
    // In a process of its own: the other tests' secrets stay as they are.
    EXPECT_EQ(status_of_child(fork_by_libc,
                              [&] {
                                  wipe_secret_memory_in_children();
                                  auto secret = std::make_unique<Secret<kSecretSize>>();
                                  secret->bytes[5] = 5;
                                  return status_of_child(GetParam(), [&] { return secret->bytes[5]; }) * 10 +
                                         secret->bytes[5];
                              }),
              5);
}

#ifndef NDEBUG
TEST(NonceLedger, SeesWhatAForkedChildSeals) {
    const Bytes secret = test::random_bytes(kSecretSize);
    const auto seal_in_both = [&] {
        auto key = RecordKey::derive(test::crypto(), secret.data());
        note_nonce(*key, 0, 5);
        status_of_child(fork_by_libc, [&] {
            note_nonce(*key, 0, 6);
            return 0;
        });
        note_nonce(*key, 0, 6);
    };
    EXPECT_DEATH(seal_in_both(), "about to be used twice");
}
#endif

}  // namespace
}  // namespace cryptmpi::seal
