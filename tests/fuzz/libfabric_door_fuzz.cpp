// What comes through the door of libfabric: messages for the program, heads and pieces of long ones, notes about
// memory. Members say what they like in messages that open, strangers send bytes of any kind and tell any length, and
// meanwhile the program receives, looks at what waits, claims it, reads and writes memory of peers, and sends long
// messages.
//
// Input, again and again: what happens (1 byte) | a member (1) | then by what happens:
//   a receive, a look, a claim: tag (1) | size (2)
//   a read, a write, a long message: where (1) | size (3)
//   a message:        slip (1) | tag (1) | immediate data (1) | the length that a look tells (1) | how many bytes (1) |
//   the bytes a head:           slip (1) | tag (1) | id (1) | size (3) | another size beside it (1) a note: slip (1) |
//   what (1) | id (1) | region (1) | where (2) | size (3) | how many bytes (2) a piece:          slip (1) | id (1) |
//   done (1) | size (3) arbitrary bytes:  tag (1) | how many (1) | the bytes
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/fake_provider.hpp"
#include "fabric/libfabric/information.hpp"
#include "fabric/libfabric/objects.hpp"
#include "fabric/libfabric/tables.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"
#include "toy_process.hpp"
#include "toy_wire.hpp"

using namespace cryptmpi;
using namespace cryptmpi::fabric;
using namespace cryptmpi::fabric::libfabric;
using fuzz::Bytes;
using fuzz::Ended;
using fuzz::require;
using fuzz::ToyProcess;
using test::FakeProvider;
using test::Wire;

namespace {

/// Of the provider tcp, whose looks tell of immediate data.
struct Info {
    Info() {
        info.ep_attr = &ep;
        info.tx_attr = &tx;
        info.rx_attr = &rx;
        info.domain_attr = &domain;
        info.fabric_attr = &fabric;
        ep.type = FI_EP_RDM;
        ep.max_msg_size = std::size_t{1} << 22;
        domain.cq_data_size = 8;
        fabric.prov_name = provider.data();
        info.caps = FI_TAGGED | FI_MSG | FI_RMA | FI_DIRECTED_RECV;
        adapt_answer(info, true);
        keeps_data = keep_data_for_lengths(info, nullptr);
    }
    fi_info info = {};
    bool keeps_data = false;
    std::string provider = "tcp";
    fi_ep_attr ep = {};
    fi_tx_attr tx = {};
    fi_rx_attr rx = {};
    fi_domain_attr domain = {};
    fi_fabric_attr fabric = {};
};

/// What the program gave a call, and what it is told by. The bytes are exactly as many as it gave.
struct Call {
    explicit Call(std::size_t size) : bytes(size) {}
    Bytes bytes;
    bool ended = false;
};

struct Memory {
    Memory(std::size_t size, std::uint8_t fill, std::uint64_t its_access) : bytes(size, fill), access(its_access) {}
    Bytes bytes;
    std::uint64_t access;
    fid_mr* region = nullptr;
};

class Program {
public:
    Program() {
        fabric_ = show(&provider_.fabric, around_, nullptr, "tcp", given_.keeps_data);
        require(fi_domain(fabric_, &given_.info, &domain_, nullptr) == 0);
        require(fi_endpoint(domain_, &given_.info, &ep_, nullptr) == 0);
        fi_cq_attr queue = {};
        queue.format = FI_CQ_FORMAT_TAGGED;
        require(fi_cq_open(domain_, &queue, &cq_, nullptr) == 0);
        fi_av_attr addresses = {};
        require(fi_av_open(domain_, &addresses, &av_, nullptr) == 0);
        require(fi_ep_bind(ep_, &cq_->fid, FI_SEND | FI_RECV) == 0);
        require(fi_ep_bind(ep_, &av_->fid, 0) == 0);
        require(fi_enable(ep_) == 0);
        Bytes name(64);
        std::size_t size = name.size();
        require(fi_getname(&ep_->fid, name.data(), &size) == 0);
        // The last of the members is one whose address the program does not know.
        Bytes names;
        for (std::uint8_t one = 0; one + 1 < fuzz::kMembers; ++one) {
            Bytes its(FakeProvider::kNameSize, 0);
            its[0] = one;
            const auto share = fuzz::share_of(one);
            its.insert(its.end(), share.begin(), share.end());
            names.insert(names.end(), its.begin(), its.end());
        }
        require(fi_av_insert(av_, names.data(), kKnown, nullptr, 0, nullptr) == static_cast<int>(kKnown));
        for (std::size_t i = 0; i < memories_.size(); ++i) {
            auto& [bytes, access, region] = memories_[i];
            require(fi_mr_reg(domain_, bytes.data(), bytes.size(), access, 0, i, 0, &region, nullptr) == 0);
        }
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        for (const Memory& one : memories_) fi_close(&one.region->fid);
        // Nobody is left who would fetch a long message.
        static_cast<Fabric&>(Fabric::of(fabric_)).longest_leave = {};
        fi_close(&ep_->fid);
        fi_close(&av_->fid);
        fi_close(&cq_->fid);
        fi_close(&domain_->fid);
        fi_close(&fabric_->fid);
    }

