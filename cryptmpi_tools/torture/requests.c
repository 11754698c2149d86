/* Every way to complete requests, and what is noted of those that ended. */
#include <string.h>

#include "player.h"

static const char* source_name(int source, char* room) {
    if (source == MPI_ANY_SOURCE) return "any";
    if (source == MPI_PROC_NULL) return "null";
    sprintf(room, "%d", source);
    return room;
}

static void note_what_came(Player* player, int number, const char* how, const MPI_Status* status,
                           const Layout* layout) {
    Count count = -1, elements = -1, of_type = -1;
    char source[16], tag[16];
    MPI_Get_count(status, layout->base.type, &count);
    MPI_Get_elements(status, layout->base.type, &elements);
    MPI_Get_count(status, layout->type, &of_type);
    if (status->MPI_TAG == MPI_ANY_TAG) {
        strcpy(tag, "any");
    } else {
        sprintf(tag, "%d", status->MPI_TAG);
    }
    note(player, "message %d: %s source %s tag %s count %lld elements %lld of its type %lld", number, how,
         source_name(status->MPI_SOURCE, source), tag, (long long)count, (long long)elements, (long long)of_type);
}

/* MPICH leaves open whether a probed message is cancelled. */
void note_probed(Player* player, int number, const MPI_Status* status, const Layout* layout) {
    note_what_came(player, number, "probed", status, layout);
}

static void note_status(Player* player, int number, const MPI_Status* status, const Layout* layout) {
    int is_cancelled = -1;
    MPI_Test_cancelled(status, &is_cancelled);
    note_what_came(player, number, is_cancelled != 0 ? "cancelled" : "received", status, layout);
}

void note_received(Player* player, int number, const MPI_Status* status, const Layout* layout) {
    if (status != NULL) note_status(player, number, status, layout);
    note(player, "message %d: buffer %016llx", number, (unsigned long long)hash_layout(layout));
}

void note_sent(Player* player, int number, const Layout* layout) {
    if (hash_layout(layout) != layout->before) note(player, "message %d: its send buffer was changed", number);
}

void note_pending(Player* player, const Pending* pending) {
    if (pending->receives) {
        note_received(player, pending->number, pending->has_status ? &pending->status : NULL, &pending->layout);
        return;
    }
    note_sent(player, pending->number, &pending->layout);
    int is_cancelled = 0;
    if (pending->has_status) MPI_Test_cancelled(&pending->status, &is_cancelled);
    note(player, "message %d: sent, cancelled %d", pending->number, is_cancelled != 0);
}

void complete_one(Player* player, Random* random, Pending* pending) {
    pending->has_status = chance(random, 80);
    MPI_Status* status = pending->has_status ? &pending->status : MPI_STATUS_IGNORE;
    int flag = 0;
    switch (below(random, pending->persistent && !player->features.status_of_persistent ? 2 : 3)) {
        case 0:
            MPI_Wait(&pending->request, status);
            break;
        case 1:
            for (;;) {
                MPI_Test(&pending->request, &flag, status);
                if (flag != 0) break;
                wait_briefly();
            }
            break;
        default:
            for (;;) {
                MPI_Request_get_status(pending->request, &flag, status);
                if (flag != 0) break;
                wait_briefly();
            }
            MPI_Wait(&pending->request, status);
            break;
    }
    pending->done = true;
}

/* STATUSES: told of by MPI_Request_get_status_all, _any or _some, which are of MPI 4.1, then waited for. */
typedef enum { EACH, WAITALL, TESTALL, WAITANY, TESTANY, WAITSOME, TESTSOME, STATUSES, FORMS } Form;

/* The requests of one call, with some among them that are null or inactive. */
typedef struct {
    int count;
    MPI_Request* requests;
    MPI_Status* statuses;
    int* indices;
    Pending** of; /* null: nobody's */
    bool ignores;
} Bundle;

