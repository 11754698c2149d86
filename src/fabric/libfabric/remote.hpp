// Reads and writes of a peer's memory, carried by messages of ours. The peer serves them as it makes progress; the
// network itself can reach no memory of the program.
//
// All of them are of the flow `fabric active`, and tagged messages to receives of ours: they take none of the program's
// buffers. (Intel MPI keeps pointers into its buffers for untagged messages, which would come round too soon.)
//   a note (Endpoint::note_tag): what, id, key, address, size (8 bytes each, little endian); with a short write its
//   bytes a piece (Endpoint::piece_tag of the id in the note that asked for it): 1 (8 bytes), and the bytes; or 0
//   alone: nobody may read that there
// A long write is fetched by the peer whose memory it is for, piece by piece, so that it never waits for bytes that it
// has no room for, and checks key, bounds and access before each piece gets into that memory.
// An endpoint that closes goes on serving its long messages until they were fetched. Now and then it asks who has not
// done so whether it still will: who closes, too, says that it will not, and who is gone takes no question.
#pragma once

#include <sys/uio.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/slice.hpp"

namespace cryptmpi::fabric {
class Peer;
}

namespace cryptmpi::fabric::libfabric {

struct Operation;

/// The tags of ours: no MPI has a communicator whose number has all bits set. A piece's id is in the rest.
inline constexpr std::uint64_t kIdBits = (std::uint64_t{1} << 24) - 1;
/// The tag of notes, where the provider has all bits of tags up to the highest in `format` (0: 64 of them).
inline constexpr std::uint64_t note_tag(std::uint64_t format) {
    const std::uint64_t all = format == 0 ? ~std::uint64_t{0} : ~std::uint64_t{0} >> std::countl_zero(format);
    return all & ~kIdBits;
}
inline constexpr std::size_t kNoteSize = 5 * sizeof(std::uint64_t);
inline constexpr std::size_t kPieceHeader = 8;
inline constexpr std::size_t kShort = 16 * 1024;  // the most bytes in a note
inline constexpr std::size_t kLongestPiece = 256 * 1024;

/// A tagged message of more bytes than this goes in pieces, which its receiver fetches, so that one travels while the
/// next is sealed and the one before is opened. What comes to the program's receive is its head:
///   number that fetches it | size | 1: the program sent immediate data (8 bytes each, little endian)
inline constexpr std::size_t kLongestAtOnce = 128 * 1024;
inline constexpr std::size_t kHeadSize = 3 * sizeof(std::uint64_t);
inline constexpr unsigned kLengthShift = 32;  // in the immediate data beside a head, for who probes
inline constexpr std::uint64_t kDataBits = (std::uint64_t{1} << kLengthShift) - 1;  // which are the program's

/// What a program wants to read or write.
struct Wish {
    std::uint64_t peer;  // its address
    std::span<const iovec> parts;
    std::uint64_t key;
    std::uint64_t address;
    void* context;
    bool wanted;  // the program gets its completion
};

/// What Remote needs of the endpoint that its messages go by.
class RemoteEndpoint {
public:
    /// Null: nobody of that address was inserted.
    virtual Peer* peer_of(std::uint64_t address) const = 0;
    virtual std::uint64_t address_of(const Peer* peer) const = 0;
    virtual std::size_t message_size() const = 0;
    /// Of memory, that may be under way at a time.
    virtual std::size_t most_pieces() const = 0;
    virtual std::uint64_t note_tag() const = 0;
    virtual std::uint64_t piece_tag(std::uint64_t id) const = 0;
    /// Where this begins in a region of the program's that is open to peers for `access`; none: there is none.
    virtual std::optional<std::uint8_t*> memory_of(std::uint64_t key, std::uint64_t address, std::size_t size,
                                                   std::uint64_t access) const = 0;
    /// A message of ours, which has this number.
    virtual std::int64_t send(std::uint64_t peer, std::uint64_t tag, std::uint64_t number,
                              std::span<const iovec> parts) = 0;
    /// Does something wait for the provider to take it for this peer?
    virtual bool owes_to(const Peer* peer) const = 0;
    /// A receive for the piece that the note `id` asks for.
    virtual std::int64_t expect_piece(std::uint64_t transfer, std::size_t at, std::size_t size, std::uint64_t id) = 0;
    /// A read (FI_READ), a write (FI_WRITE) or a long send (FI_SEND) of the program's has ended.
    virtual void tell(std::uint64_t what, void* context, bool wanted) = 0;
    /// All of the message that this receive got has come.
    virtual void end_fetching(Operation& receive) = 0;
    /// Ends the job: what came was altered, or nothing can be sealed.
    [[noreturn]] virtual void end(const std::string& what) const = 0;
    /// Ends the job where MPI cannot go on.
    [[noreturn]] virtual void give_up(const std::string& why) const = 0;

protected:
    ~RemoteEndpoint() = default;
};

class Remote {
public:
    explicit Remote(RemoteEndpoint& endpoint) : endpoint_(endpoint) {}

    // All under the domain's lock.
    std::int64_t read(const Wish& wish);
    /// Ends when the peer has said that all of it is in its memory.
    std::int64_t write(const Wish& wish);
    /// A long message of the program's, which its receiver fetches; gives the number that it fetches it by. Ends when
    /// the peer has all of it, or wants no more.
    std::uint64_t offer(const Wish& message);
    void withdraw(std::uint64_t id) { writes_.erase(id); }
    /// A peer's long message, for a receive of the program's.
    void fetch(std::uint64_t peer, std::uint64_t id, std::size_t size, std::vector<iovec> into, Operation& receive);
    /// The peer's long message is not wanted.
    void drop(std::uint64_t peer, std::uint64_t id);
    /// A note of `peer`'s that has opened.
    void take_note(const Peer* peer, std::span<const std::uint8_t> note);

