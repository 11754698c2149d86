// Children that use their parent's memory until they exec or end, as vfork makes them, while the thread that made them
// waits. The table says what the parent's descriptors are; theirs may be others by now. So they move no bytes on
// internet sockets, and change nothing of ours.
#pragma once

namespace cryptmpi::channel {

/// Set before the kernel makes such a child, and taken back by its parent: the child runs with the thread-local
/// variables of the thread that made it. That it is the child says borrows().
[[gnu::tls_model("initial-exec")]] extern constinit thread_local bool may_borrow;

bool borrows();

/// Are we in such a child? HOT PATH: no call outside of them.
inline bool is_borrower() {
    return may_borrow && borrows();
}

/// Around the call of the kernel; the second one in the parent only, with what the first one returned. What was refused
/// to the child; null: nothing.
long begin_borrowing();
const char* end_borrowing(long before);

/// -1 with errno; the parent prints the line.
int refuse_borrower(const char* call);
/// The same of a call on a descriptor, where it is an internet socket's.
bool refuses_borrower(int fd, const char* call);

/// A descriptor that such a child has got. libc's streams over the number, which are the parent's, too, get errors as
/// long as it is an internet socket's: they would write to it past us. Returns it, or -1 with errno: it is closed.
int got_by_borrower(int fd);

}  // namespace cryptmpi::channel
