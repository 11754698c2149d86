// Every sealed procedure, as the generated entries call it. Counts are MPI_Count: the int and the _c form of a
// procedure come to one function.
//
// A procedure NAME of the table with the class "sealed" is found in the file that is named after its family.
#pragma once

#include <mpi.h>

#include "comm/session_type.hpp"

namespace cryptmpi::comm {

class Layer;

// start.cpp
int Init(Layer& layer, int* argc, char*** argv);
int Init_thread(Layer& layer, int* argc, char*** argv, int required, int* provided);
int Finalize(Layer& layer);
int Session_init(Layer& layer, MPI_Info info, MPI_Errhandler handler, MPI_Session* session);
int Session_finalize(Layer& layer, MPI_Session* session);

/// Are all members of the communicator on this node? Then nothing of it is sealed, and nothing refused.
bool stays_on_node(Layer& layer, MPI_Comm comm);

// point.cpp
int Send(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Ssend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Rsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Isend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
          MPI_Request* request);
int Issend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
           MPI_Request* request);
int Irsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
           MPI_Request* request);
int Recv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
         MPI_Status* status);
int Irecv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
          MPI_Request* request);
int Sendrecv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, int to, int out_tag, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status);
int Sendrecv_replace(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int to, int out_tag, int from,
                     int in_tag, MPI_Comm comm, MPI_Status* status);

// buffered.cpp
int Bsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int Ibsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
           MPI_Request* request);
int Buffer_attach(Layer& layer, void* at, MPI_Count size);
int Buffer_detach(Layer& layer, void* at, int* size);
int Buffer_detach(Layer& layer, void* at, MPI_Count* size);
int Buffer_flush(Layer& layer);

// persistent.cpp
int Send_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request);
int Ssend_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request);
int Rsend_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request);
int Bsend_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request);
int Recv_init(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request);
int Start(Layer& layer, MPI_Request* request);
int Startall(Layer& layer, int count, MPI_Request* requests);

// probe.cpp
int Probe(Layer& layer, int from, int tag, MPI_Comm comm, MPI_Status* status);
int Iprobe(Layer& layer, int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status);
int Mprobe(Layer& layer, int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status);
int Improbe(Layer& layer, int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status);
int Mrecv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Status* status);
int Imrecv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Request* request);

// wait.cpp
int Wait(Layer& layer, MPI_Request* request, MPI_Status* status);
int Test(Layer& layer, MPI_Request* request, int* flag, MPI_Status* status);
int Waitall(Layer& layer, int count, MPI_Request* requests, MPI_Status* statuses);
int Testall(Layer& layer, int count, MPI_Request* requests, int* flag, MPI_Status* statuses);
int Waitany(Layer& layer, int count, MPI_Request* requests, int* index, MPI_Status* status);
int Testany(Layer& layer, int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status);
int Waitsome(Layer& layer, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses);
int Testsome(Layer& layer, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses);

// request.cpp
int Request_get_status(Layer& layer, MPI_Request request, int* flag, MPI_Status* status);
int Request_get_status_all(Layer& layer, int count, const MPI_Request requests[], int* flag, MPI_Status* statuses);
int Request_get_status_any(Layer& layer, int count, const MPI_Request requests[], int* index, int* flag,
                           MPI_Status* status);
int Request_get_status_some(Layer& layer, int count, const MPI_Request requests[], int* done, int* indices,
                            MPI_Status* statuses);
int Request_free(Layer& layer, MPI_Request* request);
int Cancel(Layer& layer, MPI_Request* request);

// constructors.cpp
int Comm_dup(Layer& layer, MPI_Comm comm, MPI_Comm* made);
int Comm_dup_with_info(Layer& layer, MPI_Comm comm, MPI_Info info, MPI_Comm* made);
int Comm_idup(Layer& layer, MPI_Comm comm, MPI_Comm* made, MPI_Request* request);
int Comm_idup_with_info(Layer& layer, MPI_Comm comm, MPI_Info info, MPI_Comm* made, MPI_Request* request);
int Comm_create(Layer& layer, MPI_Comm comm, MPI_Group group, MPI_Comm* made);
int Comm_create_group(Layer& layer, MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made);
int Comm_create_from_group(Layer& layer, MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler handler,
                           MPI_Comm* made);
int Comm_split(Layer& layer, MPI_Comm comm, int color, int key, MPI_Comm* made);
int Comm_split_type(Layer& layer, MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made);
int Cart_create(Layer& layer, MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder,
                MPI_Comm* made);
int Cart_sub(Layer& layer, MPI_Comm comm, const int remain[], MPI_Comm* made);
int Graph_create(Layer& layer, MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder,
                 MPI_Comm* made);
int Dist_graph_create(Layer& layer, MPI_Comm comm, int count, const int sources[], const int degrees[],
                      const int destinations[], const int weights[], MPI_Info info, int reorder, MPI_Comm* made);
int Dist_graph_create_adjacent(Layer& layer, MPI_Comm comm, int in_degree, const int sources[], const int in_weights[],
                               int out_degree, const int destinations[], const int out_weights[], MPI_Info info,
                               int reorder, MPI_Comm* made);
int Comm_free(Layer& layer, MPI_Comm* comm);
/// Another datatype may get its handle.
int Type_free(Layer& layer, MPI_Datatype* type);
int Comm_disconnect(Layer& layer, MPI_Comm* comm);

// Of collective operations, those with arrays have int or MPI_Count counts C, and int or MPI_Aint displacements D.

// bcast.cpp
int Bcast(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);

// gather.cpp
int Gather(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
           MPI_Datatype in_type, int root, MPI_Comm comm);
template <class C, class D>
int Gatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
            const D* places, MPI_Datatype in_type, int root, MPI_Comm comm);

// scatter.cpp
int Scatter(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
            MPI_Datatype in_type, int root, MPI_Comm comm);
template <class C, class D>
int Scatterv(Layer& layer, const void* out, const C* counts, const D* places, MPI_Datatype out_type, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int root, MPI_Comm comm);

// allgather.cpp
int Allgather(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
              MPI_Datatype in_type, MPI_Comm comm);
template <class C, class D>
int Allgatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
               const D* places, MPI_Datatype in_type, MPI_Comm comm);

// alltoall.cpp
int Alltoall(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
             MPI_Datatype in_type, MPI_Comm comm);
template <class C, class D>
int Alltoallv(Layer& layer, const void* out, const C* out_counts, const D* out_places, MPI_Datatype out_type, void* in,
              const C* in_counts, const D* in_places, MPI_Datatype in_type, MPI_Comm comm);
template <class C, class D>
int Alltoallw(Layer& layer, const void* out, const C* out_counts, const D* out_places, const MPI_Datatype* out_types,
              void* in, const C* in_counts, const D* in_places, const MPI_Datatype* in_types, MPI_Comm comm);

// reduce.cpp
int Reduce(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm);

// allreduce.cpp
int Allreduce(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

// reduce_scatter.cpp
int Reduce_scatter_block(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm);
template <class C>
int Reduce_scatter(Layer& layer, const void* out, void* in, const C* counts, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm);

// scan.cpp
int Scan(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int Exscan(Layer& layer, const void* out, void* in, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

}  // namespace cryptmpi::comm
