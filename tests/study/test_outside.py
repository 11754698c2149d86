"""Results of other people's benchmarks: read where they are right, refused where they say themselves that they are
not."""

import pytest

from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.study.outside import nas_binary, read_imb, read_nas, read_netpipe, read_osu

NAS = """ CG Benchmark Completed.
 Class           =                        S
 Time in seconds =                     0.07
 Verification    =               SUCCESSFUL
"""
OSU = """# OSU MPI Latency Test v5.6.2
# Size          Latency (us)
0                       4.51
1                       4.60
4096                    9.25
"""
OSU_BANDWIDTH = """# OSU MPI Bandwidth Test v5.6.2
# Size      Bandwidth (MB/s)
1                       2.00
4096                 2048.00
"""
IMB = """# Benchmarking PingPong
       #bytes #repetitions      t[usec]   Mbytes/sec
            0          100         4.10         0.00
         1024          100         6.20       165.16

# Benchmarking Allreduce
# #processes = 2
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0          100         0.04         0.05         0.05
         1024          100         7.00         9.00         8.00

# All processes entering MPI_Finalize
"""
NETPIPE = """Now starting the main loop
  0:       1 bytes   2000 times -->      1.71 Mbps in       4.46 usec
  1:    4096 bytes   1000 times -->   5100.00 Mbps in       6.13 usec
"""


def test_nas_gives_its_own_time_where_it_verified_its_results():
    assert read_nas(NAS) == {"nas-cg 0": 70000.0}
    with pytest.raises(LabError, match="UNSUCCESSFUL"):
        read_nas(NAS.replace("SUCCESSFUL", "UNSUCCESSFUL"))


def test_osu_latencies_and_the_times_behind_bandwidths():
    assert read_osu(OSU) == {"osu-latency 0": 4.51, "osu-latency 1": 4.6, "osu-latency 4096": 9.25}
    assert read_osu(OSU_BANDWIDTH) == {"osu-bandwidth 1": 0.5, "osu-bandwidth 4096": 2.0}


def test_imb_gives_the_time_or_the_mean_of_three():
    assert read_imb(IMB) == {"imb-pingpong 1024": 6.2, "imb-allreduce 1024": 8.0}
    with pytest.raises(LabError, match="no end"):
        read_imb(IMB.replace("# All processes entering MPI_Finalize", ""))


def test_netpipe_is_read_unless_its_integrity_check_failed():
    assert read_netpipe(NETPIPE) == {"netpipe 1": 4.46, "netpipe 4096": 6.13}
    with pytest.raises(LabError):
        read_netpipe(NETPIPE + "Integrity check failed\n")


@pytest.mark.parametrize("read", [read_nas, read_osu, read_imb, read_netpipe])
def test_no_results_are_an_error(read):
    with pytest.raises(LabError, match="no results"):
        read("mpiexec: something went wrong\n")


@pytest.mark.parametrize("name", ["cg.S.x", "bin/cg.S.x", "bin/cg.S.4"])
def test_nas_is_found_as_its_releases_lay_it_out(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    assert nas_binary(tmp_path, "cg", "s", 4) == tmp_path / name
    assert nas_binary(tmp_path, "ft", "s", 4) is None
