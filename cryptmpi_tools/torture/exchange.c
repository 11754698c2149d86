/* The general step: messages among all ranks of a circle.
 *
 * The messages have one order for all ranks. Some receives are posted before all messages (EARLY), some in the
 * message's turn, some after all (LATE). A rank does what is its part of a message in the message's turn, and may wait
 * in or after that turn. So, whoever blocks does so for something that comes earlier in the one order: nothing can
 * deadlock, however little MPI buffers. Sends to late receives do not block.
 *
 * Which receive gets which message is determined, too. From one rank to another either all tags differ, and receives
 * name them in any order, or the receives are posted in the order of the messages, with tags that repeat or
 * MPI_ANY_TAG.
 */
#include "player.h"

typedef enum { EARLY, IN_TURN, LATE } Place;

typedef struct {
    int from, to, tag;
    bool in_order, any_source, any_tag;
    Base base;
    long elements;
    SendForm send;
    ReceiveForm receive;
    Place place;
    int send_wait, receive_wait; /* the turn after which it is waited for; at the end if there is none */
} Message;

typedef struct {
    Player* player;
    const Circle* circle;
    Message* messages;
    int count;
    Pending* open;
    int opened;
    Random own;
} Exchange;

enum { AT_END = 1 << 30, BUFFERED_OF_STEP = 1 << 20 };
static const char* const place_names[] = {"early", "in turn", "late"};

static SendForm draw_send(Random* random, Place place, bool to_self, int size, int* buffered) {
    static const SendForm any[] = {SEND,   SEND,  SEND,   SSEND, ISEND,  ISEND,
                                   ISSEND, BSEND, IBSEND, RSEND, IRSEND, ISEND_FREED};
    SendForm form = any[below(random, sizeof any / sizeof any[0])];
    const bool may_block = place != LATE && !(to_self && place != EARLY);
    if ((form == RSEND || form == IRSEND) && place != EARLY) form = ISEND;
    if (send_blocks(form) && !may_block) form = chance(random, 50) ? ISEND : ISSEND;
    if (form == BSEND || form == IBSEND) {
        if (size > *buffered) return ISEND;
        *buffered -= size;
    }
    return form;
}

static ReceiveForm draw_receive(Random* random, Place place) {
    if (place == EARLY) return chance(random, 20) ? RECV_INIT : IRECV;
    const ReceiveForm form = below(random, RECEIVE_FORMS);
    return form > IRECV && chance(random, 30) ? RECV : form;
}

static void draw_messages(Exchange* exchange, Random* random, int left) {
    const Player* player = exchange->player;
    const int size = exchange->circle->size;
    uint64_t ordered = draw(random);
    int buffered = player->features.buffered ? BUFFERED_OF_STEP : -1;
    Place last[16][16] = {{EARLY}};
    for (int i = 0; i < exchange->count; i++) {
        Message* message = &exchange->messages[i];
        message->from = below(random, size);
        message->to =
            chance(random, 12) ? message->from : (message->from + between(random, 1, size > 1 ? size - 1 : 1)) % size;
        const int pair = message->from * size + message->to;
        message->in_order = ordered >> (pair % 64) & 1;
        message->place = below(random, 3);
        if (exchange->count > 20 && !player->features.many_unexpected) message->place = EARLY;
        message->tag = first_tag(player) + (message->in_order ? 500 + pair * 4 + below(random, 3) : i);
        if (message->from == message->to && !player->features.unexpected_self) message->place = EARLY;
        if (message->in_order) {
            Place* before = &last[message->from][message->to];
            if (message->place < *before) message->place = *before;
            *before = message->place;
        }
        message->any_tag = message->in_order && chance(random, 50);
        message->receive = draw_receive(random, message->place);
        message->any_source = !message->any_tag && chance(random, 20) && player->features.any_source &&
                              !(receive_probes(message->receive) && player->features.probe_any_source == false);
        message->base = draw_base(player, random);
        const int bytes = draw_size(random, &left);
        message->elements = bytes / message->base.size;
        message->send = draw_send(random, message->place, message->from == message->to, bytes, &buffered);
        message->receive_wait = chance(random, 40) ? between(random, i, exchange->count) : AT_END;
        message->send_wait =
            message->place != LATE && chance(random, 40) ? between(random, i, exchange->count) : AT_END;
    }
}

static void describe(const Exchange* exchange, int i, bool receives) {
    const Message* message = &exchange->messages[i];
    note(exchange->player, "message %d: %s %d, tag %d%s%s, %ld %s, %s, %s %s", i, receives ? "from" : "to",
         receives ? message->from : message->to, message->tag, message->any_tag ? " any tag" : "",
         message->any_source ? " any source" : "", message->elements, message->base.name, send_names[message->send],
         place_names[message->place], receive_names[message->receive]);
}

