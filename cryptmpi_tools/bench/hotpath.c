/* Small messages between two ranks, each kind of call by itself, to count what one of them costs.
 *
 *     hotpath KIND ROUNDS BYTES     KIND: blocking, nonblocking, window; testany, which looks for messages that do not
 * come; of sockets, as an MPI would use them: poll, epoll */
#include <arpa/inet.h>
#include <mpi.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WINDOW = 64, AWAITED = 16 };

static char* bytes;
static int rank, size;

static char* place(int i) {
    return bytes + (size_t)i * (size_t)size;
}

/* One message each way, one after the other. */
static void blocking(void) {
    const int partner = 1 - rank;
    if (rank == 0) MPI_Send(bytes, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
    MPI_Recv(bytes, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(bytes, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
}

/* One message each way at the same time. */
static void nonblocking(void) {
    MPI_Request requests[2];
    MPI_Irecv(place(0), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(place(1), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
}

/* Many each way at the same time, completed together. */
static void window(void) {
    MPI_Request requests[2 * WINDOW];
    for (int i = 0; i < WINDOW; i++) MPI_Irecv(place(i), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < WINDOW; i++) {
        MPI_Isend(place(WINDOW + i), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[WINDOW + i]);
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
}

static MPI_Request awaited[AWAITED];

static void await(void) {
    for (int i = 0; i < AWAITED; i++) MPI_Irecv(place(i), size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &awaited[i]);
}

static void testany(void) {
    int index, done;
    MPI_Testany(AWAITED, awaited, &index, &done, MPI_STATUS_IGNORE);
}

static void send_awaited(void) {
    for (int i = 0; i < AWAITED; i++) MPI_Send(bytes, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
    MPI_Waitall(AWAITED, awaited, MPI_STATUSES_IGNORE);
}

static int stream = -1, instance = -1;

static void give_up(const char* what) {
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A TCP connection between the two, in an epoll instance. */
static void connect_stream(void) {
    char name[MPI_MAX_PROCESSOR_NAME] = "", port[16];
    int length;
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t room = sizeof own;
    if (rank == 1) {
        const int listener = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener, (struct sockaddr*)&own, room) != 0 || listen(listener, 1) != 0) give_up("listen");
        getsockname(listener, (struct sockaddr*)&own, &room);
        snprintf(port, sizeof port, "%d", ntohs(own.sin_port));
        MPI_Get_processor_name(name, &length);
        MPI_Send(name, sizeof name, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        MPI_Send(port, sizeof port, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        stream = accept(listener, NULL, NULL);
        close(listener);
    } else {
        struct addrinfo *found, wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
        MPI_Recv(name, sizeof name, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(port, sizeof port, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (getaddrinfo(name, port, &wanted, &found) != 0) give_up(name);
        stream = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(stream, found->ai_addr, found->ai_addrlen) != 0) give_up("connect");
        freeaddrinfo(found);
    }
    struct epoll_event event = {.events = EPOLLIN};
    instance = epoll_create1(0);
    if (stream < 0 || epoll_ctl(instance, EPOLL_CTL_ADD, stream, &event) != 0) give_up("epoll_ctl");
}

/* One message each way over the connection. The sleep makes sure that the first look finds the answer. */
static void exchange(int (*look)(void)) {
    if (rank == 0 && send(stream, bytes, size, 0) != size) give_up("send");
    do usleep(2000);
    while (look() == 0);
    if (recv(stream, bytes, size, 0) != size) give_up("recv");
    if (rank == 1 && send(stream, bytes, size, 0) != size) give_up("send");
}

static int look_by_poll(void) {
    struct pollfd one = {stream, POLLIN, 0};
    return poll(&one, 1, 0);
}

static int look_by_epoll(void) {
    struct epoll_event event;
    return epoll_wait(instance, &event, 1, 0);
}

static void by_poll(void) {
    exchange(look_by_poll);
}

static void by_epoll(void) {
    exchange(look_by_epoll);
}

static void nothing(void) {}

static const struct kind {
    const char* name;
    void (*before)(void);
    void (*round)(void);
    void (*after)(void);
} kinds[] = {{"blocking", nothing, blocking, nothing},   {"nonblocking", nothing, nonblocking, nothing},
             {"window", nothing, window, nothing},       {"testany", await, testany, send_awaited},
             {"poll", connect_stream, by_poll, nothing}, {"epoll", connect_stream, by_epoll, nothing}};

/* What is counted: callgrind collects inside of this function. */
__attribute__((noinline)) void counted_rounds(void (*round)(void), int rounds) {
    for (int i = 0; i < rounds; i++) round();
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        fprintf(stderr, "hotpath: KIND ROUNDS BYTES (make bench-instructions starts it)\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size = atoi(argv[3]);
    bytes = calloc(2 * WINDOW, (size_t)size);
    size_t i = 0;
    while (strcmp(argv[1], kinds[i].name) != 0) {
        if (++i == sizeof kinds / sizeof *kinds) give_up(argv[1]);
    }
    kinds[i].before();
    void (*const round)(void) = kinds[i].round;
    for (int early = 0; early < 3; early++) round(); /* the first ones make keys */
    counted_rounds(round, atoi(argv[2]));
    MPI_Barrier(MPI_COMM_WORLD);
    kinds[i].after();
    free(bytes);
    MPI_Finalize();
    return 0;
}
