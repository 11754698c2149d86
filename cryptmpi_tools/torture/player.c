/* Plays the programs of some seeds, one after the other.
 *
 *     player FOLDER STEPS THREADS ONLY WITHOUT SEED...
 *
 * FOLDER gets a log for each rank and thread. THREADS is 1, or how many threads play at the same time, each its own
 * steps; 0 is one thread that asks for MPI_THREAD_SINGLE. ONLY is one step to play alone, or -1. WITHOUT names what is
 * left out (Features), by commas.
 */
#include "player.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ATTACHED = 64 << 20, MAX_THREADS = 8 };

/* `whole`: the step is for all ranks together. */
static const struct {
    Scene scene;
    bool whole;
} scenes[] = {
    {{"exchange", 30, exchange}, false},
    {{"ring", 8, ring}, false},
    {{"from_anybody", 6, from_anybody}, false},
    {{"probing", 9, probing}, false},
    {{"persistent", 9, persistent}, false},
    {{"truncation", 4, truncation}, false},
    {{"cancelled", 3, cancelled}, false},
    {{"freed", 3, freed}, false},
    {{"nobody", 2, nobody}, false},
    {{"later", 6, later}, true},
    {{"collective", 14, collective}, false},
    {{"constructor", 6, constructor}, false},
    {{"crowd", 2, crowd}, false},
};
enum { SCENES = sizeof scenes / sizeof scenes[0] };

typedef struct {
    Player player;
    int steps, only;
} Part;

static bool named(const char* names, const char* name) {
    const size_t length = strlen(name);
    for (const char* at = names; (at = strstr(at, name)) != NULL; at += length) {
        if ((at == names || at[-1] == ',') && (at[length] == ',' || at[length] == 0)) return true;
    }
    return false;
}

static int weight(const Player* player, int scene) {
    return named(player->without, scenes[scene].scene.name) ? 0 : scenes[scene].scene.weight;
}

static int draw_scene(const Player* player, Random* random) {
    int all = 0, at = 0;
    for (int i = 0; i < SCENES; i++) all += weight(player, i);
    int rest = below(random, all);
    while (rest >= weight(player, at)) rest -= weight(player, at++);
    return at;
}

/* So that tags may be used again, and the buffer for buffered sends is empty. */
static void fence(Player* player) {
    MPI_Barrier(player->world);
    if (!player->features.buffered) return;
    void* at;
    Count size;
    MPI_Buffer_detach(&at, &size);
    note(player, "detached %lld", (long long)size);
    MPI_Buffer_attach(player->attached, ATTACHED);
}

static void play_step(Player* player) {
    Random random = random_of(player->seed, (uint64_t)player->thread, (uint64_t)player->step, 0);
    const int at = draw_scene(player, &random), place = below(&random, player->circle_count);
    const Circle* circle = &player->circles[scenes[at].whole ? 0 : chance(&random, 40) ? 0 : place];
    note(player, "step %s on %s", scenes[at].scene.name, circle->name);
    if (circle->comm == MPI_COMM_NULL) return;
    Random shared = shared_random(player, circle);
    scenes[at].scene.play(player, circle, &shared);
    free_memory(&player->of_step);
}

static void* play(void* argument) {
    Part* part = argument;
    Player* player = &part->player;
    for (int step = 0; step < part->steps; step++) {
        player->step = step;
        finish_later(player, false);
        if (step % STEPS_BETWEEN_FENCES == 0 && step > 0) fence(player);
        if (part->only < 0 || part->only == step) play_step(player);
    }
    player->step = part->steps;
    finish_later(player, true);
    note(player, "end");
    MPI_Barrier(player->world);
    return NULL;
}

static Features features_without(const char* names) {
#define SET_FEATURE(name) .name = !named(names, #name),
    return (Features){FEATURES(SET_FEATURE)};
}

static void play_seed(uint64_t seed, int threads, int steps, int only, const char* without, FILE** logs,
                      void* attached) {
    Part parts[MAX_THREADS] = {{.steps = 0}};
    pthread_t running[MAX_THREADS];
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Buffer_attach(attached, ATTACHED);
    for (int i = 0; i < threads; i++) {
        parts[i] = (Part){.player = {.seed = seed,
                                     .thread = i,
                                     .features = features_without(without),
                                     .without = without,
                                     .log = logs[i],
                                     .rank = rank,
                                     .ranks = ranks},
                          .steps = steps,
                          .only = only};
        parts[i].player.attached = attached;
        /* The buffer and the error handlers are the process's. */
        parts[i].player.features.buffered &= threads == 1;
        parts[i].player.features.truncation &= threads == 1;
        MPI_Comm_dup(MPI_COMM_WORLD, &parts[i].player.world);
        make_circles(&parts[i].player);
    }
    for (int i = 1; i < threads; i++) pthread_create(&running[i], NULL, play, &parts[i]);
    play(&parts[0]);
    for (int i = 1; i < threads; i++) pthread_join(running[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    void* at;
    Count size;
    MPI_Buffer_detach(&at, &size);
    for (int i = 0; i < threads; i++) {
        free_circles(&parts[i].player);
        MPI_Comm_free(&parts[i].player.world);
        free_memory(&parts[i].player.of_program);
    }
}

int main(int argc, char** argv) {
    if (argc < 7) {
        fprintf(stderr, "player: FOLDER STEPS THREADS ONLY WITHOUT SEED... (make torture starts it)\n");
        return 2;
    }
    const int wanted = atoi(argv[3]), threads = wanted > 1 ? wanted : 1;
    int level;
    MPI_Init_thread(&argc, &argv, wanted > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    if (wanted > 0 && level < MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "player: this MPI has no MPI_THREAD_MULTIPLE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FILE* logs[MAX_THREADS];
    for (int i = 0; i < threads; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/rank-%d-thread-%d.log", argv[1], rank, i);
        logs[i] = fopen(path, "w");
        if (logs[i] == NULL) {
            perror(path);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        setvbuf(logs[i], NULL, _IOLBF, 0); /* what a rank that hangs did last is there */
    }
    void* attached = malloc(ATTACHED);
    for (int i = 6; i < argc; i++) {
        play_seed(strtoull(argv[i], NULL, 0), threads, atoi(argv[2]), atoi(argv[4]), argv[5], logs, attached);
    }
    for (int i = 0; i < threads; i++) fclose(logs[i]);
    free(attached);
    if (rank == 0) printf("player: played\n");
    MPI_Finalize();
    return 0;
}
