/* Steps that look at one thing each. */
#include <stdlib.h>

#include "player.h"

enum { MAX_RANKS = 16 };

/* Everybody to the next but some, and from the one before, in a call that does both. */
void ring(Player* player, const Circle* circle, Random* random) {
    int left = 6 << 20, sizes[MAX_RANKS];
    const Base base = draw_base(player, random);
    const int shift = below(random, circle->size + 1), tag = first_tag(player) + 900;
    const int to = (circle->rank + shift) % circle->size,
              from = (circle->rank + circle->size - shift % circle->size) % circle->size;
    for (int i = 0; i < circle->size; i++) sizes[i] = draw_size(random, &left) / base.size;
    const bool replaces = chance(random, 40), any_tag = chance(random, 30),
               any_source = !any_tag && chance(random, 20) && player->features.any_source;
    Random own = own_random(player, circle, circle->rank);
    MPI_Status status;
    MPI_Status* const wanted = chance(&own, 80) ? &status : MPI_STATUS_IGNORE;
    Layout in;
    if (replaces) {
        in = draw_layout(player, &own, base, sizes[0], 1, draw(&own));
        MPI_Sendrecv_replace(in.at, in.count, in.type, to, tag, any_source ? MPI_ANY_SOURCE : from,
                             any_tag ? MPI_ANY_TAG : tag, circle->comm, wanted);
    } else {
        Layout out = draw_layout(player, &own, base, sizes[circle->rank], 1, draw(&own));
        in = draw_room(player, &own, base, sizes[from], draw(&own));
        MPI_Sendrecv(out.at, out.count, out.type, to, tag, in.at, in.count, in.type, any_source ? MPI_ANY_SOURCE : from,
                     any_tag ? MPI_ANY_TAG : tag, circle->comm, wanted);
        note_sent(player, circle->rank, &out);
        free_type(&out);
    }
    note_received(player, from, wanted == &status ? &status : NULL, &in);
    free_type(&in);
}

/* What one receive from anybody got. */
typedef struct {
    int source, place, tag;
    Count count;
    uint64_t hash;
} Got;

static int by_source(const void* left, const void* right) {
    const Got *a = left, *b = right;
    return a->source != b->source ? a->source - b->source : a->place - b->place;
}

static void receive_from_anybody(Player* player, const Circle* circle, Random* random, int count, int room) {
    Got* got = step_memory(player, (size_t)count * sizeof *got);
    MPI_Request* requests = step_memory(player, (size_t)count * sizeof *requests);
    uint8_t** buffers = step_memory(player, (size_t)count * sizeof *buffers);
    for (int i = 0; i < count; i++) {
        MPI_Status status, probed;
        MPI_Message message;
        buffers[i] = step_memory(player, (size_t)room + 1);
        fill_bytes(buffers[i], (size_t)room, 1);
        requests[i] = MPI_REQUEST_NULL;
        const ReceiveForm form = player->features.probe_any_source ? below(random, RECEIVE_FORMS)
                                 : below(random, 2)                ? RECV
                                                                   : IRECV;
        switch (form) {
            case IRECV:
            case RECV_INIT:
                MPI_Irecv(buffers[i], room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, circle->comm, &requests[i]);
                continue;
            case PROBE:
            case PROBE_BLIND:
            case IPROBE:
                MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, circle->comm, &probed);
                MPI_Recv(buffers[i], room, MPI_BYTE, probed.MPI_SOURCE, probed.MPI_TAG, circle->comm, &status);
                break;
            case MPROBE:
            case MPROBE_IMRECV:
            case IMPROBE:
            case IMPROBE_IMRECV:
                MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, circle->comm, &message, &probed);
                MPI_Mrecv(buffers[i], room, MPI_BYTE, &message, &status);
                break;
            default:
                MPI_Recv(buffers[i], room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, circle->comm, &status);
                break;
        }
        got[i] = (Got){.source = status.MPI_SOURCE, .tag = status.MPI_TAG};
        MPI_Get_count(&status, MPI_BYTE, &got[i].count);
    }
    for (int i = 0; i < count; i++) {
        if (requests[i] != MPI_REQUEST_NULL) {
            MPI_Status status;
            MPI_Wait(&requests[i], &status);
            got[i] = (Got){.source = status.MPI_SOURCE, .tag = status.MPI_TAG};
            MPI_Get_count(&status, MPI_BYTE, &got[i].count);
        }
        got[i].place = i;
        got[i].hash = hash_bytes(buffers[i], (size_t)room);
    }
    qsort(got, (size_t)count, sizeof *got, by_source);
    for (int i = 0; i < count; i++) {
        note(player, "from anybody: source %d tag %d count %lld buffer %016llx", got[i].source, got[i].tag,
             (long long)got[i].count, (unsigned long long)got[i].hash);
    }
}

