#include "fake_mpi.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "comm/calls.hpp"
#include "comm/waiting.hpp"

namespace cryptmpi::comm::fake {

namespace {

constexpr std::array<std::uint8_t, 8> kMarker{'P', 'L', 'A', 'I', 'N', 'T', 'X', 'T'};
// A message that is there comes out with every second turn: after so many, only layers' patience is left. A machine
// that is busy elsewhere takes time, but no turns.
constexpr std::uint64_t kLeastTurns = 20'000;
constexpr int kAnything = -1000000;  // no rank, tag or context
constexpr int kMostTag = 32767;

}  // namespace

Clear::Clear(std::size_t size, int salt) : bytes_(size) {
    for (std::size_t i = 0; i < size; ++i) {
        const bool marks = i % 16 < kMarker.size();
        bytes_[i] =
            marks ? kMarker[i % 16] : static_cast<std::uint8_t>(i / 16 + i * 7 + static_cast<std::size_t>(salt));
    }
}

bool Clear::is_in(const std::vector<std::uint8_t>& bytes) {
    return std::search(bytes.begin(), bytes.end(), kMarker.begin(), kMarker.end()) != bytes.end();
}

std::string Ending::told() const {
    std::string all = aborted ? "aborted with " + std::to_string(status) + "\n" : "";
    if (!stuck.empty()) all += stuck + "\n";
    for (const auto* lines : {&complaints, &left, &said}) {
        for (const std::string& line : *lines) all += line + "\n";
    }
    return all;
}

namespace {

/// Unwinds a rank when the job ends.
struct Stopped {};

struct Type {
    struct Piece {
        std::ptrdiff_t offset;
        std::size_t size;
    };
    std::vector<Piece> pieces;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    int combiner = MPI_COMBINER_NAMED;
    bool committed = false;
    std::vector<int> integers = {};
    std::vector<MPI_Aint> addresses = {};
    std::vector<MPI_Datatype> types = {};

    bool is_gapless() const {
        return pieces.size() == 1 && pieces[0].offset == 0 && pieces[0].size == static_cast<std::size_t>(extent);
    }
    std::size_t size() const {
        std::size_t sum = 0;
        for (const Piece& piece : pieces) sum += piece.size;
        return sum;
    }
    /// From the first byte of data to the end of the last one.
    std::pair<MPI_Aint, MPI_Aint> ends() const {
        MPI_Aint least = 0;
        MPI_Aint most = 0;
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const MPI_Aint end = pieces[i].offset + static_cast<MPI_Aint>(pieces[i].size);
            least = i == 0 ? pieces[i].offset : std::min<MPI_Aint>(least, pieces[i].offset);
            most = i == 0 ? end : std::max(most, end);
        }
        return {least, most};
    }
};

/// A communicator, as all of its members know it.
struct Group {
    int id = 0;
    std::vector<int> world;  // its members
    int context() const { return 2 * id; }
    int collective_context() const { return 2 * id + 1; }
};

/// What a rank has of one.
struct Member {
    std::shared_ptr<Group> group;
    std::vector<int> world;  // what it is told of the members
    int rank = 0;
    MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;
    int operations = 0;
    int constructions = 0;
    bool handler_was_set = false;
};

struct Request;

/// A message and the send that waits for it.
struct Sent {
    Message message;
    std::shared_ptr<Request> sender;  // null: it is done
    std::shared_ptr<Request> taken_back_by = nullptr;
};

struct Request {
    enum class Kind : std::uint8_t { send, receive, general, constructing };
    Kind kind = Kind::send;
    bool persistent = false;
    bool active = true;
    bool done = false;
    int error = MPI_SUCCESS;
    MPI_Status status = {};
    MPI_Comm comm = MPI_COMM_NULL;
    // send and receive
    int mode = 0;
    void* at = nullptr;
    MPI_Count count = 0;
    std::shared_ptr<Type> type;
    int context = 0;
    int peer = kAnything;  // rank in the communicator
    int tag = kAnything;
    std::string operation;
    std::vector<std::uint8_t> sent;  // as it was when it was sent
    // general
    MPI_Grequest_query_function* query = nullptr;
    MPI_Grequest_free_function* free = nullptr;
    void* state = nullptr;
    // constructing
    std::function<bool()> poll;

    std::size_t capacity() const { return type ? type->size() * static_cast<std::size_t>(count) : 0; }
};

using RequestPointer = std::shared_ptr<Request>;

enum Mode { kStandard, kSynchronous, kReady };

void pack(const void* at, MPI_Count count, const Type& type, std::vector<std::uint8_t>& out) {
    out.clear();
    const auto* base = static_cast<const std::uint8_t*>(at);
    if (type.is_gapless()) {
        if (count != 0) out.assign(base, base + type.extent * count);
        return;
    }
    for (MPI_Count i = 0; i < count; ++i, base += type.extent) {
        for (const auto& piece : type.pieces) {
            out.insert(out.end(), base + piece.offset, base + piece.offset + piece.size);
        }
    }
}

void unpack(const std::uint8_t* in, std::size_t size, void* at, MPI_Count count, const Type& type) {
    auto* base = static_cast<std::uint8_t*>(at);
    if (type.is_gapless()) {
        if (size != 0) std::memcpy(base, in, size);
        return;
    }
    for (MPI_Count i = 0; i < count; ++i, base += type.extent) {
        for (const auto& piece : type.pieces) {
            const std::size_t some = std::min(piece.size, size);
            if (some != 0) std::memcpy(base + piece.offset, in, some);
            in += some;
            size -= some;
        }
    }
}

void set_count(MPI_Status& status, std::size_t bytes) {
    std::memcpy(&status.MPI_internal[0], &bytes, sizeof bytes);
}
std::size_t count_in(const MPI_Status& status) {
    std::size_t bytes = 0;
    std::memcpy(&bytes, &status.MPI_internal[0], sizeof bytes);
    return bytes;
}

/// Where members of a communicator come together to make another one.
struct Meeting {
    struct Choice {
        int color;
        int key;
    };
    std::map<int, Choice> choices;  // by world rank
    std::vector<int> expected;      // world ranks, in order
    bool done = false;
    std::map<int, std::shared_ptr<Group>> made;  // by color
};

struct Operation {
    MPI_User_function* function;
    bool commutes;
};

/// Functions of an attribute; they stay when its key is freed.
struct Keyval {
    MPI_Comm_delete_attr_function* deleted;
    void* state;
};
struct Attribute {
    MPI_Comm comm;
    int key;
    void* value;
};

/// One rank, as its MPI knows it.
struct Process {
    int number = 0;
    std::map<MPI_Comm, Member> comms;
    std::map<MPI_Group, std::vector<int>> groups;
    std::map<MPI_Request, RequestPointer> requests;
    std::map<MPI_Message, Sent> matched;
    std::map<MPI_Datatype, std::shared_ptr<Type>> types;
    std::map<MPI_Op, Operation> operations;
    std::map<MPI_Errhandler, MPI_Comm_errhandler_function*> handlers;
    std::map<int, Keyval> keyvals;
    std::vector<Attribute> attributes;       // the oldest first
    std::vector<MPI_Request> free_requests;  // handles are used again at once
    std::vector<MPI_Datatype> free_types;
    std::vector<RequestPointer> posted;  // receives, the first one first
    std::deque<Sent> unexpected;
    std::uintptr_t next_handle = 0x10000;
    int error_codes = MPI_ERR_LASTCODE;
    void* attached = nullptr;
    int attached_size = 0;
    bool begun = false;
    bool ended = false;
    int sessions = 0;
    bool counts = false;   // the test's function runs
    bool leaving = false;  // nothing is waited for any more
    std::uint64_t calls = 0;
    std::uint64_t looks = 0;
    DueBeforeWait due;
    int lines = -1;
    // the turn
    std::function<bool()> ready;  // empty: it can go on
    bool finished = false;
    std::condition_variable turn;
};

}  // namespace

class World {
public:
    World(Job& of, int ranks, const Options& with) : job(of), options(with), random(with.seed) {
        if (options.nodes.empty()) {
            options.nodes.resize(static_cast<std::size_t>(ranks));
            std::iota(options.nodes.begin(), options.nodes.end(), 0);
        }
        auto everybody = std::make_shared<Group>();
        everybody->world.resize(static_cast<std::size_t>(ranks));
        std::iota(everybody->world.begin(), everybody->world.end(), 0);
        next_group = 1 + ranks;
        for (int i = 0; i < ranks; ++i) {
            auto process = std::make_unique<Process>();
            process->number = i;
            auto self = std::make_shared<Group>();
            self->id = 1 + i;
            self->world = {i};
            process->comms[MPI_COMM_WORLD] = {everybody, everybody->world, i};
            process->comms[MPI_COMM_SELF] = {self, self->world, 0};
            processes.push_back(std::move(process));
        }
    }

    static thread_local World* here;
    static thread_local Process* me;

    int ranks() const { return static_cast<int>(processes.size()); }
    Process& process(int rank) { return *processes[static_cast<std::size_t>(rank)]; }

    // Turns.

    /// Lets another rank go on, until `ready` (empty: at any time).
    void wait(std::function<bool()> ready = {}) {
        Process& mine = *me;
        if (mine.leaving || (stopped && std::uncaught_exceptions() != 0)) return;
        mine.ready = std::move(ready);
        hand_over(next_rank());
        mine.ready = nullptr;
        if (stopped) throw Stopped{};
    }
    /// Now and then, at any call.
    void pause() {
        if (random() % 4 == 0) wait();
    }
    void finish() {
        me->finished = true;
        const int next = next_rank();
        const std::lock_guard hold(lock);
        turn = next;
        if (next >= 0) process(next).turn.notify_one();
    }
    void take_first_turn() {
        std::unique_lock hold(lock);
        me->turn.wait(hold, [&] { return turn == me->number; });
    }
    void stop(const std::string& why) {
        if (stopped) return;
        stopped = true;
        if (!why.empty()) ending.stuck = why;
    }
    void complain(const std::string& what) { ending.complaints.push_back(what); }

    // Messages.

    using Queue = std::array<int, 3>;  // context, from, to
    void put_on_wire(Sent sent) {
        Message& message = sent.message;
        const bool leaves = options.nodes[at(message.source)] != options.nodes[at(message.to)];
        if ((leaves || options.seals_all) && message.source != message.to && Clear::is_in(message.bytes)) {
            complain("clear bytes on the wire from " + std::to_string(message.source) + " to " +
                     std::to_string(message.to) + (message.is_collective() ? ", of " + message.operation : ""));
        }
        std::vector<Message> more;
        const bool passes = !job.on_wire || !me->counts || job.on_wire(message, more);
        happen();
        if (passes) {
            enqueue(std::move(sent));
        } else if (sent.sender) {
            sent.sender->done = true;  // the sender never learns of it
        }
        for (Message& one : more) enqueue({std::move(one), nullptr});
    }
    void enqueue(Sent sent) {
        const Queue queue{sent.message.context, sent.message.source, sent.message.to};
        wire[queue].push_back(std::move(sent));
    }

    static bool matches(const Request& request, const Message& message) {
        return request.context == message.context && (request.peer == MPI_ANY_SOURCE || request.peer == message.rank) &&
               (request.tag == MPI_ANY_TAG || request.tag == message.tag);
    }
    void post(const RequestPointer& request) {
        auto& unexpected = me->unexpected;
        const auto found = std::find_if(unexpected.begin(), unexpected.end(),
                                        [&](const Sent& sent) { return matches(*request, sent.message); });
        if (found == unexpected.end()) {
            me->posted.push_back(request);
        } else {
            arrivals.push_back({request, std::move(*found)});
            unexpected.erase(found);
        }
    }

