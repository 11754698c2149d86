/* Preloaded under a benchmark: each message arrives with one byte changed. A benchmark that checks its data has to end
 * with an error. What the programs tell each other about their own course goes as it is: that is never MPI_BYTE nor
 * MPI_UNSIGNED_CHAR. */
#include <mpi.h>
#include <stddef.h>

enum { MOST = 1024, EXPONENT = 7 /* the byte of a double that counts most */ };

static unsigned char* awaited[MOST];
static int sizes[MOST], count;

static void spoil(void* data, int size) {
    unsigned char* bytes = data;
    if (size > 0) bytes[size > EXPONENT ? EXPONENT : 0]++;
}

static int is_data(MPI_Datatype type) {
    return type == MPI_BYTE || type == MPI_UNSIGNED_CHAR;
}

int MPI_Recv(void* to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    const int result = PMPI_Recv(to, n, type, from, tag, comm, status);
    spoil(to, n);
    return result;
}

int MPI_Irecv(void* to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
    if (count < MOST) {
        awaited[count] = to;
        sizes[count++] = n;
    }
    return PMPI_Irecv(to, n, type, from, tag, comm, request);
}

static void spoil_awaited(void) {
    while (count > 0) {
        count--;
        spoil(awaited[count], sizes[count]);
    }
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
    const int result = PMPI_Wait(request, status);
    spoil_awaited();
    return result;
}

int MPI_Waitall(int n, MPI_Request requests[], MPI_Status statuses[]) {
    const int result = PMPI_Waitall(n, requests, statuses);
    spoil_awaited();
    return result;
}

int MPI_Sendrecv(const void* from, int n, MPI_Datatype type, int dest, int tag, void* to, int m, MPI_Datatype to_type,
                 int source, int to_tag, MPI_Comm comm, MPI_Status* status) {
    const int result = PMPI_Sendrecv(from, n, type, dest, tag, to, m, to_type, source, to_tag, comm, status);
    spoil(to, m);
    return result;
}

int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
    const int result = PMPI_Bcast(data, n, type, root, comm);
    if (is_data(type)) spoil(data, n);
    return result;
}

int MPI_Alltoall(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, MPI_Comm comm) {
    const int result = PMPI_Alltoall(from, n, type, to, m, to_type, comm);
    spoil(to, m);
    return result;
}

int MPI_Allgather(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, MPI_Comm comm) {
    const int result = PMPI_Allgather(from, n, type, to, m, to_type, comm);
    spoil(to, m);
    return result;
}

int MPI_Scatter(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, int root,
                MPI_Comm comm) {
    const int result = PMPI_Scatter(from, n, type, to, m, to_type, root, comm);
    spoil(to, m);
    return result;
}

int MPI_Allreduce(const void* from, void* to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const int result = PMPI_Allreduce(from, to, n, type, op, comm);
    if (is_data(type)) spoil(to, n);
    return result;
}
