/* Before MPICH's libucp: no peer's memory can be reached, so that MPICH takes its own way by active messages for
   windows. That is what sealed one-sided operations are compared with (bench.programs). */
int ucp_ep_rkey_unpack(void* endpoint, const void* packed, void** key) {
    (void)endpoint, (void)packed, (void)key;
    return -6; /* UCS_ERR_UNREACHABLE */
}