    /// A receive that waits, or a send whose message no receive has got. False: it is too late.
    bool take_back(const RequestPointer& request) {
        const auto is_its = [&](const Sent& sent) { return sent.sender == request || sent.taken_back_by == request; };
        std::size_t found = std::erase(me->posted, request);
        for (auto& [queue, sent] : wire) found += std::erase_if(sent, is_its);
        for (const auto& process : processes) found += std::erase_if(process->unexpected, is_its);
        return found != 0;
    }

    std::unique_ptr<Meeting> no_meeting;
    std::map<std::string, std::shared_ptr<Meeting>> meetings;

    Job& job;
    Options options;
    std::vector<std::unique_ptr<Process>> processes;
    int next_group;
    Ending ending;
    bool stopped = false;
    std::mt19937_64 random;
    using Clock = std::chrono::steady_clock;
    Clock::time_point happened = Clock::now();
    std::uint64_t turns_since = 0;
    void happen() {
        happened = Clock::now();
        turns_since = 0;
    }

    struct Arrival {
        RequestPointer request;
        Sent sent;
    };
    std::map<Queue, std::deque<Sent>> wire;
    std::vector<Arrival> arrivals;

    void arrive(const Request& into, const Message& message) const;

    void check_nothing_left() {
        for (const auto& [queue, sent] : wire) {
            for (const Sent& one : sent) tell_left("a message on the wire", one.message);
        }
        for (const Arrival& arrival : arrivals) tell_left("a message on its way to a receive", arrival.sent.message);
        for (const auto& process : processes) {
            const std::string who = " of rank " + std::to_string(process->number);
            for (const Sent& one : process->unexpected) tell_left("a message that nobody received", one.message);
            if (!process->posted.empty()) ending.left.push_back("a receive that waits" + who);
            for (std::size_t i = 0; i < process->requests.size(); ++i) ending.left.push_back("a request" + who);
            if (!process->matched.empty()) ending.left.push_back("a matched message" + who);
        }
    }

private:
    static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

    void tell_left(const std::string& what, const Message& message) {
        ending.left.push_back(what + ": from " + std::to_string(message.source) + " to " + std::to_string(message.to) +
                              " with tag " + std::to_string(message.tag) + ", context " +
                              std::to_string(message.context) +
                              (message.is_collective() ? ", of " + message.operation : ""));
    }

    /// Something comes out of the wire, if anything is there.
    bool deliver_one() {
        std::vector<const Queue*> queues;
        for (const auto& [queue, sent] : wire) {
            if (!sent.empty()) queues.push_back(&queue);
        }
        const std::size_t all = queues.size() + arrivals.size();
        if (all == 0) return false;
        happen();
        const std::size_t which = random() % all;
        if (which >= queues.size()) {
            const auto arrival = arrivals.begin() + static_cast<std::ptrdiff_t>(which - queues.size());
            complete(*arrival);
            arrivals.erase(arrival);
            return true;
        }
        const Queue queue = *queues[which];
        Sent sent = std::move(wire[queue].front());
        wire[queue].pop_front();
        Process& to = process(sent.message.to);
        const auto found = std::find_if(to.posted.begin(), to.posted.end(),
                                        [&](const RequestPointer& request) { return matches(*request, sent.message); });
        if (found == to.posted.end()) {
            to.unexpected.push_back(std::move(sent));
        } else {
            arrivals.push_back({*found, std::move(sent)});
            to.posted.erase(found);
        }
        return true;
    }

    void complete(Arrival& arrival) {
        Request& request = *arrival.request;
        const Message& message = arrival.sent.message;
        if (request.operation != message.operation) {
            complain("rank " + std::to_string(message.to) + " is in " + request.operation + ", rank " +
                     std::to_string(message.source) + " in " + message.operation);
        }
        const std::size_t fits = std::min(message.bytes.size(), request.capacity());
        const bool was_cut_off = message.bytes.size() > request.capacity();
        const bool is_written = !was_cut_off || options.length_of_cut_off == 0;
        if (request.type && is_written) {
            unpack(message.bytes.data(), fits, request.at, request.count, *request.type);
        }
        request.status.MPI_SOURCE = message.rank;
        request.status.MPI_TAG = message.tag;
        request.status.MPI_internal[3] = 0;
        set_count(request.status, was_cut_off && options.forgets_told_errors ? options.length_of_cut_off : fits);
        request.error = was_cut_off ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
        request.done = true;
        end_send(arrival.sent);
    }

public:
    void end_send(Sent& sent) {
        if (!sent.sender) return;
        Request& sender = *sent.sender;
        sender.done = true;
        std::vector<std::uint8_t> now;
        pack(sender.at, sender.count, *sender.type, now);
        if (now != sender.sent) complain("a buffer changed while MPI sent it");
        sent.sender.reset();
    }

private:
    /// What it waits for is asked as this rank.
    static bool is_ready(Process& process) {
        if (!process.ready) return true;
        Process* const asks = std::exchange(me, &process);
        const bool ready = process.ready();
        me = asks;
        return ready;
    }
    int next_rank() {
        for (;;) {
            if (random() % 2 == 0) deliver_one();
            std::vector<int> can;
            for (const auto& process : processes) {
                if (process->finished) continue;
                if (stopped || is_ready(*process)) can.push_back(process->number);
            }
            ++turns_since;
            if (!can.empty() && !stopped && turns_since > kLeastTurns && Clock::now() - happened > options.longest) {
                stop("nothing happens any more");
                continue;
            }
            if (!can.empty()) return can[random() % can.size()];
            if (std::all_of(processes.begin(), processes.end(), [](const auto& one) { return one->finished; })) {
                return -1;
            }
            if (!deliver_one()) stop("the ranks wait for each other");
        }
    }
    void hand_over(int next) {
        if (next == me->number) return;
        std::unique_lock hold(lock);
        turn = next;
        process(next).turn.notify_one();
        me->turn.wait(hold, [&] { return turn == me->number; });
    }

    std::mutex lock;
    int turn = 0;
};

thread_local World* World::here = nullptr;
thread_local Process* World::me = nullptr;

namespace {

World& world() {
    return *World::here;
}
Process& me() {
    return *World::me;
}

template <class Handle>
Handle new_handle() {
    return reinterpret_cast<Handle>(me().next_handle += 16);
}

Member* find(MPI_Comm comm) {
    const auto found = me().comms.find(comm);
    return found == me().comms.end() ? nullptr : &found->second;
}

[[noreturn]] void abort_job(int status) {
    world().ending.aborted = true;
    world().ending.status = status;
    world().stop("");
    throw Stopped{};
}

/// What is of no communicator is for MPI_COMM_SELF, or for MPI_COMM_WORLD while nobody set a handler there: as MPICH 5.
MPI_Errhandler handler_of(MPI_Comm comm) {
    if (const Member* const member = find(comm)) return member->handler;
    const Member& self = me().comms[MPI_COMM_SELF];
    return self.handler_was_set ? self.handler : me().comms[MPI_COMM_WORLD].handler;
}

/// As MPI does with an error of its own.
int raise(MPI_Comm comm, int code) {
    if (code == MPI_SUCCESS) return code;
    const MPI_Errhandler handler = handler_of(comm);
    if (handler == MPI_ERRORS_RETURN) return code;
    if (const auto found = me().handlers.find(handler); found != me().handlers.end()) {
        MPI_Comm of = comm;
        int told = code;
        found->second(&of, &told);
        return world().options.forgets_told_errors ? MPI_SUCCESS : code;
    }
    abort_job(1);
}

std::shared_ptr<Type> named(std::size_t size) {
    auto type = std::make_shared<Type>();
    type->pieces = {{0, size}};
    type->extent = static_cast<MPI_Aint>(size);
    type->committed = true;
    return type;
}

std::size_t size_of_named(MPI_Datatype type) {
    const std::array<std::pair<MPI_Datatype, std::size_t>, 12> all{{{MPI_BYTE, 1},
                                                                    {MPI_CHAR, 1},
                                                                    {MPI_UINT8_T, 1},
                                                                    {MPI_SHORT, 2},
                                                                    {MPI_INT, 4},
                                                                    {MPI_UNSIGNED, 4},
                                                                    {MPI_FLOAT, 4},
                                                                    {MPI_LONG, 8},
                                                                    {MPI_INT64_T, 8},
                                                                    {MPI_UINT64_T, 8},
                                                                    {MPI_DOUBLE, 8},
                                                                    {MPI_PACKED, 1}}};
    for (const auto& [one, size] : all) {
        if (one == type) return size;
    }
    return 0;
}

std::shared_ptr<Type> find_type(MPI_Datatype type) {
    if (const std::size_t size = size_of_named(type); size != 0) return named(size);
    const auto found = me().types.find(type);
    return found == me().types.end() ? nullptr : found->second;
}

/// What MPI says of the elements of a message, whoever it is for. Of none it asks for no type.
int look_at(const void* at, MPI_Count count, MPI_Datatype type) {
    if (count < 0) return MPI_ERR_COUNT;
    if (count == 0) return MPI_SUCCESS;
    const auto found = find_type(type);
    if (!found || !found->committed) return MPI_ERR_TYPE;
    return at == nullptr && found->size() != 0 && found->ends().first == 0 ? MPI_ERR_BUFFER : MPI_SUCCESS;
}

/// Of `count` elements of a type at an address.
struct Data {
    Data(const void* memory, MPI_Count many, MPI_Datatype of)
        : at(const_cast<void*>(memory)), count(many), type(find_type(of)) {}
    void* at;
    MPI_Count count;
    std::shared_ptr<Type> type;
    std::size_t size() const { return type->size() * static_cast<std::size_t>(count); }
    Data block(MPI_Count first, MPI_Count many) const {
        Data part = *this;
        part.at = static_cast<std::uint8_t*>(at) + first * type->extent;
        part.count = many;
        return part;
    }
    std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> all;
        pack(at, count, *type, all);
        return all;
    }
    int take(const std::vector<std::uint8_t>& bytes) const {
        unpack(bytes.data(), std::min(bytes.size(), size()), at, count, *type);
        return bytes.size() > size() ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    }
};

MPI_Request add_request(RequestPointer request) {
    MPI_Request handle;
    if (me().free_requests.empty()) {
        handle = new_handle<MPI_Request>();
    } else {
        handle = me().free_requests.back();
        me().free_requests.pop_back();
    }
    me().requests[handle] = std::move(request);
    return handle;
}
void forget(MPI_Request& handle) {
    me().requests.erase(handle);
    me().free_requests.push_back(handle);
    handle = MPI_REQUEST_NULL;
}

RequestPointer new_send(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, int mode) {
    auto request = std::make_shared<Request>();
    request->comm = comm;
    request->mode = mode;
    request->at = const_cast<void*>(at);
    request->count = count;
    request->type = count == 0 ? named(1) : find_type(type);
    request->context = find(comm)->group->context();
    request->peer = to;
    request->tag = tag;
    return request;
}

RequestPointer new_receive(void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm) {
    auto request = new_send(at, count, type, from, tag, comm, kStandard);
    request->kind = Request::Kind::receive;
    return request;
}

void set_empty(Request& request) {
    request.status = {};
    request.status.MPI_SOURCE = request.peer == MPI_PROC_NULL ? MPI_PROC_NULL : MPI_ANY_SOURCE;
    request.status.MPI_TAG = MPI_ANY_TAG;
}

