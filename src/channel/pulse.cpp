#include "channel/pulse.hpp"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <set>

#include "channel/clock.hpp"
#include "channel/connection.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {
constexpr int kBeats = 4;  // in the time after which a peer counts as gone: a late one must not end a job
constexpr std::int64_t kShortest_ns = 10'000'000;

std::int64_t timeout_ns(const Process& process) {
    return std::chrono::nanoseconds(process.settings().silence_timeout).count();
}

void give_up(Process& process, Entry& entry, const Shared* silent) {
    std::string peer;
    {
        // The program may be about to close it: then it is not given up, and the entry may be another connection's
        // soon.
        const std::lock_guard holders(process.holders_lock());
        const Use use(entry);
        if (use.shared() != silent || !use.is_current() || entry.ending.load()) return;
        peer = silent->peer;
        end_connection(process, entry, ETIMEDOUT, true);
        process.hide_what_broke();
    }
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", static_cast<double>(timeout_ns(process)) / 1e9);
    process.report().complain("from " + peer + ": no record has come for " + seconds +
                              " s (silence_timeout_s): the peer was stopped, or what it sends is withheld on the way");
}

}  // namespace

void Pulse::start() {
    if (timeout_ns(process_) <= 0) return;
    const std::lock_guard guard(lock_);
    if (running_) return;
    running_ = real::own_thread(run, this);
    if (!running_) process_.report().complain("cannot start the thread that silence_timeout_s needs");
}

void Pulse::after_fork_in_child() {
    new (&lock_) std::mutex;  // whoever held it is not in this process
    running_ = false;
}

void* Pulse::run(void* pulse) {
    auto& self = *static_cast<Pulse*>(pulse);
    std::map<Entry*, Last> heard;
    const std::int64_t period = std::max(timeout_ns(self.process_) / kBeats, kShortest_ns);
    const timespec wait{period / 1'000'000'000, period % 1'000'000'000};
    while (!self.process_.finishing()) {
        self.beat(self.process_, heard);
        real::ppoll(nullptr, 0, &wait, nullptr);
    }
    return nullptr;
}

void Pulse::beat(Process& process, std::map<Entry*, Last>& heard) {
    const std::lock_guard guard(work_lock_);
    if (process.finishing()) return;
    std::map<Entry*, Last> now_heard;
    std::set<Entry*> seen;  // some descriptors have one entry
    for (int fd = 0; fd <= process.table().highest(); ++fd) {
        Entry* entry = process.table().find_sealed(fd);
        if (entry == nullptr || !seen.insert(entry).second) continue;
        say_something(process, *entry);  // to who has ended its own direction, too
        const Heard now = hear(process, *entry);
        Shared* const shared = entry->shared.load();
        if (now.what == Heard::What::nobody || shared == nullptr) continue;
        Last last{shared, now.records, now_ns()};
        const auto before = heard.find(entry);
        const bool known = before != heard.end() && before->second.shared == shared;
        if (known && now.what == Heard::What::all && before->second.records == now.records)
            last.when_ns = before->second.when_ns;
        if (now_ns() - last.when_ns > timeout_ns(process)) {
            give_up(process, *entry, shared);
            continue;
        }
        now_heard[entry] = last;
    }
    heard.swap(now_heard);
}

}  // namespace cryptmpi::channel
