// The socket conformance suite (tests/sockets), whose programs know nothing of CryptMPI, over the fake kernel: what a
// program notes when it is sealed is what it notes when it is plain, whatever the seed and however bytes arrive.
// tests/system/test_sockets.py runs the same over the real one, and also those that start other processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "../../sockets/support.hpp"
#include "fake_kernel.hpp"

namespace cryptmpi::channel::fake {
namespace {

/// They need what the fake does not have: other processes, signals, threads that are cancelled or run at the same time,
/// IPv6, a standard output.
const std::set<std::string> kNotHere = {
    "a_stream_in_memory_has_no_number",  // in the fake, the number of a stream outlives it
    "a_thread_that_waits_is_cancelled",
    "a_writer_that_waits_is_cancelled",
    "an_instance_that_is_watched_is_closed",
    "close_ranges",
    "close_while_another_thread_sends",  // plain, the fake does not let the call go on
    "connect_again_after_a_refusal_and_a_fork",
    "connections_end_while_another_thread_waits_for_them",
    "exec_before_it_is_accepted",
    "exec_closes_on_exec",
    "exec_echo",
    "exec_standard_streams",
    "exec_with_bytes_left",
    "exit_at_once",
    "exit_from_a_handler",
    "exit_without_closing",
    "fork_and_both_write",
    "fork_and_kill_the_child",
    "fork_and_leave_a_part",
    "fork_and_read_a_part",
    "fork_and_read_in_turns",
    "fork_and_wait_for_what_the_parent_connects",
    "fork_and_write_before_it_is_accepted",
    "fork_child_exits_without_closing",
    "fork_server_of_one_process",
    "fork_while_another_thread_closes",
    "fork_while_it_connects",
    "fork_with_a_duplicate_before_it_is_accepted",
    "fork_with_bytes_to_be_sent",
    "functions_that_fork",
    "interrupted_before_it_is_accepted",
    "interrupted_calls",
    "long_messages_and_forks",
    "long_messages_then_all_descriptors_closed",
    "long_messages_while_others_fork",
    "numbers_that_exec",
    "numbers_that_fork",
    "other_names",
    "signal_masks",
    "spawn_and_close",
    "spawn_echo",
    "standard_output_is_a_socket",
    "standard_output_is_a_socket_and_is_closed",
    "standard_output_is_a_socket_and_is_opened_anew",
    "threads_with_little_stack",  // the fake kernel takes more
    "transfer_ipv6",
    "two_thousand_connections",
    "udp_inside_the_node",
    "vfork_and_pipes",
    "vfork_exec_echo",
    "write_after_shutdown",  // counts signals of all runs
};

std::vector<sockets::Case> chosen() {
    std::vector<sockets::Case> result;
    for (const sockets::Case& one : sockets::cases()) {
        if (one.kind == sockets::Kind::one_process && !kNotHere.contains(one.name)) result.push_back(one);
    }
    return result;
}

Ending run(const sockets::Case& one, const Options& options, std::uint64_t seed) {
    Job job(options);
    job.program(0, [&] {
        sockets::Context context;
        context.seed = seed;
        context.random = sockets::Random(seed);
        one.run(context);
        note("end");
    });
    return job.run();
}

std::vector<Options> weathers() {
    Options prompt;
    Options slow;
    slow.slow = true;
    slow.seed = 2;
    Options pieces = slow;
    pieces.most_arriving = 900;
    pieces.most_sent = 5000;
    pieces.random_sizes = true;
    pieces.settings["CRYPTMPI_PADDING"] = "padme:256";
    pieces.seed = 3;
    Options narrow = slow;
    narrow.capacity = 9000;
    narrow.most_arriving = 4000;
    narrow.random_sizes = true;
    narrow.settings["CRYPTMPI_INTERNAL_KEY_LIMITS"] = "9,150000";
    narrow.seed = 4;
    Options workers = slow;
    workers.settings["CRYPTMPI_THREADS"] = "4";
    workers.seed = 5;
    return {prompt, slow, pieces, narrow, workers};
}

class SameAsPlain : public testing::TestWithParam<sockets::Case> {};

/// The record that ends a stream comes before TCP's own end, whose events may be late where bytes are.
std::vector<std::string> without_ends(std::vector<std::string> lines) {
    for (std::string& line : lines) {
        for (const std::string event : {"|HUP", "|RDHUP", "|ERR"}) {
            if (const auto at = line.find(event); at != std::string::npos) line.erase(at, event.size());
        }
    }
    return lines;
}

TEST_P(SameAsPlain, InAnyWeather) {
    const std::uint64_t seed = 1;
    Options plain;
    plain.sealed = false;
    const Ending expected = run(GetParam(), plain, seed);
    ASSERT_TRUE(expected.went_well()) << expected.told();
    ASSERT_FALSE(expected.noted.empty());
    for (const Options& options : weathers()) {
        const Ending ending = run(GetParam(), options, seed);
        const std::string where = "seed " + std::to_string(options.seed) + "\n" + ending.told();
        EXPECT_TRUE(ending.complaints.empty() && ending.said.empty()) << where;
        const bool is_same =
            options.slow ? without_ends(ending.noted) == without_ends(expected.noted) : ending.noted == expected.noted;
        if (is_same && ending.went_well()) continue;
        // Some programs count on it that nothing takes time or room: plain, they note something else, too, where it
        // does, or wait for ever.
        Options slow = options;
        slow.sealed = false;
        const bool counts_on_it = options.slow && run(GetParam(), slow, seed).noted != expected.noted;
        EXPECT_TRUE(counts_on_it) << where << "plain:\n" << expected.told();
    }
}

INSTANTIATE_TEST_SUITE_P(Sockets, SameAsPlain, testing::ValuesIn(chosen()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace cryptmpi::channel::fake