void begin(const RequestPointer& request) {
    request->active = true;
    request->done = false;
    request->error = MPI_SUCCESS;
    set_empty(*request);
    if (request->peer == MPI_PROC_NULL) {
        request->done = true;
        return;
    }
    const Member& member = *find(request->comm);
    if (request->kind == Request::Kind::receive) return world().post(request);
    Message message{request->context,
                    me().number,
                    member.group->world[static_cast<std::size_t>(request->peer)],
                    member.rank,
                    request->tag,
                    request->operation,
                    {}};
    pack(request->at, request->count, *request->type, message.bytes);
    const bool waits =
        request->operation.empty() && (request->mode == kSynchronous || message.bytes.size() > world().options.eager);
    request->done = !waits;
    if (waits) request->sent = message.bytes;
    const bool stays = world().options.takes_back_sent && !request->persistent;
    world().put_on_wire({std::move(message), waits ? request : nullptr, stays ? request : nullptr});
}

/// Whether MPI is done with it, as far as the user may know.
bool is_done(const RequestPointer& request) {
    if (request->kind == Request::Kind::constructing && !request->done) request->done = request->poll();
    return request->done || !request->active;
}

/// Of a request that is done.
int end(MPI_Request& handle, MPI_Status* status) {
    const RequestPointer request = me().requests[handle];
    if (request->kind == Request::Kind::general && request->query != nullptr) {
        request->query(request->state, &request->status);
    }
    if (!request->active) set_empty(*request);
    if (status != MPI_STATUS_IGNORE) {
        const int error = status->MPI_ERROR;
        *status = request->status;
        status->MPI_ERROR = error;
    }
    const int code = request->active ? request->error : MPI_SUCCESS;
    if (request->kind == Request::Kind::general && request->free != nullptr) request->free(request->state);
    if (request->persistent) {
        request->active = false;
    } else {
        forget(handle);
    }
    return code;
}

RequestPointer find_request(MPI_Request handle) {
    const auto found = me().requests.find(handle);
    return found == me().requests.end() ? nullptr : found->second;
}

void set_nothing(MPI_Status* status) {
    if (status == MPI_STATUS_IGNORE) return;
    const int error = status->MPI_ERROR;
    *status = {};
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    status->MPI_ERROR = error;
}

bool is_active(MPI_Request handle) {
    const auto request = find_request(handle);
    return request && request->active;
}

/// Collective operations are messages, on a context of their own; the number of the operation is the tag.
class Collective {
public:
    Collective(MPI_Comm comm, std::string name)
        : comm_(comm), member_(*find(comm)), name_(std::move(name)), number_(member_.operations++) {}
    int rank() const { return member_.rank; }
    int size() const { return static_cast<int>(member_.group->world.size()); }

    void send(int to, const Data& data) { send(to, data.bytes()); }
    void send(int to, std::vector<std::uint8_t> bytes) {
        Message message{member_.group->collective_context(),
                        me().number,
                        member_.group->world[static_cast<std::size_t>(to)],
                        rank(),
                        number_,
                        name_,
                        std::move(bytes)};
        world().put_on_wire({std::move(message), nullptr});
    }
    RequestPointer begin_receive(int from, const Data& data) {
        auto request = std::make_shared<Request>();
        request->kind = Request::Kind::receive;
        request->comm = comm_;
        request->at = data.at;
        request->count = data.count;
        request->type = data.type;
        request->context = member_.group->collective_context();
        request->peer = from;
        request->tag = number_;
        request->operation = name_;
        world().post(request);
        return request;
    }
    int receive(int from, const Data& data) {
        const auto request = begin_receive(from, data);
        world().wait([&] { return request->done; });
        return request->error;
    }
    std::vector<std::uint8_t> receive(int from, std::size_t size) {
        std::vector<std::uint8_t> bytes(size);
        Data into(bytes.data(), static_cast<MPI_Count>(size), MPI_BYTE);
        failed(receive(from, into));
        return bytes;
    }
    void failed(int code) {
        if (code_ == MPI_SUCCESS) code_ = code;
    }
    int result() const { return raise(comm_, code_); }

private:
    MPI_Comm comm_;
    Member& member_;
    std::string name_;
    int number_;
    int code_ = MPI_SUCCESS;
};

std::string of_root(const char* name, int root) {
    return std::string(name) + " of " + std::to_string(root);
}

/// Integers wrap, as the machine's do.
template <class T>
auto wrapping(T number) {
    if constexpr (std::is_integral_v<T>) {
        return static_cast<std::make_unsigned_t<T>>(number);
    } else {
        return number;
    }
}

template <class T>
bool combine_as(MPI_Op op, const void* in, void* inout, int count) {
    const T* from = static_cast<const T*>(in);
    T* to = static_cast<T*>(inout);
    for (int i = 0; i < count; ++i) {
        if (op == MPI_SUM) {
            to[i] = static_cast<T>(wrapping(from[i]) + wrapping(to[i]));
        } else if (op == MPI_PROD) {
            to[i] = static_cast<T>(wrapping(from[i]) * wrapping(to[i]));
        } else if (op == MPI_MAX) {
            to[i] = std::max(from[i], to[i]);
        } else if (op == MPI_MIN) {
            to[i] = std::min(from[i], to[i]);
        } else {
            return false;
        }
    }
    return true;
}

bool is_predefined(MPI_Op op) {
    return op == MPI_SUM || op == MPI_PROD || op == MPI_MAX || op == MPI_MIN || op == MPI_LAND || op == MPI_BXOR;
}

/// inout = in op inout
int combine(MPI_Op op, const void* in, void* inout, int count, MPI_Datatype type) {
    if (const auto found = me().operations.find(op); found != me().operations.end()) {
        found->second.function(const_cast<void*>(in), inout, &count, &type);
        return MPI_SUCCESS;
    }
    bool done = false;
    if (type == MPI_INT) done = combine_as<int>(op, in, inout, count);
    if (type == MPI_LONG || type == MPI_INT64_T) done = combine_as<std::int64_t>(op, in, inout, count);
    if (type == MPI_UINT64_T) done = combine_as<std::uint64_t>(op, in, inout, count);
    if (type == MPI_DOUBLE) done = combine_as<double>(op, in, inout, count);
    return done || (count == 0 && is_predefined(op) && size_of_named(type) != 0) ? MPI_SUCCESS : MPI_ERR_OP;
}

/// Memory for elements of a type, from its first byte on.
struct Elements {
    Elements(MPI_Count count, const Type& type)
        : bytes(static_cast<std::size_t>(std::abs(type.extent) * (count + 1) + std::abs(type.lower))),
          at(bytes.data() + std::abs(type.lower)) {}
    std::vector<std::uint8_t> bytes;
    std::uint8_t* at;
};

/// By the root, in the order of ranks.
int reduce(Collective& call, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, int root) {
    const Data mine(out == MPI_IN_PLACE ? in : out, count, type);
    if (call.rank() != root) {
        call.send(root, mine);
        return MPI_SUCCESS;
    }
    std::vector<std::vector<std::uint8_t>> all;
    for (int i = 0; i < call.size(); ++i) all.push_back(i == root ? mine.bytes() : call.receive(i, mine.size()));
    Elements sum(count, *mine.type);
    Elements next(count, *mine.type);
    const Data total(sum.at, count, type);
    const Data other(next.at, count, type);
    total.take(all.back());
    int code = call.size() == 1 ? combine(op, other.at, next.at, 0, type) : MPI_SUCCESS;
    for (int i = call.size() - 2; i >= 0; --i) {
        other.take(all[static_cast<std::size_t>(i)]);
        const int combined = combine(op, other.at, total.at, static_cast<int>(count), type);
        if (code == MPI_SUCCESS) code = combined;
    }
    if (code == MPI_SUCCESS) Data(in, count, type).take(total.bytes());
    return code;
}

int gather(Collective& call, const Data* mine, const std::vector<Data>& blocks, int root) {
    if (call.rank() != root) {
        call.send(root, *mine);
        return call.result();
    }
    for (int i = 0; i < call.size(); ++i) {
        const Data& block = blocks[static_cast<std::size_t>(i)];
        if (i != root) {
            call.failed(call.receive(i, block));
        } else if (mine != nullptr) {
            if (mine->at == block.at && block.size() != 0) call.failed(MPI_ERR_BUFFER);
            call.failed(block.take(mine->bytes()));
        }
    }
    return call.result();
}

int scatter(Collective& call, const Data* mine, const std::vector<Data>& blocks, int root) {
    if (call.rank() != root) {
        call.failed(call.receive(root, *mine));
        return call.result();
    }
    for (int i = 0; i < call.size(); ++i) {
        const Data& block = blocks[static_cast<std::size_t>(i)];
        if (i != root) {
            call.send(i, block);
        } else if (mine != nullptr) {
            if (mine->at == block.at && block.size() != 0) call.failed(MPI_ERR_BUFFER);
            call.failed(mine->take(block.bytes()));
        }
    }
    return call.result();
}

/// `sent` of the others goes to them; `received` comes. A rank's own block is copied where `mine`.
int exchange(Collective& call, const std::vector<Data>& sent, const std::vector<Data>& received, bool mine) {
    const auto me = static_cast<std::size_t>(call.rank());
    for (int i = 0; i < call.size(); ++i) {
        if (i != call.rank()) call.send(i, sent[static_cast<std::size_t>(i)]);
    }
    if (mine) {
        if (sent[me].at == received[me].at && sent[me].size() != 0) call.failed(MPI_ERR_BUFFER);
        call.failed(received[me].take(sent[me].bytes()));
    }
    for (int i = 0; i < call.size(); ++i) {
        if (i != call.rank()) call.failed(call.receive(i, received[static_cast<std::size_t>(i)]));
    }
    return call.result();
}

std::vector<Data> equal_blocks(int ranks, const void* at, MPI_Count count, MPI_Datatype type) {
    std::vector<Data> blocks;
    const Data all(at, count * ranks, type);
    for (int i = 0; i < ranks; ++i) blocks.push_back(all.block(i * count, count));
    return blocks;
}
std::vector<Data> v_blocks(int ranks, const void* at, const int* counts, const int* places, MPI_Datatype type) {
    std::vector<Data> blocks;
    for (int i = 0; i < ranks; ++i) blocks.push_back(Data(at, 0, type).block(places[i], counts[i]));
    return blocks;
}

// New communicators.

MPI_Comm add_comm(const std::shared_ptr<Group>& group, MPI_Comm parent) {
    std::vector<int> world = group->world;
    if (fake::world().job.on_members && me().counts) fake::world().job.on_members(me().number, world);
    if (world.empty()) return MPI_COMM_NULL;
    const auto found = std::find(group->world.begin(), group->world.end(), me().number);
    const auto handle = new_handle<MPI_Comm>();
    const MPI_Errhandler handler = find(parent) != nullptr ? find(parent)->handler : MPI_ERRORS_ARE_FATAL;
    me().comms[handle] = {group, world, static_cast<int>(found - group->world.begin()), handler};
    return handle;
}

/// The last member makes all of them.
void close(Meeting& meeting) {
    meeting.done = true;
    std::map<int, std::vector<std::pair<int, int>>> chosen;  // color: key, place
    for (std::size_t i = 0; i < meeting.expected.size(); ++i) {
        const auto& choice = meeting.choices[meeting.expected[i]];
        if (choice.color != MPI_UNDEFINED) chosen[choice.color].emplace_back(choice.key, static_cast<int>(i));
    }
    for (auto& [color, members] : chosen) {
        std::sort(members.begin(), members.end());
        auto group = std::make_shared<Group>();
        group->id = ++world().next_group;
        for (const auto& [key, place] : members) {
            group->world.push_back(meeting.expected[static_cast<std::size_t>(place)]);
        }
        meeting.made[color] = group;
    }
}

