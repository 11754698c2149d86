/* Every way to send and to receive one message. */
#include "player.h"

const char* const send_names[SEND_FORMS] = {"Send",   "Ssend",  "Bsend",  "Rsend",         "Isend",
                                            "Issend", "Ibsend", "Irsend", "Isend and free"};
const char* const receive_names[RECEIVE_FORMS] = {
    "Recv",
    "Irecv",
    "Recv_init",
    "Probe and Recv",
    "Probe without status and Recv",
    "Iprobe and Recv",
    "Mprobe and Mrecv",
    "Mprobe and Imrecv",
    "Improbe and Mrecv",
    "Improbe and Imrecv",
};

bool send_blocks(SendForm form) {
    return form == SEND || form == SSEND || form == RSEND;
}

bool receive_probes(ReceiveForm form) {
    return form >= PROBE;
}

bool send_message(Player* player, SendForm form, Layout* layout, int to, int tag, MPI_Comm comm, int number,
                  Pending* pending) {
    MPI_Request request = MPI_REQUEST_NULL;
    switch (form) {
        case SEND:
            MPI_Send(layout->at, layout->count, layout->type, to, tag, comm);
            break;
        case SSEND:
            MPI_Ssend(layout->at, layout->count, layout->type, to, tag, comm);
            break;
        case BSEND:
            MPI_Bsend(layout->at, layout->count, layout->type, to, tag, comm);
            fill_bytes(layout->memory, layout->size, 0); /* it is free again */
            layout->before = hash_layout(layout);
            break;
        case RSEND:
            MPI_Rsend(layout->at, layout->count, layout->type, to, tag, comm);
            break;
        case ISEND:
        case ISEND_FREED:
            MPI_Isend(layout->at, layout->count, layout->type, to, tag, comm, &request);
            break;
        case ISSEND:
            MPI_Issend(layout->at, layout->count, layout->type, to, tag, comm, &request);
            break;
        case IBSEND:
            MPI_Ibsend(layout->at, layout->count, layout->type, to, tag, comm, &request);
            break;
        default:
            MPI_Irsend(layout->at, layout->count, layout->type, to, tag, comm, &request);
            break;
    }
    free_type(layout); /* MPI keeps what it needs */
    if (form == ISEND_FREED) MPI_Request_free(&request);
    if (form < ISEND || form == ISEND_FREED) {
        if (form != ISEND_FREED) note_sent(player, number, layout);
        return false;
    }
    *pending = (Pending){.request = request, .number = number, .layout = *layout};
    return true;
}

bool receive_message(Player* player, ReceiveForm form, Layout* layout, int from, int tag, MPI_Comm comm, int number,
                     Pending* pending) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status probed = {0}, status;
    int flag = 0;
    switch (form) {
        case PROBE:
            MPI_Probe(from, tag, comm, &probed);
            break;
        case PROBE_BLIND:
            MPI_Probe(from, tag, comm, MPI_STATUS_IGNORE);
            break;
        case IPROBE:
            for (;;) {
                MPI_Iprobe(from, tag, comm, &flag, &probed);
                if (flag != 0) break;
                wait_briefly();
            }
            break;
        case MPROBE:
        case MPROBE_IMRECV:
            MPI_Mprobe(from, tag, comm, &message, &probed);
            break;
        case IMPROBE:
        case IMPROBE_IMRECV:
            for (;;) {
                MPI_Improbe(from, tag, comm, &flag, &message, &probed);
                if (flag != 0) break;
                wait_briefly();
            }
            break;
        default:
            break;
    }
    if (receive_probes(form) && form != PROBE_BLIND) note_probed(player, number, &probed, layout);
    switch (form) {
        case IRECV:
            MPI_Irecv(layout->at, layout->count, layout->type, from, tag, comm, &request);
            break;
        case RECV_INIT:
            MPI_Recv_init(layout->at, layout->count, layout->type, from, tag, comm, &request);
            MPI_Start(&request);
            break;
        case MPROBE:
        case IMPROBE:
            MPI_Mrecv(layout->at, layout->count, layout->type, &message, &status);
            break;
        case MPROBE_IMRECV:
        case IMPROBE_IMRECV:
            MPI_Imrecv(layout->at, layout->count, layout->type, &message, &request);
            break;
        default:
            MPI_Recv(layout->at, layout->count, layout->type, from, tag, comm, &status);
            break;
    }
    if (form != IRECV && form != RECV_INIT && form != MPROBE_IMRECV && form != IMPROBE_IMRECV) {
        note_received(player, number, &status, layout);
        free_type(layout);
        return false;
    }
    const bool keeps_type = number % 2 == 0; /* else the type is freed while MPI still uses it */
    if (!keeps_type) free_type(layout);
    *pending = (Pending){
        .request = request, .number = number, .receives = true, .persistent = form == RECV_INIT, .layout = *layout};
    return true;
}
