// Threads that ask one epoll instance about one connection.
#include "channel/epoll.hpp"

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "channel/real.hpp"

namespace cryptmpi::channel {
namespace {

constexpr auto kMoment = std::chrono::milliseconds(200);

/// What happens while the kernel is being asked, before it has the answer; once.
std::function<void()> meanwhile;
epoll_event last_asked{};

int ask(int, int, int, epoll_event* event) {
    if (auto act = std::exchange(meanwhile, nullptr)) act();
    last_asked = *event;
    return 0;
}

/// What was asked for has come.
int answer(int, epoll_event* events, int, int, const sigset_t*) {
    events[0] = last_asked;
    return 1;
}

/// A connection whose handshake waits for the peer's hello, and an instance.
class EpollOfAHandshake : public ::testing::Test {
protected:
    void SetUp() override {
        real::epoll_ctl.replace(ask);
        real::epoll_pwait.replace(answer);
        shared_->state.store(State::await_hello);
        entry_.kind.store(Kind::sealed);
        entry_.shared.store(shared_.get());
    }
    void TearDown() override {
        if (opening_.valid()) opening_.wait();
        forget_registrations(entry_);
    }

    /// As the courier does in its thread. A moment is enough for it, unless it has to wait for us.
    void open_meanwhile() {
        meanwhile = [this] {
            opening_ = std::async(std::launch::async, [this] {
                shared_->state.store(State::open);
                rearm(entry_);
            });
            (void)opening_.wait_for(kMoment);
        };
    }

    int control(int operation, std::uint32_t events) {
        epoll_event event{};
        event.events = events;
        return epoll_.control(operation, fd_, entry_, &event);
    }

    /// TCP connects, and the hello is sent.
    struct Connecting : Connections {
        int handshakes() const override { return 1; }
        bool shares() const override { return false; }
        void drive(Entry& entry) override {
            State before = State::tcp_connecting;
            entry.shared.load()->state.compare_exchange_strong(before, State::await_hello);
        }
        bool settle_debt(Entry&) override { return true; }
        bool verify_readable(Entry&) override { return false; }
    };

    const int instance_ = 4;
    const int fd_ = 3;
    std::unique_ptr<Shared> shared_{new Shared{}};
    Entry entry_;
    Table table_;
    Epoll epoll_{instance_, nullptr, table_};
    std::future<void> opening_;
};

TEST_F(EpollOfAHandshake, TheKernelIsAskedForTheCallersEventsIfItOpensWhileItIsAdded) {
    open_meanwhile();
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLOUT), 0);
    opening_.wait();
    EXPECT_EQ(last_asked.events, EPOLLOUT);
}

TEST_F(EpollOfAHandshake, TheKernelIsAskedForTheCallersEventsIfItOpensWhileTheyChange) {
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLIN), 0);
    ASSERT_EQ(last_asked.events, EPOLLIN);
    open_meanwhile();
    ASSERT_EQ(control(EPOLL_CTL_MOD, EPOLLOUT), 0);
    opening_.wait();
    EXPECT_EQ(last_asked.events, EPOLLOUT);
}

TEST_F(EpollOfAHandshake, TheKernelIsAskedForTheCallersEventsIfItOpensWhileTheHelloIsSent) {
    shared_->state.store(State::tcp_connecting);
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLOUT), 0);
    open_meanwhile();
    Connecting connections;
    epoll_event event{};
    // The first answer is for the handshake, and makes the kernel be asked anew.
    EXPECT_EQ(epoll_.wait(connections, &event, 1, 0, nullptr), 0);
    ASSERT_TRUE(opening_.valid());
    opening_.wait();
    EXPECT_EQ(last_asked.events, EPOLLOUT);
}

}  // namespace
}  // namespace cryptmpi::channel
