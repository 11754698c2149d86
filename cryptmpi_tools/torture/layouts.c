/* The same elements in memory in many ways. */
#include <string.h>

#include "player.h"

Base draw_base(const Player* player, Random* random) {
    const Base bases[] = {
        {"MPI_BYTE", MPI_BYTE, 1},
        {"MPI_CHAR", MPI_CHAR, 1},
        {"MPI_BYTE", MPI_BYTE, 1},
        {"MPI_SHORT", MPI_SHORT, sizeof(short)},
        {"MPI_INT", MPI_INT, sizeof(int)},
        {"MPI_FLOAT", MPI_FLOAT, sizeof(float)},
        {"MPI_DOUBLE", MPI_DOUBLE, sizeof(double)},
        {"MPI_LONG_LONG", MPI_LONG_LONG, sizeof(long long)},
        {"MPI_DOUBLE_INT", MPI_DOUBLE_INT, sizeof(double) + sizeof(int)},
        {"MPI_SHORT_INT", MPI_SHORT_INT, sizeof(short) + sizeof(int)},
        {"MPI_2INT", MPI_2INT, 2 * sizeof(int)},
    };
    enum { ALL = sizeof bases / sizeof bases[0], PAIRS = 3 };
    return bases[below(random, player->features.pairs ? ALL : ALL - PAIRS)];
}

Base byte_base(void) {
    return (Base){.name = "MPI_BYTE", .type = MPI_BYTE, .size = 1};
}

/* A small divisor of n. */
static int draw_divisor(Random* random, long n) {
    const int wanted = between(random, 1, 9);
    for (int i = wanted; i > 1; i--) {
        if (n % i == 0) return i;
    }
    return 1;
}

enum { MAX_BLOCKS = 6 };

/* Splits `each` elements into blocks, with gaps between them, in an order of their own. In elements. */
static int draw_blocks(Random* random, int each, Count* lengths, Count* places) {
    const int blocks = between(random, 1, each < MAX_BLOCKS ? each : MAX_BLOCKS);
    int order[MAX_BLOCKS], rest = each, place = below(random, 3);
    for (int i = 0; i < blocks; i++) {
        order[i] = i;
        lengths[i] = i == blocks - 1 ? rest : between(random, 1, rest - (blocks - 1 - i));
        rest -= lengths[i];
    }
    if (chance(random, 50)) shuffle(random, order, blocks);
    for (int i = 0; i < blocks; i++) {
        places[order[i]] = place;
        place += lengths[order[i]] + below(random, 3);
    }
    return blocks;
}

static MPI_Datatype draw_type(Random* random, Base base, int each, const char** kind) {
    MPI_Datatype type = MPI_DATATYPE_NULL, inner;
    MPI_Aint lower, extent;
    MPI_Type_get_extent(base.type, &lower, &extent);
    Count lengths[MAX_BLOCKS], places[MAX_BLOCKS];
    switch (below(random, 8)) {
        case 0:
            *kind = "contiguous";
            MPI_Type_contiguous(each, base.type, &type);
            break;
        case 1: {
            *kind = "vector";
            int length = each;
            for (int i = between(random, 2, 40); i > 1; i--) {
                if (each % i == 0) {
                    length = each / i;
                    break;
                }
            }
            MPI_Type_vector(each / length, length, length + between(random, 1, 3), base.type, &type);
            break;
        }
        case 2: {
            *kind = "vector backwards";
            const int blocks = draw_divisor(random, each), length = each / blocks;
            MPI_Type_create_hvector(blocks, length, -(length * extent + 8), base.type, &type);
            break;
        }
        case 3:
            *kind = "indexed";
            MPI_Type_indexed(draw_blocks(random, each, lengths, places), lengths, places, base.type, &type);
            break;
        case 4: {
            *kind = "struct";
            Offset bytes[MAX_BLOCKS + 1];
            MPI_Datatype types[MAX_BLOCKS + 1];
            Count all_lengths[MAX_BLOCKS + 1];
            const int blocks = draw_blocks(random, each, lengths, places);
            for (int i = 0; i < blocks; i++) {
                types[i] = base.type;
                bytes[i] = places[i] * extent + 16;
                all_lengths[i] = lengths[i];
            }
            types[blocks] = MPI_LONG_LONG;
            bytes[blocks] = 0;
            all_lengths[blocks] = 0;
            MPI_Type_create_struct(blocks + 1, all_lengths, bytes, types, &type);
            break;
        }
        case 5:
            *kind = "resized";
            MPI_Type_contiguous(each, base.type, &inner);
            MPI_Type_create_resized(inner, -16, each * extent + 16 * between(random, 1, 3), &type);
            MPI_Type_free(&inner);
            break;
        case 6: {
            *kind = "subarray";
            const int rows = draw_divisor(random, each);
            const Count part[2] = {rows, each / rows}, whole[2] = {rows + 2, each / rows + between(random, 0, 2)};
            const Count start[2] = {between(random, 0, 2), whole[1] - part[1]};
            MPI_Type_create_subarray(2, whole, part, start, chance(random, 50) ? MPI_ORDER_C : MPI_ORDER_FORTRAN,
                                     base.type, &type);
            break;
        }
        default:
            *kind = "dup";
            MPI_Type_contiguous(each, base.type, &inner);
            MPI_Type_dup(inner, &type);
            MPI_Type_free(&inner);
            break;
    }
    MPI_Type_commit(&type);
    return type;
}

