/* What the preloaded dispatcher, which knows no mpi.h, and the library of one MPI ABI say to each other. They are
 * installed together; the version catches a mixed installation. */
#ifndef CRYPTMPI_INTERPOSE_BINDING_H
#define CRYPTMPI_INTERPOSE_BINDING_H

#ifdef __cplusplus
extern "C" {
#endif

#define CRYPTMPI_BINDING_VERSION 1

struct cryptmpi_binding {
    unsigned version;

    /* Where a call of this procedure goes: our entry, or MPI's own procedure. Null: this MPI does not have it. */
    void* (*address)(const char* name);

    /* Does this procedure, which our table does not know, pass in clear? (The layer is off, or the settings name it.)
     */
    int (*passes)(const char* name);

    /* Refuses one call of such a procedure; a function for its caller to end in, which returns the error's code. */
    void* (*refuse)(const char* name);

    /* Prints one line, and keeps it for the report. */
    void (*complain)(const char* line);
};

/* The one function that the library of an ABI exports, by the name below. `lookup` finds what the MPI library that the
 * program uses exports. */
typedef const struct cryptmpi_binding* cryptmpi_bind_function(void* (*lookup)(const char* name));
#define CRYPTMPI_BIND_NAME "cryptmpi_bind"

#ifdef __cplusplus
}
#endif

#endif
