"""Workers of this machine: their errors are told once, their end is the run's, and none is left behind."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.cluster import crew, forks, local
from weft.cluster.crew import Crew, Errors
from weft.cluster.launcher import Request
from weft.errors import ClusterError, ConfigError
from weft.exchange import listening_at

ASLEEP = "import time; time.sleep(60)"


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Lets workers run a module of these lines in place of Weft's command line."""

    def set_to(lines):
        (tmp_path / "stand_in.py").write_text(lines)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    return set_to


def places(workers):
    return [{"RANK": str(rank), "WORLD_SIZE": str(workers)} for rank in range(workers)]


def outcome(workers, *arguments):
    with Crew(arguments, places(workers), imported=False, module="stand_in") as crew:
        return crew.wait(grace=0.2)[0]


def test_workers_know_their_places(command, capfd):
    command("import os; print('I am ' + ' of '.join(os.environ[n] for n in ('RANK', 'WORLD_SIZE')))")
    assert outcome(3) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["I am 0 of 3", "I am 1 of 3", "I am 2 of 3"]


def test_what_all_say_is_told_once(command, capfd):
    command("import os, sys; print('weft: no such graph\\nmine', os.environ['RANK'], file=sys.stderr); sys.exit(2)")
    assert outcome(3) == 2
    told = capfd.readouterr().err.splitlines()
    assert sorted(told) == ["mine 0", "mine 1", "mine 2", "weft: no such graph"]


def test_of_what_workers_say_only_what_may_come_again_is_kept(capfd):
    errors = Errors()
    errors.tell([f"batch {number}\n" for number in range(1000)] + ["weft: no such graph\n"] * 2, ["0"])
    assert capfd.readouterr().err.count("\n") == 1001
    assert errors._said == {"weft: no such graph\n"}


REFUSAL = """import os, sys, time
rank = os.environ["RANK"]
if rank == "1":
    time.sleep(0.3)
    print("weft: no package", file=sys.stderr)
else:
    print("weft: worker 1 (host 0) stopped answering during the start; go on", file=sys.stderr)
sys.exit(2)"""


def test_that_a_worker_is_missed_is_not_told_if_it_says_why(command, capfd):
    command(REFUSAL)
    assert outcome(3) == 2
    assert capfd.readouterr().err == "weft: no package\n"


def test_that_a_worker_is_missed_is_not_told_if_it_says_why_and_takes_its_time_to_end(command, capfd):
    command(REFUSAL.replace("sys.exit(2)", "time.sleep(2.5 * (rank == '1'))\nsys.exit(2)"))
    assert outcome(3) == 2
    assert capfd.readouterr().err == "weft: no package\n"


def test_that_a_worker_is_missed_is_told_once_if_it_does_not(command, capfd):
    command(REFUSAL.replace('print("weft: no package", file=sys.stderr)', "pass"))
    assert outcome(3) == 2
    assert capfd.readouterr().err == "weft: worker 1 (host 0) stopped answering during the start; go on\n"


def test_that_a_worker_is_missed_is_told_though_it_said_something_else_before(command, capfd):
    turned_away = "weft: worker 1 turned away a connection from 127.0.0.2: it has no proof"
    lines = REFUSAL.replace("weft: no package", turned_away).replace("sys.exit(2)", "")
    command(f"{lines}\nif rank == '1': os.kill(os.getpid(), 9)\nsys.exit(2)")
    assert outcome(3) == 2
    told = capfd.readouterr().err
    assert turned_away in told and told.count("worker 1 (host 0) stopped answering during the start; go on") == 1


def test_where_no_process_can_be_started_those_that_were_end(command, monkeypatch):
    command(ASLEEP)
    begun, before = [], signal.getsignal(signal.SIGTERM)

    def fork(*how):
        if begun:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        begun.append(forks.fork(*how))
        return begun[0]

    monkeypatch.setattr(crew, "fork", fork)
    with pytest.raises(
        ClusterError, match=r"no process for worker 1 \(Resource .*\): raise .*ulimit -u, .*or start fewer"
    ):
        outcome(2)
    assert not is_running(begun[0]) and signal.getsignal(signal.SIGTERM) == before


def test_a_last_line_without_an_end_is_told(command, capfd):
    command("import sys; sys.stderr.write('bye')")
    assert outcome(1) == 0
    assert capfd.readouterr().err == "bye"


