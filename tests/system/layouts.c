/* Large messages of derived datatypes: what is sent as one type is received as another, and every byte of the
 * receiver's memory must then be what MPI_Pack and MPI_Unpack make of it, the gaps as they were.
 *
 *     layouts CASE...    an even number of ranks; a number is the seed of a random pair of types
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOTAL = 576000, BYTES = TOTAL * 4, MARGIN = 64, TAG = 5, MOST_MEMORY = 64 << 20 };

static int rank, ranks, partner;
static const char* doing = "";

static void fail(const char* what, long got, long expected) {
    fprintf(stderr, "layouts: rank %d: %s: %s: %ld, expected %ld\n", rank, doing, what, got, expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void expect(const char* what, long got, long expected) {
    if (got != expected) fail(what, got, expected);
}

/* Numbers from a seed, alike on all ranks. */
static unsigned state;

static int below(int limit) {
    state = state * 1664525U + 1013904223U;
    return (int)((state >> 8) % (unsigned)limit);
}

static int between(int low, int high) {
    return low + below(high - low + 1);
}

/* ---- Types of ints. Each function makes one that is committed, and says how many of it are TOTAL ints. */

static MPI_Datatype committed(MPI_Datatype type) {
    MPI_Type_commit(&type);
    return type;
}

/* That it is made of may go. */
static MPI_Datatype without(MPI_Datatype inner, MPI_Datatype type) {
    MPI_Type_free(&inner);
    return committed(type);
}