static void ended(const Bundle* bundle, int index, const MPI_Status* status) {
    Pending* pending = bundle->of[index];
    pending->request = bundle->requests[index];
    pending->done = true;
    pending->has_status = !bundle->ignores;
    if (pending->has_status) pending->status = *status;
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)

/* Those that are told of are taken out: they would be told of again. */
static void take_out(const Bundle* bundle, int index, const MPI_Status* status) {
    ended(bundle, index, status);
    MPI_Wait(&bundle->requests[index], MPI_STATUS_IGNORE);
    bundle->of[index]->request = bundle->requests[index];
    bundle->requests[index] = MPI_REQUEST_NULL;
}

static void ask_of_all(const Bundle* bundle) {
    MPI_Status* const statuses = bundle->ignores ? MPI_STATUSES_IGNORE : bundle->statuses;
    for (int flag = 0; flag == 0; wait_briefly()) {
        MPI_Request_get_status_all(bundle->count, bundle->requests, &flag, statuses);
    }
    for (int i = 0; i < bundle->count; i++) {
        if (bundle->of[i] != NULL) take_out(bundle, i, &bundle->statuses[i]);
    }
}

static void ask_of_any(const Bundle* bundle, int left) {
    MPI_Status status;
    while (left > 0) {
        int index = MPI_UNDEFINED, flag = 0;
        MPI_Request_get_status_any(bundle->count, bundle->requests, &index, &flag,
                                   bundle->ignores ? MPI_STATUS_IGNORE : &status);
        if (flag == 0) {
            wait_briefly();
            continue;
        }
        if (index == MPI_UNDEFINED) return;
        take_out(bundle, index, &status);
        left--;
    }
}

static void ask_of_some(const Bundle* bundle, int left) {
    MPI_Status* const statuses = bundle->ignores ? MPI_STATUSES_IGNORE : bundle->statuses;
    while (left > 0) {
        int done = 0;
        MPI_Request_get_status_some(bundle->count, bundle->requests, &done, bundle->indices, statuses);
        if (done == MPI_UNDEFINED) return;
        for (int i = 0; i < done; i++) take_out(bundle, bundle->indices[i], &bundle->statuses[i]);
        left -= done;
        if (done == 0) wait_briefly();
    }
}

static void ask_of_several(const Bundle* bundle, Random* random, int left) {
    switch (below(random, 3)) {
        case 0:
            ask_of_all(bundle);
            break;
        case 1:
            ask_of_any(bundle, left);
            break;
        default:
            ask_of_some(bundle, left);
            break;
    }
}

enum { FORMS_HERE = FORMS };

#else

static void ask_of_several(const Bundle* bundle, Random* random, int left) {
    (void)bundle, (void)random, (void)left;
}

enum { FORMS_HERE = STATUSES };

#endif

