/* The library of an ABI that seals MPI_Send and MPI_Barrier. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/binding.h"

typedef int send_function(const void*, int, long, int, int, long, int, double);

static void* (*look)(const char* name);

static int sealed_send(const void* at, int count, long type, int to, int tag, long comm, int on_stack, double eighth) {
    puts("sealed Send");
    return ((send_function*)look("PMPI_Send"))(at, count, type, to, tag, comm, on_stack, eighth);
}

static int sealed_barrier(void) {
    puts("sealed Barrier");
    return ((int (*)(void))look("PMPI_Barrier"))();
}

static void* address(const char* name) {
    void* own = look(name);
    if (own != NULL && strcmp(name, "MPI_Send") == 0) return (void*)sealed_send;
    if (own != NULL && strcmp(name, "MPI_Barrier") == 0) return (void*)sealed_barrier;
    return own;
}

static int passes(const char* name) {
    const char* allowed = getenv("FAKE_ALLOW");
    return allowed != NULL && strcmp(allowed, name) == 0;
}

static int refused(void) {
    return 44;
}

static void* refuse(const char* name) {
    printf("refused %s\n", name);
    return (void*)refused;
}

static void complain(const char* line) {
    puts(line);
}

__attribute__((visibility("default"))) const struct cryptmpi_binding* cryptmpi_bind(void* (*lookup)(const char* name)) {
    static const struct cryptmpi_binding binding = {CRYPTMPI_BINDING_VERSION, address, passes, refuse, complain};
    look = lookup;
    return &binding;
}
