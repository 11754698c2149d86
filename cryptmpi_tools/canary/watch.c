/* A seccomp filter has the kernel hand each call that sends data to a thread of ours, which is not filtered itself,
 * before it is carried out (seccomp_unotify(2)). So it sees what CryptMPI's libraries give to the kernel, also where
 * they do not ask the C library, and needs no privileges. Of what goes to an address that is not this node's it counts
 * the bytes and looks for the canary.
 *
 * What leaves a node without such a call (RDMA) is not seen, plain or sealed. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static unsigned char canary[CANARY_SIZE];
static atomic_bool watching;
static atomic_ullong bytes, canaries;
static struct ifaddrs* own_addresses;
static atomic_int listener = -1;

/* Which addresses are of another node */

static int same_address(const struct sockaddr* a, const struct sockaddr* b) {
    if (a == NULL || a->sa_family != b->sa_family) return 0;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in*)a)->sin_addr.s_addr == ((const struct sockaddr_in*)b)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6*)a)->sin6_addr, &((const struct sockaddr_in6*)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static int is_of_another_node(const struct sockaddr* to) {
    if (to->sa_family != AF_INET && to->sa_family != AF_INET6) return 0;
    struct sockaddr_in inner = {.sin_family = AF_INET};
    const struct sockaddr_in6* wide = (const struct sockaddr_in6*)to;
    if (to->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&wide->sin6_addr)) {
        memcpy(&inner.sin_addr, &wide->sin6_addr.s6_addr[12], sizeof inner.sin_addr);
        to = (const struct sockaddr*)&inner;
    }
    if (to->sa_family == AF_INET && ntohl(((const struct sockaddr_in*)to)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
        return 0;
    for (const struct ifaddrs* own = own_addresses; own != NULL; own = own->ifa_next)
        if (same_address(own->ifa_addr, to)) return 0;
    return 1;
}

/* `to`: where the call itself says, else NULL. */
static int leaves_the_node(int socket, const struct sockaddr* to) {
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    if (to != NULL) return is_of_another_node(to);
    return getpeername(socket, (struct sockaddr*)&peer, &size) == 0 && is_of_another_node((struct sockaddr*)&peer);
}

/* What a call sends */

static void look(const void* at, size_t size) {
    const char* place = at;
    const char* end = place + size;
    atomic_fetch_add(&bytes, size);
    while ((place = memmem(place, (size_t)(end - place), canary, sizeof canary)) != NULL) {
        atomic_fetch_add(&canaries, 1);
        place += sizeof canary;
    }
}

static void look_at_all(int socket, const struct sockaddr* to, const struct iovec* pieces, size_t count) {
    if (!leaves_the_node(socket, to)) return;
    for (size_t i = 0; i < count; i++) look(pieces[i].iov_base, pieces[i].iov_len);
}

static void look_at_message(int socket, const struct msghdr* message) {
    look_at_all(socket, message->msg_name, message->msg_iov, message->msg_iovlen);
}

/* The caller waits in the kernel, so what its arguments point to stays. */
static void look_at_call(const struct seccomp_data* call) {
    const int fd = (int)call->args[0];
    const void* what = (const void*)call->args[1];
    const struct iovec piece = {(void*)what, call->args[2]};
    switch (call->nr) {
        case SYS_write:
            look_at_all(fd, NULL, &piece, 1);
            break;
        case SYS_sendto:
            look_at_all(fd, (const struct sockaddr*)call->args[4], &piece, 1);
            break;
        case SYS_writev:
        case SYS_pwritev2:
            look_at_all(fd, NULL, what, call->args[2]);
            break;
        case SYS_sendmsg:
            look_at_message(fd, what);
            break;
        case SYS_sendmmsg:
            for (size_t i = 0; i < call->args[2]; i++) look_at_message(fd, &((const struct mmsghdr*)what)[i].msg_hdr);
            break;
        default:
            break;
    }
}

/* The filter, and who answers it */

static void* answer(void* unused) {
    while (atomic_load(&listener) < 0) usleep(1000);
    for (;;) {
        struct seccomp_notif request = {0};
        if (ioctl(atomic_load(&listener), SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            return unused;
        }
        if (atomic_load(&watching)) look_at_call(&request.data);
        struct seccomp_notif_resp response = {.id = request.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(atomic_load(&listener), SECCOMP_IOCTL_NOTIF_SEND, &response);
    }
}

/* io_uring, by which data could be sent without a call, is not there for this program. */
static int install_filter(void) {
#define WATCH(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        WATCH(SYS_write),
        WATCH(SYS_writev),
        WATCH(SYS_pwritev2),
        WATCH(SYS_sendto),
        WATCH(SYS_sendmsg),
        WATCH(SYS_sendmmsg),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
#undef WATCH
    const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

const char* watch_start(void) {
    pthread_t thread;
    if (getifaddrs(&own_addresses) != 0) return "the node's addresses cannot be read";
    if (pthread_create(&thread, NULL, answer, NULL) != 0) return "no thread can be started";
    const int made = install_filter();
    if (made < 0) return "the kernel lets no filter be set that hands calls over (seccomp, Linux 5.5 and later)";
    atomic_store(&listener, made);
    return NULL;
}

void watch_for(const unsigned char wanted[CANARY_SIZE]) {
    memcpy(canary, wanted, sizeof canary);
    atomic_store(&watching, 1);
}

struct watched watched_so_far(void) {
    return (struct watched){atomic_load(&bytes), atomic_load(&canaries)};
}
