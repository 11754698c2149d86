/* The type of counts: int, or that of the forms of MPI 4 in place of the older ones. */
#pragma once

#ifndef LARGE_COUNTS

typedef int Count;
typedef int Displacement; /* of a rank's part, in extents of its type */
typedef MPI_Aint Offset;  /* in a type, in bytes */

#else

typedef MPI_Count Count;
typedef MPI_Aint Displacement;
typedef MPI_Count Offset;

#define MPI_Allgather MPI_Allgather_c
#define MPI_Allgatherv MPI_Allgatherv_c
#define MPI_Allreduce MPI_Allreduce_c
#define MPI_Alltoall MPI_Alltoall_c
#define MPI_Alltoallv MPI_Alltoallv_c
#define MPI_Alltoallw MPI_Alltoallw_c
#define MPI_Bcast MPI_Bcast_c
#define MPI_Bsend MPI_Bsend_c
#define MPI_Bsend_init MPI_Bsend_init_c
#define MPI_Buffer_attach MPI_Buffer_attach_c
#define MPI_Buffer_detach MPI_Buffer_detach_c
#define MPI_Exscan MPI_Exscan_c
#define MPI_Gather MPI_Gather_c
#define MPI_Gatherv MPI_Gatherv_c
#define MPI_Get_count MPI_Get_count_c
#define MPI_Get_elements MPI_Get_elements_c
#define MPI_Ibsend MPI_Ibsend_c
#define MPI_Imrecv MPI_Imrecv_c
#define MPI_Irecv MPI_Irecv_c
#define MPI_Irsend MPI_Irsend_c
#define MPI_Isend MPI_Isend_c
#define MPI_Issend MPI_Issend_c
#define MPI_Mrecv MPI_Mrecv_c
#define MPI_Op_create MPI_Op_create_c
#define MPI_Recv MPI_Recv_c
#define MPI_Recv_init MPI_Recv_init_c
#define MPI_Reduce MPI_Reduce_c
#define MPI_Reduce_scatter MPI_Reduce_scatter_c
#define MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c
#define MPI_Rsend MPI_Rsend_c
#define MPI_Rsend_init MPI_Rsend_init_c
#define MPI_Scan MPI_Scan_c
#define MPI_Scatter MPI_Scatter_c
#define MPI_Scatterv MPI_Scatterv_c
#define MPI_Send MPI_Send_c
#define MPI_Send_init MPI_Send_init_c
#define MPI_Sendrecv MPI_Sendrecv_c
#define MPI_Sendrecv_replace MPI_Sendrecv_replace_c
#define MPI_Ssend MPI_Ssend_c
#define MPI_Ssend_init MPI_Ssend_init_c
#define MPI_Type_contiguous MPI_Type_contiguous_c
#define MPI_Type_create_hindexed MPI_Type_create_hindexed_c
#define MPI_Type_create_hvector MPI_Type_create_hvector_c
#define MPI_Type_create_resized MPI_Type_create_resized_c
#define MPI_Type_create_struct MPI_Type_create_struct_c
#define MPI_Type_create_subarray MPI_Type_create_subarray_c
#define MPI_Type_indexed MPI_Type_indexed_c
#define MPI_Type_size MPI_Type_size_c
#define MPI_Type_vector MPI_Type_vector_c

#endif
