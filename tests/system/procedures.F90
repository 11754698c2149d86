! Every sealed procedure from Fortran: as procedures.c does it, for mpif.h, the module mpi (-DMODULE) and mpi_f08 (-DF08).
!
!     procedures FILE NAME...    two ranks; FILE has a line "NAME 64-HEX-DIGITS" for each exercise, and those NAME are left out
!
! Rank 0 sends what `out` has and rank 1 checks what came into `in`, unless an exercise says otherwise.

#if defined(F08)
#define HANDLE(kind) type(kind)
#define STATUS type(MPI_Status)
#define STATUSES type(MPI_Status), dimension(2)
#define STATUS_OF(statuses, i) statuses(i)
#define SOURCE_OF(status) status%MPI_SOURCE
#define TAG_OF(status) status%MPI_TAG
#else
#define HANDLE(kind) integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#define STATUSES integer, dimension(MPI_STATUS_SIZE, 2)
#define STATUS_OF(statuses, i) statuses(:, i)
#define SOURCE_OF(status) status(MPI_SOURCE)
#define TAG_OF(status) status(MPI_TAG)
#endif

module exercises
#if defined(F08)
    use mpi_f08
#elif defined(MODULE)
    use mpi
#endif
    use, intrinsic :: iso_c_binding
    implicit none
#if !defined(F08) && !defined(MODULE)
    include 'mpif.h'
#endif
    integer, parameter :: ranks = 2, canary_words = 8, small = 4 * canary_words, large = 3000 * canary_words
    integer :: rank, words, code                ! words: of the message
    character(len=64) :: name = 'all'           ! of the exercise
    integer :: canary(canary_words)
    integer, asynchronous, target, save :: out(ranks * large), in(ranks * large)
    integer, asynchronous, save :: buffer(large + 1000)

contains

    subroutine expect(right, otherwise)
        logical, intent(in) :: right
        character(len=*), intent(in) :: otherwise
        if (right) return
        write (0, '(a, i0, 4a)') 'procedures: rank ', rank, ': ', trim(name), ': ', otherwise
        call MPI_Abort(MPI_COMM_WORLD, 1, code)
    end subroutine

    subroutine expect_canaries(n)
        integer, intent(in) :: n
        integer :: i
        do i = 0, n - 1, canary_words
            call expect(all(in(i + 1:i + canary_words) == canary), 'other data than was sent')
        end do
    end subroutine

    subroutine expect_size(status_, n)
        STATUS, intent(in) :: status_
        integer, intent(in) :: n
        integer :: count
        call MPI_Get_count(status_, MPI_INTEGER, count, code)
        call expect(count == n, 'another count than was sent')
    end subroutine

    logical function left_out()
        character(len=64) :: argument
        integer :: i
        left_out = .false.
        do i = 2, command_argument_count()
            call get_command_argument(i, argument)
            left_out = left_out .or. argument == name
        end do
    end function

    subroutine read_canary()
        character(len=512) :: file, line
        integer :: unit, state, split
        call get_command_argument(1, file)
        open (newunit=unit, file=file, status='old', action='read')
        do
            read (unit, '(a)', iostat=state) line
            call expect(state == 0, 'there is no canary of its own')
            split = index(trim(line), ' ', back=.true.)
            if (line(:split) == name) exit
        end do
        close (unit)
        read (line(split + 1:split + 64), '(8z8)') canary
        canary = [(swapped(canary(split)), split=1, canary_words)]
    end subroutine

    ! The file's digits are in the order of the bytes in memory.
    integer function swapped(word)
        integer, intent(in) :: word
        integer(1) :: bytes(4)
        bytes = transfer(word, bytes)
        swapped = transfer(bytes(4:1:-1), swapped)
    end function

    ! The name of the exercise that follows; false: it is left out.
    logical function exercise(its_name)
        character(len=*), intent(in) :: its_name
        integer :: i
        name = its_name
        exercise = .not. left_out()
        if (.not. exercise) return
        call MPI_Barrier(MPI_COMM_WORLD, code) ! what a freed request still sends is in `out`
        call read_canary()
        do i = 1, ranks * large, canary_words
            out(i:i + canary_words - 1) = canary
        end do
        in = 0
        call MPI_Barrier(MPI_COMM_WORLD, code)
        if (rank == 0 .and. words == small) print '(2a)', 'procedures: exercised ', trim(its_name)
    end function

    ! Sends and receives

    subroutine post(receive)
        HANDLE(MPI_Request), intent(inout) :: receive
        if (rank == 1) call MPI_Irecv(in, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, receive, code)
        call MPI_Barrier(MPI_COMM_WORLD, code) ! a ready send needs its receive
    end subroutine

    subroutine finish(receive)
        HANDLE(MPI_Request), intent(inout) :: receive
        STATUS :: status_
        if (rank == 0) return
        call MPI_Wait(receive, status_, code)
        call expect_size(status_, words)
        call expect_canaries(words)
    end subroutine

    subroutine attach()
        call MPI_Buffer_attach(buffer, 4 * size(buffer), code)
    end subroutine

    subroutine detach()
        integer :: bytes
