// A network in memory for the agreement's tests: one thread a rank, an attacker at every message, no clock.
//
// A message that never comes is noticed when no rank can go on any more: then every wait fails. So a test is as quick
// as its ranks, and has no deadline that a slow machine could miss.
#pragma once

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "keys/agreement.hpp"

namespace cryptmpi::test {

struct Message {
    int from;
    int to;
    int number;  // on its way from `from` to `to`, counted from 0
    std::vector<std::uint8_t> bytes;
    int depth = 0;  // messages sent or received one after the other until this one was sent
};

class Network {
public:
    /// What arrives in place of a message; elsewhere, several or nothing if it likes.
    using Attacker = std::function<std::vector<Message>(const Message&)>;
    using Member = std::function<void(keys::Peers&)>;

    explicit Network(int ranks) : ranks_(ranks), waits_(ranks), done_(ranks), depth_(ranks) {}

    Attacker attacker = [](const Message& message) { return std::vector{message}; };
    bool rendezvous = false;  // a send waits until its message was received

    /// Runs every rank's part to its end.
    void run(const std::function<Member(int rank)>& member_of) {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks_; ++rank) {
            threads.emplace_back([this, rank, member = member_of(rank)] {
                End end(*this, rank);
                member(end);
                leave(rank);
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }

    /// What was sent, as the attacker saw it.
    const std::vector<Message>& sent() const { return sent_; }

    /// Of the longest chain of sends and receives that had to follow each other.
    int longest_path() const { return *std::max_element(depth_.begin(), depth_.end()); }

private:
    class End : public keys::Peers {
    public:
        End(Network& network, int self) : network_(network), self_(self) {}

        Result<void> send(int rank, std::span<const std::uint8_t> message) override {
            return network_.send(self_, rank, message);
        }
        Result<std::size_t> receive_up_to(int rank, std::span<std::uint8_t> room) override {
            return network_.receive(rank, self_, room);
        }

    private:
        Network& network_;
        int self_;
    };

    using Link = std::pair<int, int>;

    static tl::unexpected<Error> silence(int rank) {
        return fail(ETIMEDOUT, "rank " + std::to_string(rank) + " did not answer");
    }

    Result<void> send(int from, int to, std::span<const std::uint8_t> bytes) {
        std::unique_lock hold(lock_);
        const int depth = ++depth_[from];
        sent_.push_back({from, to, numbers_[{from, to}]++, {bytes.begin(), bytes.end()}, depth});
        for (Message& message : attacker(sent_.back())) {
            const Link link{message.from, message.to};
            links_[link].push_back(std::move(message));
        }
        changed_.notify_all();
        const bool received = !rendezvous || wait(hold, from, [&] { return links_[{from, to}].empty(); });
        if (!received) return silence(to);
        return {};
    }

    Result<std::size_t> receive(int from, int to, std::span<std::uint8_t> room) {
        std::unique_lock hold(lock_);
        std::deque<Message>& link = links_[{from, to}];
        if (!wait(hold, to, [&] { return !link.empty(); })) {
            return silence(from);
        }
        const Message message = std::move(link.front());
        link.pop_front();
        depth_[to] = std::max(depth_[to], message.depth) + 1;
        changed_.notify_all();
        if (message.bytes.size() > room.size()) {
            return fail(EPROTO, "rank " + std::to_string(from) + " sent a message of another size");
        }
        std::copy(message.bytes.begin(), message.bytes.end(), room.begin());
        return message.bytes.size();
    }

    /// Until `ready`, or until nobody can go on.
    bool wait(std::unique_lock<std::mutex>& hold, int rank, const std::function<bool()>& ready) {
        waits_[rank] = ready;
        look_for_stall();
        changed_.wait(hold, [&] { return stalled_ || ready(); });
        waits_[rank] = nullptr;
        return ready();
    }

    void leave(int rank) {
        const std::lock_guard hold(lock_);
        done_[rank] = 1;
        look_for_stall();
    }

    void look_for_stall() {
        for (int rank = 0; rank < ranks_; ++rank) {
            const bool stands_still = done_[rank] != 0 || (waits_[rank] && !waits_[rank]());
            if (!stands_still) {
                return;
            }
        }
        stalled_ = true;
        changed_.notify_all();
    }

    int ranks_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::map<Link, std::deque<Message>> links_;
    std::map<Link, int> numbers_;
    std::vector<Message> sent_;
    std::vector<std::function<bool()>> waits_;  // what each rank waits for
    std::vector<char> done_;
    std::vector<int> depth_;
    bool stalled_ = false;
};

}  // namespace cryptmpi::test
