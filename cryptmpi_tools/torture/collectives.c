/* Blocking collective operations. */
#include <string.h>

#include "player.h"

enum { MAX_RANKS = 16 };

static void note_result(Player* player, const char* name, const Layout* layout) {
    note(player, "%s: %ld %s, %s, buffer %016llx", name, layout->elements, layout->base.name, layout->kind,
         (unsigned long long)hash_layout(layout));
}

/* What is a multiple of what a rank contributes is limited by this in all. */
static long draw_elements(Random* random, Base base, int parts) {
    int left = (4 << 20) / parts;
    return draw_size(random, &left) / base.size;
}

static void broadcast(Player* player, const Circle* circle, Random* random) {
    const Base base = draw_base(player, random);
    const long elements = draw_elements(random, base, 1);
    const int root = below(random, circle->size);
    Random own = own_random(player, circle, circle->rank), same = own_random(player, circle, -1);
    Layout layout = draw_layout(player, player->features.mixed_types ? &own : &same, base, elements, 1, draw(&own));
    note(player, "Bcast of %ld %s, root %d", elements, base.name, root);
    MPI_Bcast(layout.at, layout.count, layout.type, root, circle->comm);
    note_result(player, "Bcast", &layout);
    free_type(&layout);
}

/* Whether types are predefined ones, where a part of what is sent is copied locally. */
static bool copies_plain(const Player* player, bool in_place) {
    return !player->features.local_copies && !in_place;
}

/* Gather, Scatter, Allgather, Alltoall: parts of one size. */
static void same_parts(Player* player, const Circle* circle, Random* random) {
    const Base base = draw_base(player, random);
    const long elements = draw_elements(random, base, circle->size);
    const int root = below(random, circle->size), kind = below(random, 4);
    const bool in_place = chance(random, 30), at_root = circle->rank == root;
    Random own = own_random(player, circle, circle->rank);
    player->plain = copies_plain(player, in_place) || (kind == 2 && !player->features.allgather_types);
    Layout part = draw_layout(player, &own, base, elements, 1, draw(&own));
    Layout whole = draw_layout(player, &own, base, elements, circle->size, draw(&own));
    static const char* const names[] = {"Gather", "Scatter", "Allgather", "Alltoall"};
    note(player, "%s of %ld %s, root %d%s", names[kind], elements, base.name, root, in_place ? ", in place" : "");
    switch (kind) {
        case 0:
            MPI_Gather(in_place && at_root ? MPI_IN_PLACE : part.at, part.count, part.type, whole.at, whole.count,
                       whole.type, root, circle->comm);
            if (at_root) note_result(player, "Gather", &whole);
            break;
        case 1:
            MPI_Scatter(whole.at, whole.count, whole.type, in_place && at_root ? MPI_IN_PLACE : part.at, part.count,
                        part.type, root, circle->comm);
            note_result(player, "Scatter", &part);
            break;
        case 2:
            MPI_Allgather(in_place ? MPI_IN_PLACE : part.at, part.count, part.type, whole.at, whole.count, whole.type,
                          circle->comm);
            note_result(player, "Allgather", &whole);
            break;
        default: {
            /* Each sends as much to each: the layouts of one rank's two buffers differ. */
            Layout out = draw_layout(player, &own, base, elements, circle->size, draw(&own));
            MPI_Alltoall(in_place ? MPI_IN_PLACE : out.at, out.count, out.type, whole.at, whole.count, whole.type,
                         circle->comm);
            note_result(player, "Alltoall", &whole);
            free_type(&out);
            break;
        }
    }
    player->plain = false;
    free_type(&part);
    free_type(&whole);
}

/* Parts of different sizes, in units of one small type, in an order of their own and with gaps. */
typedef struct {
    Layout layout; /* of a unit; all units one after the other */
    Count counts[MAX_RANKS];
    Displacement places[MAX_RANKS];
} Parts;

static Parts draw_parts(Player* player, Random* own, Base base, int unit, const int* units, int ranks) {
    Parts parts;
    int order[MAX_RANKS], place = 0;
    for (int i = 0; i < ranks; i++) order[i] = i;
    shuffle(own, order, ranks);
    for (int i = 0; i < ranks; i++) {
        const int rank = order[i];
        place += chance(own, 40) ? between(own, 1, 5) : 0;
        parts.counts[rank] = units[rank];
        parts.places[rank] = place;
        place += units[rank];
    }
    parts.layout = draw_layout(player, own, base, unit, place + 1, draw(own));
    const Count per_unit = parts.layout.count;
    for (int i = 0; i < ranks; i++) {
        parts.counts[i] *= per_unit;
        parts.places[i] *= per_unit;
    }
    return parts;
}

