/* Leaves a marker everywhere in its memory while it makes every kind of sealed call: what of MPI's own packets was
 * never written shows it on the wire.
 *
 *     leaks FILE [abort | hole]    FILE holds the markers: four bytes for each place
 *
 * Memory is full of a place's marker, over and over: four bytes in a row are enough to know it again. `abort` ends the
 * job by MPI_Abort. `hole` leaks: a structure with a gap goes out by MPI_Ibcast, which has to be allowed. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum Place { HEAP, STACK, THREAD, SENT, PACKED, INSIDE, PLACES };
enum { MARKER = 4, LARGEST = 8 << 20 };

static unsigned char markers[PLACES][MARKER];
static int rank, ranks, partner;

static void fail(const char* what) {
    fprintf(stderr, "leaks: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The compiler must not know that nobody reads what is filled. */
static void fill(void* at, size_t size, enum Place place) {
    unsigned char* bytes = at;
    for (size_t i = 0; i < size && i < MARKER; i++) bytes[i] = markers[place][i];
    for (size_t done = MARKER; done < size; done *= 2)
        memcpy(bytes + done, bytes, size - done < done ? size - done : done);
    __asm__ volatile("" : : "r"(at) : "memory");
}

static void* filled(size_t size, enum Place place) {
    void* at = malloc(size ? size : 1);
    if (at == NULL) exit(1);
    fill(at, size, place);
    return at;
}

static void expect_filled(const unsigned char* bytes, size_t size, enum Place place, const char* what) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != markers[place][i % MARKER]) fail(what);
}

/* Given back in another order than they were taken, so that some are joined with their neighbours and some are not. */
static void mark_chunks(size_t size, int many) {
    void* chunks[256];
    for (int i = 0; i < many; i++) chunks[i] = filled(size, HEAP);
    for (int i = 0; i < many; i += 2) free(chunks[i]);
    for (int i = 1; i < many; i += 2) free(chunks[i]);
}

/* Every size that the C library keeps apart; with many of each, also what MPI gave back before. */
static void mark_small(int many) {
    for (size_t size = 24; size <= 1048; size += 16) mark_chunks(size, many);
}

static void mark_heap(void) {
    mark_small(256);
    for (size_t size = 1100; size <= (4 << 20); size += size / 4) mark_chunks(size, size <= 65536 ? 8 : 2);
    mark_small(256);
}

static __attribute__((noinline)) int mark_stack(int depth, enum Place place) {
    unsigned char frame[4096];
    fill(frame, sizeof frame, place);
    return depth == 0 ? frame[0] : mark_stack(depth - 1, place) + frame[1];
}

/* The C library gives the stack of a thread that ended to the next one, which may be MPI's. */
static void* mark_thread(void* unused) {
    mark_stack(32, THREAD);
    mark_heap();
    return unused;
}

static void mark_memory(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, mark_thread, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    mark_heap();
    mark_stack(64, STACK);
}

static void one_message(int size, int to, int tag, MPI_Comm comm, enum Place place) {
    mark_small(16);
    unsigned char* out = filled(size, place);
    unsigned char* in = malloc(size + 1);
    MPI_Sendrecv(out, size, MPI_BYTE, to, tag, in, size, MPI_BYTE, to, tag, comm, MPI_STATUS_IGNORE);
    expect_filled(in, size, place, "Sendrecv");
    free(out);
    free(in);
}

