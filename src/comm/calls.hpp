// Every sealed procedure, as the generated entries call it. Counts are MPI_Count: the int and the _c form of a
// procedure come to one function.
//
// A procedure NAME of the table with the class "sealed" is found in the file that is named after its family.
#pragma once

#include <mpi.h>

namespace cryptmpi::comm {

// start.cpp
int Init(int* argc, char*** argv);
int Init_thread(int* argc, char*** argv, int required, int* provided);
int Finalize();

/// Are all members of the communicator on this node? Then nothing of it is sealed, and nothing refused.
bool stays_on_node(MPI_Comm comm);

// point.cpp
int Send(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Ssend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Rsend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Isend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int Issend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int Irsend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int Recv(void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status);
int Irecv(void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request);
int Sendrecv(const void* out, MPI_Count out_count, MPI_Datatype out_type, int to, int out_tag, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status);
int Sendrecv_replace(void* at, MPI_Count count, MPI_Datatype type, int to, int out_tag, int from, int in_tag,
                     MPI_Comm comm, MPI_Status* status);

// buffered.cpp
int Bsend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Ibsend(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int Buffer_attach(void* at, MPI_Count size);
int Buffer_detach(void* at, int* size);
int Buffer_detach(void* at, MPI_Count* size);
int Buffer_flush();

// persistent.cpp
int Send_init(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int Ssend_init(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request);
int Rsend_init(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request);
int Bsend_init(const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request);
int Recv_init(void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request);
int Start(MPI_Request* request);
int Startall(int count, MPI_Request* requests);

// probe.cpp
int Probe(int from, int tag, MPI_Comm comm, MPI_Status* status);
int Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status);
int Mprobe(int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status);
int Improbe(int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status);
int Mrecv(void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Status* status);
int Imrecv(void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Request* request);

// complete.cpp
int Wait(MPI_Request* request, MPI_Status* status);
int Test(MPI_Request* request, int* flag, MPI_Status* status);
int Waitall(int count, MPI_Request* requests, MPI_Status* statuses);
int Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses);
int Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status);
int Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status);
int Waitsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses);
int Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses);
int Request_get_status(MPI_Request request, int* flag, MPI_Status* status);
int Request_get_status_all(int count, const MPI_Request requests[], int* flag, MPI_Status* statuses);
int Request_get_status_any(int count, const MPI_Request requests[], int* index, int* flag, MPI_Status* status);
int Request_get_status_some(int count, const MPI_Request requests[], int* done, int* indices, MPI_Status* statuses);
int Request_free(MPI_Request* request);
int Cancel(MPI_Request* request);

// constructors.cpp
int Comm_dup(MPI_Comm comm, MPI_Comm* made);
int Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* made);
int Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request);
int Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* made, MPI_Request* request);
int Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* made);
int Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made);
int Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler handler, MPI_Comm* made);
int Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made);
int Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made);
int Cart_create(MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder, MPI_Comm* made);
int Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm* made);
int Graph_create(MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder, MPI_Comm* made);
int Dist_graph_create(MPI_Comm comm, int count, const int sources[], const int degrees[], const int destinations[],
                      const int weights[], MPI_Info info, int reorder, MPI_Comm* made);
int Dist_graph_create_adjacent(MPI_Comm comm, int in_degree, const int sources[], const int in_weights[],
                               int out_degree, const int destinations[], const int out_weights[], MPI_Info info,
                               int reorder, MPI_Comm* made);
int Comm_free(MPI_Comm* comm);
/// Another datatype may get its handle.
int Type_free(MPI_Datatype* type);
int Comm_disconnect(MPI_Comm* comm);

// movers.cpp
int Bcast(void* at, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
int Gather(const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
           MPI_Datatype in_type, int root, MPI_Comm comm);
int Scatter(const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
            MPI_Datatype in_type, int root, MPI_Comm comm);
int Allgather(const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
              MPI_Datatype in_type, MPI_Comm comm);
int Alltoall(const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
             MPI_Datatype in_type, MPI_Comm comm);
// with int or with MPI_Count counts C, and int or MPI_Aint displacements D
template <class C, class D>
int Gatherv(const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts, const D* places,
            MPI_Datatype in_type, int root, MPI_Comm comm);
template <class C, class D>
int Scatterv(const void* out, const C* counts, const D* places, MPI_Datatype out_type, void* in, MPI_Count in_count,
             MPI_Datatype in_type, int root, MPI_Comm comm);
template <class C, class D>
int Allgatherv(const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts, const D* places,
               MPI_Datatype in_type, MPI_Comm comm);
template <class C, class D>
int Alltoallv(const void* out, const C* out_counts, const D* out_places, MPI_Datatype out_type, void* in,
              const C* in_counts, const D* in_places, MPI_Datatype in_type, MPI_Comm comm);
template <class C, class D>
int Alltoallw(const void* out, const C* out_counts, const D* out_places, const MPI_Datatype* out_types, void* in,
              const C* in_counts, const D* in_places, const MPI_Datatype* in_types, MPI_Comm comm);

// reductions.cpp
int Reduce(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm);
int Allreduce(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int Scan(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int Exscan(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int Reduce_scatter_block(const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
template <class C>
int Reduce_scatter(const void* out, void* in, const C* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

}  // namespace cryptmpi::comm