static void different_parts(Player* player, const Circle* circle, Random* random) {
    const Base base = draw_base(player, random);
    const int unit = between(random, 1, 8), size = circle->size, rank = circle->rank;
    const int root = below(random, size), kind = below(random, 4);
    const bool in_place = chance(random, 30), at_root = rank == root;
    int units[MAX_RANKS][MAX_RANKS], in[MAX_RANKS], left = 3 << 20;
    for (int i = 0; i < size; i++) {
        for (int k = 0; k < size; k++) {
            units[i][k] = chance(random, 20) ? 0 : draw_size(random, &left) / (base.size * unit) % 40000;
            /* In place, what comes from a rank must be as long as what goes there. */
            if (kind == 3 && in_place && k < i) units[i][k] = units[k][i];
        }
    }
    for (int i = 0; i < size; i++) in[i] = units[i][rank];
    Random own = own_random(player, circle, rank);
    static const char* const names[] = {"Gatherv", "Scatterv", "Allgatherv", "Alltoallv"};
    note(player, "%s of %s, root %d%s", names[kind], base.name, root, in_place ? ", in place" : "");
    player->plain = copies_plain(player, in_place) || (kind == 2 && !player->features.mixed_types);
    switch (kind) {
        case 0: {
            Layout part = draw_layout(player, &own, base, (long)units[0][rank] * unit, 1, draw(&own));
            Parts whole = draw_parts(player, &own, base, unit, units[0], size);
            MPI_Gatherv(in_place && at_root ? MPI_IN_PLACE : part.at, part.count, part.type, whole.layout.at,
                        whole.counts, whole.places, whole.layout.type, root, circle->comm);
            if (at_root) note_result(player, "Gatherv", &whole.layout);
            free_type(&part);
            free_type(&whole.layout);
            break;
        }
        case 1: {
            Layout part = draw_layout(player, &own, base, (long)units[0][rank] * unit, 1, draw(&own));
            Parts whole = draw_parts(player, &own, base, unit, units[0], size);
            MPI_Scatterv(whole.layout.at, whole.counts, whole.places, whole.layout.type,
                         in_place && at_root ? MPI_IN_PLACE : part.at, part.count, part.type, root, circle->comm);
            note_result(player, "Scatterv", &part);
            free_type(&part);
            free_type(&whole.layout);
            break;
        }
        case 2: {
            Layout part = draw_layout(player, &own, base, (long)units[0][rank] * unit, 1, draw(&own));
            Parts whole = draw_parts(player, &own, base, unit, units[0], size);
            MPI_Allgatherv(in_place ? MPI_IN_PLACE : part.at, part.count, part.type, whole.layout.at, whole.counts,
                           whole.places, whole.layout.type, circle->comm);
            note_result(player, "Allgatherv", &whole.layout);
            free_type(&part);
            free_type(&whole.layout);
            break;
        }
        default: {
            Parts from = draw_parts(player, &own, base, unit, units[rank], size);
            Parts to = draw_parts(player, &own, base, unit, in, size);
            MPI_Alltoallv(in_place ? MPI_IN_PLACE : from.layout.at, from.counts, from.places, from.layout.type,
                          to.layout.at, to.counts, to.places, to.layout.type, circle->comm);
            note_result(player, "Alltoallv", &to.layout);
            free_type(&from.layout);
            free_type(&to.layout);
            break;
        }
    }
    player->plain = false;
}

