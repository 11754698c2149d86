// A sealed connection: the handshake, the two doors (receive, send), and its end.
//
//   handshaking.cpp   begin, drive: from a TCP connection to an open stream
//   receive.cpp       raw bytes -> records -> the caller's buffer; what is readable
//   send.cpp          the caller's buffer -> records -> the kernel; the authenticated close
//
// Functions return what the system call they stand for returns, with errno set.
#pragma once

#include <cerrno>
#include <mutex>
#include <span>

#include "channel/process.hpp"
#include "channel/table.hpp"

namespace cryptmpi::channel {

/// How far TCP is when a connection is taken up. `undecided`: on its way, and when it is there it may turn out not to
/// leave the node; then the entry becomes native after all.
enum class Tcp { on_its_way, undecided, connected, refused };

/// The kernel's verdict on a connect, without taking its error away from the caller.
Tcp tcp_of(int fd);

/// Makes the entry sealed. On an error the caller gets errno and a line was printed.
int begin(Process& process, Entry& entry, keys::Role role, const Address& peer, Tcp tcp);

/// Takes up a connection whose other half lives in the arena (after exec).
Result<void> resume(Process& process, Entry& entry, Shared& shared);

/// Makes this process's contexts for a connection whose keys another process of ours may have agreed; nothing while
/// there are none. Errors: of the key file and the modules.
Result<void> take_up(Process& process, Entry& entry, Shared& shared);

/// Moves the handshake as far as it goes without waiting. Returns the state.
State drive(Process& process, Entry& entry);

/// After drive() of a connection that was accepted: where too many peers have not spoken yet, the one that has had most
/// time for it is ended.
void limit_the_silent(Process& process, Entry& entry);

/// Waits until the connection is open, as the descriptor's blocking mode, `flags` and the time limit of
/// `timeout_option` (SO_RCVTIMEO, SO_SNDTIMEO) say. 0, or -1 with errno (EAGAIN, EINTR, the failure).
int await_open(Process& process, Entry& entry, int flags, int timeout_option);

/// Seals what was written early and gives it to the kernel; when the stream has just opened, with both locks held.
void send_early(Process& process, Entry& entry);
/// Sends what waits, without waiting itself. True when nothing does any more.
bool settle_debt(Process& process, Entry& entry);
/// The courier's work on one connection: the handshake, then what waits, without waiting itself. True when there is
/// nothing left to carry.
bool carried(Process& process, Entry& entry);

ssize_t receive(Process& process, Entry& entry, std::span<const iovec> to, int flags);
ssize_t transmit(Process& process, Entry& entry, std::span<const iovec> from, int flags);

/// After the kernel said readable: reads ahead, without waiting, and says whether a read would return at once.
bool verify_readable(Process& process, Entry& entry);
/// An error of the connection that reading ahead has met, for SO_ERROR; 0 if there is none. It is reported once.
int take_kernel_error(Entry& entry);
/// Plaintext bytes that a read would give at once, for FIONREAD.
int bytes_readable(Process& process, Entry& entry);

/// What a peer has said so far, for who listens to whether it is there at all.
struct Heard {
    enum class What {
        nobody,  // the connection is not open, or has ended
        unread,  // the program has yet to read some of it
        all,     // all that came was opened
    } what;
    std::uint32_t records;  // opened
};
Heard hear(Process& process, Entry& entry);
/// An empty record, where nothing waits to be sent: the peer hears that we are there.
void say_something(Process& process, Entry& entry);

/// A connection that the kernel could not write to any more, or whose peer's TCP has ended, is about to be closed: had
/// the peer ended it, or was it cut off? Reads and throws away what is left of it.
void check_loss(Process& process, Entry& entry);
/// Of a connection that the program will read no more: the same, where that may be.
void look_for_loss(Process& process, Entry& entry);

/// Seals the record that ends what we send: close, or reset. True when all is out, or nothing can be; false when the
/// kernel was still full after `patience_ms`.
bool close_sending(Process& process, Entry& entry, int patience_ms, seal::RecordType type = seal::RecordType::close);
/// Ends the connection with an error: the kernel's socket is shut down, every later call gets `code`.
void end_connection(Process& process, Entry& entry, int code, bool established);
/// The same after one line.
void break_connection(Process& process, Entry& entry, int code, const std::string& line, bool established);

/// The handshake was cut off before anything was written here. Only a program that uses the connection then has lost
/// something: see tell_of_cut.
void cut_off(Entry& entry, int code);
/// The program has been told of a failed connection: if the handshake was cut off, it is said and counted now.
void tell_of_cut(Process& process, Shared& shared);

/// The responder's last step: the first record proves that the initiator holds the keys. True when the state moved;
/// both locks are held.
bool confirm(Process& process, Entry& entry);

/// The last descriptor of this process is about to be closed. False: another thread stays in a call on it, and the
/// entry cannot be recycled.
[[nodiscard]] bool end(Process& process, Entry& entry);
/// The same, where the entry was taken out of the table under holders_lock(), which is given back.
[[nodiscard]] bool end(Process& process, Entry& entry, std::unique_lock<std::mutex> holders);

/// Another thread closed the descriptor while this call was on its way.
inline ssize_t closed_meanwhile() {
    errno = EBADF;
    return -1;
}

/// What a call returns whose connection did not open: -1 with its errno, but where the connection turned out to stay
/// inside the node, what the kernel's own call says.
template <class Call>
ssize_t without_us(Entry& entry, std::span<const iovec> pieces, int flags, Call& call) {
    if (entry.kind.load() != Kind::native) return -1;
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return call(entry.descriptor(), &message, flags);
}

}  // namespace cryptmpi::channel