static void send(Exchange* exchange, int i) {
    const Message* message = &exchange->messages[i];
    Player* player = exchange->player;
    Random random = own_random(player, exchange->circle, 2 * i);
    describe(exchange, i, false);
    player->keeping = message->send == ISEND_FREED; /* nobody knows when MPI is done with it */
    Layout layout = draw_layout(player, &random, message->base, message->elements, 1, draw(&random));
    player->keeping = false;
    exchange->opened += send_message(player, message->send, &layout, message->to, message->tag, exchange->circle->comm,
                                     i, &exchange->open[exchange->opened]);
}

static void receive(Exchange* exchange, int i) {
    const Message* message = &exchange->messages[i];
    Player* player = exchange->player;
    Random random = own_random(player, exchange->circle, 2 * i + 1);
    describe(exchange, i, true);
    Layout layout = draw_room(player, &random, message->base, message->elements, draw(&random));
    exchange->opened += receive_message(
        player, message->receive, &layout, message->any_source ? MPI_ANY_SOURCE : message->from,
        message->any_tag ? MPI_ANY_TAG : message->tag, exchange->circle->comm, i, &exchange->open[exchange->opened]);
}

static int pair_of(const Exchange* exchange, int i) {
    const Message* message = &exchange->messages[i];
    return message->in_order ? message->from * exchange->circle->size + message->to : -1 - i;
}

/* The receives of a place, in an order of this rank's; those of a pair that is in order stay so. */
static void receive_all(Exchange* exchange, Place place) {
    Player* player = exchange->player;
    int* order = step_memory(player, (size_t)(exchange->count + 1) * sizeof *order);
    int count = 0;
    for (int i = 0; i < exchange->count; i++) {
        if (exchange->messages[i].to == exchange->circle->rank && exchange->messages[i].place == place)
            order[count++] = i;
    }
    shuffle(&exchange->own, order, count);
    for (int i = 0; i < count; i++) {
        for (int k = i + 1; k < count; k++) {
            if (pair_of(exchange, order[i]) == pair_of(exchange, order[k]) && order[k] < order[i]) {
                const int larger = order[i];
                order[i] = order[k];
                order[k] = larger;
            }
        }
    }
    for (int i = 0; i < count; i++) receive(exchange, order[i]);
}

static void wait_in_turn(Exchange* exchange, int turn) {
    for (int i = 0; i < exchange->opened; i++) {
        Pending* pending = &exchange->open[i];
        const Message* message = &exchange->messages[pending->number];
        const int wanted = pending->receives ? message->receive_wait : message->send_wait;
        if (!pending->done && wanted == turn) complete_one(exchange->player, &exchange->own, pending);
    }
}

static bool any_ready(const Exchange* exchange) {
    for (int i = 0; i < exchange->count; i++) {
        if (exchange->messages[i].send == RSEND || exchange->messages[i].send == IRSEND) return true;
    }
    return false;
}

static void play(Player* player, const Circle* circle, Random* random, int count, int left) {
    Exchange exchange = {.player = player, .circle = circle, .count = count};
    exchange.messages = step_memory(player, (size_t)count * sizeof *exchange.messages);
    exchange.open = step_memory(player, (size_t)count * 2 * sizeof *exchange.open);
    exchange.own = own_random(player, circle, -1 - circle->rank);
    draw_messages(&exchange, random, left);
    const int interludes = chance(random, 50) ? between(random, 1, 2) : 0;
    int turns[2] = {below(random, count), below(random, count)};

    receive_all(&exchange, EARLY);
    if (any_ready(&exchange)) MPI_Barrier(circle->comm);
    for (int i = 0; i < count; i++) {
        const Message* message = &exchange.messages[i];
        for (int k = 0; k < interludes; k++) {
            if (turns[k] == i) interlude(player, circle, random);
        }
        if (message->from == circle->rank) send(&exchange, i);
        if (message->to == circle->rank && message->place == IN_TURN) receive(&exchange, i);
        wait_in_turn(&exchange, i);
    }
    receive_all(&exchange, LATE);
    complete_all(player, &exchange.own, exchange.open, exchange.opened);
    for (int i = 0; i < exchange.opened; i++) {
        Pending* pending = &exchange.open[i];
        note_pending(player, pending);
        free_type(&pending->layout);
        if (pending->persistent) MPI_Request_free(&pending->request);
    }
}

void exchange(Player* player, const Circle* circle, Random* random) {
    play(player, circle, random, between(random, 1, 10), 8 << 20);
}

/* Many at once: more than anybody's table. */
void crowd(Player* player, const Circle* circle, Random* random) {
    play(player, circle, random, between(random, 100, 250), chance(random, 50) ? 100000 : 4 << 20);
}