/* Each part has its own layout, placed by the byte. */
static void own_types(Player* player, const Circle* circle, Random* random) {
    const int size = circle->size, rank = circle->rank;
    const Base base = draw_base(player, random);
    int left = 3 << 20;
    Count counts[2][MAX_RANKS];
    Displacement places[2][MAX_RANKS] = {{0}};
    long elements[MAX_RANKS][MAX_RANKS];
    MPI_Datatype types[2][MAX_RANKS];
    Layout layouts[2][MAX_RANKS];
    for (int i = 0; i < size; i++) {
        for (int k = 0; k < size; k++) elements[i][k] = chance(random, 15) ? 0 : draw_size(random, &left) / base.size;
    }
    Random own = own_random(player, circle, rank);
    note(player, "Alltoallw of %s", base.name);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < size; i++) {
            Layout* layout = &layouts[side][i];
            player->plain = copies_plain(player, false);
            *layout = draw_layout(player, &own, base, side == 0 ? elements[rank][i] : elements[i][rank], 1, draw(&own));
            counts[side][i] = layout->count;
            types[side][i] = layout->type;
            if (layout->at == MPI_BOTTOM) continue;
            /* All are given by absolute addresses. */
            MPI_Aint address;
            MPI_Get_address(layout->at, &address);
            const Offset offset = address;
            MPI_Type_create_hindexed(1, &layout->count, &offset, layout->type, &types[side][i]);
            MPI_Type_commit(&types[side][i]);
            free_type(layout);
            layout->type = types[side][i];
            layout->owns_type = true;
            counts[side][i] = 1;
        }
    }
    player->plain = false;
    MPI_Alltoallw(MPI_BOTTOM, counts[0], places[0], types[0], MPI_BOTTOM, counts[1], places[1], types[1], circle->comm);
    for (int i = 0; i < size; i++) note_result(player, "Alltoallw", &layouts[1][i]);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < size; i++) free_type(&layouts[side][i]);
    }
}

/* The function x -> scale x + shift: applying one after the other is associative, and not commutative. */
typedef struct {
    uint32_t scale, shift;
} Affine;

static void compose(void* left, void* right, Count* count, MPI_Datatype* type) {
    (void)type;
    const Affine* first = left;
    Affine* second = right;
    for (Count i = 0; i < *count; i++) {
        second[i].shift = second[i].scale * first[i].shift + second[i].shift;
        second[i].scale = second[i].scale * first[i].scale;
    }
}

static void add_words(void* left, void* right, Count* count, MPI_Datatype* type) {
    Count bytes;
    MPI_Type_size(*type, &bytes);
    const uint32_t* from = left;
    uint32_t* to = right;
    for (Count i = 0; i < *count * bytes / 4; i++) to[i] += from[i];
}

typedef struct {
    MPI_Datatype type;
    MPI_Op op;
    int bytes;
    bool owns_type, owns_op, commutes;
    const char* name;
} Reduction;

static Reduction draw_reduction(Random* random) {
    Reduction reduction = {.commutes = true};
    const int kind = below(random, 10);
    if (kind < 2) {
        reduction = (Reduction){
            .bytes = sizeof(Affine), .owns_type = true, .owns_op = true, .name = "an operation that does not commute"};
        MPI_Type_contiguous(2, MPI_UNSIGNED, &reduction.type);
        MPI_Type_commit(&reduction.type);
        MPI_Op_create(compose, 0, &reduction.op);
    } else if (kind < 4) {
        reduction = (Reduction){
            .bytes = 12, .owns_type = true, .owns_op = true, .commutes = true, .name = "an operation of the program"};
        MPI_Type_contiguous(3, MPI_UNSIGNED, &reduction.type);
        MPI_Type_commit(&reduction.type);
        MPI_Op_create(add_words, 1, &reduction.op);
    } else if (kind < 5) {
        const bool least = chance(random, 50);
        reduction = (Reduction){
            .type = MPI_2INT, .op = least ? MPI_MINLOC : MPI_MAXLOC, .bytes = 8, .commutes = true, .name = "a place"};
    } else {
        const struct {
            MPI_Datatype type;
            int bytes;
        } types[] = {{MPI_INT, 4}, {MPI_UNSIGNED, 4}, {MPI_LONG_LONG, 8}, {MPI_UNSIGNED_CHAR, 1}, {MPI_SHORT, 2}};
        const struct {
            MPI_Op op;
            const char* name;
        } ops[] = {{MPI_SUM, "SUM"}, {MPI_PROD, "PROD"}, {MPI_MAX, "MAX"},   {MPI_MIN, "MIN"}, {MPI_BAND, "BAND"},
                   {MPI_BOR, "BOR"}, {MPI_BXOR, "BXOR"}, {MPI_LAND, "LAND"}, {MPI_LOR, "LOR"}, {MPI_LXOR, "LXOR"}};
        const int type = below(random, 5);
        /* Not sums of small integers: Open MPI's saturate or wrap by where an element lies in a vector register. */
        const int op = types[type].bytes < 4 ? between(random, 2, 9) : below(random, 10);
        reduction = (Reduction){.type = types[type].type,
                                .op = ops[op].op,
                                .bytes = types[type].bytes,
                                .commutes = true,
                                .name = ops[op].name};
    }
    return reduction;
}

static uint8_t* draw_values(Player* player, Random* own, size_t size) {
    uint8_t* at = step_memory(player, size + 8);
    fill_bytes(at, size + 8, draw(own));
    return at;
}

