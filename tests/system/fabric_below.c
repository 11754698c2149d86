/* Stands between the door of libfabric and libfabric, where an attacker on the wire stands, and tampers with the
   messages of rank 0 that have 4,096 bytes or more of the program's: BELOW=flip, replay, drop, swap, move (to another
   tag), none (counts only). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 4096, LARGEST = 8192, FIRST = 0, SECOND = 1, THIRD = 2 };

static ssize_t (*real_sendmsg)(struct fid_ep*, const struct fi_msg_tagged*, uint64_t);
static int (*real_endpoint)(struct fid_domain*, struct fi_info*, struct fid_ep**, void*);
static int (*real_domain)(struct fid_fabric*, struct fi_info*, struct fid_domain**, void*);
static int seen;
static struct {
    char bytes[LARGEST];
    struct iovec part;
    struct fi_msg_tagged message;
    uint64_t flags;
} kept[3];

static int is(const char* what) {
    const char* asked = getenv("BELOW");
    return asked != NULL && strcmp(asked, what) == 0;
}

static ssize_t send_kept(struct fid_ep* ep, int which) {
    return real_sendmsg(ep, &kept[which].message, kept[which].flags);
}

static ssize_t tampering(struct fid_ep* ep, const struct fi_msg_tagged* message, uint64_t flags) {
    const size_t size = message->msg_iov[0].iov_len;
    if (size < SMALLEST || size > LARGEST || seen > THIRD) return real_sendmsg(ep, message, flags);
    const int number = seen;
    memcpy(kept[number].bytes, message->msg_iov[0].iov_base, size);
    kept[number].part = (struct iovec){kept[number].bytes, size};
    kept[number].message = *message;
    kept[number].message.msg_iov = &kept[number].part;
    kept[number].message.desc = NULL;
    kept[number].flags = flags;
    if (number == SECOND && is("flip")) kept[number].bytes[1000] ^= 1;
    if (number == SECOND && is("move")) kept[number].message.tag ^= 1;
    if (number == SECOND && is("replay")) memcpy(kept[number].bytes, kept[FIRST].bytes, size);
    if (number == SECOND && (is("drop") || is("swap"))) {
        ++seen;
        return 0;
    }
    const ssize_t code = send_kept(ep, number);
    if (code != 0) return code;
    ++seen;
    if (number == THIRD && is("swap")) {
        ssize_t again;
        while ((again = send_kept(ep, SECOND)) == -FI_EAGAIN) {
        }
        if (again != 0) abort();
    }
    if (number == THIRD) fprintf(stderr, "below: three messages went by\n");
    return 0;
}

static int endpoint(struct fid_domain* domain, struct fi_info* info, struct fid_ep** ep, void* context) {
    static struct fi_ops_tagged ops;
    const int code = real_endpoint(domain, info, ep, context);
    if (code != 0) return code;
    memcpy(&ops, (*ep)->tagged, sizeof ops);
    real_sendmsg = ops.sendmsg;
    ops.sendmsg = tampering;
    (*ep)->tagged = &ops;
    return 0;
}

static int domain(struct fid_fabric* fabric, struct fi_info* info, struct fid_domain** made, void* context) {
    static struct fi_ops_domain ops;
    const int code = real_domain(fabric, info, made, context);
    if (code != 0) return code;
    memcpy(&ops, (*made)->ops, sizeof ops);
    real_endpoint = ops.endpoint;
    ops.endpoint = endpoint;
    (*made)->ops = &ops;
    return 0;
}

int fi_fabric(struct fi_fabric_attr* attr, struct fid_fabric** fabric, void* context) {
    static struct fi_ops_fabric ops;
    int (*make)(struct fi_fabric_attr*, struct fid_fabric**, void*) = dlvsym(RTLD_NEXT, "fi_fabric", "FABRIC_1.1");
    static int depth; /* a utility provider opens the one beneath it */
    ++depth;
    const int code = make(attr, fabric, context);
    --depth;
    const char* rank = getenv("PMI_RANK");
    if (depth != 0) return code;
    if (code != 0 || rank == NULL || strcmp(rank, "0") != 0) return code;
    memcpy(&ops, (*fabric)->ops, sizeof ops);
    real_domain = ops.domain;
    ops.domain = domain;
    (*fabric)->ops = &ops;
    return 0;
}
