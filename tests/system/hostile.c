/* Between CryptMPI and MPI: changes what rank 0 sends, as HOSTILE says. The second message to rank 1 with tag 77 is the
 * victim. What it is replaced by differs from it in one thing: each was the second of its own sender, receiver,
 * communicator and tag, too. Of the large messages, with tag 79, the victims are the announcement of the second, and
 * the third of its segments, which are what rank 0 sends by MPI_Isend or MPI_Issend on no communicator of the
 * program's; how many a message has is in HOSTILE_SEGMENTS. What is left of a message before a wait has an odd tag: the
 * second's is the victim. "flip for another node" changes what rank 0 sends to the other one in every other collective
 * operation: blocks of whole thousands of bytes, or the second piece. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { VICTIM_TAG = 77, LARGE_TAG = 79, LARGE_MESSAGES = 3, MOST = 1 << 22, MOST_SEGMENTS = 16, SEALED = 24 };
/* Of collective operations under Open MPI: bytes of a piece, and how many there are in a broadcast of 1,000,000 bytes,
 * and whole ones in an Allreduce of 400,000, half of which is exchanged twice. */
enum { PIECE = 61440, OF_BROADCAST = 17, OF_ALLREDUCE = 6 };

typedef int send_function(const void*, int, MPI_Datatype, int, int, MPI_Comm);
typedef int isend_function(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
typedef int receive_function(void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status*);
typedef int bcast_function(void*, int, MPI_Datatype, int, MPI_Comm);
typedef int ibcast_function(void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*);
typedef int alltoall_function(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm);
typedef int allgatherv_function(const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype, MPI_Comm);
typedef int gather_function(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm);
typedef int rank_function(MPI_Comm, int*);

static send_function* real_send;
static isend_function *real_isend, *real_issend;
static receive_function* real_receive;
static bcast_function* real_bcast;
static ibcast_function* real_ibcast;
static alltoall_function *real_alltoall, *real_allgather;
static allgatherv_function* real_allgatherv;
static gather_function* real_gather;
static rank_function* real_rank;

/* A record as it travelled. */
struct record {
    unsigned char bytes[MOST];
    int size;
};
/* Large messages that rank 0 has announced to rank 1: those of attacked.c, in their order. */
static int announced;
static struct record first, second, own, other_tag, other_comm, other_peer, other_bcast;

static void keep(struct record* record, const void* bytes, int size) {
    record->size = size;
    memcpy(record->bytes, bytes, (size_t)size);
}

static int is(const char* attack) {
    const char* wanted = getenv("HOSTILE");
    return wanted != NULL && strcmp(wanted, attack) == 0;
}

/* Of the sealed blocks in `every` of them, the first. */
static void flip_for_another_node(const void* at, int size, int* seen, int every) {
    int rank;
    real_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0 || size % 1000 != SEALED || !is("flip for another node")) return;
    if ((*seen)++ % every == 0) ((unsigned char*)at)[20] ^= 1;
}

static int hostile_alltoall(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
                            MPI_Datatype in_type, MPI_Comm comm) {
    static int seen;
    flip_for_another_node((const unsigned char*)out + 2 * (size_t)out_count, out_count, &seen, 2);
    return real_alltoall(out, out_count, out_type, in, in_count, in_type, comm);
}

static int hostile_allgather(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
                             MPI_Datatype in_type, MPI_Comm comm) {
    static int seen;
    flip_for_another_node(in, in_count, &seen, 2);
    return real_allgather(out, out_count, out_type, in, in_count, in_type, comm);
}

static int hostile_allgatherv(const void* out, int out_count, MPI_Datatype out_type, void* in, const int* counts,
                              const int* places, MPI_Datatype in_type, MPI_Comm comm) {
    static int seen;
    flip_for_another_node((unsigned char*)in + places[0], counts[0], &seen, 2);
    return real_allgatherv(out, out_count, out_type, in, counts, places, in_type, comm);
}

static int send_record(const struct record* record, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return real_send(record->bytes, record->size, type, to, tag, comm);
}