#if defined(F08) || (defined(MODULE) && defined(MPICH))
        type(c_ptr) :: at
#else
        integer(MPI_ADDRESS_KIND) :: at
#endif
        call MPI_Buffer_detach(at, bytes, code)
        call expect(bytes == 4 * size(buffer), 'another buffer than was attached')
    end subroutine

    subroutine send()
        if (rank == 0) call MPI_Send(out, words, MPI_INTEGER, 1, 0, MPI_COMM_WORLD, code)
    end subroutine

#define TO_PARTNER out, words, MPI_INTEGER, 1, 0, MPI_COMM_WORLD

    subroutine sends()
        HANDLE(MPI_Request) :: receive, request
        call attach()
        if (exercise('MPI_Send')) then
            call post(receive)
            if (rank == 0) call MPI_Send(TO_PARTNER, code)
            call finish(receive)
        end if
        if (exercise('MPI_Ssend')) then
            call post(receive)
            if (rank == 0) call MPI_Ssend(TO_PARTNER, code)
            call finish(receive)
        end if
        if (exercise('MPI_Rsend')) then
            call post(receive)
            if (rank == 0) call MPI_Rsend(TO_PARTNER, code)
            call finish(receive)
        end if
        if (exercise('MPI_Bsend')) then
            call post(receive)
            if (rank == 0) call MPI_Bsend(TO_PARTNER, code)
            call finish(receive)
        end if
        if (exercise('MPI_Isend')) then
            call post(receive)
            if (rank == 0) call MPI_Isend(TO_PARTNER, request, code)
            call finish_both(request, receive)
        end if
        if (exercise('MPI_Issend')) then
            call post(receive)
            if (rank == 0) call MPI_Issend(TO_PARTNER, request, code)
            call finish_both(request, receive)
        end if
        if (exercise('MPI_Irsend')) then
            call post(receive)
            if (rank == 0) call MPI_Irsend(TO_PARTNER, request, code)
            call finish_both(request, receive)
        end if
        if (exercise('MPI_Ibsend')) then
            call post(receive)
            if (rank == 0) call MPI_Ibsend(TO_PARTNER, request, code)
            call finish_both(request, receive)
        end if
        if (exercise('MPI_Send_init')) then
            if (rank == 0) call MPI_Send_init(TO_PARTNER, request, code)
            call start_twice(request)
        end if
        if (exercise('MPI_Ssend_init')) then
            if (rank == 0) call MPI_Ssend_init(TO_PARTNER, request, code)
            call start_twice(request)
        end if
        if (exercise('MPI_Rsend_init')) then
            if (rank == 0) call MPI_Rsend_init(TO_PARTNER, request, code)
            call start_twice(request)
        end if
        if (exercise('MPI_Bsend_init')) then
            if (rank == 0) call MPI_Bsend_init(TO_PARTNER, request, code)
            call post(receive) ! once: see procedures.c
            if (rank == 0) call MPI_Start(request, code)
            if (rank == 0) call MPI_Wait(request, MPI_STATUS_IGNORE, code)
            call finish(receive)
            if (rank == 0) call MPI_Request_free(request, code)
        end if
        call MPI_Barrier(MPI_COMM_WORLD, code)
        call detach()
    end subroutine

    subroutine finish_both(request, receive)
        HANDLE(MPI_Request), intent(inout) :: request, receive
        if (rank == 0) call MPI_Wait(request, MPI_STATUS_IGNORE, code)
        call finish(receive)
    end subroutine

    subroutine start_twice(request)
        HANDLE(MPI_Request), intent(inout) :: request
        HANDLE(MPI_Request) :: receive
        integer :: round
        do round = 1, 2
            in = 0
            call post(receive)
            if (rank == 0) call MPI_Start(request, code)
            call finish_both(request, receive)
        end do
        if (rank == 0) call MPI_Request_free(request, code)
    end subroutine

    subroutine receives()
        HANDLE(MPI_Request) :: receive
        STATUS :: status_
        integer :: round
        if (exercise('MPI_Recv')) then
            call send()
            if (rank == 1) then
                call MPI_Recv(in, size(in), MPI_INTEGER, 0, MPI_ANY_TAG, MPI_COMM_WORLD, status_, code)
                call expect_size(status_, words)
                call expect_canaries(words)
            end if
        end if
        if (exercise('MPI_Recv without a status')) then
            call send()
            if (rank == 1) then
                call MPI_Recv(in, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
                call expect_canaries(words)
            end if
        end if
        if (exercise('MPI_Irecv')) then
            if (rank == 1) call MPI_Irecv(in, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, receive, code)
            call send()
            call finish(receive)
        end if
        if (exercise('MPI_Recv_init')) then
            if (rank == 1) call MPI_Recv_init(in, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, receive, code)
            do round = 1, 2
                in = 0
                if (rank == 1) call MPI_Start(receive, code)
                call send()
                call finish(receive)
            end do
            if (rank == 1) call MPI_Request_free(receive, code)
        end if
        if (exercise('MPI_Sendrecv')) then
            call MPI_Sendrecv(out, words, MPI_INTEGER, 1 - rank, 0, in, words, MPI_INTEGER, 1 - rank, 0, MPI_COMM_WORLD, status_, code)
            call expect_size(status_, words)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Sendrecv_replace')) then
            if (rank == 0) in(:words) = out(:words)
            call MPI_Sendrecv_replace(in, words, MPI_INTEGER, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD, status_, code)
            call expect_size(status_, words)
            if (rank == 0) call expect(all(in(:words) == 0), 'other data than was sent')
            if (rank == 1) call expect_canaries(words)
        end if
        if (exercise('MPI_Request_free')) then
            call post(receive)
            if (rank == 0) call MPI_Isend(TO_PARTNER, receive, code)
            if (rank == 0) call MPI_Request_free(receive, code)
            call finish(receive)
        end if
        if (exercise('MPI_Cancel')) then
            if (rank == 1) then
                call MPI_Irecv(in, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, receive, code)
                call MPI_Cancel(receive, code)
                call MPI_Wait(receive, MPI_STATUS_IGNORE, code)
            end if
            call post(receive)
            call send()
            call finish(receive)
        end if
    end subroutine

    subroutine probes()
        STATUS :: status_
        HANDLE(MPI_Message) :: message
        HANDLE(MPI_Request) :: receive
        logical :: there
        if (exercise('MPI_Probe')) then
            call send()
            if (rank == 1) then
                call MPI_Probe(0, 0, MPI_COMM_WORLD, status_, code)
                call expect_size(status_, words)
                call MPI_Recv(in, words, MPI_INTEGER, SOURCE_OF(status_), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
                call expect_canaries(words)
            end if
        end if
        if (exercise('MPI_Iprobe')) then
            call send()
            if (rank == 1) then
                there = .false.
                do while (.not. there)
                    call MPI_Iprobe(0, 0, MPI_COMM_WORLD, there, status_, code)
                end do
                call expect_size(status_, words)
                call MPI_Recv(in, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
                call expect_canaries(words)
            end if
        end if
        if (exercise('MPI_Mprobe')) then
            call send()
            if (rank == 1) then
                call MPI_Mprobe(0, 0, MPI_COMM_WORLD, message, status_, code)
                call expect_size(status_, words)
                call MPI_Mrecv(in, words, MPI_INTEGER, message, MPI_STATUS_IGNORE, code)
                call expect_canaries(words)
            end if
        end if
        if (exercise('MPI_Mrecv')) then
            call send()
            if (rank == 1) then
                call MPI_Mprobe(0, 0, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE, code)
                call MPI_Mrecv(in, words, MPI_INTEGER, message, status_, code)
                call expect_size(status_, words)
                call expect_canaries(words)
            end if
        end if
        if (exercise('MPI_Improbe')) then
            call send()
            if (rank == 1) then
                there = .false.
                do while (.not. there)
                    call MPI_Improbe(0, 0, MPI_COMM_WORLD, there, message, status_, code)
                end do
                call expect_size(status_, words)
                call MPI_Mrecv(in, words, MPI_INTEGER, message, MPI_STATUS_IGNORE, code)
                call expect_canaries(words)
            end if
        end if
        if (exercise('MPI_Imrecv')) then
            call send()
            if (rank == 1) then
                call MPI_Mprobe(0, 0, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE, code)
                call MPI_Imrecv(in, words, MPI_INTEGER, message, receive, code)
                call finish(receive)
            end if
        end if
    end subroutine

    ! Completion: the message's two halves are two requests on both sides.

    subroutine begin_halves(halves)
        HANDLE(MPI_Request), intent(inout) :: halves(2)
        integer :: i, half
        half = words / 2
        do i = 1, 2
            if (rank == 0) call MPI_Isend(out((i - 1) * half + 1), half, MPI_INTEGER, 1, i, MPI_COMM_WORLD, halves(i), code)
            if (rank == 1) call MPI_Irecv(in((i - 1) * half + 1), half, MPI_INTEGER, 0, i, MPI_COMM_WORLD, halves(i), code)
        end do
    end subroutine

    subroutine expect_halves(all_statuses)
        STATUSES, intent(in) :: all_statuses
        integer :: i
        if (rank == 0) return
        do i = 1, 2
            call expect_size(STATUS_OF(all_statuses, i), words / 2)
        end do
        call expect_canaries(words)
    end subroutine

    subroutine completions()
        HANDLE(MPI_Request) :: halves(2)
        STATUSES :: got
        STATUSES :: some_got
        STATUS :: one
        integer :: i, k, which, some, indices(2)
        logical :: done
        if (exercise('MPI_Wait')) then
            call begin_halves(halves)
            do i = 1, 2
                call MPI_Wait(halves(i), one, code)
                STATUS_OF(got, i) = one
            end do
            call expect_halves(got)
        end if
        if (exercise('MPI_Waitall')) then
            call begin_halves(halves)
            call MPI_Waitall(2, halves, got, code)
            call expect_halves(got)
        end if
        if (exercise('MPI_Waitall without statuses')) then
            call begin_halves(halves)
            call MPI_Waitall(2, halves, MPI_STATUSES_IGNORE, code)
            if (rank == 1) call expect_canaries(words)
        end if
        ! By their tags, not by the indices: the mpi_f08 of MPICH 4.0.2 counts from 0, plain, too.
        if (exercise('MPI_Waitany')) then
            call begin_halves(halves)
            do i = 1, 2
                call MPI_Waitany(2, halves, which, one, code)
                if (rank == 1) STATUS_OF(got, TAG_OF(one)) = one
            end do
            call expect_halves(got)
        end if
        if (exercise('MPI_Waitsome')) then
            call begin_halves(halves)
            i = 0
            do while (i < 2)
                call MPI_Waitsome(2, halves, some, indices, some_got, code)
                do k = 1, some
                    one = STATUS_OF(some_got, k)
                    if (rank == 1) STATUS_OF(got, TAG_OF(one)) = one
                end do
                i = i + some
            end do
            call expect_halves(got)
        end if
        if (exercise('MPI_Test')) then
            call begin_halves(halves)
            do i = 1, 2
                done = .false.
                do while (.not. done)
                    call MPI_Test(halves(i), done, one, code)
                end do
                STATUS_OF(got, i) = one
            end do
            call expect_halves(got)
        end if
        if (exercise('MPI_Testall')) then
            call begin_halves(halves)
            done = .false.
            do while (.not. done)
                call MPI_Testall(2, halves, done, got, code)
            end do
            call expect_halves(got)
        end if
        if (exercise('MPI_Testany')) then
            call begin_halves(halves)
            do i = 1, 2
                done = .false.
                do while (.not. done)
                    call MPI_Testany(2, halves, which, done, one, code)
                end do
                if (rank == 1) STATUS_OF(got, TAG_OF(one)) = one
            end do
            call expect_halves(got)
        end if
        if (exercise('MPI_Testsome')) then
            call begin_halves(halves)
            i = 0
            do while (i < 2)
                call MPI_Testsome(2, halves, some, indices, some_got, code)
                do k = 1, some
                    one = STATUS_OF(some_got, k)
                    if (rank == 1) STATUS_OF(got, TAG_OF(one)) = one
                end do
                i = i + some
            end do
            call expect_halves(got)
        end if
        if (exercise('MPI_Request_get_status')) then
            call begin_halves(halves)
            do i = 1, 2
                done = .false.
                do while (.not. done)
                    call MPI_Request_get_status(halves(i), done, one, code)
                end do
                STATUS_OF(got, i) = one
            end do
            call expect_halves(got)
            call MPI_Waitall(2, halves, MPI_STATUSES_IGNORE, code)
        end if
        if (exercise('MPI_Start')) then
            if (rank == 0) call MPI_Send_init(TO_PARTNER, halves(1), code)
            if (rank == 1) call MPI_Recv_init(in, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, halves(1), code)
            do i = 1, 2
                in = 0
                call MPI_Start(halves(1), code)
                call MPI_Wait(halves(1), MPI_STATUS_IGNORE, code)
                if (rank == 1) call expect_canaries(words)
            end do
            call MPI_Request_free(halves(1), code)
        end if
        if (exercise('MPI_Startall')) then
            call MPI_Send_init(out, words, MPI_INTEGER, 1 - rank, 0, MPI_COMM_WORLD, halves(1), code)
            call MPI_Recv_init(in, words, MPI_INTEGER, 1 - rank, 0, MPI_COMM_WORLD, halves(2), code)
            do i = 1, 2
                in = 0
                call MPI_Startall(2, halves, code)
                call MPI_Waitall(2, halves, MPI_STATUSES_IGNORE, code)
                call expect_canaries(words)
            end do
            call MPI_Request_free(halves(1), code)
            call MPI_Request_free(halves(2), code)
        end if
    end subroutine

    subroutine buffers()
        HANDLE(MPI_Request) :: receive
        if (exercise('MPI_Buffer_attach')) then
            call MPI_Buffer_attach(buffer, 4 * size(buffer), code)
            call post(receive)
            if (rank == 0) call MPI_Bsend(TO_PARTNER, code)
            call finish(receive)
            call detach()
        end if
        if (exercise('MPI_Buffer_detach')) then
            call attach()
            call post(receive)
            if (rank == 0) call MPI_Bsend(TO_PARTNER, code)
            call detach()
            call finish(receive)
        end if
    end subroutine

    ! What Fortran has and C has not, or in another way

    subroutine append(given, inout, count, type_)
#if defined(F08)
        type(c_ptr), value :: given, inout
        integer :: count
        type(MPI_Datatype) :: type_
        integer, pointer :: a(:), b(:)
        call c_f_pointer(given, a, [count])
        call c_f_pointer(inout, b, [count])
        b = ior(a, b)
#else
        integer :: count, type_
        integer :: given(count), inout(count)
        inout = ior(given, inout)
#endif
    end subroutine

    subroutine of_fortran()
        HANDLE(MPI_Op) :: op
        HANDLE(MPI_Datatype) :: at_address
        HANDLE(MPI_Datatype) :: columns
        HANDLE(MPI_Request) :: request
        integer(MPI_ADDRESS_KIND) :: address(1)
        if (exercise('MPI_Allreduce with an operation of the user')) then
            if (rank == 0) out = 0
            call MPI_Op_create(append, .true., op, code)
            call MPI_Allreduce(out, in, words, MPI_INTEGER, op, MPI_COMM_WORLD, code)
            call MPI_Op_free(op, code)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Allreduce in place')) then
            if (rank == 1) in(:words) = out(:words)
            call MPI_Allreduce(MPI_IN_PLACE, in, words, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, code)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Allgather in place')) then
            in(rank * words + 1:(rank + 1) * words) = out(:words)
            call MPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, in, words, MPI_INTEGER, MPI_COMM_WORLD, code)
            call expect_canaries(ranks * words)
        end if
        if (exercise('MPI_Gather in place')) then
            if (rank == 0) then
                in(:words) = out(:words)
                call MPI_Gather(MPI_IN_PLACE, 0, MPI_INTEGER, in, words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
                call expect_canaries(ranks * words)
            else
                call MPI_Gather(out, words, MPI_INTEGER, in, words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            end if
        end if
        if (exercise('MPI_Send from MPI_BOTTOM')) then
            if (rank == 0) call MPI_Get_address(out, address(1), code)
            if (rank == 1) call MPI_Get_address(in, address(1), code)
            call MPI_Type_create_hindexed(1, [words], address, MPI_INTEGER, at_address, code)
            call MPI_Type_commit(at_address, code)
            if (rank == 0) call MPI_Send(MPI_BOTTOM, 1, at_address, 1, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call MPI_Recv(MPI_BOTTOM, 1, at_address, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
            call MPI_Type_free(at_address, code)
            if (rank == 1) call expect_canaries_behind_a_call()
        end if
        if (exercise('MPI_Send of columns')) then
            ! Blocks of a canary each, with as much between them: out is sent with its gaps, in is filled without.
            call MPI_Type_vector(words / canary_words / 2, canary_words, 2 * canary_words, MPI_INTEGER, columns, code)
            call MPI_Type_commit(columns, code)
            if (rank == 0) call MPI_Send(out, 1, columns, 1, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call MPI_Recv(in, words / 2, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
            call MPI_Type_free(columns, code)
            if (rank == 1) call expect_canaries(words / 2)
        end if
        if (exercise('MPI_Bcast of a section')) then
            call spread_out()
            if (rank == 0) call MPI_Bcast(out(1:2 * words:2), words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call MPI_Bcast(in(1:2 * words:2), words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call expect_section()
        end if
        if (exercise('MPI_Send of a section')) then
            call spread_out()
            if (rank == 0) call MPI_Send(out(1:2 * words:2), words, MPI_INTEGER, 1, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call MPI_Recv(in(1:2 * words:2), words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
            if (rank == 1) call expect_section()
        end if
        ! Without this, what MPI gets is a copy that is gone when the call returns.
        if (.not. MPI_SUBARRAYS_SUPPORTED) then
            if (rank == 0 .and. words == small) print '(a)', 'procedures: not in this MPI: MPI_Isend of a section'
            return
        end if
        if (exercise('MPI_Isend of a section')) then
            call spread_out()
            if (rank == 0) call MPI_Isend(out(1:2 * words:2), words, MPI_INTEGER, 1, 0, MPI_COMM_WORLD, request, code)
            if (rank == 1) call MPI_Irecv(in(1:2 * words:2), words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, request, code)
            call MPI_Wait(request, MPI_STATUS_IGNORE, code)
            if (rank == 1) call expect_section()
        end if
    end subroutine

    ! The compiler cannot know that a call without `in` changes it.
    subroutine expect_canaries_behind_a_call()
        call MPI_Barrier(MPI_COMM_SELF, code)
        call expect_canaries(words)
    end subroutine

    ! The canaries' words at odd places, zeros between them.
    subroutine spread_out()
        integer :: i
        out = 0
        do i = 1, words
            out(2 * i - 1) = canary(mod(i - 1, canary_words) + 1)
        end do
    end subroutine

    subroutine expect_section()
        integer :: i
        do i = 1, words
            call expect(in(2 * i - 1) == canary(mod(i - 1, canary_words) + 1) .and. in(2 * i) == 0, 'other data than was sent')
        end do
    end subroutine

    ! Communicators: a message on the one that was made

    subroutine use_and_free(comm)
        HANDLE(MPI_Comm), intent(inout) :: comm
        call use_it(comm)
        call MPI_Comm_free(comm, code)
    end subroutine

    subroutine use_it(comm)
        HANDLE(MPI_Comm), intent(in) :: comm
        if (rank == 0) call MPI_Send(out, words, MPI_INTEGER, 1, 0, comm, code)
        if (rank == 1) call MPI_Recv(in, words, MPI_INTEGER, 0, 0, comm, MPI_STATUS_IGNORE, code)
        if (rank == 1) call expect_canaries(words)
    end subroutine

    subroutine communicators()
        HANDLE(MPI_Comm) :: made, base
        HANDLE(MPI_Datatype) :: whole
        HANDLE(MPI_Group) :: group
        HANDLE(MPI_Request) :: request
        integer :: partner(1), self(1), one(1)
        partner = 1 - rank
        self = rank
        one = 1
        if (exercise('MPI_Comm_dup')) then
            call MPI_Comm_dup(MPI_COMM_WORLD, made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Comm_dup_with_info')) then
            call MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Comm_idup')) then
            call MPI_Comm_idup(MPI_COMM_WORLD, made, request, code)
            call MPI_Wait(request, MPI_STATUS_IGNORE, code)
            call use_and_free(made)
        end if
        call MPI_Comm_group(MPI_COMM_WORLD, group, code)
        if (exercise('MPI_Comm_create')) then
            call MPI_Comm_create(MPI_COMM_WORLD, group, made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Comm_create_group')) then
            call MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, made, code)
            call use_and_free(made)
        end if
#if defined(MPICH)
        if (exercise('MPI_Comm_create_from_group')) then
            call MPI_Comm_create_from_group(group, 'of the world', MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, made, code)
            call use_and_free(made)
        end if
#else
        if (rank == 0 .and. words == small) print '(a)', 'procedures: not in this MPI: MPI_Comm_create_from_group'
#endif
        call MPI_Group_free(group, code)
        if (exercise('MPI_Comm_split')) then
            call MPI_Comm_split(MPI_COMM_WORLD, 0, rank, made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Comm_split_type')) then
            call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, made, code)
            call MPI_Sendrecv(out, words, MPI_INTEGER, 0, 0, in, words, MPI_INTEGER, 0, 0, made, MPI_STATUS_IGNORE, code)
            call expect_canaries(words)
            call MPI_Comm_free(made, code)
        end if
        if (exercise('MPI_Cart_create')) then
            call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.true.], .false., made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Cart_sub')) then
            call MPI_Cart_create(MPI_COMM_WORLD, 2, [ranks, 1], [.false., .false.], .false., base, code)
            call MPI_Cart_sub(base, [.true., .false.], made, code)
            call use_and_free(made)
            call MPI_Comm_free(base, code)
        end if
        if (exercise('MPI_Graph_create')) then
            call MPI_Graph_create(MPI_COMM_WORLD, ranks, [1, 2], [1, 0], .false., made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Dist_graph_create')) then
            call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, self, one, partner, MPI_UNWEIGHTED, MPI_INFO_NULL, .false., made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Dist_graph_create_adjacent')) then
            call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, partner, MPI_UNWEIGHTED, 1, partner, MPI_UNWEIGHTED, MPI_INFO_NULL, &
                                                .false., made, code)
            call use_and_free(made)
        end if
        if (exercise('MPI_Comm_free')) then
            call MPI_Comm_dup(MPI_COMM_WORLD, base, code)
            if (rank == 0) call MPI_Isend(out, words, MPI_INTEGER, 1, 0, base, request, code)
            if (rank == 1) call MPI_Irecv(in, words, MPI_INTEGER, 0, 0, base, request, code)
            call MPI_Comm_free(base, code)
            call MPI_Wait(request, MPI_STATUS_IGNORE, code)
            if (rank == 1) call expect_canaries(words)
        end if
        if (exercise('MPI_Type_free')) then
            call MPI_Type_contiguous(canary_words, MPI_INTEGER, whole, code)
            call MPI_Type_commit(whole, code)
            if (rank == 0) call MPI_Send(out, words / canary_words, whole, 1, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call MPI_Recv(in, words / canary_words, whole, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
            call MPI_Type_free(whole, code)
            if (rank == 1) call expect_canaries(words / canary_words * canary_words)
        end if
        if (exercise('MPI_Comm_disconnect')) then
            call MPI_Comm_dup(MPI_COMM_WORLD, base, code)
            call use_it(base)
            call MPI_Comm_disconnect(base, code)
        end if
    end subroutine

    ! Collective operations that move data: each rank gives and gets blocks of canaries

    subroutine movers()
        integer :: counts(ranks), places(ranks), byte_places(ranks)
        HANDLE(MPI_Datatype) :: types(ranks)
        counts = words
        places = [0, words]
        byte_places = 4 * places
        types = MPI_INTEGER
        if (exercise('MPI_Bcast')) then
            if (rank == 0) call MPI_Bcast(out, words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call MPI_Bcast(in, words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            if (rank == 1) call expect_canaries(words)
        end if
        if (exercise('MPI_Gather')) then
            call MPI_Gather(out, words, MPI_INTEGER, in, words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            if (rank == 0) call expect_canaries(ranks * words)
        end if
        if (exercise('MPI_Gatherv')) then
            call MPI_Gatherv(out, words, MPI_INTEGER, in, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            if (rank == 0) call expect_canaries(ranks * words)
        end if
        if (exercise('MPI_Scatter')) then
            call MPI_Scatter(out, words, MPI_INTEGER, in, words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Scatterv')) then
            call MPI_Scatterv(out, counts, places, MPI_INTEGER, in, words, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Allgather')) then
            call MPI_Allgather(out, words, MPI_INTEGER, in, words, MPI_INTEGER, MPI_COMM_WORLD, code)
            call expect_canaries(ranks * words)
        end if
        if (exercise('MPI_Allgatherv')) then
            call MPI_Allgatherv(out, words, MPI_INTEGER, in, counts, places, MPI_INTEGER, MPI_COMM_WORLD, code)
            call expect_canaries(ranks * words)
        end if
        if (exercise('MPI_Alltoall')) then
            call MPI_Alltoall(out, words, MPI_INTEGER, in, words, MPI_INTEGER, MPI_COMM_WORLD, code)
            call expect_canaries(ranks * words)
        end if
        if (exercise('MPI_Alltoallv')) then
            call MPI_Alltoallv(out, counts, places, MPI_INTEGER, in, counts, places, MPI_INTEGER, MPI_COMM_WORLD, code)
            call expect_canaries(ranks * words)
        end if
        if (exercise('MPI_Alltoallw')) then
            call MPI_Alltoallw(out, counts, byte_places, types, in, counts, byte_places, types, MPI_COMM_WORLD, code)
            call expect_canaries(ranks * words)
        end if
    end subroutine

    ! Reductions: one rank gives the canaries, the other zeros

    subroutine reductions()
        integer :: counts(ranks)
        counts = words
        if (exercise('MPI_Reduce')) then
            if (rank == 0) out = 0
            call MPI_Reduce(out, in, words, MPI_INTEGER, MPI_BOR, 0, MPI_COMM_WORLD, code)
            if (rank == 0) call expect_canaries(words)
        end if
        if (exercise('MPI_Allreduce')) then
            if (rank == 0) out = 0
            call MPI_Allreduce(out, in, words, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, code)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Scan')) then
            if (rank == 1) out = 0
            call MPI_Scan(out, in, words, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, code)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Exscan')) then
            if (rank == 1) out = 0
            call MPI_Exscan(out, in, words, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, code)
            if (rank == 1) call expect_canaries(words)
        end if
        if (exercise('MPI_Reduce_scatter')) then
            if (rank == 0) out = 0
            call MPI_Reduce_scatter(out, in, counts, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, code)
            call expect_canaries(words)
        end if
        if (exercise('MPI_Reduce_scatter_block')) then
            if (rank == 0) out = 0
            call MPI_Reduce_scatter_block(out, in, words, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, code)
            call expect_canaries(words)
        end if
    end subroutine

    ! Begin and end: rank 0 began by MPI_Init, rank 1 by MPI_Init_thread

    subroutine begin_mpi()
        character(len=16) :: told
        integer :: level
        call get_environment_variable('PMIX_RANK', told)
        if (told == '') call get_environment_variable('OMPI_COMM_WORLD_RANK', told)
        if (told == '') call get_environment_variable('PMI_RANK', told)
        if (told == '0') then
            call MPI_Init(code)
        else
            call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, code)
        end if
    end subroutine

    subroutine beginnings()
        if (exercise('MPI_Init')) call use_it(MPI_COMM_WORLD)
        if (exercise('MPI_Init_thread')) then
            if (rank == 1) call MPI_Send(out, words, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, code)
            if (rank == 0) call MPI_Recv(in, words, MPI_INTEGER, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
            if (rank == 0) call expect_canaries(words)
        end if
        call use_with_session()
    end subroutine

    subroutine use_with_session()
#if defined(MPICH)
        HANDLE(MPI_Session) :: session
        if (exercise('MPI_Session_init')) then
            call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session, code)
            call use_it(MPI_COMM_WORLD)
            call MPI_Session_finalize(session, code)
        end if
        if (exercise('MPI_Session_finalize')) then
            call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session, code)
            call MPI_Session_finalize(session, code)
            call use_it(MPI_COMM_WORLD)
        end if
#else
        if (rank == 0 .and. words == small) print '(a)', 'procedures: not in this MPI: MPI_Session_init'
        if (rank == 0 .and. words == small) print '(a)', 'procedures: not in this MPI: MPI_Session_finalize'
#endif
    end subroutine

    subroutine use_while_finalizing(comm, key, value, more, error)
        HANDLE(MPI_Comm) :: comm
        integer :: key, error
        integer(MPI_ADDRESS_KIND) :: value, more
        call use_it(MPI_COMM_WORLD)
        error = MPI_SUCCESS
    end subroutine

    ! The last exercise: what it set up sends when MPI_Finalize deletes MPI_COMM_SELF's attributes.
    subroutine ending()
        integer :: key
        integer(MPI_ADDRESS_KIND) :: nothing
        if (.not. exercise('MPI_Finalize')) return
        nothing = 0
        call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, use_while_finalizing, key, nothing, code)
        call MPI_Comm_set_attr(MPI_COMM_SELF, key, nothing, code)
    end subroutine
end module

program procedures
    use exercises
    implicit none
    integer :: turn
    call begin_mpi()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
    do turn = 1, 2
        words = merge(large, small, turn == 1)
        call beginnings()
        call sends()
        call receives()
        call probes()
        call completions()
        call buffers()
        call of_fortran()
        call communicators()
        call movers()
        call reductions()
    end do
    call ending()
    call MPI_Barrier(MPI_COMM_WORLD, code)
    if (rank == 0) print '(a)', 'procedures: all as sent'
    call MPI_Finalize(code)
end program
