/* Numbers, memory and the log. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "player.h"

/* splitmix64 */
uint64_t draw(Random* random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

Random random_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    Random random = {seed};
    random.state = draw(&random) ^ a;
    random.state = draw(&random) ^ b;
    random.state = draw(&random) ^ c;
    random.state = draw(&random);
    return random;
}

int below(Random* random, int limit) {
    return (int)(draw(random) % (uint64_t)limit);
}

int between(Random* random, int low, int high) {
    return low + below(random, high - low + 1);
}

bool chance(Random* random, int percent) {
    return below(random, 100) < percent;
}

void shuffle(Random* random, int* items, int count) {
    for (int i = count - 1; i > 0; i--) {
        const int k = below(random, i + 1), item = items[i];
        items[i] = items[k];
        items[k] = item;
    }
}

Random shared_random(const Player* player, const Circle* circle) {
    return random_of(player->seed, (uint64_t)player->thread, (uint64_t)player->step, (uint64_t)circle->colour);
}

Random own_random(const Player* player, const Circle* circle, int thing) {
    Random shared = shared_random(player, circle);
    return random_of(draw(&shared), (uint64_t)thing, 1, 1);
}

int first_tag(const Player* player) {
    return 1 + player->step % (2 * STEPS_BETWEEN_FENCES) * TAGS_OF_STEP;
}

int draw_size(Random* random, int* left) {
    static const int edges[] = {1 << 15, 1 << 16, 1 << 16, 1 << 16, 1 << 17,
                                1 << 17, 1 << 18, 1 << 18, 1 << 19, 1 << 20};
    int size;
    const int kind = below(random, 100);
    if (kind < 10) {
        size = below(random, 2);
    } else if (kind < 30) {
        size = 2 * below(random, 40) + 1;
    } else if (kind < 45) {
        size = below(random, 20000);
    } else if (kind < 93) {
        size = edges[below(random, sizeof edges / sizeof edges[0])] + between(random, -48, 48);
    } else if (kind < 98) {
        size = between(random, 1 << 15, 3 << 20);
    } else {
        size = (5 << 20) + between(random, -100, 100);
    }
    if (size > *left) size = below(random, 100);
    *left -= size;
    return size;
}

struct Memory {
    Memory* next;
    uint64_t align; /* what follows is as aligned as malloc's */
};

static void* take_memory(Memory** list, size_t size) {
    Memory* memory = malloc(sizeof(Memory) + size);
    if (memory == NULL) {
        fprintf(stderr, "torture: no memory for %zu bytes\n", size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memory->next = *list;
    *list = memory;
    return memory + 1;
}

void* step_memory(Player* player, size_t size) {
    return take_memory(player->keeping ? &player->of_program : &player->of_step, size);
}

void free_memory(Memory** list) {
    while (*list != NULL) {
        Memory* next = (*list)->next;
        free(*list);
        *list = next;
    }
}

void note(Player* player, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(player->log, "%llu %d ", (unsigned long long)player->seed, player->step);
    vfprintf(player->log, format, arguments);
    fputc('\n', player->log);
    va_end(arguments);
}

uint64_t hash_bytes(const void* at, size_t size) {
    const uint8_t* bytes = at;
    uint64_t hash = 0xcbf29ce484222325u ^ size, word;
    for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * 0x9fb21c651e98df25u;
        hash ^= hash >> 29;
    }
    for (; size > 0; size--) hash = (hash ^ *bytes++) * 0x100000001b3u;
    return hash ^ (hash >> 32);
}

void fill_bytes(void* at, size_t size, uint64_t seed) {
    uint8_t* bytes = at;
    Random random = {seed};
    for (; size > 0;) {
        const uint64_t word = draw(&random);
        const size_t part = size < sizeof word ? size : sizeof word;
        memcpy(bytes, &word, part);
        bytes += part;
        size -= part;
    }
}

int error_class(int code) {
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

void wait_briefly(void) {
    const struct timespec pause = {0, 20000};
    nanosleep(&pause, NULL);
}