std::shared_ptr<Meeting> come(const std::string& where, const std::vector<int>& expected, int color, int key) {
    auto& meeting = world().meetings[where];
    if (!meeting) {
        meeting = std::make_shared<Meeting>();
        meeting->expected = expected;
    }
    meeting->choices[me().number] = {color, key};
    const auto mine = meeting;
    if (mine->choices.size() == mine->expected.size()) {
        close(*mine);
        world().meetings.erase(where);
    }
    return mine;
}

int split(MPI_Comm comm, int color, int key, const std::string& name, MPI_Comm* made) {
    if (made == nullptr) return raise(comm, MPI_ERR_ARG);
    Member& member = *find(comm);
    const std::string where = name + std::to_string(member.group->id) + "/" + std::to_string(member.constructions++);
    const auto meeting = come(where, member.group->world, color, key);
    world().wait([&] { return meeting->done; });
    *made = color == MPI_UNDEFINED ? MPI_COMM_NULL : add_comm(meeting->made[color], comm);
    return MPI_SUCCESS;
}

MPI_Datatype add_type(std::shared_ptr<Type> type) {
    MPI_Datatype handle;
    if (me().free_types.empty()) {
        handle = new_handle<MPI_Datatype>();
    } else {
        handle = me().free_types.back();
        me().free_types.pop_back();
    }
    me().types[handle] = std::move(type);
    return handle;
}

/// Of a type that is made of others: `add(pieces)`.
MPI_Datatype add_type(int combiner, std::vector<int> integers, std::vector<MPI_Aint> addresses,
                      std::vector<MPI_Datatype> types, std::vector<std::pair<MPI_Aint, MPI_Datatype>> elements) {
    auto made = std::make_shared<Type>();
    made->combiner = combiner;
    made->integers = std::move(integers);
    made->addresses = std::move(addresses);
    made->types = std::move(types);
    MPI_Aint lower = 0;
    MPI_Aint upper = 0;
    bool first = true;
    for (const auto& [place, old] : elements) {
        const auto type = find_type(old);
        for (const auto& piece : type->pieces) made->pieces.push_back({place + piece.offset, piece.size});
        lower = first ? place + type->lower : std::min(lower, place + type->lower);
        upper = first ? place + type->lower + type->extent : std::max(upper, place + type->lower + type->extent);
        first = false;
    }
    made->lower = lower;
    made->extent = upper - lower;
    return add_type(std::move(made));
}

// MPI's procedures.

