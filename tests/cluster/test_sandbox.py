"""The cluster in a box: shaped links, hosts of their own, nothing left behind; and what training sends through it.

Needs root and iproute2; skipped elsewhere.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from weft import cli
from weft.errors import ConfigError
from weft.exchange import Owners
from weft.graph import communities
from weft.lab import Sandbox, bits_a_second
from weft.lab import sandbox as sandboxes
from weft.partition import allocate, write_partitioned
from weft.sampling import Batches, NeighborSampler

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("nsenter"),
    reason="needs root, iproute2 and nsenter",
)
WORKER = Path(__file__).parent / "worker.py"
HOSTS, BATCH, FANOUTS, WIDTH, HIDDEN, CLASSES = 3, 600, [5, 5], 160, 120, 6


def left():
    return [*sandboxes._namespaces()]


def output_of(box, command, tmp_path, **more):
    file = tmp_path / "out.txt"
    with open(file, "w") as out:
        code = box.run(command, output=out, **more)
    return code, file.read_text()


def test_hosts_have_networks_and_shared_memory_of_their_own(tmp_path):
    with Sandbox(hosts=2, workers_per_host=2) as box:
        mark = (
            'touch /dev/shm/of-$GROUP_RANK; sleep 0.5; echo "$RANK/$WORLD_SIZE $(ls /dev/shm) $(ip -br addr show eth0)"'
        )
        code, told = output_of(box, ["sh", "-c", mark], tmp_path)
    assert code == 0
    lines = sorted(told.splitlines())
    assert [line.split()[:2] for line in lines] == [["0/4", "of-0"], ["1/4", "of-0"], ["2/4", "of-1"], ["3/4", "of-1"]]
    assert "10.77.0.1/24" in lines[0] and "10.77.0.2/24" in lines[3]
    assert not left()


CONNECT = """
import os, socket, time


def connected():
    for _ in range(100):
        try:
            return socket.create_connection(("10.77.0.1", 5000))
        except OSError:
            time.sleep(0.05)


"""
SEND = (
    CONNECT
    + """
rank = int(os.environ["RANK"])
if rank == 0:
    with socket.create_server(("10.77.0.1", 5000)) as server:
        connection, _ = server.accept()
        with connection:
            while connection.recv(1 << 16):
                pass
else:
    link = connected()
    start = time.perf_counter()
    with link:
        link.sendall(bytes(4_000_000))
        link.shutdown(socket.SHUT_WR)
        link.recv(1)
    print(time.perf_counter() - start)
"""
)


@pytest.mark.parametrize(
    ("options", "low", "high"), [({"link": "40mbit"}, 0.6, 1.2), ({"links": {"h2": "40mbit"}}, 0.6, 1.2), ({}, 0, 0.55)]
)
def test_links_have_the_speed_that_was_asked_for(tmp_path, options, low, high):
    with Sandbox(hosts=2, **options) as box:
        code, told = output_of(box, [sys.executable, "-c", SEND], tmp_path)
        sent = box.traffic()[1]
    assert code == 0
    assert low < float(told) < high  # 32 Mbit
    assert 4_000_000 < sent["sent_bytes"] < 6_000_000  # once, and what TCP sends again where a host is slow to answer
    assert sent["sent_bytes"] / sent["sent_packets"] > 3000  # packets go together: each wakes a processor


PING = (
    CONNECT
    + """
rank, size = int(os.environ["RANK"]), 2_000_000
if rank == 0:
    with socket.create_server(("10.77.0.1", 5000)) as server:
        connection, _ = server.accept()
        with connection:
            while connection.recv(size, socket.MSG_WAITALL):
                connection.sendall(bytes(size))
else:
    link = connected()
    while True:
        start = time.perf_counter()
        link.sendall(bytes(size))
        link.recv(size, socket.MSG_WAITALL)
        print(time.perf_counter() - start, flush=True)
