#include "engine/workers.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <vector>

namespace cryptmpi::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kName = "cryptmpi-work";  // 15 bytes at most
constexpr std::uint32_t kMostRests = 1024;      // calls
// How long the caller looks whether the others are done before it sleeps.
constexpr std::chrono::microseconds kCallerLingers{200};

// Pieces are given out by one number: that of the call, and below it that of the next piece. A thread that was asleep
// since an earlier call gets none of them.
constexpr unsigned kCallShift = 32;
constexpr std::uint64_t first_ticket(std::uint32_t call) {
    return std::uint64_t{call} << kCallShift;
}
constexpr std::uint32_t call_of(std::uint64_t ticket) {
    return static_cast<std::uint32_t>(ticket >> kCallShift);
}
constexpr std::uint32_t piece_of(std::uint64_t ticket) {
    return static_cast<std::uint32_t>(ticket);
}

/// Until `done` says so, or the time is over; others who want this core get it.
template <class Done>
void linger(std::chrono::microseconds time, const Done& done) {
    const auto end = Clock::now() + time;
    while (!done() && Clock::now() < end) sched_yield();
}

/// The program's signals are not for our threads.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

}  // namespace

class Workers::Crew {
public:
    explicit Crew(const Settings& settings) : settings_(settings) {}
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew();

    /// In a forked child the object is left, and its threads are not.
    bool is_parents() const { return getpid() != process_; }

    bool others_rest() const { return rests_left_.load(std::memory_order_relaxed) != 0; }
    void run(std::size_t pieces, Work work, Own own);

private:
    struct Call {
        std::uint32_t number = 0;
        std::size_t pieces = 0;
        Work work;
    };
    struct Start {
        Crew* crew;
        std::size_t thread;
    };

    void start();
    bool start_one(std::size_t thread);
    static void* begin(void* start);
    void serve(std::size_t thread);

    void share(std::size_t pieces, Work work, Own own);
    void announce(const Call& call, std::size_t others);
    std::size_t take_pieces(const Call& call, std::size_t thread);
    void wait_for_others(const Call& call);
    void judge(Clock::duration taken, Clock::duration own, std::size_t own_amount);

    const Settings settings_;
    const pid_t process_ = getpid();
    std::vector<pthread_t> threads_;
    bool started_ = false;

    std::atomic_flag busy_;  // a call is on its way; what follows up to `lock_` is its caller's
    std::uint32_t rests_ = 0;
    std::atomic<std::uint32_t> rests_left_{0};

    std::mutex lock_;
    std::condition_variable called_;
    std::condition_variable done_;
    Call call_;  // the latest
    std::atomic<bool> ending_{false};

    std::atomic<std::uint64_t> next_{0};
    std::atomic<std::size_t> finished_{0};  // pieces of the call
    std::atomic<std::size_t> amount_{0};    // of these pieces, but for the caller's
};

Workers::Crew::~Crew() {
    {
        const std::lock_guard hold(lock_);
        ending_ = true;
    }
    called_.notify_all();
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void Workers::Crew::start() {
    started_ = true;
    const SignalsBlocked blocked;
    threads_.reserve(settings_.threads - 1);
    // With fewer than were wanted there is more for each.
    while (threads_.size() + 1 < settings_.threads && start_one(threads_.size() + 1)) {
    }
}

bool Workers::Crew::start_one(std::size_t thread) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    // Whoever starts them may be a thread that the program has bound to one core.
    const bool placed = settings_.where.apply_to(attributes);
    auto* const start = new Start{this, thread};
    pthread_t made{};
    bool good = pthread_create(&made, &attributes, begin, start) == 0;
    // The process may have been moved since its hardware threads were looked up.
    if (!good && placed) good = pthread_create(&made, nullptr, begin, start) == 0;
    pthread_attr_destroy(&attributes);
    if (good) {
        threads_.push_back(made);
    } else {
        delete start;
    }
    return good;
}

void* Workers::Crew::begin(void* start) {
    const std::unique_ptr<Start> own(static_cast<Start*>(start));
    pthread_setname_np(pthread_self(), kName);
    own->crew->serve(own->thread);
    return nullptr;
}

void Workers::Crew::serve(std::size_t thread) {
    std::uint32_t seen = 0;
    for (;;) {
        Call call;
        {
            std::unique_lock hold(lock_);
            called_.wait(hold, [&] { return ending_ || call_.number != seen; });
            if (ending_) return;
            call = call_;
        }
        seen = call.number;
        take_pieces(call, thread);
        linger(settings_.lingers, [&] { return ending_ || call_of(next_.load(std::memory_order_relaxed)) != seen; });
    }
}