struct Calls {
    static int Init_thread(int*, char***, int required, int* provided) {
        *provided = required;
        me().begun = true;
        return MPI_SUCCESS;
    }
    static int Query_thread(int* level) {
        *level = world().options.thread_level;
        return MPI_SUCCESS;
    }
    static int Get_library_version(char* text, int* size) {
        const char* const device = world().options.takes_back_sent ? "ch3:fake" : "fake";
        *size = std::snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "Fake Device:\t%s\n", device);
        return MPI_SUCCESS;
    }
    static int Initialized(int* flag) {
        *flag = me().begun ? 1 : 0;
        return MPI_SUCCESS;
    }
    static int Finalized(int* flag) {
        *flag = me().ended ? 1 : 0;
        return MPI_SUCCESS;
    }
    static int Finalize() {
        if (me().sessions == 0 || !world().options.ends_with_sessions) delete_attributes(MPI_COMM_SELF);
        me().ended = true;
        return MPI_SUCCESS;
    }
    static int Session_init(MPI_Info, MPI_Errhandler, MPI_Session* session) {
        ++me().sessions;
        *session = new_handle<MPI_Session>();
        return MPI_SUCCESS;
    }
    static int Session_finalize(MPI_Session* session) {
        if (--me().sessions == 0 && me().ended) delete_attributes(MPI_COMM_SELF);
        *session = MPI_SESSION_NULL;
        return MPI_SUCCESS;
    }
    /// Infos are all that a session says.
    static int Session_get_info(MPI_Session, MPI_Info* info) {
        *info = new_handle<MPI_Info>();
        return MPI_SUCCESS;
    }
    static int Info_get(MPI_Info, const char* key, int size, char* value, int* flag) {
        const std::string& level = world().options.session_level;
        *flag = std::string_view(key) == "thread_level" && !level.empty() ? 1 : 0;
        if (*flag != 0) std::snprintf(value, static_cast<std::size_t>(size) + 1, "%s", level.c_str());
        return MPI_SUCCESS;
    }
    static int Info_free(MPI_Info* info) {
        *info = MPI_INFO_NULL;
        return MPI_SUCCESS;
    }
    static int Abort(MPI_Comm, int status) { abort_job(status); }

    // Communicators.
    static int Comm_rank(MPI_Comm comm, int* rank) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        *rank = find(comm)->rank;
        return MPI_SUCCESS;
    }
    static int Comm_size(MPI_Comm comm, int* size) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        *size = static_cast<int>(find(comm)->group->world.size());
        return MPI_SUCCESS;
    }
    static int Comm_test_inter(MPI_Comm comm, int* flag) {
        *flag = 0;
        return find(comm) == nullptr ? raise(comm, MPI_ERR_COMM) : MPI_SUCCESS;
    }
    static int Comm_get_attr(MPI_Comm, int key, void* value, int* flag) {
        static int most = kMostTag;
        *flag = key == MPI_TAG_UB ? 1 : 0;
        if (*flag != 0) *static_cast<int**>(value) = &most;
        return MPI_SUCCESS;
    }
    static int delete_attribute(const Attribute& one) {
        const Keyval& keyval = me().keyvals.at(one.key);
        return keyval.deleted(one.comm, one.key, one.value, keyval.state);
    }
    /// The youngest first.
    static void delete_attributes(MPI_Comm comm) {
        auto& attributes = me().attributes;
        const auto is_its = [&](const Attribute& one) { return one.comm == comm; };
        for (;;) {
            const auto found = std::find_if(attributes.rbegin(), attributes.rend(), is_its);
            if (found == attributes.rend()) return;
            const Attribute last = *found;
            attributes.erase(std::prev(found.base()));
            delete_attribute(last);
        }
    }
    static int Comm_create_keyval(MPI_Comm_copy_attr_function*, MPI_Comm_delete_attr_function* deleted, int* key,
                                  void* state) {
        *key = 1000 + static_cast<int>(me().keyvals.size());
        me().keyvals[*key] = {deleted, state};
        return MPI_SUCCESS;
    }
    static int Comm_free_keyval(int* key) {
        *key = MPI_KEYVAL_INVALID;
        return MPI_SUCCESS;
    }
    static int Comm_set_attr(MPI_Comm comm, int key, void* value) {
        me().attributes.push_back({comm, key, value});
        return MPI_SUCCESS;
    }
    static int Comm_group(MPI_Comm comm, MPI_Group* group) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        *group = new_handle<MPI_Group>();
        me().groups[*group] = find(comm)->world;
        return MPI_SUCCESS;
    }
    static int Group_size(MPI_Group group, int* size) {
        if (group == MPI_GROUP_NULL) return raise(MPI_COMM_WORLD, MPI_ERR_GROUP);
        *size = static_cast<int>(me().groups[group].size());
        return MPI_SUCCESS;
    }
    static int Group_incl(MPI_Group group, int many, const int* ranks, MPI_Group* made) {
        std::vector<int> members;
        for (int i = 0; i < many; ++i) members.push_back(me().groups[group][static_cast<std::size_t>(ranks[i])]);
        *made = new_handle<MPI_Group>();
        me().groups[*made] = members;
        return MPI_SUCCESS;
    }
    static int Group_translate_ranks(MPI_Group from, int many, const int* ranks, MPI_Group to, int* out) {
        const auto& others = me().groups[to];
        for (int i = 0; i < many; ++i) {
            const int world = me().groups[from][static_cast<std::size_t>(ranks[i])];
            const auto found = std::find(others.begin(), others.end(), world);
            out[i] = found == others.end() ? MPI_UNDEFINED : static_cast<int>(found - others.begin());
        }
        return MPI_SUCCESS;
    }
    static int Group_free(MPI_Group* group) {
        me().groups.erase(*group);
        *group = MPI_GROUP_NULL;
        return MPI_SUCCESS;
    }
    static int Comm_dup(MPI_Comm comm, MPI_Comm* made) { return split(comm, 0, 0, "dup", made); }
    static int Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
        Member& member = *find(comm);
        const std::string where =
            "idup" + std::to_string(member.group->id) + "/" + std::to_string(member.constructions++);
        const auto meeting = come(where, member.group->world, 0, 0);
        auto mine = std::make_shared<Request>();
        mine->kind = Request::Kind::constructing;
        mine->comm = comm;
        mine->poll = [meeting, made, comm] {
            if (meeting->done) *made = add_comm(meeting->made[0], comm);
            return meeting->done;
        };
        *request = add_request(mine);
        return MPI_SUCCESS;
    }
    static int Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
        if (color < 0 && color != MPI_UNDEFINED) return raise(comm, MPI_ERR_ARG);
        return split(comm, color, key, "split", made);
    }
    static int Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info, MPI_Comm* made) {
        if (type != MPI_COMM_TYPE_SHARED) return raise(comm, MPI_ERR_ARG);
        return split(comm, world().options.nodes[static_cast<std::size_t>(me().number)], key, "split type", made);
    }
    static int Topo_test(MPI_Comm, int* kind) {
        *kind = MPI_UNDEFINED;
        return MPI_SUCCESS;
    }
    static int Cart_create(MPI_Comm comm, int dimensions, const int* sizes, const int*, int, MPI_Comm* made) {
        int places = 1;
        for (int i = 0; i < dimensions; ++i) places *= sizes[i];
        if (places > static_cast<int>(find(comm)->world.size())) return raise(comm, MPI_ERR_DIMS);
        return split(comm, find(comm)->rank < places ? 0 : MPI_UNDEFINED, 0, "grid", made);
    }
    static int Cart_sub(MPI_Comm comm, const int*, MPI_Comm*) { return raise(comm, MPI_ERR_TOPOLOGY); }
    static int Graph_create(MPI_Comm comm, int nodes, const int*, const int*, int, MPI_Comm* made) {
        if (nodes > static_cast<int>(find(comm)->world.size())) return raise(comm, MPI_ERR_ARG);
        return split(comm, find(comm)->rank < nodes ? 0 : MPI_UNDEFINED, 0, "graph", made);
    }
    static int Dist_graph_create_adjacent(MPI_Comm comm, int in_degree, const int*, const int*, int out_degree,
                                          const int*, const int*, MPI_Info, int, MPI_Comm* made) {
        if (in_degree < 0 || out_degree < 0) return raise(comm, MPI_ERR_ARG);
        return split(comm, 0, 0, "neighbors", made);
    }
    static int Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* made) {
        if (group == MPI_GROUP_NULL) return raise(comm, MPI_ERR_GROUP);
        const auto& members = me().groups[group];
        const auto found = std::find(members.begin(), members.end(), me().number);
        const bool is_one = found != members.end();
        return split(comm, is_one ? 0 : MPI_UNDEFINED, static_cast<int>(found - members.begin()), "create", made);
    }
    static int Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
        if (group == MPI_GROUP_NULL) {  // as Open MPI 4
            *made = MPI_COMM_NULL;
            return MPI_SUCCESS;
        }
        const auto& members = me().groups[group];
        std::string where = "group" + std::to_string(tag);
        for (const int member : members) where += "," + std::to_string(member);
        const auto meeting = come(where, members, 0, 0);
        world().wait([&] { return meeting->done; });
        *made = add_comm(meeting->made[0], comm);
        return MPI_SUCCESS;
    }
    static int Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info, MPI_Errhandler, MPI_Comm* made) {
        return Comm_create_group(MPI_COMM_WORLD, group, 1000 + static_cast<int>(std::string_view(tag).size()), made);
    }
    static int Comm_free(MPI_Comm* comm) {
        if (*comm == MPI_COMM_WORLD || *comm == MPI_COMM_SELF) return raise(*comm, MPI_ERR_COMM);
        delete_attributes(*comm);
        me().comms.erase(*comm);
        *comm = MPI_COMM_NULL;
        return MPI_SUCCESS;
    }
    static int Comm_disconnect(MPI_Comm* comm) { return Comm_free(comm); }

    // Errors.
    static int Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        find(comm)->handler = handler;
        find(comm)->handler_was_set = true;
        return MPI_SUCCESS;
    }
    static int Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler* handler) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        *handler = find(comm)->handler;
        return MPI_SUCCESS;
    }
    static int Comm_create_errhandler(MPI_Comm_errhandler_function* function, MPI_Errhandler* handler) {
        *handler = new_handle<MPI_Errhandler>();
        me().handlers[*handler] = function;
        return MPI_SUCCESS;
    }
    static int Comm_call_errhandler(MPI_Comm comm, int code) {
        raise(comm, code);
        return MPI_SUCCESS;
    }
    static int Errhandler_free(MPI_Errhandler* handler) {
        *handler = MPI_ERRHANDLER_NULL;
        return MPI_SUCCESS;
    }
    static int Add_error_class(int* made) {
        *made = ++me().error_codes;
        return MPI_SUCCESS;
    }
    static int Add_error_code(int, int* made) { return Add_error_class(made); }
    static int Add_error_string(int, const char*) { return MPI_SUCCESS; }
    static int Error_class(int code, int* error_class) {
        *error_class = code;
        return MPI_SUCCESS;
    }
    static int Error_string(int code, char* text, int* size) {
        *size = std::snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
        return MPI_SUCCESS;
    }

    // Messages.
    static int look_at_rank(int rank, MPI_Comm comm) {
        const bool is_member = rank >= 0 && rank < static_cast<int>(find(comm)->group->world.size());
        return is_member || rank == MPI_PROC_NULL ? MPI_SUCCESS : MPI_ERR_RANK;
    }
    static int look_at_envelope(int to, int tag, MPI_Comm comm) {
        return tag < 0 || tag > kMostTag ? MPI_ERR_TAG : look_at_rank(to, comm);
    }
    /// Of a receive or a probe.
    static int look_at_wanted(int from, int tag, MPI_Comm comm) {
        if (tag != MPI_ANY_TAG && (tag < 0 || tag > kMostTag)) return MPI_ERR_TAG;
        return from == MPI_ANY_SOURCE ? MPI_SUCCESS : look_at_rank(from, comm);
    }
    static int isend(int mode, const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                     MPI_Request* handle) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        if (const int code = look_at(at, count, type); code != MPI_SUCCESS) return raise(comm, code);
        if (const int code = look_at_envelope(to, tag, comm); code != MPI_SUCCESS) return raise(comm, code);
        if (handle == nullptr) return raise(comm, MPI_ERR_ARG);
        const auto request = new_send(at, count, type, to, tag, comm, mode);
        begin(request);
        *handle = add_request(request);
        return MPI_SUCCESS;
    }
    static int Isend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                     MPI_Request* request) {
        return isend(kStandard, at, count, type, to, tag, comm, request);
    }
    static int Issend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                      MPI_Request* request) {
        return isend(kSynchronous, at, count, type, to, tag, comm, request);
    }
    static int Irsend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                      MPI_Request* request) {
        return isend(kReady, at, count, type, to, tag, comm, request);
    }
    static int send(int mode, const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        if (const int code = look_at(at, count, type); code != MPI_SUCCESS) return raise(comm, code);
        if (const int code = look_at_envelope(to, tag, comm); code != MPI_SUCCESS) return raise(comm, code);
        const auto request = new_send(at, count, type, to, tag, comm, mode);
        begin(request);
        world().wait([&] { return request->done; });
        return MPI_SUCCESS;
    }
    static int Send(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
        return send(kStandard, at, count, type, to, tag, comm);
    }
    static int Ssend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
        return send(kSynchronous, at, count, type, to, tag, comm);
    }
    static int Rsend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
        return send(kReady, at, count, type, to, tag, comm);
    }
    static int Irecv(void* at, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* handle) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        if (const int code = look_at_wanted(from, tag, comm); code != MPI_SUCCESS) return raise(comm, code);
        const auto request = new_receive(at, count, type, from, tag, comm);
        begin(request);
        *handle = add_request(request);
        return MPI_SUCCESS;
    }
    static int Recv(void* at, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
        if (find(comm) == nullptr) return raise(comm, MPI_ERR_COMM);
        if (const int code = look_at_wanted(from, tag, comm); code != MPI_SUCCESS) return raise(comm, code);
        const auto request = new_receive(at, count, type, from, tag, comm);
        begin(request);
        world().wait([&] { return request->done; });
        if (status != MPI_STATUS_IGNORE) *status = request->status;
        return raise(comm, request->error);
    }
    static int Sendrecv(const void* out, int out_count, MPI_Datatype out_type, int to, int out_tag, void* in,
                        int in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status) {
        MPI_Request received = MPI_REQUEST_NULL;
        if (const int code = Irecv(in, in_count, in_type, from, in_tag, comm, &received); code != MPI_SUCCESS) {
            return code;
        }
        if (const int code = Send(out, out_count, out_type, to, out_tag, comm); code != MPI_SUCCESS) return code;
        return Wait(&received, status);
    }
    static int init(RequestPointer request, MPI_Request* handle) {
        request->persistent = true;
        request->active = false;
        *handle = add_request(std::move(request));
        return MPI_SUCCESS;
    }
    static int Send_init(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* handle) {
        return init(new_send(at, count, type, to, tag, comm, kStandard), handle);
    }
    static int Ssend_init(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                          MPI_Request* handle) {
        return init(new_send(at, count, type, to, tag, comm, kSynchronous), handle);
    }
    static int Rsend_init(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                          MPI_Request* handle) {
        return init(new_send(at, count, type, to, tag, comm, kReady), handle);
    }
    static int Recv_init(void* at, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* handle) {
        return init(new_receive(at, count, type, from, tag, comm), handle);
    }
    static int Buffer_attach(void* at, int size) {
        me().attached = at;
        me().attached_size = size;
        return MPI_SUCCESS;
    }
    static int Buffer_detach(void* at, int* size) {
        *static_cast<void**>(at) = me().attached;
        *size = me().attached_size;
        return MPI_SUCCESS;
    }
    static int Start(MPI_Request* handle) {
        const auto request = find_request(*handle);
        if (!request || !request->persistent || request->active) return raise(MPI_COMM_WORLD, MPI_ERR_REQUEST);
        begin(request);
        return MPI_SUCCESS;
    }
    static int Grequest_start(MPI_Grequest_query_function* query, MPI_Grequest_free_function* free,
                              MPI_Grequest_cancel_function*, void* state, MPI_Request* handle) {
        auto request = std::make_shared<Request>();
        request->kind = Request::Kind::general;
        request->query = query;
        request->free = free;
        request->state = state;
        *handle = add_request(request);
        return MPI_SUCCESS;
    }
    static int Grequest_complete(MPI_Request handle) {
        find_request(handle)->done = true;
        return MPI_SUCCESS;
    }

    // Requests.
    static int Wait(MPI_Request* handle, MPI_Status* status) {
        if (*handle == MPI_REQUEST_NULL) {
            set_nothing(status);
            return MPI_SUCCESS;
        }
        const auto request = find_request(*handle);
        if (!request) return raise(MPI_COMM_WORLD, MPI_ERR_REQUEST);
        world().wait([&] { return is_done(request); });
        return raise(request->comm, end(*handle, status));
    }
    static int Test(MPI_Request* handle, int* flag, MPI_Status* status) {
        *flag = 1;
        if (*handle == MPI_REQUEST_NULL) {
            set_nothing(status);
            return MPI_SUCCESS;
        }
        const auto request = find_request(*handle);
        if (!request) return raise(MPI_COMM_WORLD, MPI_ERR_REQUEST);
        if (!is_done(request)) world().wait();
        *flag = is_done(request) ? 1 : 0;
        return *flag != 0 ? raise(request->comm, end(*handle, status)) : MPI_SUCCESS;
    }
    static int Request_get_status(MPI_Request handle, int* flag, MPI_Status* status) {
        const auto request = find_request(handle);
        *flag = 1;
        if (!request) {
            set_nothing(status);
            return handle == MPI_REQUEST_NULL ? MPI_SUCCESS : raise(MPI_COMM_WORLD, MPI_ERR_REQUEST);
        }
        if (!is_done(request)) world().wait();
        *flag = is_done(request) ? 1 : 0;
        if (*flag != 0 && status != MPI_STATUS_IGNORE) *status = request->status;
        const bool tells = *flag != 0 && request->active && world().options.forgets_told_errors;
        return tells ? raise(MPI_COMM_NULL, request->error) : MPI_SUCCESS;
    }
    static bool all_done(int count, const MPI_Request* handles) {
        return std::all_of(handles, handles + count, [](MPI_Request handle) {
            const auto request = find_request(handle);
            return !request || is_done(request);
        });
    }
    static int end_all(int count, MPI_Request* handles, MPI_Status* statuses) {
        std::vector<int> codes;
        for (int i = 0; i < count; ++i) {
            MPI_Status* const status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
            if (find_request(handles[i])) {
                codes.push_back(end(handles[i], status));
            } else {
                set_nothing(status);
                codes.push_back(MPI_SUCCESS);
            }
        }
        if (std::all_of(codes.begin(), codes.end(), [](int code) { return code == MPI_SUCCESS; })) return MPI_SUCCESS;
        for (int i = 0; statuses != MPI_STATUSES_IGNORE && i < count; ++i) {
            statuses[i].MPI_ERROR = codes[static_cast<std::size_t>(i)];
        }
        return raise(MPI_COMM_WORLD, MPI_ERR_IN_STATUS);
    }
    static int Waitall(int count, MPI_Request* handles, MPI_Status* statuses) {
        world().wait([&] { return all_done(count, handles); });
        return end_all(count, handles, statuses);
    }
    static int Testall(int count, MPI_Request* handles, int* flag, MPI_Status* statuses) {
        if (!all_done(count, handles)) world().wait();
        *flag = all_done(count, handles) ? 1 : 0;
        if (*flag == 0 && world().options.testall_ends_none && statuses != MPI_STATUSES_IGNORE) {
            bool failed = false;
            for (int i = 0; i < count; ++i) {
                const auto request = find_request(handles[i]);
                const bool done = !request || is_done(request);
                statuses[i] = request && done ? request->status : MPI_Status{};
                statuses[i].MPI_ERROR = !done ? MPI_ERR_PENDING : request ? request->error : MPI_SUCCESS;
                failed = failed || (done && statuses[i].MPI_ERROR != MPI_SUCCESS);
            }
            if (failed) return raise(MPI_COMM_WORLD, MPI_ERR_IN_STATUS);
        }
        return *flag != 0 ? end_all(count, handles, statuses) : MPI_SUCCESS;
    }
    /// Those that are active and done, in an order that changes.
    static std::vector<int> done_of(int count, const MPI_Request* handles) {
        std::vector<int> done;
        for (int i = 0; i < count; ++i) {
            if (fake::is_active(handles[i]) && is_done(find_request(handles[i]))) done.push_back(i);
        }
        if (!done.empty()) {
            std::rotate(done.begin(), done.begin() + static_cast<std::ptrdiff_t>(world().random() % done.size()),
                        done.end());
        }
        return done;
    }
    static bool any_active(int count, const MPI_Request* handles) {
        return std::any_of(handles, handles + count, fake::is_active);
    }
    static int end_any(MPI_Request* handles, int index, MPI_Status* status) {
        const MPI_Comm comm = find_request(handles[index])->comm;
        return raise(comm, end(handles[index], status));
    }
    static int Waitany(int count, MPI_Request* handles, int* index, MPI_Status* status) {
        *index = MPI_UNDEFINED;
        if (!any_active(count, handles)) {
            set_nothing(status);
            return MPI_SUCCESS;
        }
        world().wait([&] { return !done_of(count, handles).empty(); });
        *index = done_of(count, handles).front();
        return end_any(handles, *index, status);
    }
    static int Testany(int count, MPI_Request* handles, int* index, int* flag, MPI_Status* status) {
        *index = MPI_UNDEFINED;
        *flag = 1;
        if (!any_active(count, handles)) {
            set_nothing(status);
            return MPI_SUCCESS;
        }
        if (done_of(count, handles).empty()) world().wait();
        const auto done = done_of(count, handles);
        *flag = done.empty() ? 0 : 1;
        if (done.empty()) return MPI_SUCCESS;
        *index = done.front();
        return end_any(handles, *index, status);
    }
    static int some(int count, MPI_Request* handles, int* done, int* indices, MPI_Status* statuses) {
        bool failed = false;
        *done = 0;
        for (const int i : done_of(count, handles)) {
            MPI_Status* const status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + *done;
            const int code = end(handles[i], status);
            if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = code;
            failed = failed || code != MPI_SUCCESS;
            indices[(*done)++] = i;
        }
        return failed ? raise(MPI_COMM_WORLD, MPI_ERR_IN_STATUS) : MPI_SUCCESS;
    }
    static int Waitsome(int count, MPI_Request* handles, int* done, int* indices, MPI_Status* statuses) {
        *done = MPI_UNDEFINED;
        if (!any_active(count, handles)) return MPI_SUCCESS;
        world().wait([&] { return !done_of(count, handles).empty(); });
        return some(count, handles, done, indices, statuses);
    }
    static int Testsome(int count, MPI_Request* handles, int* done, int* indices, MPI_Status* statuses) {
        *done = MPI_UNDEFINED;
        if (!any_active(count, handles)) return MPI_SUCCESS;
        if (done_of(count, handles).empty()) world().wait();
        return some(count, handles, done, indices, statuses);
    }
    static int Request_free(MPI_Request* handle) {
        fake::forget(*handle);
        return MPI_SUCCESS;
    }
    static int Cancel(MPI_Request* handle) {
        const auto request = find_request(*handle);
        if (request && !request->active) return raise(MPI_COMM_NULL, MPI_ERR_REQUEST);
        if (!request || !world().take_back(request)) return MPI_SUCCESS;
        request->done = true;
        request->status.MPI_internal[3] = 1;
        return MPI_SUCCESS;
    }

    // Probing.
    static Sent* look(int from, int tag, MPI_Comm comm) {
        Request wanted;
        wanted.context = find(comm)->group->context();
        wanted.peer = from;
        wanted.tag = tag;
        for (Sent& sent : me().unexpected) {
            if (World::matches(wanted, sent.message)) return &sent;
        }
        return nullptr;
    }
    static void describe(const Message& message, MPI_Status* status) {
        if (status == MPI_STATUS_IGNORE) return;
        status->MPI_SOURCE = message.rank;
        status->MPI_TAG = message.tag;
        status->MPI_internal[3] = 0;
        set_count(*status, message.bytes.size());
    }
    static int Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
        if (const int code = look_at_wanted(from, tag, comm); code != MPI_SUCCESS) return raise(comm, code);
        if (look(from, tag, comm) == nullptr) world().wait();
        const Sent* const sent = look(from, tag, comm);
        *flag = sent != nullptr ? 1 : 0;
        if (sent != nullptr) describe(sent->message, status);
        return MPI_SUCCESS;
    }
    static int Probe(int from, int tag, MPI_Comm comm, MPI_Status* status) {
        if (const int code = look_at_wanted(from, tag, comm); code != MPI_SUCCESS) return raise(comm, code);
        world().wait([&] { return look(from, tag, comm) != nullptr; });
        describe(look(from, tag, comm)->message, status);
        return MPI_SUCCESS;
    }
    static void match(Sent* sent, MPI_Message* message, MPI_Status* status) {
        describe(sent->message, status);
        *message = new_handle<MPI_Message>();
        auto& unexpected = me().unexpected;
        const auto at = std::find_if(unexpected.begin(), unexpected.end(), [&](Sent& one) { return &one == sent; });
        me().matched[*message] = std::move(*at);
        unexpected.erase(at);
    }
    static int Improbe(int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
        if (look(from, tag, comm) == nullptr) world().wait();
        Sent* const sent = look(from, tag, comm);
        *flag = sent != nullptr ? 1 : 0;
        if (sent != nullptr) match(sent, message, status);
        return MPI_SUCCESS;
    }
    static int Mprobe(int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
        world().wait([&] { return look(from, tag, comm) != nullptr; });
        match(look(from, tag, comm), message, status);
        return MPI_SUCCESS;
    }
    static int Imrecv(void* at, int count, MPI_Datatype type, MPI_Message* message, MPI_Request* handle) {
        const auto found = me().matched.find(*message);
        if (found == me().matched.end()) return raise(MPI_COMM_WORLD, MPI_ERR_REQUEST);
        auto request = std::make_shared<Request>();
        request->kind = Request::Kind::receive;
        request->comm = MPI_COMM_WORLD;
        request->at = at;
        request->count = count;
        request->type = find_type(type);
        world().arrivals.push_back({request, std::move(found->second)});
        me().matched.erase(found);
        *message = MPI_MESSAGE_NULL;
        *handle = add_request(request);
        return MPI_SUCCESS;
    }
    static int Mrecv(void* at, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = Imrecv(at, count, type, message, &request);
        return code != MPI_SUCCESS ? code : Wait(&request, status);
    }

    // Statuses.
    static int Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
        const std::size_t size = find_type(type)->size();
        *count =
            size == 0 || count_in(*status) % size != 0 ? MPI_UNDEFINED : static_cast<int>(count_in(*status) / size);
        return MPI_SUCCESS;
    }
    static int Get_elements_x(const MPI_Status* status, MPI_Datatype type, MPI_Count* count) {
        *count = static_cast<MPI_Count>(count_in(*status) / find_type(type)->size());
        return MPI_SUCCESS;
    }
    static int Status_set_elements_x(MPI_Status* status, MPI_Datatype type, MPI_Count count) {
        set_count(*status, static_cast<std::size_t>(count) * find_type(type)->size());
        return MPI_SUCCESS;
    }
    static int Status_set_elements(MPI_Status* status, MPI_Datatype type, int count) {
        return Status_set_elements_x(status, type, count);
    }
    static int Status_set_cancelled(MPI_Status* status, int flag) {
        status->MPI_internal[3] = flag;
        return MPI_SUCCESS;
    }
    static int Test_cancelled(const MPI_Status* status, int* flag) {
        *flag = status->MPI_internal[3];
        return MPI_SUCCESS;
    }

    // Datatypes.
    static int Type_size_x(MPI_Datatype type, MPI_Count* size) {
        const auto found = find_type(type);
        if (!found) return raise(MPI_COMM_WORLD, MPI_ERR_TYPE);
        *size = static_cast<MPI_Count>(found->size());
        return MPI_SUCCESS;
    }
    static int Type_size(MPI_Datatype type, int* size) {
        MPI_Count large = 0;
        const int code = Type_size_x(type, &large);
        *size = static_cast<int>(large);
        return code;
    }
    static int Type_get_extent(MPI_Datatype type, MPI_Aint* lower, MPI_Aint* extent) {
        const auto found = find_type(type);
        if (!found) return raise(MPI_COMM_WORLD, MPI_ERR_TYPE);
        *lower = found->lower;
        *extent = found->extent;
        return MPI_SUCCESS;
    }
    static int Type_get_true_extent(MPI_Datatype type, MPI_Aint* lower, MPI_Aint* extent) {
        const auto found = find_type(type);
        if (!found) return raise(MPI_COMM_WORLD, MPI_ERR_TYPE);
        const auto [least, most] = found->ends();
        *lower = least;
        *extent = most - least;
        return MPI_SUCCESS;
    }
    static int Type_get_envelope(MPI_Datatype type, int* integers, int* addresses, int* types, int* combiner) {
        const auto found = find_type(type);
        if (!found) return raise(MPI_COMM_WORLD, MPI_ERR_TYPE);
        *integers = static_cast<int>(found->integers.size());
        *addresses = static_cast<int>(found->addresses.size());
        *types = static_cast<int>(found->types.size());
        *combiner = found->combiner;
        return MPI_SUCCESS;
    }
    static int Type_get_contents(MPI_Datatype type, int, int, int, int* integers, MPI_Aint* addresses,
                                 MPI_Datatype* types) {
        const auto found = find_type(type);
        std::copy(found->integers.begin(), found->integers.end(), integers);
        std::copy(found->addresses.begin(), found->addresses.end(), addresses);
        for (std::size_t i = 0; i < found->types.size(); ++i) {
            types[i] = found->types[i];
            if (size_of_named(types[i]) == 0) Type_dup(found->types[i], &types[i]);
        }
        return MPI_SUCCESS;
    }
    static int Type_commit(MPI_Datatype* type) {
        if (const auto found = me().types.find(*type); found != me().types.end()) found->second->committed = true;
        return MPI_SUCCESS;
    }
    static int Type_free(MPI_Datatype* type) {
        if (me().types.erase(*type) != 0) me().free_types.push_back(*type);
        *type = MPI_DATATYPE_NULL;
        return MPI_SUCCESS;
    }
    static int Type_dup(MPI_Datatype old, MPI_Datatype* made) {
        *made = add_type(std::make_shared<Type>(*find_type(old)));
        return MPI_SUCCESS;
    }
    static int Type_contiguous(int count, MPI_Datatype old, MPI_Datatype* made) {
        std::vector<std::pair<MPI_Aint, MPI_Datatype>> elements;
        for (int i = 0; i < count; ++i) elements.emplace_back(i * find_type(old)->extent, old);
        *made = add_type(MPI_COMBINER_CONTIGUOUS, {count}, {}, {old}, elements);
        return MPI_SUCCESS;
    }
    static int Type_vector(int count, int length, int stride, MPI_Datatype old, MPI_Datatype* made) {
        std::vector<std::pair<MPI_Aint, MPI_Datatype>> elements;
        for (int i = 0; i < count; ++i) {
            for (int k = 0; k < length; ++k) elements.emplace_back((i * stride + k) * find_type(old)->extent, old);
        }
        *made = add_type(MPI_COMBINER_VECTOR, {count, length, stride}, {}, {old}, elements);
        return MPI_SUCCESS;
    }
    static int Type_create_hindexed(int count, const int* lengths, const MPI_Aint* places, MPI_Datatype old,
                                    MPI_Datatype* made) {
        std::vector<std::pair<MPI_Aint, MPI_Datatype>> elements;
        std::vector<int> integers{count};
        for (int i = 0; i < count; ++i) {
            integers.push_back(lengths[i]);
            for (int k = 0; k < lengths[i]; ++k) elements.emplace_back(places[i] + k * find_type(old)->extent, old);
        }
        *made = add_type(MPI_COMBINER_HINDEXED, integers, {places, places + count}, {old}, elements);
        return MPI_SUCCESS;
    }
    static int Type_create_struct(int count, const int* lengths, const MPI_Aint* places, const MPI_Datatype* types,
                                  MPI_Datatype* made) {
        std::vector<std::pair<MPI_Aint, MPI_Datatype>> elements;
        std::vector<int> integers{count};
        for (int i = 0; i < count; ++i) {
            integers.push_back(lengths[i]);
            for (int k = 0; k < lengths[i]; ++k) {
                elements.emplace_back(places[i] + k * find_type(types[i])->extent, types[i]);
            }
        }
        *made = add_type(MPI_COMBINER_STRUCT, integers, {places, places + count}, {types, types + count}, elements);
        return MPI_SUCCESS;
    }
    static int Type_create_resized(MPI_Datatype old, MPI_Aint lower, MPI_Aint extent, MPI_Datatype* made) {
        *made = add_type(MPI_COMBINER_RESIZED, {}, {lower, extent}, {old}, {{0, old}});
        me().types[*made]->lower = lower;
        me().types[*made]->extent = extent;
        return MPI_SUCCESS;
    }
    static int Pack(const void* at, int count, MPI_Datatype type, void* out, int size, int* position, MPI_Comm) {
        const auto bytes = Data(at, count, type).bytes();
        if (*position + static_cast<int>(bytes.size()) > size) return raise(MPI_COMM_WORLD, MPI_ERR_TRUNCATE);
        std::copy(bytes.begin(), bytes.end(), static_cast<std::uint8_t*>(out) + *position);
        *position += static_cast<int>(bytes.size());
        return MPI_SUCCESS;
    }
    static int Unpack(const void* in, int, int* position, void* at, int count, MPI_Datatype type, MPI_Comm) {
        const Data data(at, count, type);
        unpack(static_cast<const std::uint8_t*>(in) + *position, data.size(), at, count, *data.type);
        *position += static_cast<int>(data.size());
        return MPI_SUCCESS;
    }

    // Reductions' operations.
    static int Op_create(MPI_User_function* function, int commutes, MPI_Op* made) {
        *made = new_handle<MPI_Op>();
        me().operations[*made] = {function, commutes != 0};
        return MPI_SUCCESS;
    }
    static int Op_free(MPI_Op* op) {
        me().operations.erase(*op);
        *op = MPI_OP_NULL;
        return MPI_SUCCESS;
    }
    static int Op_commutative(MPI_Op op, int* flag) {
        const auto found = me().operations.find(op);
        *flag = found == me().operations.end() || found->second.commutes ? 1 : 0;
        return MPI_SUCCESS;
    }
    static int Reduce_local(const void* in, void* inout, int count, MPI_Datatype type, MPI_Op op) {
        return raise(MPI_COMM_WORLD, combine(op, in, inout, count, type));
    }

    // Collective operations.
    static int Barrier(MPI_Comm comm) {
        if (comm == MPI_COMM_WORLD && world().options.world_is_revoked) return raise(comm, MPI_ERR_OTHER);
        Collective call(comm, "Barrier");
        std::uint8_t nothing = 0;
        const std::vector<Data> all(static_cast<std::size_t>(call.size()), Data(&nothing, 1, MPI_BYTE));
        return fake::exchange(call, all, all, false);
    }
    static int Bcast(void* at, int count, MPI_Datatype type, int root, MPI_Comm comm) {
        Collective call(comm, of_root("Bcast", root));
        const Data data(at, count, type);
        if (call.rank() != root) {
            call.failed(call.receive(root, data));
            return call.result();
        }
        for (int i = 0; i < call.size(); ++i) {
            if (i != root) call.send(i, data);
        }
        return MPI_SUCCESS;
    }
    static int Ibcast(void* at, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* handle) {
        Collective call(comm, of_root("Bcast", root));
        const Data data(at, count, type);
        if (call.rank() != root) {
            *handle = add_request(call.begin_receive(root, data));
            return MPI_SUCCESS;
        }
        for (int i = 0; i < call.size(); ++i) {
            if (i != root) call.send(i, data);
        }
        auto done = std::make_shared<Request>();
        done->comm = comm;
        done->done = true;
        *handle = add_request(done);
        return MPI_SUCCESS;
    }
    static int Gather(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
                      MPI_Datatype in_type, int root, MPI_Comm comm) {
        Collective call(comm, of_root("Gather", root));
        const bool in_place = out == MPI_IN_PLACE;
        const Data own(out, out_count, out_type);
        const auto blocks =
            call.rank() == root ? equal_blocks(call.size(), in, in_count, in_type) : std::vector<Data>();
        return fake::gather(call, in_place ? nullptr : &own, blocks, root);
    }
    static int Gatherv(const void* out, int out_count, MPI_Datatype out_type, void* in, const int* counts,
                       const int* places, MPI_Datatype in_type, int root, MPI_Comm comm) {
        Collective call(comm, of_root("Gatherv", root));
        const bool in_place = out == MPI_IN_PLACE;
        const Data own(out, out_count, out_type);
        const auto blocks =
            call.rank() == root ? v_blocks(call.size(), in, counts, places, in_type) : std::vector<Data>();
        return fake::gather(call, in_place ? nullptr : &own, blocks, root);
    }
    static int Scatter(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
                       MPI_Datatype in_type, int root, MPI_Comm comm) {
        Collective call(comm, of_root("Scatter", root));
        const bool in_place = in == MPI_IN_PLACE;
        const Data own(in, in_count, in_type);
        const auto blocks =
            call.rank() == root ? equal_blocks(call.size(), out, out_count, out_type) : std::vector<Data>();
        return fake::scatter(call, in_place ? nullptr : &own, blocks, root);
    }
    static int Scatterv(const void* out, const int* counts, const int* places, MPI_Datatype out_type, void* in,
                        int in_count, MPI_Datatype in_type, int root, MPI_Comm comm) {
        Collective call(comm, of_root("Scatterv", root));
        const bool in_place = in == MPI_IN_PLACE;
        const Data own(in, in_count, in_type);
        const auto blocks =
            call.rank() == root ? v_blocks(call.size(), out, counts, places, out_type) : std::vector<Data>();
        return fake::scatter(call, in_place ? nullptr : &own, blocks, root);
    }
    static int gather_to_all(Collective& call, const Data* own, const std::vector<Data>& blocks) {
        const Data& mine = own != nullptr ? *own : blocks[static_cast<std::size_t>(call.rank())];
        const std::vector<Data> sent(static_cast<std::size_t>(call.size()), mine);
        return fake::exchange(call, sent, blocks, own != nullptr);
    }
    static int Allgather(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
                         MPI_Datatype in_type, MPI_Comm comm) {
        Collective call(comm, "Allgather");
        const Data own(out, out_count, out_type);
        return gather_to_all(call, out == MPI_IN_PLACE ? nullptr : &own,
                             equal_blocks(call.size(), in, in_count, in_type));
    }
    static int Allgatherv(const void* out, int out_count, MPI_Datatype out_type, void* in, const int* counts,
                          const int* places, MPI_Datatype in_type, MPI_Comm comm) {
        Collective call(comm, "Allgatherv");
        const Data own(out, out_count, out_type);
        return gather_to_all(call, out == MPI_IN_PLACE ? nullptr : &own,
                             v_blocks(call.size(), in, counts, places, in_type));
    }
    static int Alltoall(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
                        MPI_Datatype in_type, MPI_Comm comm) {
        Collective call(comm, "Alltoall");
        return fake::exchange(call, equal_blocks(call.size(), out, out_count, out_type),
                              equal_blocks(call.size(), in, in_count, in_type), true);
    }
    static int Alltoallv(const void* out, const int* out_counts, const int* out_places, MPI_Datatype out_type, void* in,
                         const int* in_counts, const int* in_places, MPI_Datatype in_type, MPI_Comm comm) {
        Collective call(comm, "Alltoallv");
        return fake::exchange(call, v_blocks(call.size(), out, out_counts, out_places, out_type),
                              v_blocks(call.size(), in, in_counts, in_places, in_type), true);
    }
    static int Reduce(const void* out, void* in, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
        Collective call(comm, of_root("Reduce", root));
        call.failed(fake::reduce(call, out, in, count, type, op, root));
        return call.result();
    }
    static int Allreduce(const void* out, void* in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
        Collective call(comm, "Allreduce");
        if (find_type(type) == nullptr) return raise(comm, MPI_ERR_TYPE);
        call.failed(fake::reduce(call, out, in, count, type, op, 0));
        const Data result(in, count, type);
        if (call.rank() != 0) {
            call.failed(call.receive(0, result));
            return call.result();
        }
        for (int i = 1; i < call.size(); ++i) call.send(i, result);
        return call.result();
    }
};