def test_a_worker_that_is_killed_is_named_and_ends_the_others(command, capfd):
    command("import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(60)")
    start = time.monotonic()
    assert outcome(3) == 1
    assert time.monotonic() - start < 20
    told = capfd.readouterr().err
    assert told.startswith(
        "weft: worker 1 was killed by SIGKILL: if nobody did that, the system did, as memory ran out "
    )
    assert told.count("\n") == 1


@pytest.mark.parametrize("codes, told", [("75 75 0", (2, 0)), ("75 2 75", (2, None)), ("75 1 75", (2, 1))])
def test_workers_that_are_well_and_lost_each_other_may_begin_again_but_not_behind_a_mistake(command, codes, told):
    command(
        "import os, sys, time; rank = int(os.environ['RANK']); time.sleep(rank / 5)\n"
        f"sys.exit({list(map(int, codes.split()))}[rank])"
    )
    with Crew((), places(3), imported=False, module="stand_in") as crew:
        assert crew.wait(grace=5) == told


def test_the_port_where_workers_meet_is_kept_for_the_first_one(command, monkeypatch):
    """Or two runs that start at one moment would meet there."""
    command("""import os, socket
if os.environ["RANK"] == "0":
    store = socket.socket(fileno=int(os.environ["WEFT_STORE_SOCKET"]))
    assert str(store.getsockname()[1]) == os.environ["MASTER_PORT"]
else:
    assert "WEFT_STORE_SOCKET" not in os.environ""")
    begun = []

    def kept(arguments, places, imported, store):
        begun.append(places[0]["MASTER_PORT"])
        with pytest.raises(ConfigError, match=r"no port of .* is free"):
            listening_at("127.0.0.1", request.ports)
        return Crew((), places, imported, "stand_in", store)

    monkeypatch.setattr(local, "Crew", kept)
    with listening_at("127.0.0.1") as free:
        port = free.getsockname()[1]
    request = Request((), workers=2, ports=f"{port}-{port}")
    code, _ = local._start(False, request, False)
    assert begun == [str(port)] and code == 0
    with listening_at("127.0.0.1", request.ports):  # nobody has kept it
        pass


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(command, capfd, signum):
    command(ASLEEP)
    before = signal.signal(signum, signal.default_int_handler)  # the tests may run under nohup
    with Crew((), places(2), imported=False, module="stand_in") as crew:
        time.sleep(0.5)
        os.kill(os.getpid(), signum)
        code, lost = crew.wait(grace=0.2)
    assert not lost
    assert code in (128 + signum, 1)  # Python says KeyboardInterrupt with code 1 if it got to it
    told = capfd.readouterr().err
    assert "was killed" not in told
    assert code == 1 or f"weft: stopped by {signum.name}\n" in told
    signal.signal(signum, before)


def state(pid):
    """T: stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_workers_are_stopped_with_their_launcher_and_go_on_with_it(tmp_path):
    """As by Ctrl-Z and `fg`, which reach the launcher's process group alone."""
    (tmp_path / "stand_in.py").write_text("import time; time.sleep(3)")
    lines = """
from weft.cluster.crew import Crew
with Crew((), [{"RANK": str(rank)} for rank in range(2)], imported=False, module="stand_in") as crew:
    print(*[worker.pid for worker in crew._workers], flush=True)
    print(crew.wait(1.0))
"""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    launcher = subprocess.Popen(
        [sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    all_of_them = [launcher.pid, *map(int, launcher.stdout.readline().split())]
    for signum, stopped in ((signal.SIGTSTP, True), (signal.SIGCONT, False)) * 2:
        launcher.send_signal(signum)
        end = time.monotonic() + 5
        while any((state(pid) == "T") != stopped for pid in all_of_them) and time.monotonic() < end:
            time.sleep(0.01)
        assert [state(pid) == "T" for pid in all_of_them] == [stopped] * 3
    assert launcher.communicate()[0] == "(0, None)\n"


def test_workers_end_with_their_launcher(tmp_path):
    (tmp_path / "stand_in.py").write_text(ASLEEP)
    lines = """
import os
from weft.cluster.crew import Crew
crew = Crew((), [{"RANK": str(rank)} for rank in range(3)], imported=False, module="stand_in").__enter__()
print(*[worker.pid for worker in crew._workers], flush=True)
crew.wait(1.0)
"""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    launcher = subprocess.Popen(
        [sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    workers = list(map(int, launcher.stdout.readline().split()))
    launcher.kill()  # while workers start
    launcher.wait()
    end = time.monotonic() + 1
    while any(map(is_running, workers)) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(workers) == 3 and not any(map(is_running, workers))


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