    void act(fuzz::Reader& in) {
        const std::uint8_t what = in.byte();
        const std::uint8_t member = in.byte() % fuzz::kMembers;
        switch (what % 12) {
            case 0:
                receive(in, member, (what & 0x80) != 0);
                break;
            case 1:
                look(in, (what & 0x80) != 0);
                break;
            case 2:
                claim(in, (what & 0x80) != 0);
                break;
            case 3:
                reach(in, member, (what & 0x80) != 0);
                break;
            case 4:
                send_long(in, member);
                break;
            case 5:
                message(in, member, (what & 0x80) != 0);
                break;
            case 6:
                head(in, member);
                break;
            case 7:
                note(in, member);
                break;
            case 8:
                piece(in, member);
                break;
            case 9:
                arbitrary(in);
                break;
            case 10:
                several(in);
                break;
            default:
                if (!calls_.empty()) fi_cancel(&ep_->fid, &calls_[member % calls_.size()]);
        }
        make_progress();
        const Bytes& only_to_read = memories_[1].bytes;
        require(std::count(only_to_read.begin(), only_to_read.end(), kReadOnly) ==
                static_cast<std::ptrdiff_t>(only_to_read.size()));
    }

private:
    static constexpr std::size_t kKnown = fuzz::kMembers - 1;
    static constexpr std::uint8_t kReadOnly = 0xa1;
    static constexpr std::uint64_t kNotes = note_tag(0);

    static std::uint64_t tag_of(std::uint8_t byte) { return byte % 4U | std::uint64_t{byte / 4U % 2U} << 40; }

    Call& call(std::size_t size) { return calls_.emplace_back(size); }

    void receive(fuzz::Reader& in, std::uint8_t member, bool from_anybody) {
        const std::uint64_t tag = tag_of(in.byte());
        Call& one = call(in.number(2));
        (void)fi_trecv(ep_, one.bytes.data(), one.bytes.size(), nullptr,
                       from_anybody ? FI_ADDR_UNSPEC : member % kKnown, tag, 0, &one);
    }

    ssize_t ask(Call& one, std::uint64_t tag, std::uint64_t flags) {
        const iovec part = {one.bytes.data(), one.bytes.size()};
        const fi_msg_tagged message = {&part, nullptr, 1, FI_ADDR_UNSPEC, tag, 0, &one, 0};
        return fi_trecvmsg(ep_, &message, flags);
    }

    void look(fuzz::Reader& in, bool claims) {
        const std::uint64_t tag = tag_of(in.byte());
        Call& one = call(in.number(2));
        require(ask(one, tag, claims ? FI_PEEK | FI_CLAIM : FI_PEEK) == 0);
        if (claims) looked_.push_back(&one);
    }

    /// What was looked at before.
    void claim(fuzz::Reader& in, bool discards) {
        const std::uint64_t tag = tag_of(in.byte());
        const std::size_t size = in.number(2);
        if (looked_.empty()) return;
        Call& one = *looked_.front();
        looked_.pop_front();
        one.ended = false;
        one.bytes = Bytes(size);
        (void)ask(one, tag, discards ? FI_CLAIM | FI_DISCARD : FI_CLAIM);
    }

    void reach(fuzz::Reader& in, std::uint8_t member, bool writes) {
        const std::uint64_t where = in.byte();
        Call& one = call(in.number(3) % (std::size_t{1} << 20));
        if (writes)
            (void)fi_write(ep_, one.bytes.data(), one.bytes.size(), nullptr, member % kKnown, where, 1, &one);
        else
            (void)fi_read(ep_, one.bytes.data(), one.bytes.size(), nullptr, member % kKnown, where, 1, &one);
    }

    void send_long(fuzz::Reader& in, std::uint8_t member) {
        const std::uint64_t tag = tag_of(in.byte());
        Call& one = call(in.number(3) % (std::size_t{1} << 20));
        (void)fi_tsend(ep_, one.bytes.data(), one.bytes.size(), nullptr, member % kKnown, tag, &one);
    }

    void come(Wire wire) {
        wire.bytes.shrink_to_fit();
        provider_.endpoints.front()->arrive(std::move(wire));
    }

    void message(fuzz::Reader& in, std::uint8_t member, bool untagged) {
        const std::uint8_t slip = in.byte();
        const std::uint64_t tag = tag_of(in.byte());
        const std::uint8_t data = in.byte(), told = in.byte();
        const Bytes plain = in.bytes(in.byte());
        const Bytes bytes = members_.seal(member, untagged ? Kind::message : Kind::tagged, tag, slip, plain);
        come({bytes, untagged ? 0 : tag, data % 128U, data >= 128, !untagged, 0,
              told < 0x80 ? bytes.size() : std::size_t{1} << (told & 63)});
    }

