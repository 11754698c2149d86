/* The papers' naive construction under the MPI calls of a benchmark that is linked with this file: each message is
 * sealed whole with AES-256-GCM under a random nonce (OpenSSL, through EVP), then sent; it is received whole, then
 * opened (Naser et al. 2019, section IV and algorithm 1). A block of a collective operation is a message.
 *
 *     nonce (12) | ciphertext | tag (16)
 *
 * It is here to be measured against, and to protect nothing: the key is fixed, as it was in the papers' measurements.
 * It has what the benchmarks here call, of contiguous datatypes; its collective operations are those of the papers, and
 * Gather and Scatter after their pattern. What it has not (reductions, windows) goes as it is: the study measures none
 * of that as naive. */
#include <mpi.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONCE = 12, TAG = 16, ADDED = NONCE + TAG, MOST_PENDING = 4096 };

static const unsigned char key[32] = "measured, not to be relied on!!";
static EVP_CIPHER_CTX *sealing, *opening;

static void give_up(const char* why) {
    fprintf(stderr, "naive: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 4);
    abort();
}

static void prepare(void) {
    if (sealing != NULL) return;
    sealing = EVP_CIPHER_CTX_new();
    opening = EVP_CIPHER_CTX_new();
    if (EVP_EncryptInit_ex(sealing, EVP_aes_256_gcm(), NULL, key, NULL) != 1 ||
        EVP_DecryptInit_ex(opening, EVP_aes_256_gcm(), NULL, key, NULL) != 1)
        give_up("no AES-256-GCM");
}

static void* memory(size_t size) {
    void* bytes = malloc(size > 0 ? size : 1);
    if (bytes == NULL) give_up("no memory");
    return bytes;
}

static void seal(const void* plain, int size, unsigned char* to) {
    int count;
    prepare();
    if (RAND_bytes(to, NONCE) != 1 || EVP_EncryptInit_ex(sealing, NULL, NULL, NULL, to) != 1 ||
        EVP_EncryptUpdate(sealing, to + NONCE, &count, plain, size) != 1 ||
        EVP_EncryptFinal_ex(sealing, to + NONCE + count, &count) != 1 ||
        EVP_CIPHER_CTX_ctrl(sealing, EVP_CTRL_GCM_GET_TAG, TAG, to + NONCE + size) != 1)
        give_up("cannot seal");
}

static void open_sealed(unsigned char* sealed, int size, void* to) {
    int count;
    prepare();
    if (EVP_DecryptInit_ex(opening, NULL, NULL, NULL, sealed) != 1 ||
        EVP_DecryptUpdate(opening, to, &count, sealed + NONCE, size) != 1 ||
        EVP_CIPHER_CTX_ctrl(opening, EVP_CTRL_GCM_SET_TAG, TAG, sealed + NONCE + size) != 1 ||
        EVP_DecryptFinal_ex(opening, (unsigned char*)to + count, &count) != 1)
        give_up("a message is not as it was sent");
}

static int bytes_of(int count, MPI_Datatype type) {
    int size;
    MPI_Aint low, extent;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &low, &extent);
    if (extent != size) give_up("only contiguous datatypes");
    return count * size;
}

/* Non-blocking messages: opened when they are waited for (the papers' MPI_Wait). */

struct pending {
    MPI_Request request;
    unsigned char* sealed; /* NULL: free */
    void* to;              /* NULL: a send */
    int size;
};
static struct pending all_pending[MOST_PENDING];
static int next_pending, next_found;

static void remember(MPI_Request request, unsigned char* sealed, void* to, int size) {
    for (int i = 0; i < MOST_PENDING; i++, next_pending = (next_pending + 1) % MOST_PENDING) {
        if (all_pending[next_pending].sealed != NULL) continue;
        all_pending[next_pending] = (struct pending){request, sealed, to, size};
        return;
    }
    give_up("too many messages in flight");
}

/* Requests are mostly waited for in the order in which they were made. */
static struct pending* pending_of(MPI_Request request) {
    for (int i = 0; i < MOST_PENDING; i++, next_found = (next_found + 1) % MOST_PENDING)
        if (all_pending[next_found].sealed != NULL && all_pending[next_found].request == request)
            return &all_pending[next_found];
    return NULL;
}

static void finish_pending(struct pending* done, const MPI_Status* status) {
    if (done == NULL) return;
    if (done->to != NULL) {
        int size;
        PMPI_Get_count(status, MPI_BYTE, &size);
        if (size < ADDED || size - ADDED > done->size) give_up("a message of a wrong length");
        open_sealed(done->sealed, size - ADDED, done->to);
    }
    free(done->sealed);
    done->sealed = NULL;
}

int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    const int size = bytes_of(count, type);
    unsigned char* sealed = memory(size + ADDED);
    seal(from, size, sealed);
    const int result = PMPI_Isend(sealed, size + ADDED, MPI_BYTE, to, tag, comm, request);
    remember(*request, sealed, NULL, size);
    return result;
}

