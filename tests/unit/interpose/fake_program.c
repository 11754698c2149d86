/* fake_program CASE: calls MPI as programs do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int send_function(const void*, int, long, int, int, long, int, double);

send_function MPI_Send, PMPI_Send;
int MPI_Bcast(void);
int MPI_Barrier(void);
int MPI_Comm_free(int (*deleted)(void));
double MPI_Wtime(void);
int MPI_Get_version(void);
int MPI_Newcast(void);
__attribute__((weak)) int MPI_Buffer_flush(void);
__attribute__((weak)) int MPI_Initialized(int*);

/* Ends in a jump to MPI_Barrier: its caller, MPI, is where that returns to. */
static int deleted(void) {
    return MPI_Barrier();
}

static void ask(const char* how, void* handle, const char* name) {
    dlerror();
    void* found = dlsym(handle, name);
    const char* error = dlerror();
    printf("%s %s: %s\n", how, name, found != NULL ? "found" : error != NULL ? "missing" : "missing without an error");
    if (found != NULL && strcmp(name, "MPI_Send") == 0) ((send_function*)found)(how, 1, 2, 3, 4, 5, 6, 7);
    if (found != NULL && strcmp(name, "MPI_Newcast") == 0) printf("Newcast %d\n", ((int (*)(void))found)());
}

int main(int argc, char** argv) {
    const char* wanted = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(wanted, "arguments") == 0) {
        MPI_Send("first", 1, -2, 3, 4, -5, 6, 7.5);
        PMPI_Send("second", 1, -2, 3, 4, -5, 6, 7.5);
        printf("Wtime %.1f version %d\n", MPI_Wtime(), MPI_Get_version());
    } else if (strcmp(wanted, "inner") == 0) {
        MPI_Bcast();
    } else if (strcmp(wanted, "callback") == 0) {
        MPI_Comm_free(deleted);
    } else if (strcmp(wanted, "weak") == 0) {
        MPI_Get_version();
        printf("Buffer_flush %s\n", MPI_Buffer_flush != NULL ? "there" : "missing");
    } else if (strcmp(wanted, "missing") == 0) {
        MPI_Initialized(NULL); /* the first call of all: its reference is not yet cleared */
    } else if (strcmp(wanted, "unknown") == 0) {
        MPI_Get_version();
        printf("Newcast %d\n", MPI_Newcast());
    } else if (strcmp(wanted, "lookups") == 0) {
        void* library = dlopen("libfake_mpi.so", RTLD_LAZY);
        ask("handle", library, "MPI_Send");
        ask("handle", library, "MPI_Buffer_flush");
        ask("handle", library, "MPI_Newcast");
        ask("default", RTLD_DEFAULT, "MPI_Send");
        ask("default", RTLD_DEFAULT, "MPI_Buffer_flush");
        ask("default", RTLD_DEFAULT, "puts");
        ask("next", RTLD_NEXT, "puts");
        ask("default", RTLD_DEFAULT, "no_such_function");
    }
    return 0;
}