/* Room for it, with a margin. */
static void place(Player* player, Layout* layout, int repeat, uint64_t content) {
    enum { MARGIN = 64 };
    MPI_Aint lower, extent, true_lower, true_extent;
    MPI_Type_get_extent(layout->type, &lower, &extent);
    MPI_Type_get_true_extent(layout->type, &true_lower, &true_extent);
    const long all = (long)layout->count * repeat;
    const MPI_Aint span = all == 0 ? 0 : true_extent + (all - 1) * extent;
    layout->size = (size_t)span + 2 * MARGIN;
    layout->memory = step_memory(player, layout->size);
    layout->at = layout->memory + MARGIN - true_lower;
    fill_bytes(layout->memory, layout->size, content);
    layout->before = hash_layout(layout);
}

Layout draw_layout(Player* player, Random* random, Base base, long elements, int repeat, uint64_t content) {
    Layout layout = {.base = base, .type = base.type, .count = (Count)elements, .elements = elements, .kind = "plain"};
    if (player->plain) {
        /* as it is */
    } else if (elements != 0 && chance(random, 55)) {
        layout.count = draw_divisor(random, elements);
        layout.type = draw_type(random, base, (int)(elements / layout.count), &layout.kind);
        layout.owns_type = true;
    } else if (elements == 0 && chance(random, 50) && !player->no_empty) {
        layout.kind = "empty type";
        layout.count = 1;
        MPI_Type_contiguous(0, base.type, &layout.type);
        MPI_Type_commit(&layout.type);
        layout.owns_type = true;
    }
    place(player, &layout, repeat, content);
    if (repeat == 1 && layout.owns_type && elements != 0 && chance(random, 15)) {
        MPI_Aint address;
        MPI_Get_address(layout.at, &address);
        MPI_Datatype moved;
        const Offset offset = address;
        MPI_Type_create_hindexed(1, &layout.count, &offset, layout.type, &moved);
        MPI_Type_commit(&moved);
        MPI_Type_free(&layout.type);
        layout.type = moved;
        layout.count = 1;
        layout.at = MPI_BOTTOM;
    }
    return layout;
}

Layout draw_room(Player* player, Random* random, Base base, long elements, uint64_t content) {
    if (chance(random, 30))
        elements += chance(random, 70) ? between(random, 1, 40) : between(random, 1, 100000 / base.size);
    return draw_layout(player, random, base, elements, 1, content);
}

void free_type(Layout* layout) {
    if (layout->owns_type) MPI_Type_free(&layout->type);
    layout->owns_type = false;
    layout->type = layout->base.type;
}

uint64_t hash_layout(const Layout* layout) {
    return hash_bytes(layout->memory, layout->size);
}