/// Calls that a test may let fail: those that take something of MPI, or wait for others.
const std::set<std::string_view> kMayFail{
    "Allgather", "Allgatherv", "Allreduce",      "Alltoall",     "Alltoallv",  "Barrier",    "Bcast",   "Comm_create",
    "Comm_dup",  "Comm_split", "Gather",         "Gatherv",      "Ibcast",     "Improbe",    "Imrecv",  "Iprobe",
    "Irecv",     "Irsend",     "Isend",          "Issend",       "Mprobe",     "Mrecv",      "Pack",    "Probe",
    "Recv",      "Recv_init",  "Reduce",         "Reduce_local", "Rsend",      "Rsend_init", "Scatter", "Scatterv",
    "Send",      "Send_init",  "Sendrecv",       "Ssend",        "Ssend_init", "Start",      "Test",    "Testall",
    "Testany",   "Testsome",   "Type_commit",    "Type_free",    "Type_dup",   "Unpack",     "Wait",    "Waitall",
    "Waitany",   "Waitsome",   "Type_contiguous"};
/// Those in which a rank may wait for others, as procedures.txt says.
const std::set<std::string_view> kWaits{
    "Allgather",      "Allgatherv", "Allreduce",  "Alltoall", "Alltoallv", "Barrier",  "Bcast",
    "Comm_create",    "Comm_dup",   "Comm_split", "Finalize", "Gather",    "Gatherv",  "Mprobe",
    "Mrecv",          "Probe",      "Recv",       "Reduce",   "Rsend",     "Scatter",  "Scatterv",
    "Send",           "Ssend",      "Wait",       "Waitall",  "Waitany",   "Waitsome", "Comm_create_group",
    "Comm_split_type"};

