// Whether a connection stays inside this node. What is inside may be native, so nothing that can be written on the wire
// decides it, least of all the peer's address alone:
//
//   - both ends have addresses of this node; a link-local one only
//     on its own interface, since every network has its own fe80::/10,
//     and its neighbours choose their addresses there;
//   - and the kernel itself says that it holds both ends: a socket whose local and remote address and port are ours
//     swapped lives in the network namespace of our own. Nobody on the wire can make one. Spoofed own addresses, own
//     addresses of other interfaces and namespaces, policy routing, address translation and load balancing by an own
//     address have none;
//   - and where it was accepted, the other end belongs to this user, or to root: other users of the node may connect to
//     whatever port listens, as strangers on the network may. Whose a socket was that has been closed already, only
//     newer kernels say (6.18), and for as long as they keep it whole: we ask them to (keep_owner_known).
//
// Both ends ask for the same two sockets, so they come to the same answer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "channel/address.hpp"

namespace cryptmpi::channel {

/// An address of this node, and the interface that has it.
struct Interface {
    unsigned index = 0;
    Address address;
};

/// This node's addresses as the kernel lists them; empty when it does not.
std::vector<Interface> interfaces();

/// Whether the address is one of this node's: loopback, or of an interface; a link-local one must be of the interface
/// that is its scope. Multicast and unspecified addresses are nobody's.
bool owned(const Address& address, std::span<const Interface> all);

/// The same for an address that is about to be connected to: the kernel takes "unspecified" as this node, and may know
/// the scope better than the caller. Says what is worth asking about, and decides nothing.
bool may_be_owned(const Address& address, std::span<const Interface> all);

/// What the kernel knows about a socket, as far as it matters here.
struct Found {
    std::uint64_t inode = 0;
    int state = 0;  // TCP_ESTABLISHED, ...
    std::uint32_t user = 0;
    bool user_known = true;  // false: no process has it any more, and the kernel does not say whose it was
};

enum class Asked { found, none, unanswered };

/// Asks for the socket with this local and remote address. An interface to make one, so that tests can play the kernel.
class Kernel {
public:
    virtual ~Kernel() = default;
    virtual Asked socket_between(const Address& local, const Address& remote, unsigned interface, Found& found) = 0;
    virtual std::vector<Interface> interfaces() = 0;
    /// Whether some interface takes packets from and for 127/8 (net.ipv4.conf.*.route_localnet), or it cannot be told.
    virtual bool routes_loopback() = 0;
};

/// One end of a connection.
struct End {
    Address local;
    Address remote;
    std::uint64_t inode = 0;    // of the socket
    bool peer_is_gone = false;  // it has closed or reset its end, so that its socket may be gone too
    bool bound = false;         // to an interface
    bool accepted = false;      // who has connected may be anybody
    std::uint32_t user = 0;     // whose it is
    bool reset = false;         // the peer has reset it, so that nobody can be asked about either end
};

/// `unknown`: it was made inside the node, but perhaps by another user, who has closed it before it was accepted.
enum class Place { outside, inside, unknown };

/// The decision.
Place place_of(Kernel& kernel, const End& end);

/// The decision for a socket whose connection is there; `peer` as accept() or getpeername() told it.
Place place_of(int fd, const Address& peer, bool accepted);

/// For a socket that has connected to a neighbour: after it is closed the kernel keeps it whole for a minute, and so
/// its owner's name, should the neighbour accept it only then.
void keep_owner_known(int fd);

/// Keeps a datagram to this address inside the node. Datagrams have no other end to ask for, and an own address says
/// little: address translation, routing headers, and options of the socket lead elsewhere what is for it. So the socket
/// is bound to the loopback interface first, by which the kernel sends what is for IPv4's own addresses, and which it
/// keeps to whatever else it is told. Without `binds`, where a socket has to reach others, too, the address decides.
/// False: it may leave; `why` says so where the address alone does not.
bool keep_inside_datagram(int fd, const Address& to, bool binds, std::string& why);

}  // namespace cryptmpi::channel
