/* A program that loads its MPI library for itself, as Python does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    puts(dlsym(dlopen(NULL, RTLD_LAZY), "MPI_Send") == NULL ? "nothing before" : "something before");
    void* library = dlopen("libfake_mpi.so", RTLD_NOW | RTLD_LOCAL);
    int (*send)(const void*, int, long, int, int, long, int, double) = dlsym(library, "MPI_Send");
    return send("loaded", 1, 2, 3, 4, 5, 6, 7);
}