/* All send to one, who takes what comes. The sources' order is open; that of each source's messages is not. */
void from_anybody(Player* player, const Circle* circle, Random* random) {
    if (!player->features.any_source) return;
    enum { MOST = 6 };
    const int root = below(random, circle->size);
    int left = 3 << 20, room = 0, sizes[MAX_RANKS][MOST], counts[MAX_RANKS], tags[MAX_RANKS][MOST], total = 0;
    for (int i = 0; i < circle->size; i++) {
        counts[i] = i == root ? 0 : between(random, 1, MOST);
        total += counts[i];
        for (int k = 0; k < counts[i]; k++) {
            sizes[i][k] = draw_size(random, &left);
            tags[i][k] = first_tag(player) + below(random, 3);
            if (sizes[i][k] > room) room = sizes[i][k];
        }
    }
    Random own = own_random(player, circle, circle->rank);
    if (circle->rank == root) {
        receive_from_anybody(player, circle, &own, total, room);
    } else {
        Pending pending[MOST];
        int opened = 0;
        for (int k = 0; k < counts[circle->rank]; k++) {
            static const SendForm forms[] = {SEND, SSEND, ISEND, ISSEND, ISEND_FREED};
            const SendForm form = forms[below(&own, sizeof forms / sizeof forms[0])];
            player->keeping = form == ISEND_FREED;
            Layout layout = draw_layout(player, &own, byte_base(), sizes[circle->rank][k], 1, draw(&own));
            player->keeping = false;
            opened +=
                send_message(player, form, &layout, root, tags[circle->rank][k], circle->comm, k, &pending[opened]);
        }
        complete_all(player, &own, pending, opened);
        for (int k = 0; k < opened; k++) note_pending(player, &pending[k]);
    }
    MPI_Barrier(circle->comm); /* or the next step's messages could come to this one's receives */
}

/* One looks at the other's messages before it takes them, in an order of its own. */
void probing(Player* player, const Circle* circle, Random* random) {
    enum { MOST = 7 };
    const int from = below(random, circle->size), to = (from + between(random, 0, circle->size - 1)) % circle->size;
    const int count = between(random, 2, MOST);
    int left = 5 << 20, tags[MOST];
    long elements[MOST];
    const Base base = draw_base(player, random);
    if (from == to && !player->features.unexpected_self) return;
    for (int i = 0; i < count; i++) {
        tags[i] = first_tag(player) + 800 + below(random, 4);
        elements[i] = draw_size(random, &left) / base.size;
    }
    Pending pending[2 * MOST];
    int opened = 0;
    Random own = own_random(player, circle, circle->rank);
    if (circle->rank == from) {
        static const SendForm forms[] = {ISEND, ISSEND, ISEND};
        for (int i = 0; i < count; i++) {
            Layout layout = draw_layout(player, &own, base, elements[i], 1, draw(&own));
            opened +=
                send_message(player, forms[below(&own, 3)], &layout, to, tags[i], circle->comm, i, &pending[opened]);
        }
    }
    if (chance(random, 40)) MPI_Barrier(circle->comm);
    bool taken[MOST] = {false};
    for (int rest = count; circle->rank == to && rest > 0;) {
        const bool any_tag = chance(&own, 40);
        int wanted = below(&own, count), first = 0;
        if (any_tag) {
            while (taken[first]) first++;
        } else {
            while (taken[wanted]) wanted = (wanted + 1) % count;
            while (taken[first] || tags[first] != tags[wanted]) first++;
        }
        Layout layout = draw_room(player, &own, base, elements[first], draw(&own));
        const int tag = any_tag ? MPI_ANY_TAG : tags[first];
        const int action = below(&own, 4);
        if (action < 2) {
            MPI_Status status;
            int flag = 0;
            if (action == 0) {
                MPI_Probe(from, tag, circle->comm, &status);
            } else {
                for (;;) {
                    MPI_Iprobe(from, tag, circle->comm, &flag, &status);
                    if (flag != 0) break;
                    wait_briefly();
                }
            }
            note_probed(player, first, &status, &layout);
            free_type(&layout);
            continue;
        }
        note(player, "message %d: tag %d%s", first, tags[first], any_tag ? " any tag" : "");
        opened += receive_message(player, below(&own, RECEIVE_FORMS), &layout, from, tag, circle->comm, first,
                                  &pending[opened]);
        taken[first] = true;
        rest--;
    }
    complete_all(player, &own, pending, opened);
    for (int i = 0; i < opened; i++) {
        note_pending(player, &pending[i]);
        free_type(&pending[i].layout);
        if (pending[i].persistent) MPI_Request_free(&pending[i].request);
    }
}

