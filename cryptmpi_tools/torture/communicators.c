/* The communicators of a program, and steps that make and free more. */
#include "player.h"

static void add(Player* player, const char* name, MPI_Comm comm, int colour) {
    Circle* circle = &player->circles[player->circle_count++];
    *circle = (Circle){.comm = comm, .colour = player->circle_count * 100 + colour, .name = name};
    if (comm == MPI_COMM_NULL) return;
    MPI_Comm_rank(comm, &circle->rank);
    MPI_Comm_size(comm, &circle->size);
}

static MPI_Comm make_grid(MPI_Comm comm, int size) {
    MPI_Comm made;
    int sizes[2] = {0, 0}, periods[2] = {1, 0};
    MPI_Dims_create(size, 2, sizes);
    MPI_Cart_create(comm, 2, sizes, periods, 0, &made);
    return made;
}

/* A communicator of all ranks but the last, made without it. */
static MPI_Comm make_of_group(MPI_Comm comm, int rank, int size) {
    MPI_Group all, most;
    MPI_Comm made = MPI_COMM_NULL;
    int last = size - 1;
    MPI_Comm_group(comm, &all);
    MPI_Group_excl(all, size > 1, &last, &most);
    if (rank != last || size == 1) MPI_Comm_create_group(comm, most, 5, &made);
    MPI_Group_free(&all);
    MPI_Group_free(&most);
    return made;
}

static bool on_first_node(const Player* player, int rank) {
    return rank < (player->ranks + 1) / 2;
}

bool share_a_node(const Player* player, const Circle* circle, int a, int b) {
    const int ranks[2] = {a, b};
    int world_ranks[2];
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(circle->comm, &group);
    MPI_Group_translate_ranks(group, 2, ranks, world, world_ranks);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return on_first_node(player, world_ranks[0]) == on_first_node(player, world_ranks[1]);
}

void make_circles(Player* player) {
    MPI_Comm made;
    const int rank = player->rank, half = on_first_node(player, rank);
    add(player, "world", player->world, 0);
    MPI_Comm_dup(player->world, &made);
    add(player, "dup", made, 0);
    MPI_Comm_split(player->world, 0, -rank, &made);
    add(player, "reverse", made, 0);
    MPI_Comm_split(player->world, rank % 2, rank, &made);
    add(player, "parity", made, rank % 2);
    MPI_Comm_split(player->world, half, rank, &made);
    add(player, "half", made, half);
    add(player, "cart", make_grid(player->world, player->ranks), 0);
    add(player, "create_group", make_of_group(player->world, rank, player->ranks), 0);
    MPI_Comm_dup(player->world, &player->later_world);
}

void free_circles(Player* player) {
    for (int i = 1; i < player->circle_count; i++) {
        if (player->circles[i].comm != MPI_COMM_NULL) MPI_Comm_free(&player->circles[i].comm);
    }
    player->circle_count = 0;
    MPI_Comm_free(&player->later_world);
}

#if MPI_VERSION >= 4

static void make_from_group(const Player* player, MPI_Group group, MPI_Comm* made) {
    char tag[32];
    sprintf(tag, "of thread %d", player->thread);
    MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, made);
}

enum { KINDS_HERE = 10 };

#else

static void make_from_group(const Player* player, MPI_Group group, MPI_Comm* made) {
    (void)player, (void)group, (void)made;
}

enum { KINDS_HERE = 9 };

#endif