int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
    const int size = bytes_of(count, type);
    unsigned char* sealed = memory(size + ADDED);
    const int result = PMPI_Irecv(sealed, size + ADDED, MPI_BYTE, from, tag, comm, request);
    remember(*request, sealed, to, size);
    return result;
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
    struct pending* done = pending_of(*request);
    MPI_Status own;
    const int result = PMPI_Wait(request, &own);
    finish_pending(done, &own);
    if (status != MPI_STATUS_IGNORE) *status = own;
    return result;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    struct pending** done = memory(sizeof(*done) * count);
    MPI_Status* own = memory(sizeof(*own) * count);
    for (int i = 0; i < count; i++, next_found = (next_found + 1) % MOST_PENDING) done[i] = pending_of(requests[i]);
    const int result = PMPI_Waitall(count, requests, own);
    for (int i = 0; i < count; i++) finish_pending(done[i], &own[i]);
    if (statuses != MPI_STATUSES_IGNORE) memcpy(statuses, own, sizeof(*own) * count);
    free(own);
    free(done);
    return result;
}

int MPI_Send(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    const int size = bytes_of(count, type);
    unsigned char* sealed = memory(size + ADDED);
    seal(from, size, sealed);
    const int result = PMPI_Send(sealed, size + ADDED, MPI_BYTE, to, tag, comm);
    free(sealed);
    return result;
}

int MPI_Recv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    MPI_Request request;
    MPI_Irecv(to, count, type, from, tag, comm, &request);
    return MPI_Wait(&request, status);
}

int MPI_Sendrecv(const void* from, int send_count, MPI_Datatype send_type, int dest, int send_tag, void* to,
                 int receive_count, MPI_Datatype receive_type, int source, int receive_tag, MPI_Comm comm,
                 MPI_Status* status) {
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv(to, receive_count, receive_type, source, receive_tag, comm, &requests[0]);
    MPI_Isend(from, send_count, send_type, dest, send_tag, comm, &requests[1]);
    const int result = MPI_Waitall(2, requests, statuses);
    if (status != MPI_STATUS_IGNORE) *status = statuses[0];
    return result;
}

/* Collective operations: blocks are sealed one by one, MPI's operation carries them, and they are opened one by one. */

struct blocks {
    unsigned char* bytes;
    int *counts, *offsets; /* of the sealed blocks */
    int number;
};

/* Memory for sealed blocks of the given sizes in bytes; `sizes` NULL: all of `size`. */
static struct blocks sealed_blocks(int number, const int* counts, int size) {
    struct blocks made = {NULL, memory(sizeof(int) * number), memory(sizeof(int) * number), number};
    size_t all = 0;
    for (int i = 0; i < number; i++) {
        made.counts[i] = (counts != NULL ? counts[i] * size : size) + ADDED;
        made.offsets[i] = (int)all;
        all += made.counts[i];
    }
    if (all > 0x7fffffff) give_up("blocks of more than 2 GB");
    made.bytes = memory(all);
    return made;
}

static void release(struct blocks* blocks) {
    free(blocks->bytes);
    free(blocks->counts);
    free(blocks->offsets);
}

/* Block i of the user's: at offsets[i] elements, or one behind the other. */
static char* user_block(void* user, const int* offsets, int i, const struct blocks* sealed, int element) {
    if (offsets != NULL) return (char*)user + (size_t)offsets[i] * element;
    return (char*)user + (size_t)i * (sealed->counts[i] - ADDED);
}

static void seal_all(const void* user, const int* offsets, int element, struct blocks* sealed) {
    for (int i = 0; i < sealed->number; i++)
        seal(user_block((void*)user, offsets, i, sealed, element), sealed->counts[i] - ADDED,
             sealed->bytes + sealed->offsets[i]);
}

static void open_all(struct blocks* sealed, void* user, const int* offsets, int element) {
    for (int i = 0; i < sealed->number; i++)
        open_sealed(sealed->bytes + sealed->offsets[i], sealed->counts[i] - ADDED,
                    user_block(user, offsets, i, sealed, element));
}

static int ranks_of(MPI_Comm comm) {
    int ranks;
    PMPI_Comm_size(comm, &ranks);
    return ranks;
}

static int is_root(MPI_Comm comm, int root) {
    int rank;
    PMPI_Comm_rank(comm, &rank);
    return rank == root;
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    struct blocks sealed = sealed_blocks(1, NULL, bytes_of(count, type));
    if (is_root(comm, root)) seal_all(data, NULL, 0, &sealed);
    const int result = PMPI_Bcast(sealed.bytes, sealed.counts[0], MPI_BYTE, root, comm);
    if (!is_root(comm, root)) open_all(&sealed, data, NULL, 0);
    release(&sealed);
    return result;
}

int MPI_Allgather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                  MPI_Comm comm) {
    struct blocks own = sealed_blocks(1, NULL, bytes_of(count, type));
    struct blocks all = sealed_blocks(ranks_of(comm), NULL, bytes_of(to_count, to_type));
    seal_all(from, NULL, 0, &own);
    const int result = PMPI_Allgather(own.bytes, own.counts[0], MPI_BYTE, all.bytes, all.counts[0], MPI_BYTE, comm);
    open_all(&all, to, NULL, 0);
    release(&own);
    release(&all);
    return result;
}

