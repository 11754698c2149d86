// Threads that ask one epoll instance about one connection.
#include "channel/epoll.hpp"

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <cerrno>
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

int ask(int, int operation, int, epoll_event* event) {
    if (auto act = std::exchange(meanwhile, nullptr)) act();
    if (operation != EPOLL_CTL_DEL) last_asked = *event;
    return 0;
}

/// What happens while the kernel gives its answer; once.
std::function<void()> once_answered;
bool answers = true;

/// What was asked for has come.
int answer(int, epoll_event* events, int, int, const sigset_t*) {
    events[0] = last_asked;
    const int count = answers ? 1 : 0;
    if (auto act = std::exchange(once_answered, nullptr)) act();
    return count;
}

/// A connection whose handshake waits for the peer's hello, and an instance.
class EpollOfAHandshake : public ::testing::Test {
protected:
    void SetUp() override {
        real::epoll_ctl.replace(ask);
        real::epoll_pwait.replace(answer);
        answers = true;
        shared_->state.store(State::await_hello);
        entry_.kind.store(Kind::sealed);
        entry_.shared.store(shared_.get());
    }
    void TearDown() override {
        if (opening_.valid()) opening_.wait();
        forget_registrations(entry_);
        epoll_.close();
        epoll_.recycle();
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

    int control(int operation, std::uint32_t events, std::uint64_t data = 0) {
        epoll_event event{};
        event.events = events;
        event.data.u64 = data;
        return epoll_.control(operation, fd_, entry_, &event);
    }

    /// TCP connects, and the hello is sent.
    struct Connecting : Connections {
        int handshakes() const override { return 1; }
        std::uint32_t shares() const override { return 0; }
        void drive(Entry& entry) override {
            State before = State::tcp_connecting;
            entry.shared.load()->state.compare_exchange_strong(before, State::await_hello);
        }
        bool settle_debt(Entry&) override { return true; }
        bool verify_readable(Entry&) override { return false; }
    };

    /// Another thread does something while the handshake is driven.
    struct Disturbed : Connecting {
        void drive(Entry&) override {
            if (auto act = std::exchange(meanwhile_driven, nullptr)) act();
        }
        bool verify_readable(Entry&) override { return true; }
        std::function<void()> meanwhile_driven;
    };

    /// A connection that was opened long ago.
    struct Open : Connections {
        int handshakes() const override { return 0; }
        std::uint32_t shares() const override { return 0; }
        void drive(Entry&) override {}
        bool settle_debt(Entry&) override { return true; }
        bool verify_readable(Entry&) override { return true; }
    };

    /// How many events a look brings.
    int look(Connections& connections, epoll_event& event) { return epoll_.wait(connections, &event, 1, 0, nullptr); }

    const int instance_ = 4;
    const int fd_ = 3;
    std::unique_ptr<Shared> shared_{new Shared{}};
    Entry entry_;
    Table table_;
    Epoll& epoll_ = Epoll::open(instance_, nullptr, table_);
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

TEST_F(EpollOfAHandshake, IsDrivenWhileItIsTakenOut) {
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLOUT), 0);
    Disturbed connections;
    connections.meanwhile_driven = [&] { EXPECT_EQ(control(EPOLL_CTL_DEL, 0), 0); };
    epoll_event event{};
    EXPECT_EQ(look(connections, event), 0);
    EXPECT_TRUE(epoll_.plain());
}

TEST_F(EpollOfAHandshake, IsDrivenWhileItsSocketIsClosed) {
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLOUT), 0);
    Disturbed connections;
    connections.meanwhile_driven = [&] { forget_registrations(entry_); };
    epoll_event event{};
    EXPECT_EQ(look(connections, event), 0);
    EXPECT_TRUE(epoll_.plain());
}

TEST_F(EpollOfAHandshake, IsDrivenWhileItIsTakenOutAndPutInAgain) {
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLOUT), 0);
    Disturbed connections;
    connections.meanwhile_driven = [&] {
        EXPECT_EQ(control(EPOLL_CTL_DEL, 0), 0);
        shared_->state.store(State::open);
        EXPECT_EQ(control(EPOLL_CTL_ADD, EPOLLIN | EPOLLONESHOT, 2), 0);
    };
    epoll_event event{};
    // The kernel's answer was for the registration of before; that of now has not had its one shot.
    EXPECT_EQ(look(connections, event), 0);
    Open open;
    EXPECT_EQ(look(open, event), 1);
    EXPECT_EQ(event.data.u64, 2U);
}

TEST_F(EpollOfAHandshake, AnAnswerOfTheKernelIsForTheRegistrationOfThen) {
    shared_->state.store(State::open);
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLIN, 1), 0);
    once_answered = [&] {
        EXPECT_EQ(control(EPOLL_CTL_DEL, 0), 0);
        EXPECT_EQ(control(EPOLL_CTL_ADD, EPOLLIN, 2), 0);
    };
    Open connections;
    epoll_event event{};
    EXPECT_EQ(look(connections, event), 0);
    EXPECT_EQ(look(connections, event), 1);
    EXPECT_EQ(event.data.u64, 2U);
}

TEST_F(EpollOfAHandshake, WhoWaitsInAnInstanceThatIsClosedWaitsInNoOther) {
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLIN), 0);
    answers = false;
    Epoll* other = nullptr;
    once_answered = [&] {
        epoll_.close();
        epoll_.recycle();
        other = &Epoll::open(instance_ + 1, nullptr, table_);
    };
    Open connections;
    epoll_event event{};
    EXPECT_EQ(epoll_.wait(connections, &event, 1, 100, nullptr), -1);
    EXPECT_EQ(errno, EBADF);
    // The object is the other one's now.
    EXPECT_EQ(other, &epoll_);
}

TEST_F(EpollOfAHandshake, AnArrivalIsNotForTheInstanceThatItsRegistrationWasOf) {
    shared_->state.store(State::open);
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLIN), 0);
    Registration& registration = *entry_.registrations.front();
    ASSERT_EQ(control(EPOLL_CTL_DEL, 0), 0);
    Epoll& other = Epoll::open(instance_ + 1, nullptr, table_);
    epoll_event event{};
    event.events = EPOLLIN;
    ASSERT_EQ(other.control(EPOLL_CTL_ADD, fd_, entry_, &event), 0);
    ASSERT_EQ(entry_.registrations.front(), &registration);
    shared_->readable.store(true);
    epoll_.announce(registration);
    EXPECT_FALSE(epoll_.readable());
    announce(entry_);
    EXPECT_TRUE(other.readable());
    other.close();
    other.recycle();
}

TEST_F(EpollOfAHandshake, WhatWasPendingIsOfTheRegistrationOfThen) {
    shared_->state.store(State::open);
    shared_->readable.store(true);
    ASSERT_EQ(control(EPOLL_CTL_ADD, EPOLLIN, 1), 0);
    answers = false;
    once_answered = [&] {
        EXPECT_EQ(control(EPOLL_CTL_DEL, 0), 0);
        shared_->readable.store(false);
        EXPECT_EQ(control(EPOLL_CTL_ADD, EPOLLIN, 2), 0);
    };
    Open connections;
    epoll_event events[2];
    EXPECT_EQ(epoll_.wait(connections, events, 2, 0, nullptr), 0);
}

}  // namespace
}  // namespace cryptmpi::channel
