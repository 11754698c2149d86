/* Random MPI programs, each made of steps. All ranks draw the same numbers, so they agree on a step without talking;
 * what a rank observes goes to its log. Everything that MPI leaves open is kept out of the log, so that two runs of one
 * seed have the same logs.
 */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "counts.h"

/* Numbers */

typedef struct {
    uint64_t state;
} Random;

Random random_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);
uint64_t draw(Random* random);
int below(Random* random, int limit);           /* 0 .. limit - 1 */
int between(Random* random, int low, int high); /* both included */
bool chance(Random* random, int percent);
void shuffle(Random* random, int* items, int count);

/* A program */

/* What an MPI gets wrong plain is left out of its programs, by name: the table WITHOUT of __main__.py has the reasons.
 */
#define FEATURES(USE)                                                                                                  \
    USE(any_source)       /* receives from MPI_ANY_SOURCE */                                                           \
    USE(probe_any_source) /* MPI_Probe and its kin of MPI_ANY_SOURCE */                                                \
    USE(unexpected_self)  /* messages of the own rank that wait for their receives */                                  \
    USE(truncation)                                                                                                    \
    USE(large_truncation)                                                                                              \
    USE(truncation_in_a_node) /* of messages between ranks of one node */                                              \
    USE(truncated_waitall)    /* truncated messages in MPI_Waitall */                                                  \
    USE(buffered)                                                                                                      \
    USE(pairs) /* MPI_SHORT_INT and its like, other than in reductions */                                              \
    USE(bsend_init)                                                                                                    \
    USE(mixed_types)     /* types that differ among the ranks of Bcast and Allgatherv */                               \
    USE(empty_types)     /* types of no size in collective operations */                                               \
    USE(allgather_types) /* derived types in Allgather */                                                              \
    USE(local_copies)    /* derived types in what a collective operation sends, of which a part stays with the rank */ \
    USE(reduce_scatter_in_place)                                                                                       \
    USE(many_unexpected) /* messages that wait for their receives */                                                   \
    USE(status_of_persistent)                                                                                          \
    USE(irecv_of_nobody)                                                                                               \
    USE(disconnect)                                                                                                    \
    USE(constructors_between) /* of communicators, in an interlude */

#define DECLARE_FEATURE(name) bool name;
typedef struct {
    FEATURES(DECLARE_FEATURE)
} Features;

/* A communicator as a rank sees it. Those of one split have different colours. */
typedef struct {
    MPI_Comm comm; /* MPI_COMM_NULL: this rank is not in it */
    int rank, size, colour;
    const char* name;
} Circle;

enum { MAX_CIRCLES = 12, MAX_LATER = 64 };

typedef struct Memory Memory;
typedef struct Pending Pending;

/* One thread's program. */
typedef struct {
    uint64_t seed;
    int thread, step;
    Features features;
    const char* without;
    FILE* log;
    MPI_Comm world; /* this thread's own: only its steps use it */
    MPI_Comm later_world;
    int rank, ranks;
    Circle circles[MAX_CIRCLES];
    int circle_count;
    Memory *of_step, *of_program; /* what is freed with them */
    bool keeping;                 /* what a step takes is kept until the program's end */
    Pending* later[MAX_LATER];    /* operations that a later step completes */
    int due[MAX_LATER];
    int later_count;
    void* attached;
    bool plain;    /* layouts are of predefined types only */
    bool no_empty; /* no layouts of elements of no size */
} Player;

void* step_memory(Player* player, size_t size);
void free_memory(Memory** list);

void note(Player* player, const char* format, ...) __attribute__((format(printf, 2, 3)));
uint64_t hash_bytes(const void* at, size_t size);
void fill_bytes(void* at, size_t size, uint64_t seed);
int error_class(int code);
void wait_briefly(void);

/* The stream of numbers that all ranks of a circle share in this step. */
Random shared_random(const Player* player, const Circle* circle);
/* A stream for one thing of this step, such as one side of a message. */
Random own_random(const Player* player, const Circle* circle, int thing);
/* Tags of a step differ from those of the steps that other ranks may be in. */
enum { TAGS_OF_STEP = 1000, STEPS_BETWEEN_FENCES = 16 };
int first_tag(const Player* player);

