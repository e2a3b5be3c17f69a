"""A process finds its place among the workers in the variables of what started it; what is contradictory is refused."""

import socket

import pytest

from weft.cluster.mpi import Mpi
from weft.cluster.slurm import Slurm, expanded, repeated
from weft.cluster.torchrun import Torchrun
from weft.errors import ClusterError
from weft.place import WorkerPlace, place_here

# What `srun -N 2 -n 4` sets for its third task, and what a batch script of the same job sees.
JOB = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node[07-08]"}
BATCH = JOB | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_TASKS_PER_NODE": "2(x2)"}
TASK = JOB | {
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "6",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "h",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        ("login", ["login"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,2],gpu-a", ["n08", "n09", "n10", "n2", "gpu-a"]),
        ("r[1-2]c[0-1]-ib", ["r1c0-ib", "r1c1-ib", "r2c0-ib", "r2c1-ib"]),
        ("n[001,100].site.org,m", ["n001.site.org", "n100.site.org", "m"]),
    ],
)
def test_host_lists_are_expanded(names, hosts):
    assert list(expanded(names)) == hosts


def test_counts_are_expanded():
    assert repeated("2(x3),1") == [2, 2, 2, 1]
    assert repeated("4") == [4]


def test_tasks_of_srun_are_workers():
    place = Slurm.place(TASK)
    assert place == WorkerPlace(2, 4, "1", 2, "node07", place.port)
    assert 20_000 <= place.port < 30_000
    assert place.port == Slurm.place(TASK | {"SLURM_PROCID": "0", "SLURM_NODEID": "0"}).port
    assert place.port != Slurm.place(TASK | {"SLURM_JOB_ID": "4712"}).port
    assert place.port != Slurm.place(TASK | {"SLURM_STEP_ID": "1"}).port


def test_uneven_tasks_know_how_many_are_beside_them():
    place = Slurm.place(TASK | {"SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_PROCID": "3"})
    assert (place.rank, place.host, place.local_size) == (3, "1", 1)


def test_what_is_no_task_of_several_is_alone():
    assert Slurm.place(BATCH) is None  # `weft train --workers 4` within a batch script starts its own
    assert Slurm.place(JOB) is None  # a shell of salloc
    assert Slurm.place(TASK | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}) is None
    assert Slurm.place({}) is Mpi.place({}) is Torchrun.place({}) is None


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_NODEID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"])
def test_a_missing_variable_of_srun_is_named(name):
    with pytest.raises(ClusterError, match=f"{name} is missing"):
        Slurm.place({key: value for key, value in TASK.items() if key != name})


def test_variables_that_contradict_each_other_are_refused():
    with pytest.raises(ClusterError, match=r"task 2 of 4 on node 1 of 1"):
        Slurm.place(TASK | {"SLURM_STEP_NODELIST": "node07"})
    with pytest.raises(ClusterError, match="SLURM_PROCID is 'x'"):
        Slurm.place(TASK | {"SLURM_PROCID": "x"})


def test_where_workers_meet_may_be_said_beside_srun(monkeypatch):
    """As heads of batch scripts do, for all tasks."""
    said = {"WORLD_SIZE": "4", "MASTER_ADDR": "node07", "MASTER_PORT": "29500"}
    for name, value in (TASK | said).items():
        monkeypatch.setenv(name, value)
    assert place_here() == WorkerPlace(2, 4, "1", 2, "node07", 29500)
    assert Slurm.place(TASK | {"MASTER_ADDR": "", "MASTER_PORT": ""}) == Slurm.place(TASK)
    assert Torchrun.place(MPIRUN | said) is None


@pytest.mark.parametrize(("launcher", "variables"), [(Slurm, TASK), (Mpi, MPIRUN), (Mpi, HYDRA)])
def test_a_port_that_is_no_number_is_named(launcher, variables):
    with pytest.raises(ClusterError, match="MASTER_PORT is '29500,'"):
        launcher.place(variables | {"MASTER_PORT": "29500,"})


@pytest.mark.parametrize("variables", [MPIRUN, HYDRA])
def test_processes_of_mpirun_are_workers(variables):
    place = Mpi.place(variables)
    assert place == WorkerPlace(1, 4, socket.gethostname(), 4, "127.0.0.1", place.port)


@pytest.mark.parametrize(
    "variables",
    [MPIRUN | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, HYDRA | {"MPI_LOCALNRANKS": "2"}, {**HYDRA, "PMI_SIZE": "8"}],
)
def test_mpirun_on_several_hosts_must_say_where_they_meet(variables):
    with pytest.raises(ClusterError, match="give it -x MASTER_ADDR=HOST"):
        Mpi.place(variables)
    place = Mpi.place(variables | {"MASTER_ADDR": "n1", "MASTER_PORT": "1234"})
    assert (place.master, place.port) == ("n1", 1234)