static int hostile_send(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    static int seen;
    int rank;
    real_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0) return real_send(at, count, type, to, tag, comm);
    if (tag != VICTIM_TAG || to != 1 || comm != MPI_COMM_WORLD) {
        keep(comm != MPI_COMM_WORLD ? &other_comm : to != 1 ? &other_peer : &other_tag, at, count);
        return real_send(at, count, type, to, tag, comm);
    }
    ++seen;
    if (seen == 1) keep(&first, at, count);
    if (seen == 3 && is("swap")) {
        real_send(at, count, type, to, tag, comm);
        return send_record(&second, type, to, tag, comm);
    }
    if (seen != 2) return real_send(at, count, type, to, tag, comm);

    struct record* victim = &second;
    keep(victim, at, count);
    if (is("drop") || is("swap")) return MPI_SUCCESS;
    if (is("flip header")) victim->bytes[0] ^= 1;
    if (is("flip form")) victim->bytes[7] ^= 0x80;
    if (is("flip body")) victim->bytes[8] ^= 1;
    if (is("flip tag")) victim->bytes[count - 1] ^= 0x80;
    if (is("truncate")) victim->size -= 1;
    if (is("empty")) victim->size = 0;
    if (is("header only")) victim->size = 8;
    if (is("extend")) victim->bytes[victim->size++] = 0;
    /* Further than there is room for: MPI cuts it off. */
    if (is("extend far")) victim->size += 2000;
    if (is("zero")) memset(victim->bytes, 0, (size_t)count);
    if (is("replay")) victim = &first;
    if (is("reflect")) victim = &own;
    if (is("other tag")) victim = &other_tag;
    if (is("other communicator")) victim = &other_comm;
    if (is("other receiver")) victim = &other_peer;
    if (is("collective")) victim = &other_bcast;
    return send_record(victim, type, to, tag, comm);
}

static int hostile_receive(void* at, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                           MPI_Status* status) {
    MPI_Status local;
    MPI_Status* here = status == MPI_STATUS_IGNORE ? &local : status;
    int code = real_receive(at, count, type, from, tag, comm, here);
    if (code == MPI_SUCCESS) keep(&own, at, count);
    return code;
}

static int hostile_bcast(void* at, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    static int seen, whole;
    int rank;
    real_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && root == 0) {
        ++seen;
        if (seen == 1) keep(&other_bcast, at, count);
        if (seen == 2 && is("replay of a collective")) memcpy(at, other_bcast.bytes, (size_t)count);
        if (seen == 2 && is("flip in a collective")) ((unsigned char*)at)[12] ^= 4;
        flip_for_another_node(at, count, &whole, 2);
        if (seen == 2 && is("message in a collective") && other_tag.size == count) {
            memcpy(at, other_tag.bytes, (size_t)count);
        }
    }
    return real_bcast(at, count, type, root, comm);
}

/* Only pieces are broadcast by it. */
static int hostile_ibcast(void* at, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    static int pieces;
    int rank;
    real_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && is("flip for another node") && pieces++ % (2 * OF_BROADCAST) == 1) ((unsigned char*)at)[20] ^= 1;
    return real_ibcast(at, count, type, root, comm, request);
}

static int hostile_gather(const void* at, int count, MPI_Datatype type, void* in, int in_count, MPI_Datatype in_type,
                          int root, MPI_Comm comm) {
    static int seen;
    int rank;
    real_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && root == 1 && ++seen == 2 && is("flip in a gathered block")) ((unsigned char*)at)[1000] ^= 1;
    return real_gather(at, count, type, in, in_count, in_type, root, comm);
}

/* Not sent at all. */
static int drop(int tag, MPI_Comm comm, MPI_Request* request) {
    return real_isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, tag, comm, request);
}

static int hostile_announcement(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                                MPI_Request* request) {
    static struct record announcements[2];
    if (++announced > 2) return real_isend(at, count, type, to, tag, comm, request);
    struct record* one = &announcements[announced - 1];
    keep(one, at, count);
    if (announced == 2 && is("announcement dropped")) return drop(tag, comm, request);
    if (announced == 2 && is("announcement replayed")) one = &announcements[0];
    if (announced == 2 && is("flip in an announcement")) one->bytes[9] ^= 1;
    return real_isend(one->bytes, count, type, to, tag, comm, request);
}