static void init_send(SendForm form, const Layout* layout, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    switch (form) {
        case SSEND:
            MPI_Ssend_init(layout->at, layout->count, layout->type, to, tag, comm, request);
            break;
        case BSEND:
            MPI_Bsend_init(layout->at, layout->count, layout->type, to, tag, comm, request);
            break;
        case RSEND:
            MPI_Rsend_init(layout->at, layout->count, layout->type, to, tag, comm, request);
            break;
        default:
            MPI_Send_init(layout->at, layout->count, layout->type, to, tag, comm, request);
            break;
    }
}

static void start_all(Random* random, Pending* pending, const int* which, int count) {
    MPI_Request requests[32];
    if (chance(random, 50)) {
        for (int i = 0; i < count; i++) {
            requests[i] = pending[which[i]].request;
        }
        MPI_Startall(count, requests);
        for (int i = 0; i < count; i++) pending[which[i]].request = requests[i];
    } else {
        for (int i = 0; i < count; i++) MPI_Start(&pending[which[i]].request);
    }
}

/* Requests that are made once and started several times, not always all of them. */
void persistent(Player* player, const Circle* circle, Random* random) {
    enum { MOST = 5 };
    const int count = between(random, 1, MOST), rounds = between(random, 2, 5);
    int left = 1 << 20, buffered = player->features.buffered && player->features.bsend_init ? 200000 : -1;
    bool ready = false;
    Pending pending[2 * MOST];
    int opened = 0;
    for (int i = 0; i < count; i++) {
        static const SendForm forms[] = {SEND, SEND, SSEND, BSEND, RSEND};
        const int from = below(random, circle->size), to = below(random, circle->size), tag = first_tag(player) + i;
        const Base base = draw_base(player, random);
        const int bytes = draw_size(random, &left);
        const long elements = bytes / base.size;
        SendForm form = forms[below(random, 5)];
        if (form == BSEND && bytes * rounds > buffered) form = SEND;
        if (form == BSEND) buffered -= bytes * rounds;
        ready |= form == RSEND;
        Random one = own_random(player, circle, 2 * i);
        if (circle->rank == from) {
            Layout layout = draw_layout(player, &one, base, elements, 1, draw(&one));
            MPI_Request request;
            init_send(form, &layout, to, tag, circle->comm, &request);
            pending[opened++] = (Pending){.request = request, .number = i, .persistent = true, .layout = layout};
            note(player, "message %d: %s_init to %d, %ld %s", i, send_names[form], to, elements, base.name);
        }
        one = own_random(player, circle, 2 * i + 1);
        if (circle->rank == to) {
            Layout layout = draw_room(player, &one, base, elements, draw(&one));
            MPI_Request request;
            MPI_Recv_init(layout.at, layout.count, layout.type,
                          chance(&one, 20) && player->features.any_source ? MPI_ANY_SOURCE : from, tag, circle->comm,
                          &request);
            pending[opened++] =
                (Pending){.request = request, .number = i, .receives = true, .persistent = true, .layout = layout};
            note(player, "message %d: Recv_init from %d, %s %lld", i, from, layout.kind, (long long)layout.count);
        }
    }
    Random own = own_random(player, circle, 100 + circle->rank);
    for (int round = 0; round < rounds; round++) {
        const uint64_t plays = draw(random) | (round == 0); /* which messages take part */
        int sends[MOST], receives[MOST], both[2 * MOST], sending = 0, receiving = 0;
        for (int i = 0; i < opened; i++) {
            pending[i].done = !(plays >> pending[i].number & 1);
            if (pending[i].done) continue;
            fill_bytes(pending[i].layout.memory, pending[i].layout.size, draw(&own));
            pending[i].layout.before = hash_layout(&pending[i].layout);
            if (pending[i].receives) {
                receives[receiving++] = i;
            } else {
                sends[sending++] = i;
            }
        }
        if (ready) {
            start_all(&own, pending, receives, receiving);
            MPI_Barrier(circle->comm);
            start_all(&own, pending, sends, sending);
        } else {
            for (int i = 0; i < sending + receiving; i++) both[i] = i < sending ? sends[i] : receives[i - sending];
            shuffle(&own, both, sending + receiving);
            start_all(&own, pending, both, sending + receiving);
        }
        if (chance(random, 30)) interlude(player, circle, random);
        bool played[2 * MOST];
        for (int i = 0; i < opened; i++) played[i] = !pending[i].done;
        complete_all(player, &own, pending, opened);
        for (int i = 0; i < opened; i++) {
            if (played[i]) note_pending(player, &pending[i]);
        }
    }
    for (int i = 0; i < opened; i++) {
        MPI_Request_free(&pending[i].request);
        free_type(&pending[i].layout);
    }
}