    void head(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t slip = in.byte();
        const std::uint64_t tag = tag_of(in.byte());
        const std::uint8_t id = in.byte();
        const std::uint64_t size = in.number(3);
        const std::uint8_t other = in.byte();
        Bytes plain;
        for (const std::uint64_t number : {std::uint64_t{id}, size, std::uint64_t{other % 2U}})
            fuzz::append(plain, number);
        come({members_.seal(member, Kind::tagged, tag, slip, plain), tag, (size + other / 2U) << kLengthShift, true,
              true});
    }

    void note(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t slip = in.byte(), what = in.byte(), id = in.byte(), which = in.byte();
        const std::uint64_t where = in.number(2), size = in.number(3), count = in.number(2);
        Bytes plain;
        for (const std::uint64_t number :
             {std::uint64_t{what}, std::uint64_t{id}, std::uint64_t{which},
              where == 0xffff ? ~std::uint64_t{0} - 7 : where, size == 0xffffff ? ~std::uint64_t{0} - 7 : size})
            fuzz::append(plain, number);
        plain.resize(plain.size() + count % (kShort + 2), 0x77);
        const bool ends_a_write = what == 4 && slip == 0;
        come({members_.seal(member, Kind::active, kNotes, slip, plain), kNotes, 0, false, true});
        make_progress();
        if (ends_a_write) require(written_.erase({member, id}) == 1);
    }

    void piece(fuzz::Reader& in, std::uint8_t member) {
        const std::uint8_t slip = in.byte(), id = in.byte(), done = in.byte();
        const std::uint64_t tag = kNotes | id;
        Bytes plain;
        fuzz::append(plain, done);
        plain.resize(plain.size() + in.number(3) % (kLongestPiece + 2), 0x77);
        come({members_.seal(member, Kind::active, tag, slip, plain), tag, 0, false, true});
    }

    void arbitrary(fuzz::Reader& in) {
        const std::uint8_t tag = in.byte();
        Bytes bytes = in.bytes(in.byte());
        come({std::move(bytes), tag < 128 ? tag_of(tag) : kNotes | (tag & 127U), 0, false, (tag & 16) == 0});
    }

    void several(fuzz::Reader& in) {
        in.byte();
        Call& one = call(in.number(2));
        const iovec part = {one.bytes.data(), one.bytes.size()};
        const fi_msg message = {&part, nullptr, 1, FI_ADDR_UNSPEC, &one, 0};
        (void)fi_recvmsg(ep_, &message, one.bytes.size() % 2 != 0 ? FI_MULTI_RECV : 0);
    }

    /// What the program is told of has happened in the memory that it gave.
    void make_progress() {
        for (;;) {
            fi_cq_tagged_entry one = {};
            const ssize_t got = fi_cq_read(cq_, &one, 1);
            if (got == -FI_EAGAIN) break;
            if (got == -FI_EAVAIL) {
                fi_cq_err_entry error = {};
                if (fi_cq_readerr(cq_, &error, 0) == 1 && error.op_context != nullptr)
                    check(error.op_context, error.buf, error.len);
                continue;
            }
            require(got == 1);
            // A look tells a length that nobody has authenticated, and no bytes.
            if (one.op_context != nullptr && one.buf != nullptr) check(one.op_context, one.buf, one.len);
        }
        for (; !provider_.under_way.empty(); provider_.under_way.pop_front()) notice(provider_.under_way.front());
    }

    static void check(void* context, const void* at, std::size_t size) {
        const auto& call = *static_cast<const Call*>(context);
        const auto* const begin = call.bytes.data();
        const auto* const bytes = static_cast<const std::uint8_t*>(at);
        if (bytes == nullptr) return;
        require(bytes >= begin && bytes <= begin + call.bytes.size());
        require(size <= static_cast<std::size_t>(begin + call.bytes.size() - bytes));
    }

    /// Of which writes and long messages a member may tell the end.
    void notice(const Wire& wire) {
        const auto number = [&](std::size_t place) { return load_little(wire.bytes.data() + kPrefixSize + 8 * place); };
        const bool is_head = wire.has_data && wire.data >> kLengthShift != 0;
        if (wire.tag == kNotes && number(0) == 2) written_.emplace(wire.to, number(1));
        if (is_head) written_.emplace(wire.to, number(0));
    }

    Info given_;
    ToyProcess around_;
    FakeProvider provider_;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_ep* ep_ = nullptr;
    fid_cq* cq_ = nullptr;
    fid_av* av_ = nullptr;
    std::array<Memory, 3> memories_ = {Memory{std::size_t{300} << 10, 0, FI_REMOTE_READ | FI_REMOTE_WRITE},
                                       Memory{4096, kReadOnly, FI_REMOTE_READ}, Memory{4096, 0, FI_REMOTE_WRITE}};
    fuzz::Members members_;
    std::deque<Call> calls_;
    std::deque<Call*> looked_;
    std::set<std::pair<std::size_t, std::uint64_t>> written_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Reader in(data, size);
    Program program;
    try {
        while (!in.is_empty()) program.act(in);
    } catch (const Ended&) {
        // The job is over.
    }
    return 0;
}
