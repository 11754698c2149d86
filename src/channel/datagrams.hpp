// Datagrams that come in. They are not sealed, so none may come from elsewhere: the kernel itself drops what was not
// sent on this node, by a filter on each socket that the program can neither take off nor replace.
//
// The filter asks one thing: did the packet come by the loopback interface? What is sent to any address of this node
// does, and nothing that was on a wire, whatever addresses it bears. Senders that plaintext_peers allows come in, too.
#pragma once

#include <linux/filter.h>
#include <sys/socket.h>

#include <span>
#include <vector>

#include "config/settings.hpp"

namespace cryptmpi::channel {

std::vector<sock_filter> datagram_filter(std::span<const config::PlaintextPeer> allowed);

/// Puts the filter on the socket for good. What a socket without it had received before is thrown away. False, with
/// errno: there may be datagrams of strangers in it, now or later.
bool keep_strangers_out(int fd, std::span<const config::PlaintextPeer> allowed);

/// An option by which a datagram socket gets what strangers say in ICMP messages, around the filter.
bool lets_errors_in(int level, int option);

/// An option by which a socket's datagrams go another way than their address says.
bool gives_a_route(int level, int option);

/// The same of a message: it names a route, or the interface that it is to leave by, whatever its socket is bound to.
bool names_a_way(const msghdr& message);

}  // namespace cryptmpi::channel