/* Receives that no message comes for. */
void cancelled(Player* player, const Circle* circle, Random* random) {
    enum { MOST = 4 };
    const int count = between(random, 1, MOST), tag = first_tag(player) + 700;
    int left = 1 << 20, own_left = 1 << 20;
    Pending pending[MOST];
    Random own = own_random(player, circle, circle->rank);
    for (int i = 0; i < count; i++) {
        Layout layout =
            draw_layout(player, &own, draw_base(player, &own), draw_size(&own, &own_left) / 16, 1, draw(&own));
        MPI_Request request;
        const int from = chance(&own, 30) && player->features.any_source ? MPI_ANY_SOURCE : below(&own, circle->size);
        if (chance(&own, 30)) {
            MPI_Recv_init(layout.at, layout.count, layout.type, from, tag + i, circle->comm, &request);
            MPI_Start(&request);
            pending[i].persistent = true;
        } else {
            MPI_Irecv(layout.at, layout.count, layout.type, from, tag + i, circle->comm, &request);
            pending[i].persistent = false;
        }
        pending[i] = (Pending){
            .request = request, .number = i, .receives = true, .persistent = pending[i].persistent, .layout = layout};
    }
    if (chance(random, 50)) interlude(player, circle, random);
    for (int i = 0; i < count; i++) MPI_Cancel(&pending[i].request);
    complete_all(player, &own, pending, count);
    for (int i = 0; i < count; i++) {
        int flag = 1;
        if (pending[i].has_status) MPI_Test_cancelled(&pending[i].status, &flag);
        note(player, "receive %d: cancelled %d buffer %016llx", i, flag != 0,
             (unsigned long long)hash_layout(&pending[i].layout));
        free_type(&pending[i].layout);
        if (pending[i].persistent) MPI_Request_free(&pending[i].request);
    }
    MPI_Barrier(circle->comm); /* or the next messages of these tags would come to them */
    const int to = (circle->rank + 1) % circle->size, from = (circle->rank + circle->size - 1) % circle->size;
    for (int i = 0; i < count; i++) {
        MPI_Status status;
        const int bytes = draw_size(random, &left);
        Layout out = draw_layout(player, &own, byte_base(), bytes, 1, draw(&own));
        Layout in = draw_room(player, &own, byte_base(), bytes, draw(&own));
        MPI_Sendrecv(out.at, out.count, out.type, to, tag + i, in.at, in.count, in.type, from, tag + i, circle->comm,
                     &status);
        note_received(player, i, &status, &in);
        free_type(&out);
        free_type(&in);
    }
}