"""
)


def test_links_are_reshaped_while_they_are_used():
    with Sandbox(hosts=2, link="400mbit") as box:
        first, second = (
            box.start([sys.executable, "-c", PING], host, output=subprocess.PIPE if host else None) for host in (0, 1)
        )
        found = {}
        for rate in ("400mbit", "40mbit", "none", "200mbit"):
            box.reshape(1, rate)
            told = [float(second.stdout.readline()) for _ in range(4)]
            found[rate] = min(told[1:])  # the first was under way
        for process in (second, first):
            process.kill()
            process.wait()
        second.stdout.close()
        for host, rate, reason in ((0, "fast", "is not a rate"), (2, "1gbit", "no host number 2: .* from 0 to 1")):
            with pytest.raises(ConfigError, match=reason):
                box.reshape(host, rate)
    assert max(found["none"], found["400mbit"]) < found["200mbit"] < found["40mbit"]
    assert found["none"] == pytest.approx(found["400mbit"], rel=0.2)  # the other host's link stays as it is
    assert 0.6 < found["40mbit"] < 1.2  # 16 Mbit there, and back
    assert not left()


HEARD = (
    CONNECT
    + """
import contextlib, select
rank = int(os.environ["RANK"])
me = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
me.bind((f"10.77.0.{rank + 1}", 6000))
while True:
    with contextlib.suppress(OSError):  # an interface that is unplugged
        me.sendto(b"x", (f"10.77.0.{2 - rank}", 6000))
    heard = 0
    while select.select([me], [], [], 0.02)[0]:
        heard += len(me.recv(100))
    os.write(1, b"%d %r\\n" % (rank, heard > 0))
"""
)


def test_hosts_are_silenced_one_way_and_unplugged_for_a_while():
    with Sandbox(hosts=2) as box:
        workers = [box.start([sys.executable, "-c", HEARD], host, output=subprocess.PIPE) for host in range(2)]

        def become(expected):
            """Soon each host hears the other, or does not, as expected."""
            end, told = time.monotonic() + 20, [None, None]
            while told != expected and time.monotonic() < end:
                told = [os.read(worker.stdout.fileno(), 1 << 16).split()[-1] == b"True" for worker in workers]
            return told == expected

        both, neither = [True, True], [False, False]
        for change, expected in (
            (lambda: None, both),
            (lambda: box.silence(1, "sent"), [False, True]),
            (lambda: box.reshape(1, "none"), both),
            (lambda: box.silence(1, "received"), [True, False]),
            (lambda: box.reshape(1, "none"), both),
            (lambda: box.cut(1), neither),
            (lambda: box.plug_in(1), both),
        ):
            change()
            assert become(expected)
        for worker in workers:
            worker.kill()
            worker.wait()
            worker.stdout.close()


REST = (
    CONNECT
    + """
rank, size = int(os.environ["RANK"]), 100_000
if rank == 0:
    with socket.create_server(("10.77.0.1", 5000)) as server:
        connection, _ = server.accept()
        with connection:
            while connection.recv(size, socket.MSG_WAITALL):
                connection.sendall(b"1")
else:
    link = connected()
    taken = []
    for _ in range(15):
        time.sleep(0.05)
        start = time.perf_counter()
        link.sendall(bytes(size))
        link.recv(1)
        taken.append(time.perf_counter() - start)
    print(sorted(taken)[7])
"""
)


def test_a_link_saves_nothing_up_while_it_rests(tmp_path):
    with Sandbox(hosts=2, link="100mbit") as box:
        code, told = output_of(box, [sys.executable, "-c", REST], tmp_path)
    assert code == 0
    assert 0.006 < float(told) < 0.016  # 0.8 Mbit, which a token bucket alone lets through at once


def test_processor_shares(tmp_path):
    """A host gets its share, by the time that its work takes beside the processor's; and it knows its share."""
    burn = "import time; s = time.perf_counter(); c = time.process_time(); [0 for _ in range(15_000_000)]\n"
    burn += "got = (time.process_time() - c) / (time.perf_counter() - s)\n"
    burn += "from weft.threads import processors; print(got, processors())"
    with Sandbox(hosts=1, shares={"h1": 0.25}) as box:
        got, known = map(float, output_of(box, [sys.executable, "-c", burn], tmp_path)[1].split())
    assert got < 0.35 and known == 0.25