    /// Whose a piece must be that comes for a transfer, and where its bytes go: those of a peer's write into `scratch`,
    /// since nothing may get into a region before all of its piece is authentic.
    std::uint64_t sender_of(std::uint64_t transfer) const { return transfers_.at(transfer).peer; }
    std::vector<iovec> room_for(std::uint64_t transfer, std::size_t at, std::size_t size, std::uint8_t* scratch) const;
    /// It has opened.
    void take_piece(std::uint64_t transfer, std::size_t at, std::span<const std::uint8_t> scratch);

    /// From now on the program receives nothing, and a peer that is gone is nobody's concern.
    void leave() { is_leaving_ = true; }
    bool is_leaving() const { return is_leaving_; }
    /// Is there a long message that its receiver may still fetch?
    bool has_messages() const;
    /// Asks the receivers of these whether they will. Who has not taken some questions in a row is lost.
    void ask_who_fetches();
    /// This peer fetches nothing any more.
    void lose(const Peer* peer);

    /// The provider has sent the message of ours to this peer that has this number.
    void sent(const Peer* peer, std::uint64_t number);
    bool has_to_say() const { return waiting_ != 0; }
    /// Has something not ended that the program or a peer began?
    bool has_begun() const { return !writes_.empty() || !transfers_.empty(); }
    /// Says as much as the provider takes now.
    void go_on();

private:
    enum class What : std::uint64_t { read = 1, write = 2, fetch = 3, done = 4, leaves = 5, wants_none = 6 };
    struct Note {
        std::uint64_t peer;  // its address: who says it, or is told
        What what;
        std::uint64_t id;  // of the piece that is asked for, or of the write
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t size;
        std::vector<std::uint8_t> bytes = {};
    };
    /// A write of the program's that has not ended.
    struct Write {
        std::uint64_t peer;
        std::vector<iovec> parts;  // of a long one
        void* context;
        bool wanted;
        bool is_message = false;
        bool is_lost = false;  // its receiver fetches nothing any more
    };
    /// What there is with one peer. One that makes no progress holds up what is its own, and no other's.
    struct Side {
        std::deque<Note> notes;             // to be said
        std::deque<Note> questions;         // of the peer, to be answered
        std::deque<std::uint64_t> asking;   // transfers of which not all pieces are asked for
        std::size_t transfers = 0;          // that have not ended
        std::size_t pieces = 0;             // asked for, and not there
        std::uint64_t last_number = 0;      // of the messages of ours
        std::set<std::uint64_t> under_way;  // those that the provider has
        int not_taken = 0;                  // questions in a row, of an endpoint that closes
        bool is_busy = false;               // it is in busy_, as long as it has work

        bool has_work() const { return !notes.empty() || !questions.empty() || !asking.empty(); }
    };

    /// What comes in pieces: a read of the program's, or a peer's long write.
    struct Transfer {
        std::uint64_t peer;     // its address
        What what;              // of the notes that ask for it
        std::uint64_t key;      // of the peer's memory, or its write
        std::uint64_t address;  // in that
        std::size_t size;
        Side* side = nullptr;
        std::size_t asked = 0;
        std::size_t come = 0;
        // of a read
        std::vector<iovec> into = {};
        void* context = nullptr;
        bool wanted = false;
        // of a long message: it goes `into`, too
        Operation* receive = nullptr;
        // of a write: where it goes
        std::uint64_t own_key = 0;
        std::uint64_t own_address = 0;
        bool is_open = true;
    };

    std::size_t next_piece(const Transfer& transfer, bool is_short) const;
    /// Of whom has this address.
    Side& side_of(std::uint64_t peer);
    /// It has work.
    void touch(Side& side);
    void will_say(Note note);
    void take_question(Note question);
    void begin(Transfer transfer);
    void end(std::uint64_t transfer);
    void take_write(const Note& note);
    bool is_for(const Write& write, const Note& note) const;
    void take_done(const Note& note);
    void take_end_of_receives(const Peer* peer);
    bool put(std::uint64_t key, std::uint64_t address, std::span<const std::uint8_t> bytes);
    std::uint64_t next_id();
    bool may_say(const Side& side) const;
    std::int64_t send(Side& side, std::uint64_t peer, std::uint64_t tag, std::span<const iovec> parts);
    std::int64_t say(Side& side, const Note& note);
    std::int64_t answer(Side& side, const Note& question);
    void ask_for_pieces(Side& side);
    /// False: the provider takes nothing more of this peer now.
    template <class Say>
    bool go_on(Side& side, std::deque<Note>& notes, Say say);
    void go_on(Side& side);

    RemoteEndpoint& endpoint_;
    std::uint64_t last_id_ = 0;
    bool is_leaving_ = false;
    std::unordered_map<const Peer*, Side> sides_;
    std::deque<Side*> busy_;  // of which there is something to do
    std::unordered_map<std::uint64_t, Write> writes_;
    std::unordered_map<std::uint64_t, Transfer> transfers_;
    // Of all sides together.
    std::size_t waiting_ = 0;  // notes and questions
    std::size_t pieces_ = 0;
    std::size_t under_way_ = 0;
};

}  // namespace cryptmpi::fabric::libfabric