static void complete_bundle(Player* player, const Bundle* bundle, Form form, Random* random) {
    MPI_Status status;
    MPI_Status* const statuses = bundle->ignores ? MPI_STATUSES_IGNORE : bundle->statuses;
    MPI_Status* const one = bundle->ignores ? MPI_STATUS_IGNORE : &status;
    int left = 0, flag = 0, index = 0, done = 0;
    for (int i = 0; i < bundle->count; i++) left += bundle->of[i] != NULL;
    switch (form) {
        case WAITALL:
            MPI_Waitall(bundle->count, bundle->requests, statuses);
            break;
        case TESTALL:
            for (;;) {
                MPI_Testall(bundle->count, bundle->requests, &flag, statuses);
                if (flag != 0) break;
                wait_briefly();
            }
            break;
        case WAITANY:
        case TESTANY:
            for (; left > 0;) {
                if (form == WAITANY) {
                    MPI_Waitany(bundle->count, bundle->requests, &index, one);
                } else {
                    MPI_Testany(bundle->count, bundle->requests, &index, &flag, one);
                    if (flag == 0) {
                        wait_briefly();
                        continue;
                    }
                }
                if (index == MPI_UNDEFINED) break;
                ended(bundle, index, &status);
                left--;
            }
            note(player, "%d requests left", left);
            return;
        case WAITSOME:
        case TESTSOME:
            for (; left > 0;) {
                if (form == WAITSOME) {
                    MPI_Waitsome(bundle->count, bundle->requests, &done, bundle->indices, statuses);
                } else {
                    MPI_Testsome(bundle->count, bundle->requests, &done, bundle->indices, statuses);
                    if (done == 0) {
                        wait_briefly();
                        continue;
                    }
                }
                if (done == MPI_UNDEFINED) break;
                for (int i = 0; i < done; i++) ended(bundle, bundle->indices[i], &bundle->statuses[i]);
                left -= done;
            }
            note(player, "%d requests left", left);
            return;
        case STATUSES:
            ask_of_several(bundle, random, left);
            return;
        default:
            return;
    }
    for (int i = 0; i < bundle->count; i++) {
        if (bundle->of[i] != NULL) {
            ended(bundle, i, &bundle->statuses[i]);
        } else if (!bundle->ignores) {
            Count count = -1;
            MPI_Get_count(&bundle->statuses[i], MPI_INT, &count);
            note(player, "no request: source any %d tag any %d count %lld",
                 bundle->statuses[i].MPI_SOURCE == MPI_ANY_SOURCE, bundle->statuses[i].MPI_TAG == MPI_ANY_TAG,
                 (long long)count);
        }
    }
}

static Form draw_form(const Player* player, Random* random, const Pending* pending, int count) {
    for (int i = 0; i < count && !player->features.status_of_persistent; i++) {
        if (pending[i].persistent) return below(random, STATUSES);
    }
    return below(random, FORMS_HERE);
}

void complete_all(Player* player, Random* random, Pending* pending, int count) {
    const Form form = draw_form(player, random, pending, count);
    enum { EXTRA = 3 };
    const size_t room = (size_t)count + EXTRA;
    int* order = step_memory(player, room * sizeof *order);
    int places = 0;
    for (int i = 0; i < count; i++) {
        if (!pending[i].done) order[places++] = i;
    }
    if (form == EACH) {
        shuffle(random, order, places);
        for (int i = 0; i < places; i++) complete_one(player, random, &pending[order[i]]);
        return;
    }
    const int extra = below(random, EXTRA + 1);
    for (int i = 0; i < extra; i++) order[places++] = -1 - i;
    shuffle(random, order, places);

    Bundle bundle = {.count = places, .ignores = chance(random, 20)};
    bundle.requests = step_memory(player, room * sizeof *bundle.requests);
    bundle.statuses = step_memory(player, room * sizeof *bundle.statuses);
    bundle.indices = step_memory(player, room * sizeof *bundle.indices);
    bundle.of = step_memory(player, room * sizeof *bundle.of);
    MPI_Request inactive[EXTRA];
    static int nothing;
    for (int i = 0; i < extra; i++) inactive[i] = MPI_REQUEST_NULL;
    if (extra > 0 && chance(random, 60)) {
        const int neighbour = (player->rank + 1) % player->ranks;
        MPI_Recv_init(&nothing, 1, MPI_INT, neighbour, 0, player->world, &inactive[0]);
        if (extra > 1) MPI_Send_init(&nothing, 1, MPI_INT, neighbour, 0, player->world, &inactive[1]);
    }
    for (int i = 0; i < places; i++) {
        bundle.of[i] = order[i] < 0 ? NULL : &pending[order[i]];
        bundle.requests[i] = order[i] < 0 ? inactive[-1 - order[i]] : pending[order[i]].request;
    }
    complete_bundle(player, &bundle, form, random);
    for (int i = 0; i < extra; i++) {
        if (inactive[i] != MPI_REQUEST_NULL) MPI_Request_free(&inactive[i]);
    }
}