int MPI_Allgatherv(const void* from, int count, MPI_Datatype type, void* to, const int counts[], const int offsets[],
                   MPI_Datatype to_type, MPI_Comm comm) {
    const int element = bytes_of(1, to_type);
    struct blocks own = sealed_blocks(1, NULL, bytes_of(count, type));
    struct blocks all = sealed_blocks(ranks_of(comm), counts, element);
    seal_all(from, NULL, 0, &own);
    const int result =
        PMPI_Allgatherv(own.bytes, own.counts[0], MPI_BYTE, all.bytes, all.counts, all.offsets, MPI_BYTE, comm);
    open_all(&all, to, offsets, element);
    release(&own);
    release(&all);
    return result;
}

int MPI_Alltoall(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                 MPI_Comm comm) {
    struct blocks sent = sealed_blocks(ranks_of(comm), NULL, bytes_of(count, type));
    struct blocks received = sealed_blocks(ranks_of(comm), NULL, bytes_of(to_count, to_type));
    seal_all(from, NULL, 0, &sent);
    const int result =
        PMPI_Alltoall(sent.bytes, sent.counts[0], MPI_BYTE, received.bytes, received.counts[0], MPI_BYTE, comm);
    open_all(&received, to, NULL, 0);
    release(&sent);
    release(&received);
    return result;
}

int MPI_Alltoallv(const void* from, const int counts[], const int offsets[], MPI_Datatype type, void* to,
                  const int to_counts[], const int to_offsets[], MPI_Datatype to_type, MPI_Comm comm) {
    const int element = bytes_of(1, type), to_element = bytes_of(1, to_type);
    struct blocks sent = sealed_blocks(ranks_of(comm), counts, element);
    struct blocks received = sealed_blocks(ranks_of(comm), to_counts, to_element);
    seal_all(from, offsets, element, &sent);
    const int result = PMPI_Alltoallv(sent.bytes, sent.counts, sent.offsets, MPI_BYTE, received.bytes, received.counts,
                                      received.offsets, MPI_BYTE, comm);
    open_all(&received, to, to_offsets, to_element);
    release(&sent);
    release(&received);
    return result;
}

int MPI_Gather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type, int root,
               MPI_Comm comm) {
    const int here = is_root(comm, root);
    struct blocks own = sealed_blocks(1, NULL, bytes_of(count, type));
    struct blocks all = sealed_blocks(here ? ranks_of(comm) : 0, NULL, here ? bytes_of(to_count, to_type) : 0);
    seal_all(from, NULL, 0, &own);
    const int result =
        PMPI_Gather(own.bytes, own.counts[0], MPI_BYTE, all.bytes, here ? all.counts[0] : 0, MPI_BYTE, root, comm);
    if (here) open_all(&all, to, NULL, 0);
    release(&own);
    release(&all);
    return result;
}

int MPI_Gatherv(const void* from, int count, MPI_Datatype type, void* to, const int counts[], const int offsets[],
                MPI_Datatype to_type, int root, MPI_Comm comm) {
    const int here = is_root(comm, root), element = here ? bytes_of(1, to_type) : 0;
    struct blocks own = sealed_blocks(1, NULL, bytes_of(count, type));
    struct blocks all = sealed_blocks(here ? ranks_of(comm) : 0, counts, element);
    seal_all(from, NULL, 0, &own);
    const int result =
        PMPI_Gatherv(own.bytes, own.counts[0], MPI_BYTE, all.bytes, all.counts, all.offsets, MPI_BYTE, root, comm);
    if (here) open_all(&all, to, offsets, element);
    release(&own);
    release(&all);
    return result;
}

int MPI_Scatter(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type, int root,
                MPI_Comm comm) {
    const int here = is_root(comm, root);
    struct blocks all = sealed_blocks(here ? ranks_of(comm) : 0, NULL, here ? bytes_of(count, type) : 0);
    struct blocks own = sealed_blocks(1, NULL, bytes_of(to_count, to_type));
    if (here) seal_all(from, NULL, 0, &all);
    const int result =
        PMPI_Scatter(all.bytes, here ? all.counts[0] : 0, MPI_BYTE, own.bytes, own.counts[0], MPI_BYTE, root, comm);
    open_all(&own, to, NULL, 0);
    release(&own);
    release(&all);
    return result;
}

int MPI_Scatterv(const void* from, const int counts[], const int offsets[], MPI_Datatype type, void* to, int to_count,
                 MPI_Datatype to_type, int root, MPI_Comm comm) {
    const int here = is_root(comm, root), element = here ? bytes_of(1, type) : 0;
    struct blocks all = sealed_blocks(here ? ranks_of(comm) : 0, counts, element);
    struct blocks own = sealed_blocks(1, NULL, bytes_of(to_count, to_type));
    if (here) seal_all(from, offsets, element, &all);
    const int result =
        PMPI_Scatterv(all.bytes, all.counts, all.offsets, MPI_BYTE, own.bytes, own.counts[0], MPI_BYTE, root, comm);
    open_all(&own, to, NULL, 0);
    release(&own);
    release(&all);
    return result;
}