template <auto Function, class Signature>
struct Counted;

template <auto Function, class... Arguments>
struct Counted<Function, int(Arguments...)> {
    static inline std::string_view name;
    static int call(Arguments... arguments) {
        Process& mine = me();
        if (kWaits.contains(name) && !mine.leaving) mine.due.act();
        if (mine.counts && (name == "Request_get_status" || name == "Test")) ++mine.looks;
        if (mine.counts && kMayFail.contains(name)) {
            const std::uint64_t number = mine.calls++;
            if (world().job.fails && world().job.fails(mine.number, std::string(name), number)) {
                MPI_Comm comm = MPI_COMM_WORLD;
                (find_comm(arguments, comm), ...);
                (make_none(arguments), ...);
                return raise(comm, MPI_ERR_INTERN);
            }
        }
        if (mine.counts && !mine.leaving && !world().stopped) world().pause();
        return Function(arguments...);
    }

private:
    template <class Argument>
    static void find_comm(Argument argument, MPI_Comm& comm) {
        if constexpr (std::is_same_v<Argument, MPI_Comm>) comm = argument;
    }
    /// MPICH's constructors do so before anything else.
    template <class Argument>
    static void make_none([[maybe_unused]] Argument argument) {
        if constexpr (std::is_same_v<Argument, MPI_Comm*>) *argument = MPI_COMM_NULL;
    }
};