/* A communicator that lives for this step. */
void constructor(Player* player, const Circle* circle, Random* random) {
    static const char* const names[] = {"dup",  "idup",     "split",      "create",        "create_group",
                                        "cart", "cart_sub", "split_type", "dup_with_info", "create_from_group"};
    const int kind = below(random, KINDS_HERE);
    int colour = 0;
    Circle made = {.comm = MPI_COMM_NULL, .name = names[kind]};
    MPI_Request request;
    MPI_Group group, part;
    int ranges[1][3] = {{circle->size - 1, chance(random, 50) ? 0 : (circle->size - 1) / 2, -1}};
    switch (kind) {
        case 0:
            MPI_Comm_dup(circle->comm, &made.comm);
            break;
        case 1: {
            MPI_Comm_idup(circle->comm, &made.comm, &request);
            Random own = own_random(player, circle, 50 + circle->rank);
            Pending pending = {.request = request};
            complete_one(player, &own, &pending);
            break;
        }
        case 2:
            colour = circle->rank % 2;
            MPI_Comm_split(circle->comm, colour, chance(random, 50) ? -circle->rank : circle->rank, &made.comm);
            break;
        case 3:
        case 4:
        case 9:
            MPI_Comm_group(circle->comm, &group);
            MPI_Group_range_incl(group, 1, ranges, &part);
            if (kind == 3) {
                MPI_Comm_create(circle->comm, part, &made.comm);
            } else if (circle->rank < ranges[0][1]) {
                /* not in it */
            } else if (kind == 4) {
                MPI_Comm_create_group(circle->comm, part, 9, &made.comm);
            } else {
                make_from_group(player, part, &made.comm);
            }
            MPI_Group_free(&group);
            MPI_Group_free(&part);
            break;
        case 5:
            made.comm = make_grid(circle->comm, circle->size);
            break;
        case 6: {
            MPI_Comm grid = make_grid(circle->comm, circle->size);
            int keep[2] = {0, 1}, place[2], rank;
            MPI_Comm_rank(grid, &rank);
            MPI_Cart_coords(grid, rank, 2, place);
            colour = place[0];
            MPI_Cart_sub(grid, keep, &made.comm);
            MPI_Comm_free(&grid);
            break;
        }
        case 7:
            colour = player->rank < (player->ranks + 1) / 2;
            MPI_Comm_split_type(circle->comm, MPI_COMM_TYPE_SHARED, circle->rank, MPI_INFO_NULL, &made.comm);
            break;
        default:
            MPI_Comm_dup_with_info(circle->comm, MPI_INFO_NULL, &made.comm);
            break;
    }
    note(player, "%s: %s", names[kind], made.comm == MPI_COMM_NULL ? "not in it" : "in it");
    if (made.comm == MPI_COMM_NULL) return;
    MPI_Comm_rank(made.comm, &made.rank);
    MPI_Comm_size(made.comm, &made.size);
    note(player, "%s: rank %d of %d", names[kind], made.rank, made.size);
    made.colour = 10000 + circle->colour * 10 + colour;
    Random shared = shared_random(player, &made);
    ring(player, &made, &shared);
    const bool busy = chance(&shared, 50);
    if (busy) exchange(player, &made, &shared);
    if (chance(&shared, 40)) {
        collective(player, &made, &shared);
    }
    if (chance(&shared, 40)) {
        /* What is on its way when it is freed comes to its end. */
        int left = 1 << 20;
        const int bytes = draw_size(&shared, &left), to = (made.rank + 1) % made.size,
                  from = (made.rank + made.size - 1) % made.size;
        Random own = own_random(player, &made, 70 + made.rank);
        Pending pending[2];
        Layout in = draw_room(player, &own, byte_base(), bytes, draw(&own));
        Layout out = draw_layout(player, &own, byte_base(), bytes, 1, draw(&own));
        receive_message(player, IRECV, &in, from, 3, made.comm, 0, &pending[0]);
        send_message(player, ISEND, &out, to, 3, made.comm, 0, &pending[1]);
        MPI_Comm_free(&made.comm);
        complete_all(player, &own, pending, 2);
        note_pending(player, &pending[0]);
        note_pending(player, &pending[1]);
        free_type(&pending[0].layout);
    } else if (!busy && chance(&shared, 50) && player->features.disconnect) {
        /* MPICH waits for ever where buffered or freed sends went before. */
        MPI_Comm_disconnect(&made.comm);
    } else {
        MPI_Comm_free(&made.comm);
    }
}