void Workers::Crew::run(std::size_t pieces, Work work, Own own) {
    const bool ours = !is_parents() && !busy_.test_and_set(std::memory_order_acquire);
    const std::size_t for_others = own.call == nullptr && pieces > 0 ? pieces - 1 : pieces;
    if (ours && for_others > 0 && !others_rest()) {
        share(pieces, work, own);
    } else {
        if (own.call != nullptr) own.call(own.at);
        for (std::size_t piece = 0; piece < pieces; ++piece) work.call(work.at, piece, 0);
        if (ours && others_rest()) --rests_left_;
    }
    if (ours) busy_.clear(std::memory_order_release);
}

void Workers::Crew::share(std::size_t pieces, Work work, Own own) {
    const bool first = !started_;
    if (first) start();
    const Call call{call_.number + 1, pieces, work};
    auto began = Clock::now();
    announce(call, own.call == nullptr ? pieces - 1 : pieces);
    if (own.call != nullptr) {
        const auto before = Clock::now();
        own.call(own.at);
        began += Clock::now() - before;  // alone, it would have taken that, too
    }
    const std::size_t own_amount = take_pieces(call, 0);
    const auto own_end = Clock::now();
    wait_for_others(call);
    // The first time they have yet to come up.
    if (settings_.rest_when_late && !first) judge(Clock::now() - began, own_end - began, own_amount);
}

/// To so many of the others as there is work for.
void Workers::Crew::announce(const Call& call, std::size_t others) {
    finished_.store(0, std::memory_order_relaxed);
    amount_.store(0, std::memory_order_relaxed);
    {
        const std::lock_guard hold(lock_);
        call_ = call;
        next_.store(first_ticket(call.number), std::memory_order_release);
    }
    const std::size_t wanted = std::min(others, threads_.size());
    if (wanted == threads_.size()) {
        called_.notify_all();
        return;
    }
    for (std::size_t i = 0; i < wanted; ++i) called_.notify_one();
}

/// Returns how much it did.
std::size_t Workers::Crew::take_pieces(const Call& call, std::size_t thread) {
    std::size_t own = 0;
    std::uint64_t ticket = next_.load(std::memory_order_acquire);
    while (call_of(ticket) == call.number && piece_of(ticket) < call.pieces) {
        if (!next_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
        const std::size_t amount = call.work.call(call.work.at, piece_of(ticket), thread);
        own += amount;
        if (thread != 0) amount_.fetch_add(amount, std::memory_order_relaxed);
        // After the last one the caller goes on: nothing of the call is touched any more.
        if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == call.pieces && thread != 0) {
            const std::lock_guard hold(lock_);
            done_.notify_one();
        }
        ticket = next_.load(std::memory_order_acquire);
    }
    return own;
}

void Workers::Crew::wait_for_others(const Call& call) {
    const auto all_done = [&] { return finished_.load(std::memory_order_acquire) == call.pieces; };
    linger(kCallerLingers, all_done);
    if (all_done()) return;
    std::unique_lock hold(lock_);
    done_.wait(hold, all_done);
}

/// Would the caller have been done earlier alone?
void Workers::Crew::judge(Clock::duration taken, Clock::duration own, std::size_t own_amount) {
    if (own_amount == 0) return;
    const std::size_t all = own_amount + amount_.load(std::memory_order_relaxed);
    const double alone = static_cast<double>(own.count()) * static_cast<double>(all) / static_cast<double>(own_amount);
    const bool late = static_cast<double>(taken.count()) > alone;
    rests_ = late ? std::min(2 * rests_ + 1, kMostRests) : rests_ / 2;
    if (late) rests_left_ = rests_;
}

void Workers::EndCrew::operator()(Crew* crew) const {
    // What its threads wait on in the parent cannot be destroyed by the child.
    if (!crew->is_parents()) delete crew;
}

Workers::Workers() = default;
Workers::Workers(const Settings& settings)
    : threads_(std::max(settings.threads, std::size_t{1})), crew_(threads_ > 1 ? new Crew(settings) : nullptr) {}
Workers::Workers(Workers&&) noexcept = default;
Workers& Workers::operator=(Workers&&) noexcept = default;
Workers::~Workers() = default;

std::size_t Workers::ready() const {
    return crew_ && !crew_->others_rest() ? threads_ : 1;
}

void Workers::run_shared(std::size_t pieces, Work work, Own own) {
    crew_->run(pieces, work, own);
}

}  // namespace cryptmpi::engine