/* Sends and receives that nobody waits for. */
void freed(Player* player, const Circle* circle, Random* random) {
    const int count = between(random, 1, 6);
    int left = 2 << 20;
    player->keeping = true;
    Random own = own_random(player, circle, circle->rank);
    for (int i = 0; i < count; i++) {
        const int from = below(random, circle->size), to = below(random, circle->size), tag = first_tag(player) + i;
        const Base base = draw_base(player, random);
        const long elements = draw_size(random, &left) / base.size;
        MPI_Request request;
        if (circle->rank == to) {
            Layout in = draw_room(player, &own, base, elements, draw(&own));
            MPI_Irecv(in.at, in.count, in.type, from, tag, circle->comm, &request);
            MPI_Request_free(&request);
            free_type(&in);
        }
        if (circle->rank == from) {
            Layout out = draw_layout(player, &own, base, elements, 1, draw(&own));
            if (chance(&own, 50)) {
                MPI_Isend(out.at, out.count, out.type, to, tag, circle->comm, &request);
            } else {
                MPI_Issend(out.at, out.count, out.type, to, tag, circle->comm, &request);
            }
            MPI_Request_free(&request);
            free_type(&out);
        }
    }
    player->keeping = false;
    /* Those that follow are not mixed up with them. */
    ring(player, circle, random);
}

/* To and from MPI_PROC_NULL. */
void nobody(Player* player, const Circle* circle, Random* random) {
    (void)random;
    Random own = own_random(player, circle, circle->rank);
    const int count = between(&own, 1, 5), tag = first_tag(player);
    Pending pending[5];
    int opened = 0;
    for (int i = 0; i < count; i++) {
        Layout layout = draw_layout(player, &own, draw_base(player, &own), below(&own, 100000) / 16, 1, draw(&own));
        MPI_Status status;
        ReceiveForm form;
        switch (below(&own, 3)) {
            case 0: {
                static const SendForm forms[] = {SEND, SSEND, RSEND, ISEND, ISSEND, IRSEND, BSEND};
                opened += send_message(player, forms[below(&own, player->features.buffered ? 7 : 6)], &layout,
                                       MPI_PROC_NULL, tag, circle->comm, i, &pending[opened]);
                break;
            }
            case 1:
                form = below(&own, RECEIVE_FORMS);
                if (form == IRECV && !player->features.irecv_of_nobody) form = RECV;
                note(player, "message %d: %s", i, receive_names[form]);
                opened += receive_message(player, form, &layout, MPI_PROC_NULL, chance(&own, 50) ? tag : MPI_ANY_TAG,
                                          circle->comm, i, &pending[opened]);
                break;
            default:
                note(player, "message %d: Sendrecv_replace", i);
                MPI_Sendrecv_replace(layout.at, layout.count, layout.type, MPI_PROC_NULL, tag, MPI_PROC_NULL, tag,
                                     circle->comm, &status);
                note_received(player, i, &status, &layout);
                free_type(&layout);
                break;
        }
    }
    complete_all(player, &own, pending, opened);
    for (int i = 0; i < opened; i++) {
        note_pending(player, &pending[i]);
        free_type(&pending[i].layout);
        if (pending[i].persistent) MPI_Request_free(&pending[i].request);
    }
}

static uint64_t hash_margins(const Layout* layout, size_t received) {
    const uint8_t* const end = (const uint8_t*)layout->at + received;
    return hash_bytes(layout->memory, (size_t)((const uint8_t*)layout->at - layout->memory)) ^
           hash_bytes(end, (size_t)(layout->memory + layout->size - end));
}

