/* What connections cost in memory: `connections serve PORT COUNT` and, on the other node, `connections use ADDRESS PORT
 * COUNT`. Over each, some data goes both ways; then all are open at once, and both print "resident BYTES" of the
 * process, shared memory included. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DATA = 1 << 18 };

static char data[DATA];

static void check(int good, const char* what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void take(int connection) {
    for (size_t taken = 0; taken < DATA;) {
        const ssize_t some = recv(connection, data, DATA - taken, 0);
        check(some > 0, "recv");
        taken += some;
    }
}

static void give(int connection) {
    for (size_t given = 0; given < DATA;) {
        const ssize_t some = send(connection, data + given, DATA - given, 0);
        check(some > 0, "send");
        given += some;
    }
}

static void print_resident(void) {
    FILE* file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kilobytes = 0;
    check(file != NULL, "/proc/self/smaps_rollup");
    while (fgets(line, sizeof(line), file) != NULL) sscanf(line, "Rss: %ld", &kilobytes);
    fclose(file);
    printf("resident %ld\n", kilobytes * 1024);
    fflush(stdout);
}

int main(int argc, char** argv) {
    const int serves = argc == 4 && strcmp(argv[1], "serve") == 0;
    check(serves || (argc == 5 && strcmp(argv[1], "use") == 0), "serve PORT COUNT, or use ADDRESS PORT COUNT");
    const int count = atoi(argv[argc - 1]);
    const struct rlimit files = {count + 200, count + 200};
    check(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 2]))};
    const int on = 1, listener = serves ? socket(AF_INET, SOCK_STREAM, 0) : -1;
    if (serves) {
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        check(bind(listener, (struct sockaddr*)&address, sizeof(address)) == 0, "bind");
        check(listen(listener, 64) == 0, "listen");
        puts("ready");
        fflush(stdout);
    } else {
        check(inet_pton(AF_INET, argv[2], &address.sin_addr) == 1, argv[2]);
    }
    int connection = -1;
    for (int i = 0; i < count; i++) {
        if (serves) {
            connection = accept(listener, NULL, NULL);
            check(connection >= 0, "accept");
            take(connection);
            give(connection);
        } else {
            connection = socket(AF_INET, SOCK_STREAM, 0);
            check(connection >= 0 && connect(connection, (struct sockaddr*)&address, sizeof(address)) == 0, "connect");
            give(connection);
            take(connection);
        }
    }
    print_resident();
    /* Each waits until the other has looked. */
    if (serves) {
        check(send(connection, data, 1, 0) == 1 && recv(connection, data, 1, 0) == 1, "the end");
    } else {
        check(recv(connection, data, 1, 0) == 1 && send(connection, data, 1, 0) == 1, "the end");
    }
    return 0;
}