/* A size in bytes: often small, often next to where an implementation may change its ways. `left` is what the step may
 * still send. */
int draw_size(Random* random, int* left);

/* Data */

typedef struct {
    const char* name;
    MPI_Datatype type;
    int size;
} Base;

Base draw_base(const Player* player, Random* random);
Base byte_base(void);

/* `count` elements of `type` at `at`: `elements` basic ones of `base`, laid out somehow. */
typedef struct {
    Base base;
    MPI_Datatype type;
    Count count;
    long elements;
    void* at;
    bool owns_type;
    const char* kind;
    uint8_t* memory; /* gaps and a margin on both sides are part of it */
    size_t size;
    uint64_t before;
} Layout;

/* Room for `elements`, `repeat` times one after the other. Its bytes are those of `content`. */
Layout draw_layout(Player* player, Random* random, Base base, long elements, int repeat, uint64_t content);
/* For a message's receiver: as many elements or some more. */
Layout draw_room(Player* player, Random* random, Base base, long elements, uint64_t content);
void free_type(Layout* layout);
uint64_t hash_layout(const Layout* layout);

/* Requests (requests.c) */

struct Pending {
    MPI_Request request;
    int number; /* of the message */
    bool receives, persistent, done, has_status;
    MPI_Status status;
    Layout layout;
};

void note_probed(Player* player, int number, const MPI_Status* status, const Layout* layout);
void note_received(Player* player, int number, const MPI_Status* status, const Layout* layout);
void note_sent(Player* player, int number, const Layout* layout);
void note_pending(Player* player, const Pending* pending);
/* Waits for one, by one call or by polling. */
void complete_one(Player* player, Random* random, Pending* pending);
/* Waits for those that are not done, all by one form of call. */
void complete_all(Player* player, Random* random, Pending* pending, int count);

/* Messages (messages.c) */

typedef enum { SEND, SSEND, BSEND, RSEND, ISEND, ISSEND, IBSEND, IRSEND, ISEND_FREED, SEND_FORMS } SendForm;
typedef enum {
    RECV,
    IRECV,
    RECV_INIT,
    PROBE,
    PROBE_BLIND,
    IPROBE,
    MPROBE,
    MPROBE_IMRECV,
    IMPROBE,
    IMPROBE_IMRECV,
    RECEIVE_FORMS
} ReceiveForm;

extern const char* const send_names[SEND_FORMS];
extern const char* const receive_names[RECEIVE_FORMS];

bool send_blocks(SendForm form);
bool receive_probes(ReceiveForm form);
/* Both return true where the operation is pending, and then set all of `pending`. A receive that is done is noted. */
bool send_message(Player* player, SendForm form, Layout* layout, int to, int tag, MPI_Comm comm, int number,
                  Pending* pending);
bool receive_message(Player* player, ReceiveForm form, Layout* layout, int from, int tag, MPI_Comm comm, int number,
                     Pending* pending);

/* Steps */

typedef struct {
    const char* name;
    int weight;
    void (*play)(Player* player, const Circle* circle, Random* random);
} Scene;

void exchange(Player* player, const Circle* circle, Random* random);
void crowd(Player* player, const Circle* circle, Random* random);
void ring(Player* player, const Circle* circle, Random* random);
void from_anybody(Player* player, const Circle* circle, Random* random);
void probing(Player* player, const Circle* circle, Random* random);
void persistent(Player* player, const Circle* circle, Random* random);
void truncation(Player* player, const Circle* circle, Random* random);
void cancelled(Player* player, const Circle* circle, Random* random);
void freed(Player* player, const Circle* circle, Random* random);
void nobody(Player* player, const Circle* circle, Random* random);
void later(Player* player, const Circle* circle, Random* random);
void finish_later(Player* player, bool all);
void collective(Player* player, const Circle* circle, Random* random);
void constructor(Player* player, const Circle* circle, Random* random);

/* Some collective operation on the circle in the midst of another step. */
void interlude(Player* player, const Circle* circle, Random* random);

bool share_a_node(const Player* player, const Circle* circle, int a, int b);
void make_circles(Player* player);
void free_circles(Player* player);