/* Receives that are too small, among others. What is in their buffers is open; what is around them is not. */
void truncation(Player* player, const Circle* circle, Random* random) {
    if (!player->features.truncation) return;
    enum { MOST = 5 };
    const int from = below(random, circle->size), to = (from + between(random, 0, circle->size - 1)) % circle->size;
    const int count = between(random, 1, MOST), tag = first_tag(player) + 600;
    if (from == to && !(player->features.unexpected_self && player->features.large_truncation)) return;
    if (!player->features.truncation_in_a_node && share_a_node(player, circle, from, to)) return;
    MPI_Comm_set_errhandler(circle->comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int left = 3 << 20, opened = 0;
    const Base byte = byte_base();
    Pending pending[MOST];
    Random own = own_random(player, circle, circle->rank);
    for (int i = 0; i < count; i++) {
        const int bytes = player->features.large_truncation ? draw_size(random, &left) : below(random, 1000);
        if (circle->rank == from) {
            Layout out = draw_layout(player, &own, byte, bytes, 1, draw(&own));
            opened += send_message(player, chance(&own, 50) && player->features.large_truncation ? ISSEND : ISEND, &out,
                                   to, tag, circle->comm, i, &pending[opened]);
        }
    }
    if (chance(random, 50)) MPI_Barrier(circle->comm);
    for (int i = 0; circle->rank == to && i < count; i++) {
        const int room = chance(&own, 40) ? below(&own, 100) : chance(&own, 50) ? below(&own, 1 << 17) : 6 << 20;
        Layout in = {.base = byte, .type = MPI_BYTE, .count = room, .elements = room};
        in.size = (size_t)room + 256;
        in.memory = step_memory(player, in.size);
        in.at = in.memory + 128;
        fill_bytes(in.memory, in.size, draw(&own));
        MPI_Status status;
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        MPI_Message message;
        int code;
        int form = below(&own, 4);
        if (form == 2 && !player->features.truncated_waitall) form = 1;
        switch (form) {
            case 0:
                code = MPI_Recv(in.at, room, MPI_BYTE, from, tag, circle->comm, &status);
                break;
            case 1:
                MPI_Irecv(in.at, room, MPI_BYTE, from, tag, circle->comm, &requests[0]);
                code = MPI_Wait(&requests[0], &status);
                break;
            case 2: {
                MPI_Status statuses[2];
                /* That of no request is not written by MPICH and Intel MPI. */
                statuses[1].MPI_ERROR = MPI_SUCCESS;
                MPI_Irecv(in.at, room, MPI_BYTE, from, tag, circle->comm, &requests[0]);
                code = MPI_Waitall(2, requests, statuses);
                if (error_class(code) == MPI_ERR_IN_STATUS) {
                    code = statuses[0].MPI_ERROR;
                    note(player, "receive %d: in status, the other's class %d", i, error_class(statuses[1].MPI_ERROR));
                }
                status = statuses[0];
                break;
            }
            default:
                MPI_Mprobe(from, tag, circle->comm, &message, &status);
                note_probed(player, i, &status, &in);
                code = MPI_Mrecv(in.at, room, MPI_BYTE, &message, &status);
                break;
        }
        const bool truncated = error_class(code) == MPI_ERR_TRUNCATE;
        note(player, "receive %d: room %d, form %d, class %s %d, margins %016llx", i, room, form,
             truncated ? "MPI_ERR_TRUNCATE" : "", error_class(code),
             (unsigned long long)hash_margins(&in, (size_t)room));
        if (code == MPI_SUCCESS) note_received(player, i, &status, &in);
    }
    complete_all(player, &own, pending, opened);
    for (int i = 0; i < opened; i++) note_pending(player, &pending[i]);
    MPI_Comm_set_errhandler(circle->comm, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Operations on a communicator of their own that a later step completes. */
void later(Player* player, const Circle* circle, Random* random) {
    int left = 2 << 20;
    const int count = between(random, 1, 3);
    for (int i = 0; i < count; i++) {
        const int from = below(random, circle->size), to = below(random, circle->size),
                  after = player->step + between(random, 1, 9);
        const Base base = draw_base(player, random);
        const long elements = draw_size(random, &left) / base.size;
        const SendForm form = chance(random, 50) ? ISEND : ISSEND;
        const int tag = player->step * 10 % 30000 + i;
        for (int side = 0; side < 2; side++) {
            if (circle->rank != (side == 0 ? to : from)) continue;
            Random own = own_random(player, circle, 2 * i + side);
            player->keeping = true;
            Pending* pending = step_memory(player, sizeof *pending);
            Layout layout = side == 0 ? draw_room(player, &own, base, elements, draw(&own))
                                      : draw_layout(player, &own, base, elements, 1, draw(&own));
            player->keeping = false;
            if (side == 0) {
                receive_message(player, IRECV, &layout, from, tag, player->later_world, i, pending);
            } else {
                send_message(player, form, &layout, to, tag, player->later_world, i, pending);
            }
            player->due[player->later_count] = after;
            player->later[player->later_count++] = pending;
        }
    }
}

void finish_later(Player* player, bool all) {
    int kept = 0;
    for (int i = 0; i < player->later_count; i++) {
        Pending* pending = player->later[i];
        if (!all && player->due[i] > player->step) {
            player->due[kept] = player->due[i];
            player->later[kept++] = pending;
            continue;
        }
        Random own = random_of(player->seed, (uint64_t)player->step, (uint64_t)i, 7);
        complete_one(player, &own, pending);
        note_pending(player, pending);
        free_type(&pending->layout);
    }
    player->later_count = kept;
}