typedef int send_call(const void*, int, MPI_Datatype, int, int, MPI_Comm);
typedef int start_call(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

static void by_send(send_call* send, int size) {
    mark_small(16);
    MPI_Request request;
    unsigned char* in = malloc(size + 1);
    unsigned char* out = filled(size, SENT);
    MPI_Irecv(in, size, MPI_BYTE, partner, 1, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD); /* a ready send needs the receive to be posted */
    send(out, size, MPI_BYTE, partner, 1, MPI_COMM_WORLD);
    free(out);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect_filled(in, size, SENT, "Send");
    free(in);
}

static void by_start(start_call* start, int size, int persistent) {
    mark_small(16);
    enum { MANY = 4 };
    MPI_Request requests[2 * MANY];
    unsigned char* in = malloc(MANY * (size_t)size + 1);
    unsigned char* out = filled(size, SENT);
    for (int i = 0; i < MANY; i++)
        MPI_Irecv(in + i * (size_t)size, size, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++) {
        start(out, size, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[MANY + i]);
        if (persistent) MPI_Start(&requests[MANY + i]);
    }
    MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
    if (persistent)
        for (int i = 0; i < MANY; i++) MPI_Request_free(&requests[MANY + i]);
    for (int i = 0; i < MANY; i++) expect_filled(in + i * (size_t)size, size, SENT, "Isend");
    free(in);
    free(out);
}

static void probed(int size) {
    mark_small(16);
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Message message;
    int count;
    unsigned char* out = filled(size, SENT);
    MPI_Isend(out, size, MPI_BYTE, partner, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, size, MPI_BYTE, partner, 4, MPI_COMM_WORLD, &requests[1]);
    MPI_Mprobe(partner, 3, MPI_COMM_WORLD, &message, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    unsigned char* in = malloc(count + 1);
    MPI_Mrecv(in, count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    expect_filled(in, size, SENT, "Mrecv");
    MPI_Probe(partner, 4, MPI_COMM_WORLD, &status);
    MPI_Recv(in, count, MPI_BYTE, partner, 4, MPI_COMM_WORLD, &status);
    expect_filled(in, size, SENT, "Recv after Probe");
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    free(in);
    free(out);
}

/* Packed by MPI, and by the layer. */
static void with_gaps(int blocks) {
    mark_small(16);
    unsigned char* out = filled((size_t)blocks * 24, PACKED);
    unsigned char* in = filled((size_t)blocks * 24, PACKED);
    MPI_Datatype gaps;
    MPI_Type_vector(blocks, 12, 24, MPI_BYTE, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Sendrecv(out, 1, gaps, partner, 5, in, 1, gaps, partner, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Bcast(in, 1, gaps, 0, MPI_COMM_WORLD);
    expect_filled(in, (size_t)blocks * 24, PACKED, "derived type");
    int size = 0, position = 0;
    MPI_Pack_size(1, gaps, MPI_COMM_WORLD, &size);
    void* packed = malloc(size);
    MPI_Pack(out, 1, gaps, packed, size, &position, MPI_COMM_WORLD);
    free(packed);
    MPI_Type_free(&gaps);
    free(in);
    free(out);
}

static void point_to_point(int size) {
    int space = 4 * (size + MPI_BSEND_OVERHEAD);
    void* buffer = filled(space, HEAP);
    MPI_Buffer_attach(buffer, space);
    by_send(MPI_Send, size);
    by_send(MPI_Ssend, size);
    by_send(MPI_Rsend, size);
    by_send(MPI_Bsend, size);
    by_start(MPI_Isend, size, 0);
    by_start(MPI_Issend, size, 0);
    by_start(MPI_Send_init, size, 1);
    MPI_Buffer_detach(&buffer, &space);
    free(buffer);
    probed(size);
    with_gaps(size / 12 + 1);
    one_message(size, rank, 6, MPI_COMM_WORLD, INSIDE);
    one_message(size, rank ^ 1, 6, MPI_COMM_WORLD, ranks > 2 ? INSIDE : SENT); /* of four, two share a node */
}

static void collectives(int size, MPI_Comm comm) {
    int own, all;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &all);
    const size_t whole = (size_t)size * all;
    unsigned char* out = filled(whole, SENT);
    unsigned char* in = malloc(whole + 1);
    int* counts = malloc(sizeof(int) * all);
    int* places = malloc(sizeof(int) * all);
    MPI_Datatype* types = malloc(sizeof(MPI_Datatype) * all);
    for (int i = 0; i < all; i++) {
        counts[i] = size;
        places[i] = i * size;
        types[i] = MPI_BYTE;
    }
    for (int root = 0; root < all; root += all - 1) {
        MPI_Bcast(out, size, MPI_BYTE, root, comm);
        MPI_Gather(out, size, MPI_BYTE, in, size, MPI_BYTE, root, comm);
        MPI_Gatherv(out, size, MPI_BYTE, in, counts, places, MPI_BYTE, root, comm);
        MPI_Scatter(out, size, MPI_BYTE, in, size, MPI_BYTE, root, comm);
        MPI_Scatterv(out, counts, places, MPI_BYTE, in, size, MPI_BYTE, root, comm);
        MPI_Reduce(out, in, size, MPI_BYTE, MPI_BOR, root, comm);
    }
    MPI_Allgather(out, size, MPI_BYTE, in, size, MPI_BYTE, comm);
    MPI_Allgatherv(out, size, MPI_BYTE, in, counts, places, MPI_BYTE, comm);
    MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, comm);
    MPI_Alltoallv(out, counts, places, MPI_BYTE, in, counts, places, MPI_BYTE, comm);
    MPI_Alltoallw(out, counts, places, types, in, counts, places, types, comm);
    MPI_Allreduce(out, in, size, MPI_BYTE, MPI_BOR, comm);
    MPI_Reduce_scatter_block(out, in, size, MPI_BYTE, MPI_BOR, comm);
    MPI_Reduce_scatter(out, in, counts, MPI_BYTE, MPI_BOR, comm);
    MPI_Scan(out, in, size, MPI_BYTE, MPI_BOR, comm);
    expect_filled(in, size, SENT, "collective operations");
    MPI_Exscan(out, in, size, MPI_BYTE, MPI_BOR, comm);
    MPI_Barrier(comm);
    free(types);
    free(places);
    free(counts);
    free(in);
    free(out);
}

static void communicators(void) {
    MPI_Comm made[7];
    MPI_Request request;
    MPI_Group group;
    int periodic = 1, everybody = ranks, key;
    MPI_Comm_dup(MPI_COMM_WORLD, &made[0]);
    mark_memory();
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &made[1]);
    mark_memory();
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_create(MPI_COMM_WORLD, group, &made[2]);
    mark_memory();
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, &made[3]);
    mark_memory();
    MPI_Cart_create(MPI_COMM_WORLD, 1, &everybody, &periodic, 0, &made[4]);
    mark_memory();
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made[5]);
    mark_memory();
    MPI_Comm_idup(MPI_COMM_WORLD, &made[6], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    for (int i = 0; i < 7; i++) {
        void* attribute = filled(64, HEAP);
        MPI_Comm_set_attr(made[i], key, attribute);
        int all;
        MPI_Comm_size(made[i], &all);
        if (all == ranks) collectives(64, made[i]);
        MPI_Comm_free(&made[i]);
        free(attribute);
        mark_memory();
    }
    MPI_Comm_free_keyval(&key);
    MPI_Group_free(&group);
}

/* A message that nobody receives, one that is cut off, and a receive that is given up. */
static void irregular(void) {
    unsigned char* out = filled(512, SENT);
    unsigned char* in = filled(512, HEAP);
    MPI_Request request;
    MPI_Irecv(in, 512, MPI_BYTE, partner, 8, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Send(NULL, 0, MPI_BYTE, partner, 9, MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_BYTE, partner, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    free(in);
    free(out);
}

/* What the test must find: fresh memory, of which only every second half of a word is written. */
static void leak(void) {
    struct {
        long long number;
        int written;
        int hole;
    }* gaps = malloc(sizeof *gaps * 16);
    MPI_Request request;
    for (int i = 0; i < 16; i++) {
        gaps[i].number = i;
        gaps[i].written = i;
    }
    __asm__ volatile("" : : "r"(gaps) : "memory");
    MPI_Ibcast(gaps, (int)sizeof *gaps * 16, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(gaps);
}

int main(int argc, char** argv) {
    FILE* file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fread(markers, sizeof markers, 1, file) != 1) {
        fprintf(stderr, "leaks: usage: leaks FILE [abort | hole]; FILE has %d bytes\n", (int)sizeof markers);
        return 2;
    }
    fclose(file);
    const char* way = argc > 2 ? argv[2] : "";
    mark_memory();
    MPI_Init(&argc, &argv);
    mark_memory();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    partner = (rank + ranks / 2) % ranks;
    const int aborts = strcmp(way, "abort") == 0;
    static const int sizes[] = {0, 8, 100, 4096, 20000, 70000, 300000};
    const size_t many = aborts ? 3 : sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < many; i++) {
        mark_memory();
        point_to_point(sizes[i]);
        if (sizes[i] <= 20000) collectives(sizes[i], MPI_COMM_WORLD);
    }
    mark_memory();
    if (!aborts) {
        one_message(LARGEST, partner, 10, MPI_COMM_WORLD, SENT);
        mark_memory();
        communicators();
        irregular();
        mark_memory();
    }
    if (strcmp(way, "hole") == 0) leak();
    printf("leaks: rank %d made all calls\n", rank);
    fflush(stdout);
    if (aborts) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Finalize();
    return 0;
}
