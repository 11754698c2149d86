"""Lines behind `cryptmpi run` as people type them for their MPI's own mpiexec: each starts a job on two nodes that ends
SEALED, or is refused in one line."""

import re
import shlex
from pathlib import Path

import pytest
from cluster import Cluster
from conftest import BUILD, error_lines

from cryptmpi_tools.lab import stacks

REFUSED = 125
OPENMPI, MPICH, OPENMPI5, INTEL = (stacks.stack(name) for name in ("openmpi-4.1.4", "mpich-5.0.2-ofi", "openmpi-5.0.11", "impi-2021.19-ofi"))
BOTH = pytest.mark.parametrize("mpi", [OPENMPI, MPICH], ids=lambda mpi: mpi.name)
# What the lab's nodes need of Open MPI, which a cluster's mpiexec does not have to be told.
PARAMETERS = {"btl": "tcp,vader,self", "btl_tcp_if_include": stacks.NETWORK, "oob_tcp_if_include": stacks.NETWORK,
              "hwloc_base_binding_policy": "none", "pml": "ob1", "mpi_yield_when_idle": "1"}
OF_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Shell:
    """Somebody's folder on the first node, with the program ./p. What stands in for ssh is named, for Open MPI puts its
    own folder before others in PATH."""

    def __init__(self, nodes, folder, build):
        self.cluster, self.build = Cluster(nodes, folder), build
        self.folder = folder / "work"
        self.folder.mkdir()
        (self.folder / "sub").mkdir()
        self.write("wrap.sh", '#!/bin/sh\nexport MINE=wrapped\nexec ./p "$@"\n')
        self.write("my-ssh", f'#!/bin/sh\ntouch {self.folder}/my-ssh-was-used\nexec {self.cluster.rsh} "$@"\n')

    def write(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def run(self, mpi, line, rsh=True, **variables):
        """`line` stands behind `cryptmpi run`."""
        (self.folder / "p").unlink(missing_ok=True)
        (self.folder / "p").symlink_to(self.build(mpi, Path(__file__).with_name("launched.c")))
        parameters = {f"OMPI_MCA_{name}": value for name, value in PARAMETERS.items()} if mpi.family != "hydra" else {}
        env = {**self.cluster.env(mpi), **parameters, **OF_ROOT, **variables}
        words = shlex.split(line.replace("MPIEXEC", str(mpi.mpiexec)))
        shell = ["--rsh", self.cluster.rsh] if rsh else []
        return self.cluster.lab.run([BUILD / "bin" / "cryptmpi", "run", *shell, *words], env=env, cwd=self.folder, timeout=90)

    def started(self, mpi, line, rsh=True, **variables):
        """The ranks' lines of a job that ended SEALED: {rank: (host, folder, MINE, argument)}."""
        done = self.run(mpi, line, rsh, **variables)
        assert done.ok, done.output
        (report,) = self.cluster.reports()
        checked = self.cluster.check("--check", report)
        assert checked.returncode == 0 and checked.stdout.startswith("SEALED:"), checked
        lines = re.findall(r"launched (\d+) of (\d+) on (\S+) in (\S+) MINE=(\S*) (\S*)", done.output)
        assert {int(ranks) for _, ranks, *_ in lines} == {len(lines)}, done.output
        return {int(rank): tuple(facts) for rank, _, *facts in lines}


@pytest.fixture
def shell(nodes, tmp_path, build):
    made = Shell(nodes, tmp_path, build)
    made.write("hosts", "node1\nnode2\n")
    made.write("slots", "# of Open MPI\nnode1 slots=1 max_slots=2\nnode2 slots=1\n")
    made.write("counts", "# of Hydra\nnode1:1\nnode2:1\n")
    made.write("ranks", "rank 0=node2 slot=0\nrank 1=node1 slot=0\n")
    yield made
    made.cluster.close()


def nodes_of(ranks):
    return [ranks[rank][0] for rank in sorted(ranks)]


@pytest.mark.parametrize("line", [
    "-np 2 -host node1,node2 ./p",
    "-n 2 --host node1:1,node2:1 ./p",
    "-c 2 -H node1,node2 ./p",
    "-host node1,node2 ./p",
    "--np 2 --hostfile slots ./p",
    "-hostfile slots ./p",
    "-machinefile slots -n2 ./p",
    "--hostfile hosts -npernode 1 ./p",
    "-np 2 --hostfile hosts --map-by node --oversubscribe --bind-to none ./p",
    "-np 2 -host node1:2,node2:2 -map-by ppr:1:node -report-bindings ./p",
    "-np 2 -host node1,node2 --mca pml ob1 -mca btl tcp,self --tag-output ./p",
    "-np 2 -host node1,node2 --mca plm rsh --gmca mpi_yield_when_idle 1 ./p",
    "--hosts node[1-2] -ppn 1 ./p",
    "-np 2 -host node1,node2 --prefix /usr -- ./p",
    "-np=2 --host=node1,node2 --wdir=. --mca=pml ob1 -map-by=node -x=A=B ./p",
    "-n 1 -host node1 ./p : -np 1 -host node2 ./p",
    "-np 2 -host node1,node2 taskset -c 0 ./p",
    "-np 2 -host node1,node2 --mpi MPIEXEC ./wrap.sh",
])
def test_lines_of_open_mpi(line, shell):
    assert nodes_of(shell.started(OPENMPI, line)) == ["node1", "node2"]


@pytest.mark.parametrize("line", [
    "-np 2 -hosts node1,node2 ./p",
    "-n 2 -host node1,node2 ./p",
    "-hosts node1:1,node2:1 ./p",
    "-n 2 -f counts ./p",
    "-f counts ./p",
    "--hostfile hosts -np 2 -ppn 1 ./p",
    "-machinefile hosts -n2 -ppn=1 ./p",
    "-np 2 -hosts node1,node2 -l -print-all-exitcodes ./p",
    "-np 2 -hosts=node1,node2 -prepend-rank -bind-to none -iface eth0 ./p",
    "-np 2 -hosts node1,node2 -launcher ssh -genvall ./p",
    "-np 2 -hosts node1,node2 -genvlist PATH,LD_LIBRARY_PATH,MPIR_CVAR_CH4_NETMOD,FI_PROVIDER ./p",
    "--hosts node[1-2] -ppn 1 ./p",
    "-hosts node1,node2 -ppn 1 -n 1 ./p : -np 1 ./p",
    "-np 2 -hosts node1,node2 nice -n 1 env A=B ./p",
    "-np 2 -hosts node1,node2 --mpi MPIEXEC ./wrap.sh",
])
def test_lines_of_hydra(line, shell):
    assert nodes_of(shell.started(MPICH, line)) == ["node1", "node2"]


@pytest.mark.parametrize("mpi, line", [
    (OPENMPI5, "-np 2 -host node1,node2 ./p"),
    (OPENMPI5, "--hostfile slots -map-by node -bind-to none --mca plm rsh -x MINE=here --output tag ./p"),
    (OPENMPI5, "-n 1 -host node1 ./p : -n 1 -host node2 ./p"),
    (OPENMPI5, "-n 2 --host=node1,node2 --wdir=. --map-by=node ./p"),
    (INTEL, "-np 2 -hosts node1,node2 -ppn 1 ./p"),
    (INTEL, "-n 2 -perhost 1 -f hosts -genv MINE here -bootstrap ssh -print-rank-map ./p"),
], ids=lambda value: getattr(value, "name", value))
def test_lines_of_others(mpi, line, shell):
    assert nodes_of(shell.started(mpi, line)) == ["node1", "node2"]


@pytest.mark.parametrize("mpi, line, mine", [
    (OPENMPI, "-np 2 -host node1,node2 -x MINE ./p x", "there"),
    (OPENMPI, "-np 2 -host node1,node2 -x MINE=here ./p x", "here"),
    (OPENMPI, "-np 2 -host node1,node2 --env MINE=ours --env LD_PRELOAD=libm.so.6 ./p x", "ours"),
    (MPICH, "-np 2 -hosts node1,node2 ./p x", "there"),
    (MPICH, "-np 2 -hosts node1,node2 -genv MINE here ./p x", "here"),
    (MPICH, "-np 2 -hosts node1,node2 -env MINE=here ./p x", "here"),
    (MPICH, "-np 2 -hosts node1,node2 --env MINE=ours ./p x", "ours"),
], ids=lambda value: getattr(value, "name", value))
def test_variables_and_arguments(mpi, line, mine, shell):
    ranks = shell.started(mpi, line, MINE="there")
    assert [facts[2:] for facts in ranks.values()] == [(mine, "x")] * 2


@BOTH
def test_a_folder_for_the_ranks(mpi, shell):
    hosts = "-host" if mpi is OPENMPI else "-hosts"
    ranks = shell.started(mpi, f"-np 2 {hosts} node1,node2 -wdir {shell.folder}/sub ../p")
    assert [facts[1] for facts in ranks.values()] == [f"{shell.folder}/sub"] * 2


def test_a_file_of_ranks(shell):
    assert nodes_of(shell.started(OPENMPI, "-np 2 --hostfile slots -rf ranks ./p")) == ["node2", "node1"]


@pytest.mark.parametrize("mpi, option", [(OPENMPI, "--mca plm_rsh_agent"), (MPICH, "-launcher ssh -launcher-exec")],
                         ids=lambda value: getattr(value, "name", ""))
def test_a_remote_shell_of_ones_own(mpi, option, shell):
    hosts = "-host" if mpi is OPENMPI else "-hosts"
    ranks = shell.started(mpi, f"-np 2 {hosts} node1,node2 {option} {shell.folder}/my-ssh ./p", rsh=False)
    assert nodes_of(ranks) == ["node1", "node2"]
    assert (shell.folder / "my-ssh-was-used").exists()


@BOTH
@pytest.mark.parametrize("system", ["slurm", "pbs", "lsf"])
def test_an_allocation_says_how_many_and_where(mpi, system, shell):
    shell.write("nodefile", "node1\nnode2\n")
    variables = {"slurm": {"SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NODELIST": "node[1-2]",
                           "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2"},
                 "pbs": {"PBS_NODEFILE": shell.folder / "nodefile"}, "lsf": {"LSB_DJOB_HOSTFILE": shell.folder / "nodefile"}}[system]
    assert nodes_of(shell.started(mpi, "./p", **variables)) == ["node1", "node2"]


def refused(shell, mpi, line, **variables):
    done = shell.run(mpi, line, **variables)
    lines = [line for line in done.output.splitlines() if "made the key file" not in line]
    assert done.returncode == REFUSED and len(lines) == len(error_lines("\n".join(lines))) == 1, done.output
    assert not shell.cluster.reports()
    return lines[0]


@pytest.mark.parametrize("mpi, options, piece", [
    (OPENMPI, "-x CRYPTMPI_ENABLED=false", "before the command"),
    (OPENMPI, "-x 'A=1;CRYPTMPI_ENABLED=false'", "before the command"),
    (OPENMPI, "-x LD_PRELOAD=libm.so.6", "--env LD_PRELOAD"),
    (OPENMPI, "--env CRYPTMPI_LAYER=mpi", "before the command"),
    (OPENMPI, "--mca plm slurm", "--rsh"),
    (OPENMPI, "--mca plm ^rsh", "--rsh"),
    (OPENMPI, "--mca orte_plm isolated", "--rsh"),
    (OPENMPI, "--mca orte_plm_rsh_agent rsh", "two remote shells"),
    (OPENMPI, "-gmca plm ^ssh", "--rsh"),
    (OPENMPI, "--mca plm_rsh_agent ssh:rsh", "several remote shells"),
    (OPENMPI, "--mca mca_base_env_list CRYPTMPI_ENABLED=false", "-x NAME=VALUE"),
    (OPENMPI, "--mca mca_base_param_files f", "write it into the line"),
    (OPENMPI, "--mca mca_param_files f", "write it into the line"),
    (OPENMPI, "-tune f", "write it into the line"),
    (OPENMPI, "--app f", ": -n 2 ./b"),
    (OPENMPI, "--hnp file:f", "not sealed"),
    (OPENMPI, "--preload-binary", "copy the program"),
    (OPENMPI, "--launcher-args '--mca plm slurm'", "--rsh"),
    (OPENMPI, "--launcher-args '-n 1 ./p'", "cryptmpi does not see"),
    (MPICH, "-genv CRYPTMPI_ENABLED false", "before the command"),
    (MPICH, "-genv LD_PRELOAD libm.so.6", "--env LD_PRELOAD"),
    (MPICH, "-env=CRYPTMPI_LAYER=mpi", "before the command"),
    (MPICH, "-launcher slurm", "--rsh"),
    (MPICH, "-bootstrap fork", "--rsh"),
    (MPICH, "-genv HYDRA_LAUNCHER fork", "--rsh"),
    (MPICH, "-configfile f", ": -n 2 ./b"),
    (MPICH, "--launcher-args ': -n 1 ./p'", "cryptmpi does not see"),
], ids=lambda value: getattr(value, "name", value))
def test_what_would_not_be_sealed_is_refused(mpi, options, piece, shell):
    assert piece in refused(shell, mpi, f"-np 2 {options} --hosts node1,node2 ./p")


@pytest.mark.parametrize("mpi, line, piece", [
    (OPENMPI, "-np 2 -hosts a ./p", "is MPICH's"),
    (OPENMPI, "-np 2 --foo 1 ./p", "write -- before the program"),
    (OPENMPI, "-np 2 --foo ./p -- ./p", "its value or a program; leave the option out"),
    (OPENMPI5, "-np 2 --foo ./p -- ./p", "write --foo=./p"),
    (MPICH, "-np 2 --foo ./p -- ./p", "write --foo=./p"),
    (OPENMPI, "-np 2 -oversubscrib ./p", "--oversubscribe"),
    (OPENMPI, "-np 2 -vx A=B -- ./p", "by itself"),
    (OPENMPI, "-np 2 --ap=f ./p", "--app"),
    (OPENMPI, "-np 2 --version ./p", "starts nothing"),
    (OPENMPI, "-np 2 --hostfile nowhere ./p", "cannot be read"),
    (OPENMPI, "-np 2 -host", "lacks its value"),
    (OPENMPI, "-np 1 ./p : ./p", "how many ranks"),
    (MPICH, "-np 2 --oversubscribe ./p", "is Open MPI's"),
    (MPICH, "-np 2 -f nowhere ./p", "cannot be read"),
    (MPICH, "-np 2 -info ./p", "starts nothing"),
    (MPICH, "-np 2 -hosts -oProxyCommand=x ./p", "is no node's name"),
    (MPICH, "./p", "-n N"),
], ids=lambda value: getattr(value, "name", value))
def test_what_cannot_be_told_is_one_line(mpi, line, piece, shell):
    assert piece in refused(shell, mpi, line)


@BOTH
def test_a_script_whose_mpi_nobody_knows(mpi, shell):
    """The launchers of this node are named as words that can be copied."""
    output = refused(shell, mpi, "-np 2 ./wrap.sh")
    named = re.findall(r"--mpi (\S+) \((?:Open MPI|MPICH)\)", output)
    assert "./wrap.sh" in output and named, output
    hosts = "-host" if mpi is OPENMPI else "-hosts"
    ranks = shell.started(mpi, f"-np 2 {hosts} node1,node2 --mpi {shlex.quote(str(mpi.mpiexec))} ./wrap.sh word")
    assert [facts[2:] for facts in ranks.values()] == [("wrapped", "word")] * 2