static void reductions(Player* player, const Circle* circle, Random* random) {
    const Reduction reduction = draw_reduction(random);
    int left = 2 << 20, all = 0;
    Count counts[MAX_RANKS];
    const int kind = below(random, 6), root = below(random, circle->size);
    const bool in_place = chance(random, 30) && (player->features.reduce_scatter_in_place || (kind != 2 && kind != 3));
    for (int i = 0; i < circle->size; i++) {
        counts[i] = kind == 3 && i > 0                 ? (int)counts[0]
                    : kind == 2 || kind == 3 || i == 0 ? draw_size(random, &left) / reduction.bytes
                                                       : 0;
        if (kind == 3) counts[i] %= 60000;
        all += (int)counts[i];
    }
    Random own = own_random(player, circle, circle->rank);
    const size_t size = (size_t)all * (size_t)reduction.bytes;
    uint8_t *in = draw_values(player, &own, size), *out = draw_values(player, &own, size);
    void* const from = in_place ? MPI_IN_PLACE : in;
    static const char* const names[] = {"Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block",
                                        "Scan",   "Exscan"};
    const char* const name = names[kind];
    note(player, "%s of %d, %s%s", name, all, reduction.name, in_place ? ", in place" : "");
    size_t result = size;
    switch (kind) {
        case 0:
            MPI_Reduce(in_place && circle->rank == root ? MPI_IN_PLACE : in, out, all, reduction.type, reduction.op,
                       root, circle->comm);
            if (circle->rank != root) result = 0;
            break;
        case 1:
            MPI_Allreduce(from, out, all, reduction.type, reduction.op, circle->comm);
            break;
        case 2:
            MPI_Reduce_scatter(from, out, counts, reduction.type, reduction.op, circle->comm);
            result = (size_t)counts[circle->rank] * (size_t)reduction.bytes;
            break;
        case 3:
            MPI_Reduce_scatter_block(from, out, counts[0], reduction.type, reduction.op, circle->comm);
            result = (size_t)counts[0] * (size_t)reduction.bytes;
            break;
        case 4:
            MPI_Scan(from, out, all, reduction.type, reduction.op, circle->comm);
            break;
        default:
            MPI_Exscan(from, out, all, reduction.type, reduction.op, circle->comm);
            if (circle->rank == 0) result = 0; /* not defined there */
            break;
    }
    /* What is not a result is MPI's: the rest of a buffer in place, and Intel MPI uses that of a rank that is not the
     * root. */
    note(player, "%s of %d, %s: %016llx %016llx", name, all, reduction.name,
         (unsigned long long)hash_bytes(out, result), (unsigned long long)(in_place ? 0 : hash_bytes(in, size)));
    Reduction gone = reduction;
    if (gone.owns_type) MPI_Type_free(&gone.type);
    if (gone.owns_op) MPI_Op_free(&gone.op);
}

void collective(Player* player, const Circle* circle, Random* random) {
    void (*const kinds[])(Player*, const Circle*, Random*) = {broadcast, same_parts, different_parts,
                                                              own_types, reductions, reductions};
    player->no_empty = !player->features.empty_types;
    kinds[below(random, 6)](player, circle, random);
    player->no_empty = false;
}

void interlude(Player* player, const Circle* circle, Random* random) {
    MPI_Comm made;
    int own = circle->rank + 1, sum = 0;
    switch (below(random, player->features.constructors_between ? 6 : 4)) {
        case 0:
        case 1:
            MPI_Barrier(circle->comm);
            break;
        case 2:
            MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, circle->comm);
            note(player, "between: sum %d", sum);
            break;
        case 3:
            MPI_Bcast(&own, 1, MPI_INT, below(random, circle->size), circle->comm);
            note(player, "between: of the root %d", own);
            break;
        case 4:
            MPI_Comm_dup(circle->comm, &made);
            MPI_Sendrecv(&own, 1, MPI_INT, (circle->rank + 1) % circle->size, 0, &sum, 1, MPI_INT,
                         (circle->rank + circle->size - 1) % circle->size, 0, made, MPI_STATUS_IGNORE);
            note(player, "between: from the neighbour %d", sum);
            MPI_Comm_free(&made);
            break;
        default:
            MPI_Comm_split(circle->comm, circle->rank % 2, -circle->rank, &made);
            MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_MAX, made);
            note(player, "between: highest of its kind %d", sum);
            MPI_Comm_free(&made);
            break;
    }
}
