"""The MPI Operator's way, with the job of containers/mpijob.yaml: a launcher that reads the operator's hostfile and
reaches two workers by ssh, as an ordinary user without capabilities, the key in a Secret that its group may read. The
pods are nodes of a lab, each with folders of its own."""

import json
import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager

import pytest
import yaml
from cryptmpi_tools.lab import capture
from cryptmpi_tools.lab.nodes import REPOSITORY, Lab, acquire_namespaces, enter

BIN = REPOSITORY / "build" / "release" / "bin"
JOB = yaml.safe_load((REPOSITORY / "containers" / "mpijob.yaml").read_text())["spec"]
CANARY = b"canary of the operator 5b1c"
USER = 1000
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, size, sum;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char text[1024] = "";
    for (int i = 0; i < 20; i++) {
        if (rank == 0) snprintf(text, sizeof text, "%s", CANARY);
        MPI_Bcast(text, sizeof text, MPI_BYTE, 0, MPI_COMM_WORLD);
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, sum %d, %s\n", size, sum, strcmp(text, CANARY) == 0 ? "right" : "wrong");
    MPI_Finalize();
    return 0;
}
"""
# What the operator and its images bring: a user, a key for ssh in each pod, hosts that are taken unseen, a port above
# 1024.
POD = f"""set -e
mount -t tmpfs tmpfs /mnt
cp /etc/hosts /mnt/hosts
for folder in etc home tmp; do
    mkdir -p /mnt/$folder/new /mnt/$folder/work
    mount -t overlay overlay -o lowerdir=/$folder,upperdir=/mnt/$folder/new,workdir=/mnt/$folder/work /$folder
done
chmod 1777 /tmp
cat /mnt/hosts > /etc/hosts
sed -i '/:{USER}:/d' /etc/passwd /etc/group
echo mpiuser:x:{USER}:{USER}::/home/mpiuser:/bin/sh >> /etc/passwd
echo mpiuser:x:{USER}: >> /etc/group
mkdir -p /home/mpiuser/.ssh /etc/mpi /etc/cryptmpi
cd /home/mpiuser
cp "$FILES"/id_rsa "$FILES"/authorized_keys .ssh
cp "$FILES"/program .
printf 'PidFile /home/mpiuser/sshd.pid\\nHostKey /home/mpiuser/.ssh/id_rsa\\nStrictModes no\\nPort 2222\\n' > .sshd_config
printf 'Port 2222\\nStrictHostKeyChecking no\\nUserKnownHostsFile /dev/null\\n' > .ssh/config
chown -R {USER}:{USER} /home/mpiuser
chmod 0600 .ssh/id_rsa
printf 'node2 slots=2\\nnode3 slots=2\\n' > /etc/mpi/hostfile
cp "$FILES"/job.key /etc/cryptmpi
chown root:{USER} /etc/cryptmpi/job.key
chmod $KEY_MODE /etc/cryptmpi/job.key
"""
# Of mpiImplementation OpenMPI, the default.
OF_OPERATOR = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
               "OMPI_MCA_orte_keep_fqdn_hostnames": "true"}


def container(role):
    return JOB["mpiReplicaSpecs"][role]["template"]["spec"]["containers"][0]


def in_pod(lab, role, command):
    """The command as the pod's user, with the container's environment alone."""
    settings = {one["name"]: one["value"] for one in container(role)["env"]}
    environment = {"HOME": "/home/mpiuser", "PATH": f"{BIN}:/usr/bin:/bin", "LAB_OF": lab.mark, **settings}
    if role == "Launcher":
        # Two cores that four ranks share.
        environment |= {**OF_OPERATOR, "OMPI_MCA_mpi_yield_when_idle": "1"}
    words = [f"{name}={value}" for name, value in environment.items()]
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all",
            "env", "-i", *words, "sh", "-c", f"cd /home/mpiuser && exec {shlex.join(command)}"]


@contextmanager
def pods(files, key_mode="0440"):
    if reason := acquire_namespaces():
        pytest.skip(reason)
    with Lab(nodes=3) as lab:
        probe = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/a /mnt/b && mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/a,workdir=/mnt/b /etc"
        tried = subprocess.run([*enter(lab.nodes[0].pid), "unshare", "--mount", "sh", "-c", probe], capture_output=True, text=True)
        if tried.returncode:
            pytest.skip(f"no overlay can be mounted here: {tried.stderr.strip()}")
        for node in lab.nodes:
            subprocess.run([*enter(node.pid), "sh", "-c", POD], env={**os.environ, "FILES": str(files), "KEY_MODE": key_mode}, check=True)
        workers = [lab.start(in_pod(lab, "Worker", container("Worker")["command"]), node=node, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for node in (1, 2)]
        try:
            yield lab
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the pods are made of; a folder that others can enter, as the program's user has to."""
    folder = tmp_path_factory.mktemp("operator")
    source = folder / "program.c"
    source.write_text(f'#define CANARY "{CANARY.decode()}"\n{PROGRAM}')
    subprocess.run(["mpicc.openmpi", "-o", folder / "program", source], check=True)
    subprocess.run([BIN / "cryptmpi", "keygen", "--key-file", folder / "job.key"], check=True, capture_output=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", folder / "id_rsa"], check=True)
    shutil.copy(folder / "id_rsa.pub", folder / "authorized_keys")
    return folder


def run_job(lab):
    return lab.run(in_pod(lab, "Launcher", container("Launcher")["command"]), timeout=90)


def test_the_operators_job_is_sealed(files, tmp_path):
    with pods(files) as lab:
        wire = tmp_path / "wire.pcap"
        with lab.capture(wire):
            done = run_job(lab)
        assert done.ok, done.output
        assert "4 ranks, sum 6, right" in done.output
        assert "cryptmpi: SEALED" in done.output, done.output
        shown = lab.run(in_pod(lab, "Launcher", ["cat", "/tmp/job.json"]))
        report = json.loads(shown.output)
        assert report["ranks_reported"] == 4 and {node["name"] for node in report["nodes"]} == {"node1", "node2", "node3"}
        found, looked_at = capture.count(wire, [CANARY])
        assert found[CANARY] == 0 and looked_at > 20_000


def test_a_secret_that_everybody_may_read_is_refused(files):
    with pods(files, "0644") as lab:
        done = run_job(lab)
        assert not done.ok
        assert "right" not in done.output
        assert any("/etc/cryptmpi/job.key" in line and line.startswith("cryptmpi") for line in done.output.splitlines()), done.output