comm::Native make_native() {
    comm::Native native;
#define CRYPTMPI_FAKE(procedure)                                               \
    Counted<&Calls::procedure, decltype(Calls::procedure)>::name = #procedure; \
    native.procedure = Counted<&Calls::procedure, decltype(Calls::procedure)>::call
    CRYPTMPI_FAKE(Init_thread);
    CRYPTMPI_FAKE(Query_thread);
    CRYPTMPI_FAKE(Get_library_version);
    CRYPTMPI_FAKE(Initialized);
    CRYPTMPI_FAKE(Finalized);
    CRYPTMPI_FAKE(Finalize);
    CRYPTMPI_FAKE(Session_init);
    CRYPTMPI_FAKE(Session_finalize);
    CRYPTMPI_FAKE(Session_get_info);
    CRYPTMPI_FAKE(Info_get);
    CRYPTMPI_FAKE(Info_free);
    native.Abort = Calls::Abort;
    CRYPTMPI_FAKE(Comm_rank);
    CRYPTMPI_FAKE(Comm_size);
    CRYPTMPI_FAKE(Comm_test_inter);
    CRYPTMPI_FAKE(Comm_get_attr);
    CRYPTMPI_FAKE(Comm_create_keyval);
    CRYPTMPI_FAKE(Comm_free_keyval);
    CRYPTMPI_FAKE(Comm_set_attr);
    CRYPTMPI_FAKE(Comm_group);
    CRYPTMPI_FAKE(Group_size);
    CRYPTMPI_FAKE(Group_incl);
    CRYPTMPI_FAKE(Group_translate_ranks);
    CRYPTMPI_FAKE(Group_free);
    CRYPTMPI_FAKE(Comm_dup);
    CRYPTMPI_FAKE(Comm_idup);
    CRYPTMPI_FAKE(Comm_split);
    CRYPTMPI_FAKE(Comm_split_type);
    CRYPTMPI_FAKE(Comm_create);
    CRYPTMPI_FAKE(Comm_create_group);
    CRYPTMPI_FAKE(Comm_create_from_group);
    CRYPTMPI_FAKE(Topo_test);
    CRYPTMPI_FAKE(Cart_create);
    CRYPTMPI_FAKE(Cart_sub);
    CRYPTMPI_FAKE(Graph_create);
    CRYPTMPI_FAKE(Dist_graph_create_adjacent);
    CRYPTMPI_FAKE(Comm_free);
    CRYPTMPI_FAKE(Comm_disconnect);
    CRYPTMPI_FAKE(Comm_set_errhandler);
    CRYPTMPI_FAKE(Comm_get_errhandler);
    CRYPTMPI_FAKE(Comm_create_errhandler);
    CRYPTMPI_FAKE(Comm_call_errhandler);
    CRYPTMPI_FAKE(Errhandler_free);
    CRYPTMPI_FAKE(Add_error_class);
    CRYPTMPI_FAKE(Add_error_code);
    CRYPTMPI_FAKE(Add_error_string);
    CRYPTMPI_FAKE(Error_class);
    CRYPTMPI_FAKE(Error_string);
    CRYPTMPI_FAKE(Isend);
    CRYPTMPI_FAKE(Issend);
    CRYPTMPI_FAKE(Irsend);
    CRYPTMPI_FAKE(Send);
    CRYPTMPI_FAKE(Ssend);
    CRYPTMPI_FAKE(Rsend);
    CRYPTMPI_FAKE(Irecv);
    CRYPTMPI_FAKE(Recv);
    CRYPTMPI_FAKE(Sendrecv);
    CRYPTMPI_FAKE(Send_init);
    CRYPTMPI_FAKE(Ssend_init);
    CRYPTMPI_FAKE(Rsend_init);
    CRYPTMPI_FAKE(Recv_init);
    CRYPTMPI_FAKE(Buffer_attach);
    CRYPTMPI_FAKE(Buffer_detach);
    CRYPTMPI_FAKE(Start);
    CRYPTMPI_FAKE(Grequest_start);
    CRYPTMPI_FAKE(Grequest_complete);
    CRYPTMPI_FAKE(Wait);
    CRYPTMPI_FAKE(Test);
    CRYPTMPI_FAKE(Request_get_status);
    CRYPTMPI_FAKE(Waitall);
    CRYPTMPI_FAKE(Testall);
    CRYPTMPI_FAKE(Waitany);
    CRYPTMPI_FAKE(Testany);
    CRYPTMPI_FAKE(Waitsome);
    CRYPTMPI_FAKE(Testsome);
    CRYPTMPI_FAKE(Request_free);
    CRYPTMPI_FAKE(Cancel);
    CRYPTMPI_FAKE(Iprobe);
    CRYPTMPI_FAKE(Probe);
    CRYPTMPI_FAKE(Improbe);
    CRYPTMPI_FAKE(Mprobe);
    CRYPTMPI_FAKE(Imrecv);
    CRYPTMPI_FAKE(Mrecv);
    CRYPTMPI_FAKE(Get_count);
    CRYPTMPI_FAKE(Get_elements_x);
    CRYPTMPI_FAKE(Status_set_elements_x);
    CRYPTMPI_FAKE(Status_set_elements);
    CRYPTMPI_FAKE(Status_set_cancelled);
    CRYPTMPI_FAKE(Test_cancelled);
    CRYPTMPI_FAKE(Type_size_x);
    CRYPTMPI_FAKE(Type_size);
    CRYPTMPI_FAKE(Type_get_extent);
    CRYPTMPI_FAKE(Type_get_true_extent);
    CRYPTMPI_FAKE(Type_get_envelope);
    CRYPTMPI_FAKE(Type_get_contents);
    CRYPTMPI_FAKE(Type_commit);
    CRYPTMPI_FAKE(Type_free);
    CRYPTMPI_FAKE(Type_dup);
    CRYPTMPI_FAKE(Type_contiguous);
    CRYPTMPI_FAKE(Type_vector);
    CRYPTMPI_FAKE(Type_create_hindexed);
    CRYPTMPI_FAKE(Type_create_struct);
    CRYPTMPI_FAKE(Type_create_resized);
    CRYPTMPI_FAKE(Pack);
    CRYPTMPI_FAKE(Unpack);
    CRYPTMPI_FAKE(Op_create);
    CRYPTMPI_FAKE(Op_free);
    CRYPTMPI_FAKE(Op_commutative);
    CRYPTMPI_FAKE(Reduce_local);
    CRYPTMPI_FAKE(Barrier);
    CRYPTMPI_FAKE(Bcast);
    CRYPTMPI_FAKE(Ibcast);
    CRYPTMPI_FAKE(Gather);
    CRYPTMPI_FAKE(Gatherv);
    CRYPTMPI_FAKE(Scatter);
    CRYPTMPI_FAKE(Scatterv);
    CRYPTMPI_FAKE(Allgather);
    CRYPTMPI_FAKE(Allgatherv);
    CRYPTMPI_FAKE(Alltoall);
    CRYPTMPI_FAKE(Alltoallv);
    CRYPTMPI_FAKE(Reduce);
    CRYPTMPI_FAKE(Allreduce);
#undef CRYPTMPI_FAKE
    return native;
}

const comm::Native& native() {
    static const comm::Native one = make_native();
    return one;
}

/// A folder with a job key, for all jobs of this process.
const std::filesystem::path& folder() {
    static const std::filesystem::path one = [] {
        std::string name = (std::filesystem::temp_directory_path() / "cryptmpi-fake-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the job key");
        const std::filesystem::path made = name;
        std::ofstream(made / "job.key") << "cryptmpi-job-key-1 " << std::string(64, '7') << "\n";
        std::filesystem::permissions(made / "job.key", std::filesystem::perms::owner_read);
        std::atexit([] { std::filesystem::remove_all(folder()); });
        return made;
    }();
    return one;
}

config::Environment environment_of(const Options& options, const std::string& job_id) {
    std::map<std::string, std::string, std::less<>> variables{{"XDG_CONFIG_HOME", folder().string()},
                                                              {"HOME", folder().string()},
                                                              {"CRYPTMPI_KEY_FILE", (folder() / "job.key").string()},
                                                              {"CRYPTMPI_JOB_ID", job_id},
                                                              {"CRYPTMPI_MODULE_FOLDER", CRYPTMPI_MODULE_FOLDER},
                                                              {"CRYPTMPI_THREADS", "1"},
                                                              {"CRYPTMPI_LIVE", "false"}};
    for (const auto& [name, value] : options.settings) variables[name] = value;
    return config::Environment(std::move(variables));
}

std::string read_all(int file) {
    std::string text;
    lseek(file, 0, SEEK_SET);
    std::array<char, 4096> some;
    for (ssize_t n = 0; (n = read(file, some.data(), some.size())) > 0;)
        text.append(some.data(), static_cast<std::size_t>(n));
    return text;
}

}  // namespace

Job::Job(int ranks, Options options) : ranks_(ranks), options_(std::move(options)) {}
Job::~Job() = default;

Ending Job::run(const std::function<void(Rank&)>& function) {
    static std::atomic<int> jobs{0};
    const std::string job_id = "fake-" + std::to_string(getpid()) + "-" + std::to_string(++jobs);
    world_ = std::make_unique<World>(*this, ranks_, options_);
    const auto environment = environment_of(options_, job_id);
    const auto live = [&](int number) {
        Process& mine = world_->process(number);
        World::here = world_.get();
        World::me = &mine;
        world_->take_first_turn();
        const std::string node = "node-" + std::to_string(world_->options.nodes[static_cast<std::size_t>(number)]);
        mine.lines = memfd_create("lines", MFD_CLOEXEC);
        {
            Layer layer({native(), environment, node, {node, 0, 0}, !options_.seals_all, mine.due, mine.lines});
            try {
                Rank rank{*this, number, ranks_, layer, native()};
                if (before) before(rank);
                int provided = 0;
                comm::Init_thread(layer, nullptr, nullptr, options_.thread_level, &provided);
                if (options_.errors_return) native().Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
                mine.counts = true;
                function(rank);
                mine.counts = false;
                comm::Finalize(layer);
                mine.counts = true;
                if (after) after(rank);
            } catch (const Stopped&) {
            }
            mine.counts = false;
            mine.leaving = true;
        }
        world_->finish();
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < ranks_; ++i) threads.emplace_back(live, i);
    for (std::thread& thread : threads) thread.join();
    if (!world_->stopped) world_->check_nothing_left();
    Ending ending = std::move(world_->ending);
    for (const auto& process : world_->processes) {
        ending.said.push_back(read_all(process->lines));
        ending.calls.push_back(process->calls);
        ending.looks.push_back(process->looks);
        ending.communicators.push_back(process->comms.size());
        ::close(process->lines);
    }
    return ending;
}

}  // namespace cryptmpi::comm::fake