static MPI_Datatype contiguous(int* count) {
    *count = TOTAL;
    MPI_Datatype type;
    MPI_Type_dup(MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype one_stretch(int* count) {
    MPI_Datatype type;
    *count = 1;
    MPI_Type_contiguous(TOTAL, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype vector(int* count) {
    MPI_Datatype type;
    *count = 2;
    MPI_Type_vector(2880, 100, 130, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype tiny_blocks(int* count) {
    MPI_Datatype type;
    *count = 1;
    MPI_Type_vector(TOTAL, 1, 3, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype backwards(int* count) {
    MPI_Datatype type;
    *count = 4;
    MPI_Type_create_hvector(1440, 100, -(100 * 4 + 20), MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype block(int order) {
    const int sizes[3] = {70, 100, 130}, part[3] = {60, 80, 120}, starts[3] = {5, 10, 7};
    MPI_Datatype type;
    MPI_Type_create_subarray(3, sizes, part, starts, order, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype block_in_c(int* count) {
    *count = 1;
    return block(MPI_ORDER_C);
}

static MPI_Datatype block_in_fortran(int* count) {
    *count = 1;
    return block(MPI_ORDER_FORTRAN);
}

/* Of a distance from one another, in an order of their own. */
enum { BLOCKS = 5760, BLOCK = 100 };
static int lengths[BLOCKS + 2], places[BLOCKS + 2];
static MPI_Aint addresses[BLOCKS + 2];

static void shuffle_places(int distance) {
    state = (unsigned)distance;
    for (int i = 0; i < BLOCKS; i++) places[i] = i * distance;
    for (int i = BLOCKS - 1; i > 0; i--) {
        const int other = below(i + 1), place = places[i];
        places[i] = places[other];
        places[other] = place;
    }
}

static MPI_Datatype indexed(int* count) {
    MPI_Datatype type;
    *count = 1;
    shuffle_places(160);
    for (int i = 0; i < BLOCKS; i++) lengths[i] = i % 2 == 0 ? 50 : 150;
    for (int i = 0; i < 2; i++) lengths[BLOCKS + i] = places[BLOCKS + i] = 0; /* blocks of nothing */
    MPI_Type_indexed(BLOCKS + 2, lengths, places, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype indexed_by_bytes(int* count) {
    MPI_Datatype type;
    *count = 1;
    shuffle_places(110);
    for (int i = 0; i < BLOCKS; i++) {
        lengths[i] = BLOCK;
        addresses[i] = places[i] * 4 - 1000;
    }
    MPI_Type_create_hindexed(BLOCKS, lengths, addresses, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype indexed_blocks(int* count) {
    MPI_Datatype type;
    *count = 1;
    shuffle_places(120);
    MPI_Type_create_indexed_block(BLOCKS, BLOCK, places, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype indexed_blocks_by_bytes(int* count) {
    MPI_Datatype type;
    *count = 1;
    shuffle_places(103);
    for (int i = 0; i < BLOCKS; i++) addresses[i] = 10000 - places[i] * 4;
    MPI_Type_create_hindexed_block(BLOCKS, BLOCK, addresses, MPI_INT, &type);
    return committed(type);
}

/* A description longer than what it describes: packed whole. */
static MPI_Datatype many_indexed(int* count) {
    static int many[TOTAL];
    MPI_Datatype type;
    *count = 1;
    for (int i = 0; i < TOTAL; i++) many[i] = i * 2 + i % 2;
    MPI_Type_create_indexed_block(TOTAL, 1, many, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype structure(int* count) {
    MPI_Datatype rows, type;
    *count = 600;
    MPI_Type_vector(10, 30, 33, MPI_INT, &rows);
    const int many[6] = {200, 0, 1, 2, 9, 150}; /* of the rows, 600 ints */
    const MPI_Aint at[6] = {4100, 0, 0, 1400, 4040, 5000};
    const MPI_Datatype types[6] = {MPI_INT, MPI_DOUBLE, MPI_INT, rows, MPI_INT, MPI_INT};
    MPI_Type_create_struct(6, many, at, types, &type);
    return without(rows, type);
}

static MPI_Datatype resized(int* count) {
    MPI_Datatype inner, type;
    *count = 5760;
    MPI_Type_contiguous(100, MPI_INT, &inner);
    MPI_Type_create_resized(inner, -8, 420, &type);
    return without(inner, type);
}

/* The next one begins before the last one ends. */
static MPI_Datatype interleaved(int* count) {
    MPI_Datatype inner, type;
    *count = 8;
    MPI_Type_vector(TOTAL / 8, 1, 10, MPI_INT, &inner);
    MPI_Type_create_resized(inner, 0, 4, &type);
    return without(inner, type);
}

static MPI_Datatype nest(int* count) {
    MPI_Datatype one, two, three, four;
    *count = 3;
    MPI_Type_vector(4, 5, 7, MPI_INT, &one);
    MPI_Type_create_resized(one, 0, 128, &two);
    MPI_Type_create_hvector(60, 2, -260, committed(two), &three);
    MPI_Type_free(&one);
    MPI_Type_free(&two);
    MPI_Type_contiguous(80, three, &four);
    return without(three, four);
}

/* Packed whole. */
static MPI_Datatype distributed(int* count) {
    const int sizes[2] = {1920, 1200}, kinds[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    const int blocks[2] = {10, MPI_DISTRIBUTE_DFLT_DARG}, processes[2] = {2, 2};
    MPI_Datatype type;
    *count = 1;
    MPI_Type_create_darray(4, 2, 2, sizes, kinds, blocks, processes, MPI_ORDER_C, MPI_INT, &type);
    return committed(type);
}

#if MPI_VERSION >= 4
static MPI_Datatype large_vector(int* count) {
    MPI_Datatype type;
    *count = 2;
    MPI_Type_vector_c(2880, 100, 130, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype large_block(int* count) {
    const MPI_Count sizes[3] = {70, 100, 130}, part[3] = {60, 80, 120}, starts[3] = {5, 10, 7};
    MPI_Datatype type;
    *count = 1;
    MPI_Type_create_subarray_c(3, sizes, part, starts, MPI_ORDER_C, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype large_indexed(int* count) {
    static MPI_Count many[BLOCKS], at[BLOCKS];
    MPI_Datatype type;
    *count = 1;
    shuffle_places(160);
    for (int i = 0; i < BLOCKS; i++) {
        many[i] = i % 2 == 0 ? 50 : 150;
        at[i] = places[i] * 4;
    }
    MPI_Type_create_hindexed_c(BLOCKS, many, at, MPI_INT, &type);
    return committed(type);
}

static MPI_Datatype large_structure(int* count) {
    MPI_Datatype inner, type, types[2] = {MPI_INT, MPI_DATATYPE_NULL};
    const MPI_Count many[2] = {100, 2}, at[2] = {1000, 0};
    *count = TOTAL / 200;
    MPI_Type_vector_c(5, 10, 11, MPI_INT, &inner);
    MPI_Type_create_resized_c(inner, 0, 256, &types[1]);
    MPI_Type_create_struct_c(2, many, at, types, &type);
    MPI_Type_free(&types[1]);
    return without(inner, type);
}
#endif

/* ---- A random nest: `ints` of them. */

static int divisor(int n, int most) {
    for (int wanted = between(1, most);; wanted--) {
        if (n % wanted == 0) return wanted;
    }
}

static MPI_Datatype draw(int ints, int deep);

/* A type of which `*blocks` blocks of `*length` elements are `ints`. */
static MPI_Datatype draw_inner(int ints, int deep, int* blocks, int* length) {
    *blocks = divisor(ints, 40);
    *length = divisor(ints / *blocks, 6);
    return draw(ints / *blocks / *length, deep - 1);
}

static MPI_Datatype draw_resized(MPI_Datatype inner) {
    MPI_Datatype type;
    MPI_Aint low, extent;
    MPI_Type_get_true_extent(inner, &low, &extent);
    MPI_Type_create_resized(inner, low - 4 * below(3), extent + 8 + 4 * below(3), &type);
    return type;
}

/* A structure of two types, whose bounds are said: they are those of a resized member alone where only one is. */
static MPI_Datatype draw_structure(int ints, int deep) {
    const int first = ints / 3;
    MPI_Datatype types[2] = {draw(first, deep - 1), draw(ints - first, deep - 1)}, both, type;
    MPI_Aint low[2], extent[2], at[2], end = between(-2, 2) * 4;
    const int some[2] = {1, 1}, behind = below(2);
    for (int i = 0; i < 2; i++) {
        const int which = i == 0 ? 1 - behind : behind;
        MPI_Type_get_extent(types[which], &low[which], &extent[which]);
        at[which] = end - low[which];
        end += extent[which] + between(0, 3) * 4;
    }
    MPI_Type_create_struct(2, some, at, types, &both);
    type = draw_resized(both);
    MPI_Type_free(&types[0]);
    MPI_Type_free(&types[1]);
    return without(both, type);
}

static MPI_Datatype draw_indexed(MPI_Datatype inner, int blocks, int length, MPI_Aint extent) {
    enum { MOST = 40 };
    MPI_Datatype type;
    int all[MOST], at[MOST];
    MPI_Aint bytes[MOST];
    const bool backwards = below(2) == 0;
    for (int i = 0, end = between(-3, 3); i < blocks; i++) {
        const int which = backwards ? blocks - 1 - i : i;
        all[which] = length;
        at[which] = end;
        bytes[which] = end * extent - 12;
        end += length + between(0, 2);
    }
    switch (below(4)) {
        case 0:
            MPI_Type_indexed(blocks, all, at, inner, &type);
            break;
        case 1:
            MPI_Type_create_hindexed(blocks, all, bytes, inner, &type);
            break;
        case 2:
            MPI_Type_create_indexed_block(blocks, length, at, inner, &type);
            break;
        default:
            MPI_Type_create_hindexed_block(blocks, length, bytes, inner, &type);
    }
    return type;
}

/* Whose bounds are said, too: what it is of may reach beyond them. */
static MPI_Datatype draw_subarray(MPI_Datatype inner, int blocks, int length) {
    const int part[2] = {blocks, length}, sizes[2] = {blocks + between(0, 2), length + between(0, 2)};
    const int starts[2] = {sizes[0] - blocks, between(0, sizes[1] - length)};
    MPI_Datatype array;
    MPI_Type_create_subarray(2, sizes, part, starts, below(2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, inner, &array);
    MPI_Datatype type = draw_resized(array);
    MPI_Type_free(&array);
    return type;
}

static MPI_Datatype draw(int ints, int deep) {
    MPI_Datatype inner, type;
    MPI_Aint low, extent;
    int blocks, length;
    if (deep == 0 || ints < 3) {
        MPI_Type_contiguous(ints, MPI_INT, &type);
        return committed(type);
    }
    const int kind = below(8);
    if (kind == 0) return draw_structure(ints, deep);
    if (kind == 1) {
        inner = draw(ints, deep - 1);
        return without(inner, draw_resized(inner));
    }
    inner = draw_inner(ints, deep, &blocks, &length);
    MPI_Type_get_extent(inner, &low, &extent);
    const int stride = length + between(0, 2);
    switch (kind) {
        case 2:
            MPI_Type_vector(blocks, length, below(2) == 0 ? stride : -stride, inner, &type);
            break;
        case 3:
            MPI_Type_create_hvector(blocks, length, (below(2) == 0 ? 1 : -1) * (length * extent + 4 * below(4)), inner,
                                    &type);
            break;
        case 4:
            MPI_Type_contiguous(blocks * length, inner, &type);
            break;
        case 5:
            type = draw_subarray(inner, blocks, length);
            break;
        default:
            type = draw_indexed(inner, blocks, length, extent);
    }
    return without(inner, type);
}

static MPI_Datatype draw_whole(int* count) {
    *count = divisor(TOTAL, 300);
    return draw(TOTAL / *count, between(1, 5));
}

/* ---- Messages. */

/* Elements of a type, in memory with a margin. */
typedef struct {
    MPI_Datatype type;
    int count;
    unsigned char *memory, *at;
    size_t size;
} Layout;

static void fill(Layout* layout, unsigned seed) {
    unsigned x = seed * 2654435761U + 1U;
    for (size_t i = 0; i < layout->size; i++)
        layout->memory[i] = (unsigned char)((x = x * 1664525U + 1013904223U) >> 24);
}

static Layout place(MPI_Datatype type, int count, unsigned seed) {
    MPI_Aint low, extent, true_low, true_extent;
    MPI_Type_get_extent(type, &low, &extent);
    MPI_Type_get_true_extent(type, &true_low, &true_extent);
    const MPI_Aint last = (count - 1) * extent, span = true_extent + (last < 0 ? -last : last);
    Layout layout = {.type = type, .count = count, .size = (size_t)span + 2 * MARGIN};
    layout.memory = malloc(layout.size);
    layout.at = layout.memory + MARGIN - true_low - (last < 0 ? last : 0);
    fill(&layout, seed);
    return layout;
}

/* The byte more than is needed tells these calls from those that are made for a message. */
static unsigned char* packed(const Layout* layout) {
    int position = 0;
    unsigned char* all = malloc(BYTES + 1);
    MPI_Pack(layout->at, layout->count, layout->type, all, BYTES + 1, &position, MPI_COMM_SELF);
    expect("bytes", position, BYTES);
    return all;
}

/* `in` as it is when `bytes` of what `out` has have come, and when it was filled from `seed` before. */
static Layout expected(const Layout* in, unsigned seed, const Layout* out, int bytes) {
    int position = 0;
    Layout result = place(in->type, in->count, seed);
    unsigned char *before = packed(&result), *sent = packed(out);
    memcpy(before, sent, (size_t)bytes);
    MPI_Unpack(before, BYTES + 1, &position, result.at, result.count, result.type, MPI_COMM_SELF);
    free(before);
    free(sent);
    return result;
}

static void expect_same(const char* what, const Layout* got, const Layout* wanted) {
    for (size_t i = 0; i < got->size; i++) {
        if (got->memory[i] == wanted->memory[i]) continue;
        fprintf(stderr, "layouts: rank %d: %s: %s: byte %zu of %zu differs\n", rank, doing, what, i, got->size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* This rank's data and memory for its partner's, and what it will be. */
typedef struct {
    Layout out, theirs, in, wanted;
} Message;

enum { SEEDS = 1000 };
static unsigned serial;

static Message begin(MPI_Datatype out, int out_count, MPI_Datatype in, int in_count, int bytes) {
    serial++;
    Message message;
    message.out = place(out, out_count, serial * SEEDS + (unsigned)rank);
    message.theirs = place(out, out_count, serial * SEEDS + (unsigned)partner);
    message.in = place(in, in_count, serial);
    message.wanted = expected(&message.in, serial, &message.theirs, bytes);
    return message;
}

static void end(const char* what, Message* message) {
    expect_same(what, &message->in, &message->wanted);
    free(message->out.memory);
    free(message->theirs.memory);
    free(message->in.memory);
    free(message->wanted.memory);
}

static void expect_size(const MPI_Status* status, int bytes) {
    int size;
    MPI_Get_count(status, MPI_BYTE, &size);
    expect("bytes in the status", size, bytes);
}

static void exchange(MPI_Datatype out, int out_count, MPI_Datatype in, int in_count) {
    Message message = begin(out, out_count, in, in_count, BYTES);
    MPI_Status status;
    MPI_Sendrecv(message.out.at, out_count, out, partner, TAG, message.in.at, in_count, in, partner, TAG,
                 MPI_COMM_WORLD, &status);
    expect_size(&status, BYTES);
    end("Sendrecv", &message);
}

/* The program may free the type as soon as the operation has begun. */
static void exchange_and_free(MPI_Datatype out, int out_count, MPI_Datatype in, int in_count) {
    Message message = begin(out, out_count, in, in_count, BYTES);
    MPI_Request requests[2];
    MPI_Datatype types[2], other;
    MPI_Type_dup(out, &types[0]);
    MPI_Type_dup(in, &types[1]);
    MPI_Irecv(message.in.at, in_count, types[1], partner, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Issend(message.out.at, out_count, types[0], partner, TAG, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 2; i++) MPI_Type_free(&types[i]);
    MPI_Type_vector(10, 1, 5, MPI_CHAR, &other); /* which may get a handle that is free now */
    MPI_Type_commit(&other);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Type_free(&other);
    end("Isend, Irecv", &message);
}

/* Received after a probe, with room for more than comes: the last element that is reached, in part. */
static void exchange_less(MPI_Datatype in, int in_count) {
    enum { LESS = BYTES / 4 * 3 - 4 };
    MPI_Request request;
    MPI_Message probed;
    MPI_Status status;
    int out_count;
    MPI_Datatype all = contiguous(&out_count);
    Message message = begin(all, out_count, in, in_count, LESS);
    MPI_Isend(message.out.at, LESS / 4, MPI_INT, partner, TAG, MPI_COMM_WORLD, &request);
    MPI_Mprobe(partner, TAG, MPI_COMM_WORLD, &probed, &status);
    expect_size(&status, LESS);
    MPI_Mrecv(message.in.at, in_count, in, &probed, &status);
    expect_size(&status, LESS);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    end("Mrecv of less", &message);
    MPI_Type_free(&all);
}

static void exchange_persistent(MPI_Datatype out, int out_count, MPI_Datatype in, int in_count) {
    Message message = begin(out, out_count, in, in_count, BYTES);
    MPI_Request requests[2];
    MPI_Recv_init(message.in.at, in_count, in, partner, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(message.out.at, out_count, out, partner, TAG, MPI_COMM_WORLD, &requests[1]);
    for (unsigned i = 0; i < 2; i++) {
        fill(&message.out, i + (unsigned)rank);
        fill(&message.theirs, i + (unsigned)partner);
        fill(&message.in, i);
        free(message.wanted.memory);
        message.wanted = expected(&message.in, i, &message.theirs, BYTES);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect_same("persistent", &message.in, &message.wanted);
    }
    for (int i = 0; i < 2; i++) MPI_Request_free(&requests[i]);
    end("persistent", &message);
}

/* What is sent may be written over at once. */
static void exchange_buffered(MPI_Datatype out, int out_count, MPI_Datatype in, int in_count) {
    Message message = begin(out, out_count, in, in_count, BYTES);
    enum { ROOM = BYTES + MPI_BSEND_OVERHEAD };
    void* room = malloc(ROOM);
    int size;
    MPI_Buffer_attach(room, ROOM);
    MPI_Bsend(message.out.at, out_count, out, partner, TAG, MPI_COMM_WORLD);
    fill(&message.out, 0);
    MPI_Recv(message.in.at, in_count, in, partner, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&room, &size);
    free(room);
    end("Bsend", &message);
}

static void replace(MPI_Datatype type, int count) {
    Message message = begin(type, count, type, count, BYTES);
    fill(&message.in, serial * SEEDS + (unsigned)rank);
    free(message.wanted.memory);
    message.wanted = expected(&message.in, serial * SEEDS + (unsigned)rank, &message.theirs, BYTES);
    MPI_Sendrecv_replace(message.in.at, count, type, partner, TAG, partner, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    end("Sendrecv_replace", &message);
}

/* Absolute addresses. */
static void exchange_from_bottom(MPI_Datatype out, int out_count, MPI_Datatype in, int in_count) {
    Message message = begin(out, out_count, in, in_count, BYTES);
    MPI_Aint at[2];
    MPI_Datatype types[2];
    MPI_Get_address(message.out.at, &at[0]);
    MPI_Get_address(message.in.at, &at[1]);
    MPI_Type_create_hindexed(1, &out_count, &at[0], out, &types[0]);
    MPI_Type_create_hindexed(1, &in_count, &at[1], in, &types[1]);
    for (int i = 0; i < 2; i++) MPI_Type_commit(&types[i]);
    MPI_Sendrecv(MPI_BOTTOM, 1, types[0], partner, TAG, MPI_BOTTOM, 1, types[1], partner, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++) MPI_Type_free(&types[i]);
    end("MPI_BOTTOM", &message);
}

static void exchange_all_ways(MPI_Datatype out, int out_count, MPI_Datatype in, int in_count) {
    exchange(out, out_count, in, in_count);
    exchange_and_free(out, out_count, in, in_count);
    exchange_less(in, in_count);
    exchange_persistent(out, out_count, in, in_count);
    exchange_buffered(out, out_count, in, in_count);
    exchange_from_bottom(out, out_count, in, in_count);
}

/* ---- Cases. */

typedef MPI_Datatype Make(int* count);

static const struct {
    const char* name;
    Make* make;
} types[] = {
    {"vector", vector},
    {"tiny_blocks", tiny_blocks},
    {"backwards", backwards},
    {"block_in_c", block_in_c},
    {"block_in_fortran", block_in_fortran},
    {"indexed", indexed},
    {"indexed_by_bytes", indexed_by_bytes},
    {"indexed_blocks", indexed_blocks},
    {"indexed_blocks_by_bytes", indexed_blocks_by_bytes},
    {"structure", structure},
    {"resized", resized},
    {"interleaved", interleaved},
    {"nest", nest},
    {"one_stretch", one_stretch},
    {"contiguous", contiguous},
    {"many_indexed", many_indexed},
    {"distributed", distributed},
#if MPI_VERSION >= 4
    {"large_vector", large_vector},
    {"large_block", large_block},
    {"large_indexed", large_indexed},
    {"large_structure", large_structure},
#endif
};
enum { TYPES = sizeof types / sizeof types[0] };

static void try_named(Make* make_out, Make* make_in) {
    int out_count, in_count;
    MPI_Datatype out = make_out(&out_count), in = make_in(&in_count);
    exchange_all_ways(out, out_count, in, in_count);
    MPI_Type_free(&out);
    MPI_Type_free(&in);
}

static bool fits(MPI_Datatype type, int count) {
    MPI_Aint low, extent;
    MPI_Type_get_extent(type, &low, &extent);
    return extent >= 0 && extent < MOST_MEMORY / count;
}

static void try_random(unsigned seed) {
    int out_count, in_count;
    state = seed * 2654435761U;
    for (bool done = false; !done;) {
        MPI_Datatype out = draw_whole(&out_count), in = draw_whole(&in_count);
        done = fits(out, out_count) && fits(in, in_count);
        if (done) exchange(out, out_count, in, in_count);
        if (done) exchange_less(in, in_count);
        MPI_Type_free(&out);
        MPI_Type_free(&in);
    }
}

/* Pairs with gaps in them, of fewer bytes than their extent. */
static void try_pairs(void) {
    enum { PAIRS = BYTES / 6 };
    MPI_Datatype every_other;
    MPI_Type_vector(PAIRS, 1, 2, MPI_SHORT_INT, &every_other);
    MPI_Type_commit(&every_other);
    exchange(MPI_SHORT_INT, PAIRS, every_other, 1);
    exchange(every_other, 1, MPI_SHORT_INT, PAIRS);
    MPI_Type_free(&every_other);
}

static void try_replaced(void) {
    for (int i = 0; i < TYPES; i++) {
        int count;
        MPI_Datatype type = types[i].make(&count);
        replace(type, count);
        MPI_Type_free(&type);
    }
}

static int try_case(const char* name) {
    doing = name;
    if (name[0] >= '0' && name[0] <= '9') {
        try_random((unsigned)atoi(name));
        return 1;
    }
    if (strcmp(name, "pairs") == 0) {
        try_pairs();
        return 1;
    }
    if (strcmp(name, "replaced") == 0) {
        try_replaced();
        return 1;
    }
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(name, types[i].name) != 0) continue;
        try_named(types[i].make, types[(i + 1) % TYPES].make);
        return 1;
    }
    return 0;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    partner = (rank + ranks / 2) % ranks;
    int tried = 0;
    for (int i = 1; i < argc; i++) tried += try_case(argv[i]);
    for (int i = 0; argc == 1 && i < TYPES; i++) tried += try_case(types[i].name);
    if (rank == 0) printf("layouts: %d right\n", tried);
    MPI_Finalize();
    return 0;
}