def test_a_killed_sandbox_is_removed_by_the_next():
    run = subprocess.Popen([sys.executable, "-m", "weft.cli", "sandbox", "--hosts", "2", "--", "sleep", "100"])
    for _ in range(100):
        if len(left()) == 3:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert len(left()) == 3
    with Sandbox(hosts=1):
        assert len(left()) == 2
    assert not left()


def test_sandboxes_that_start_at_once_remove_the_same_leftovers(monkeypatch):
    """One finds namespaces that another one has just removed."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    name, before = f"weft-{gone.pid}", sandboxes._run
    subprocess.run(["ip", "netns", "add", f"{name}-h1"], check=True)

    def second(*command):
        if command[:3] == ("ip", "netns", "del"):
            before(*command)
        return before(*command)

    monkeypatch.setattr(sandboxes, "_run", second)
    sandboxes.remove_leftovers()
    assert not [found for found in left() if found.startswith(name)]


def test_failures_end_all_workers():
    start = time.monotonic()
    with Sandbox(hosts=2) as box:
        assert box.run(["sh", "-c", "[ $RANK = 0 ] && exit 3; exit 0"]) == 3
        assert box.run(["sleep", "100"], timeout=1) == 124
    assert time.monotonic() - start < 10
    assert not left()


def test_of_json_nothing_else_is_on_stdout(capfd):
    assert cli.main(["sandbox", "--hosts", "2", "--json", "--", "sh", "-c", "echo from $RANK"]) == 0
    told = capfd.readouterr()
    assert [*json.loads(told.out)] == ["traffic"] and {*told.err.splitlines()} >= {"from 0", "from 1"}
    assert cli.main(["sandbox", "--hosts", "1", "--", "echo", "there"]) == 0
    assert capfd.readouterr().out.startswith("there\n")


def test_bad_input(capsys):
    for arguments, reason in (
        (["--link", "fast", "--", "true"], "is not a rate"),
        (["--link", "h9=1gbit", "--", "true"], "no host 'h9'"),
        (["--cpu", "h1=x", "--", "true"], "HOST=SHARE"),
        ([], "needs a command"),
    ):
        assert cli.main(["sandbox", *arguments]) == 2
        assert reason in capsys.readouterr().err
    assert bits_a_second("1.5gbit") == 1.5e9
    with pytest.raises(ConfigError, match="1 to 200 hosts"):
        Sandbox(hosts=0)
    for share in (0.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=f"must be above 0 and a number, not {share:g}"):
            Sandbox(shares={"h1": share})
    with pytest.raises(ConfigError, match="h2 had no share from the start"):
        Sandbox().share_out(1, 0.5)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    graph = communities(folder / "g", vertices=9000, edges=120_000, width=WIDTH, classes=CLASSES, train=0.3)
    write_partitioned(graph, allocate(graph, HOSTS, "metis"), HOSTS, folder / "parts")
    return folder / "parts"


def run_epochs(parts, plans, tmp_path):
    """What all sent in an epoch of each plan, in one run."""
    job = {
        "graph": str(parts),
        "plans": plans,
        "settings": {
            "model": "sage",
            "hidden": HIDDEN,
            "fanouts": FANOUTS,
            "batch_size": BATCH,
            "threads": 1,
            "prefetch": 0,
        },
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    with Sandbox(hosts=HOSTS) as box:
        code, told = output_of(box, [sys.executable, str(WORKER), str(tmp_path / "job.json")], tmp_path, timeout=100)
        counted = sum(host["sent_bytes"] for host in box.traffic())
    assert code == 0, told
    epochs = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert sum(epoch["interface"] for epoch in epochs) < counted  # the sandbox's own count has the start, too
    return dict(zip(plans, epochs, strict=True))


@pytest.fixture(scope="module")
def volumes(parts):
    """Rows by the formulas, from plain samples of each worker's seeds: sums over an epoch's batches and the workers."""
    from weft.graph import Graph

    graph = Graph.open(parts)
    owners = Owners(graph.bounds)
    sampler = NeighborSampler(graph, FANOUTS)
    sums = dict.fromkeys(("gdp", "leap", "dnp", "snp"), 0)
    for number, seeds in enumerate(Batches(graph.seeds("train"), graph.original_ids, BATCH * HOSTS, 0).of(0)):
        homes = owners.member_of(seeds.astype(np.int32))
        wanted = [set() for _ in range(HOSTS)]
        for worker in range(HOSTS):
            for plan, share in (("leap", seeds[homes == worker]), ("gdp", seeds[worker::HOSTS])):
                rows = sampler.sample(share, 0, number).vertices.numpy()
                sums[plan] += int((owners.member_of(rows) != worker).sum()) * WIDTH
            sample = sampler.sample(seeds[worker::HOSTS], 0, number)
            block, rows = sample.blocks[0], sample.vertices.numpy()
            destinations = rows[: block.num_dst]
            away = owners.member_of(destinations) != worker
            sums["dnp"] += 2 * int(away.sum()) * HIDDEN
            for owner in range(HOSTS):
                mine = destinations[owners.member_of(destinations) == owner]
                wanted[owner].update(mine.tolist())
            source_owner = owners.member_of(rows)[block.src.numpy()]
            pairs = {(d, o) for d, o in zip(block.dst().tolist(), source_owner.tolist(), strict=True) if o != worker}
            # raw sums of the inputs are narrower than products forward and backward, and own rows come as they are
            sums["snp"] += (len(pairs) + int(away.sum())) * WIDTH
        for owner in range(HOSTS):  # dnp: owners fetch what they lack for the destinations that are asked of them
            hop = sampler.hop(np.array(sorted(wanted[owner]), dtype=np.int32), len(FANOUTS) - 1, 0, number)[0]
            sums["dnp"] += int((owners.member_of(hop) != owner).sum()) * WIDTH
    return {plan: 4 * floats for plan, floats in sums.items()}


@pytest.mark.parametrize("plans", [["leap", "dnp"], pytest.param(["gdp", "snp"], marks=pytest.mark.slow)])
def test_traffic_is_what_the_formulas_say(parts, volumes, tmp_path, plans):
    for plan, told in run_epochs(parts, plans, tmp_path).items():
        rows, crossed = volumes[plan], told["fetch_rows"] + told["exchange"]
        assert abs(crossed / rows - 1) < 1e-9, (plan, crossed, rows)
        # the interfaces see those rows, ids, counts and gradients, and the headers of TCP and Ethernet
        assert abs(told["interface"] / told["all"] - 1) < 0.03, (plan, told)


def test_a_host_that_is_cut_off_ends_the_run(parts, tmp_path):
    command = [
        sys.executable,
        "-m",
        "weft.cli",
        "train",
        str(parts),
        "--fanouts",
        "4,4",
        "--hidden",
        "8",
        "--epochs",
        "2000",
    ]
    command += ["--plan", "leap", "--timeout", "5", "--threads", "1", "--evaluate-every", "0"]
    with Sandbox(hosts=HOSTS) as box, open(tmp_path / "out", "w") as out:
        workers = [box.start(command, host, output=out, errors=subprocess.PIPE) for host in range(HOSTS)]
        for _ in range(300):
            if "epoch   2" in (tmp_path / "out").read_text():
                break
            time.sleep(0.1)
        box.cut(2)
        start = time.monotonic()
        errors = [worker.communicate(timeout=60)[1].decode() for worker in workers]
    assert time.monotonic() - start < 25
    assert all(worker.returncode == 2 for worker in workers)
    assert "worker 2 (host 2) stopped answering" in errors[0]
    assert not left()