static int hostile_segment(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                           MPI_Request* request) {
    static struct record segments[2][MOST_SEGMENTS];
    static int seen, message;
    if (message != announced) seen = 0;
    message = announced;
    if (message > 2 || seen == MOST_SEGMENTS) return real_isend(at, count, type, to, tag, comm, request);
    const int victim = message == 2 && seen == 2;
    struct record* one = &segments[message - 1][seen++];
    keep(one, at, count);
    if (victim && is("segment dropped")) return drop(tag, comm, request);
    if (victim && is("flip in a segment")) one->bytes[100] ^= 1;
    if (victim && is("segment cut")) one->size -= 1;
    if (victim && is("segment of another message")) one = &segments[0][2];
    if (victim && is("segment repeated")) one = &segments[1][1];
    return real_isend(one->bytes, one->size, type, to, tag, comm, request);
}

static int hostile_rest(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                        MPI_Request* request) {
    static struct record first_rest, second_rest;
    /* Those before are sent by calls that wait, and have a rest on a busy machine only. */
    if (announced <= LARGE_MESSAGES) return real_isend(at, count, type, to, tag, comm, request);
    const int victim = announced == LARGE_MESSAGES + 2;
    struct record* one = victim ? &second_rest : &first_rest;
    keep(one, at, count);
    if (victim && is("flip in a rest")) one->bytes[one->size / 2] ^= 1;
    if (victim && is("rest cut")) one->size -= 1;
    if (victim && is("rest of another message")) one = &first_rest;
    return real_isend(one->bytes, one->size, type, to, tag, comm, request);
}

static int hostile_isend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
    static int exchanged, pieces;
    int rank;
    real_rank(MPI_COMM_WORLD, &rank);
    if (to == 2) flip_for_another_node(at, count, &exchanged, 2);
    if (rank == 0 && to == 2 && count == PIECE + SEALED && is("flip for another node")) {
        if (pieces++ % (2 * OF_ALLREDUCE) == 1) ((unsigned char*)at)[20] ^= 1;
    }
    if (rank != 0 || to != 1) return real_isend(at, count, type, to, tag, comm, request);
    if (comm != MPI_COMM_WORLD) {
        return tag % 2 != 0 ? hostile_rest(at, count, type, to, tag, comm, request)
                            : hostile_segment(at, count, type, to, tag, comm, request);
    }
    return tag == LARGE_TAG ? hostile_announcement(at, count, type, to, tag, comm, request)
                            : real_isend(at, count, type, to, tag, comm, request);
}

static int hostile_issend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                          MPI_Request* request) {
    isend_function* const isend = real_isend;
    real_isend = real_issend;
    const int code = hostile_isend(at, count, type, to, tag, comm, request);
    real_isend = isend;
    return code;
}

void* cryptmpi_below(const char* name, void* (*lookup)(const char*)) {
    if (strcmp(name, "PMPI_Comm_rank") == 0) real_rank = (rank_function*)lookup(name);
    if (strcmp(name, "PMPI_Send") == 0) {
        real_send = (send_function*)lookup(name);
        real_rank = (rank_function*)lookup("PMPI_Comm_rank");
        return (void*)hostile_send;
    }
    if (strcmp(name, "PMPI_Isend") == 0) {
        real_isend = (isend_function*)lookup(name);
        return (void*)hostile_isend;
    }
    if (strcmp(name, "PMPI_Issend") == 0) {
        real_issend = (isend_function*)lookup(name);
        return (void*)hostile_issend;
    }
    if (strcmp(name, "PMPI_Recv") == 0) {
        real_receive = (receive_function*)lookup(name);
        return (void*)hostile_receive;
    }
    if (strcmp(name, "PMPI_Bcast") == 0) {
        real_bcast = (bcast_function*)lookup(name);
        return (void*)hostile_bcast;
    }
    if (strcmp(name, "PMPI_Alltoall") == 0) {
        real_alltoall = (alltoall_function*)lookup(name);
        return (void*)hostile_alltoall;
    }
    if (strcmp(name, "PMPI_Allgather") == 0) {
        real_allgather = (alltoall_function*)lookup(name);
        return (void*)hostile_allgather;
    }
    if (strcmp(name, "PMPI_Allgatherv") == 0) {
        real_allgatherv = (allgatherv_function*)lookup(name);
        return (void*)hostile_allgatherv;
    }
    if (strcmp(name, "PMPI_Ibcast") == 0) {
        real_ibcast = (ibcast_function*)lookup(name);
        return (void*)hostile_ibcast;
    }
    if (strcmp(name, "PMPI_Gather") == 0) {
        real_gather = (gather_function*)lookup(name);
        return (void*)hostile_gather;
    }
    return NULL;
}