def test_torchruns_variables_come_first(monkeypatch):
    for name, value in (TASK | MPIRUN | TORCHRUN).items():
        monkeypatch.setenv(name, value)
    assert place_here() == WorkerPlace(3, 6, "1", 2, "h", 29500)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"WORLD_SIZE": "0"}, "worker 3 of 0: workers are numbered from 0"),
        ({"RANK": "6"}, "worker 6 of 6: workers are numbered from 0"),
        ({"RANK": "-1"}, "worker -1 of 6"),
        ({"LOCAL_WORLD_SIZE": "0", "GROUP_RANK": "0"}, "0 workers on this host, of 6: LOCAL_WORLD_SIZE is from 1"),
        ({"LOCAL_WORLD_SIZE": "7"}, "7 workers on this host, of 6"),
        ({"MASTER_PORT": "99999"}, "port 99999: MASTER_PORT is from 1 to 65535"),
        ({"MASTER_PORT": "0"}, "port 0: MASTER_PORT is from 1 to 65535"),
        ({"WORLD_SIZE": "1"}, "worker 3 of 1: workers are numbered from 0"),
        ({"WORLD_SIZE": "1", "RANK": "x"}, "RANK is 'x'"),
    ],
)
def test_places_that_can_not_be_are_refused_before_anybody_waits(monkeypatch, changed, told):
    monkeypatch.delenv("GROUP_RANK", raising=False)
    for name, value in (TORCHRUN | changed).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match=told):
        place_here()


def test_a_rank_without_a_number_of_workers_is_no_run_of_its_own():
    with pytest.raises(ClusterError, match="WORLD_SIZE is missing"):
        Torchrun.place({"RANK": "0", "MASTER_ADDR": "h"})
    assert Torchrun.place({"RANK": "0"}) is None  # another launcher may know this process's place


@pytest.mark.parametrize("more", [{}, {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, {"MASTER_PORT": "1"}])
def test_several_with_a_rank_alone_are_no_copies_of_one_run(monkeypatch, more):
    for name in ("WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"RANK": "1"} | more).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match="WORLD_SIZE is missing"):
        place_here()


@pytest.mark.parametrize("step", [{}, {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}])
def test_a_number_of_workers_without_a_rank_is_no_run_of_its_own(monkeypatch, step):
    for name in ("RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"WORLD_SIZE": "4", "MASTER_ADDR": "h", "MASTER_PORT": "29500"} | step).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match="RANK is missing"):
        place_here()


def test_mpirun_within_a_job_of_slurm_is_mpirun(monkeypatch):
    agent = TASK | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "1"}
    for name, value in (agent | MPIRUN).items():
        monkeypatch.setenv(name, value)
    assert place_here().size == 4


def test_srun_that_speaks_pmi_too_is_srun(monkeypatch):
    for name, value in (TASK | {"PMI_RANK": "2", "PMI_SIZE": "4"}).items():
        monkeypatch.setenv(name, value)
    assert place_here() == Slurm.place(TASK)


def test_an_address_that_is_empty_is_refused():
    with pytest.raises(ClusterError, match="MASTER_ADDR is empty: set it"):
        Torchrun.place(TORCHRUN | {"MASTER_ADDR": ""})


def test_four_variables_alone_may_be_of_workers_on_several_hosts():
    four = {"RANK": "3", "WORLD_SIZE": "6", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}
    assert Torchrun.place(four) == WorkerPlace(3, 6, socket.gethostname(), 1, "h", 29500)
    assert Torchrun.place(four | {"MASTER_ADDR": "127.0.0.1"}).local_size == 6  # others are here, too
    assert Torchrun.place(four | {"LOCAL_WORLD_SIZE": "2"}) == WorkerPlace(3, 6, "1", 2, "h", 29500)


def test_hosts_are_numbered_by_their_launcher_where_it_is_not_torchrun():
    """One worker on the first, three on the second: what a rank is divided by differs."""
    common = {"WORLD_SIZE": "4", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}
    told = [("0", "1", "0"), ("1", "3", "1"), ("2", "3", "1"), ("3", "3", "1")]
    found = [
        Torchrun.place(common | {"RANK": rank, "LOCAL_WORLD_SIZE": local, "NODE_RANK": node})
        for rank, local, node in told
    ]
    assert [place.host for place in found] == ["0", "1", "1", "1"]
