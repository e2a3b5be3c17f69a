"""A cluster in a box: hosts as network namespaces of this machine, joined by links of a given speed.

Each host has a network of its own, a /dev/shm of its own, and, if given, a share of the processor. A switch (one more
namespace, with a bridge) joins them; both ends of each link are shaped by a token bucket. Everything has the sandbox's
process id in its name, is removed at the end, and after a crash by the next sandbox that starts.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from weft.errors import ClusterError, ConfigError
from weft.exchange import new_secret
from weft.place import places
from weft.quantities import bandwidth_of

_NETWORK = "10.77.0"  # addresses exist inside the namespaces only
_PORT = 29400
_PACKET, _MOST_TOGETHER = 1514, 65535  # bytes of a packet on a link, and how many may go as one if nothing limits them
Output = int | IO[bytes] | None  # as subprocess takes it
_PERIOD = 50_000  # microseconds over which a processor share is held


def bits_a_second(text: str) -> float | None:
    """A rate such as 100mbit or 1gbit; `none` leaves a link unshaped."""
    if text == "none":
        return None
    rate = bandwidth_of(text)
    if not rate:
        raise ConfigError(f"link {text!r} is not a rate: give it as 100mbit or 1gbit, or none for an unshaped link")
    return 8 * rate


@dataclass
class Sandbox:
    """Hosts h1, h2, ... while this context lasts."""

    hosts: int = 4
    workers_per_host: int = 1
    link: str = "none"
    links: dict[str, str] = field(default_factory=dict)  # of single hosts
    shares: dict[str, float] = field(default_factory=dict)  # processors of single hosts

    def __post_init__(self) -> None:
        if self.hosts < 1 or self.workers_per_host < 1 or self.hosts > 200:
            raise ConfigError("a sandbox needs 1 to 200 hosts with at least one worker each")
        names = {f"h{number}" for number in range(1, self.hosts + 1)}
        for host in (*self.links, *self.shares):
            if host not in names:
                raise ConfigError(f"the sandbox has no host {host!r}: its hosts are h1 to h{self.hosts}")
        for text in (self.link, *self.links.values()):
            bits_a_second(text)
        for share in self.shares.values():
            _check_share(share)

    def __enter__(self) -> Self:
        _check_machine()
        remove_leftovers()
        self._name, self._secret = f"weft-{os.getpid()}", new_secret()
        self._holders: list[subprocess.Popen[bytes]] = []
        self._groups: dict[str, Path] = {}
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _build(self) -> None:
        _run("ip", "netns", "add", f"{self._name}-switch")
        _run("ip", "-n", f"{self._name}-switch", "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", f"{self._name}-switch", "link", "set", "bridge", "up")
        for number in range(1, self.hosts + 1):
            self._add_host(number)

    def _add_host(self, number: int) -> None:
        host, switch, port = f"{self._name}-h{number}", f"{self._name}-switch", f"port{number}"
        _run("ip", "netns", "add", host)
        _run("ip", "link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", port, "netns", switch)
        _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", host, "addr", "add", f"{_NETWORK}.{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", host, "link", "set", device, "up")
        self._shape(number, self.links.get(f"h{number}", self.link))
        hold = "mount -t tmpfs tmpfs /dev/shm && exec sleep infinity"
        entered = ["nsenter", f"--net=/run/netns/{host}", "unshare", "--mount"]  # `ip netns exec` would hide all quotas
        self._holders.append(subprocess.Popen([*entered, "sh", "-c", hold]))
        if self.shares:  # then all hosts are groups: one would get less beside processes that are in none
            group = self._groups[f"h{number}"] = _groups_root() / host
            _set_share(group, self.shares.get(f"h{number}"))

    def _shape(self, number: int, text: str) -> None:
        """Give both ends of a host's link a rate."""
        rate = bits_a_second(text)
        # A new bucket: a changed one may hold a packet larger than it.
        shapes = [["noqueue"]] if rate is None else [["noqueue"], _bucket(rate)]
        for namespace, device in ((f"h{number}", "eth0"), ("switch", f"port{number}")):
            name = f"{self._name}-{namespace}"
            _run("ip", "-n", name, "link", "set", device, "gso_max_segs", str(_together(rate)))
            for shape in shapes:
                _run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", *shape)

    def run(self, command: Sequence[str], *, output: Output = None, timeout: float | None = None) -> int:
        """Run a command as every worker of every host, with torchrun's environment; 0, or the first failure's code."""
        workers = product(range(self.hosts), range(self.workers_per_host))
        processes = [self.start(command, host, local, output) for host, local in workers]
        end = time.monotonic() + timeout if timeout else None
        try:
            return _first_failure(processes, end)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()

    def start(
        self,
        command: Sequence[str],
        host: int,
        local: int = 0,
        output: Output = None,
        errors: Output = None,
        input: Output = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a command as one worker of a host (both counted from 0)."""
        name = f"h{host + 1}"
        run = {"MASTER_ADDR": f"{_NETWORK}.1", "MASTER_PORT": str(_PORT), "WEFT_SECRET": self._secret}
        place = places([self.workers_per_host] * self.hosts, run)[host][local]
        environment = os.environ | place | {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}
        entered = ["nsenter", f"--net=/run/netns/{self._name}-{name}", "--mount", "--target", str(self.holder(host))]
        group = self._groups.get(name)
        joined = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)] if group else []
        where = os.getcwd()
        whole = [*joined, *entered, f"--wd={where}", *command]
        return subprocess.Popen(whole, env=environment, stdin=input, stdout=output, stderr=errors, cwd=where)

    def holder(self, host: int) -> int:
        """The process that holds a host's mounts (hosts are counted from 0); what begins it becomes `sleep`."""
        process = self._holders[host]
        for _ in range(200):
            with contextlib.suppress(OSError):
                if "sleep" in Path(f"/proc/{process.pid}/comm").read_text():
                    return process.pid
            time.sleep(0.01)
        raise ClusterError(f"host h{host + 1} of the sandbox did not start: look for errors of `mount` above")

    def traffic(self) -> list[dict[str, int]]:
        """Bytes and packets that each host sent and received so far, by its interface's counters."""
        return [self._counters(f"{self._name}-h{number}") for number in range(1, self.hosts + 1)]

    @staticmethod
    def _counters(namespace: str) -> dict[str, int]:
        stats = json.loads(_run("ip", "-n", namespace, "-s", "-j", "link", "show", "eth0"))[0]["stats64"]
        return {
            f"{word}_{unit}": stats[way][unit]
            for way, word in (("tx", "sent"), ("rx", "received"))
            for unit in ("bytes", "packets")
        }

    def reshape(self, host: int, rate: str) -> None:
        """Give a host's link (hosts are counted from 0) another rate, such as 100mbit or none, while commands run."""
        if not 0 <= host < self.hosts:
            raise ConfigError(f"the sandbox has no host number {host}: count them from 0 to {self.hosts - 1}")
        self._shape(host + 1, rate)
        self.links = self.links | {f"h{host + 1}": rate}

    def share_out(self, host: int, share: float) -> None:
        """Give a host (counted from 0) that had a share of processors from the start another one, while commands run."""
        name = f"h{host + 1}"
        if name not in self.shares:
            raise ConfigError(
                f"{name} had no share from the start: make the sandbox with one, such as shares={{{name!r}: 1}}"
            )
        _check_share(share)
        _set_share(self._groups[name], share)
        self.shares = self.shares | {name: share}

    def cut(self, host: int) -> None:
        """Unplug a host (counted from 0)."""
        _run("ip", "-n", f"{self._name}-switch", "link", "set", f"port{host + 1}", "down")

    def plug_in(self, host: int) -> None:
        """Connect a host again that was cut off."""
        _run("ip", "-n", f"{self._name}-switch", "link", "set", f"port{host + 1}", "up")

    def silence(self, host: int, direction: Literal["sent", "received"]) -> None:
        """Lose all that a host (counted from 0) sends, or all that it is sent, until it is reshaped."""
        namespace, device = (f"h{host + 1}", "eth0") if direction == "sent" else ("switch", f"port{host + 1}")
        nothing = ["tbf", "rate", "8kbit", "burst", str(_PACKET), "limit", "1"]  # a queue that no packet fits
        _run("tc", "-n", f"{self._name}-{namespace}", "qdisc", "replace", "dev", device, "root", *nothing)

    def close(self) -> None:
        """Remove everything."""
        for process in self._holders:
            process.kill()
            process.wait()
        _remove(self._name)


def _bucket(rate: float) -> list[str]:
    """A link of so many bits a second: two token buckets, for `tc`.

    The large one holds the rate in the long run although a busy machine wakes it late. Alone it would let everything
    pass at once that fits it after a rest, as no wire does; so a small one keeps the pace within it, a little above.
    """
    burst = max(65536, round(rate / 8 * 0.01))  # what a hundredth of a second lets through
    peak = ["peakrate", f"{round(rate * 1.05)}bit", "mtu", str(_step(rate))]
    return ["tbf", "rate", f"{round(rate)}bit", "burst", str(burst), "latency", "50ms", *peak]


def _step(rate: float) -> int:
    """What a thousandth of a second lets through; a packet at least."""
    return max(1600, round(rate / 8 * 0.001))


def _together(rate: float | None) -> int:
    """How many packets may go as one: as many as the small bucket holds, which would else take them apart.

    Each packet that it lets go wakes a processor, which a real link's own processor does not.
    """
    return _MOST_TOGETHER if rate is None else max(1, min(_MOST_TOGETHER, _step(rate) // _PACKET))


def remove_leftovers() -> None:
    """Remove the sandboxes of processes that are gone."""
    for name in {name.rsplit("-", 1)[0] for name in _namespaces()}:
        if not Path(f"/proc/{name.removeprefix('weft-')}").exists():
            _remove(name)


def _namespaces() -> Iterator[str]:
    folder = Path("/run/netns")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return (name for name in names if re.fullmatch(r"weft-\d+-(switch|h\d+)", name))


def _remove(name: str) -> None:
    for namespace in [n for n in _namespaces() if n.rsplit("-", 1)[0] == name]:
        try:
            for pid in _run("ip", "netns", "pids", namespace).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _run("ip", "netns", "del", namespace)
        except ClusterError:
            if namespace in _namespaces():  # or another sandbox that starts has removed it
                raise
    for group in [*_groups_root().glob(f"{name}-h*")]:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.02)


def _groups_root() -> Path:
    """Where groups of processes get their share of the processor: cgroup version 2, or 1."""
    root = Path("/sys/fs/cgroup")
    return root if (root / "cgroup.controllers").exists() else root / "cpu"


def _set_share(group: Path, share: float | None) -> None:
    """How much of the processors a group gets, which is made where there is none: cgroup version 2, or 1. None: all."""
    root, quota = group.parent, 0 if share is None else max(1000, round(share * _PERIOD))
    try:
        group.mkdir(exist_ok=True)
        if (root / "cgroup.controllers").exists():
            (root / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota or 'max'} {_PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota or -1))
    except OSError as error:
        raise ClusterError(f"this machine lets no processor shares be set ({error}): leave --cpu out") from error


def _check_share(share: float) -> None:
    if not 0 < share < float("inf"):
        raise ConfigError(
            f"a host's processor share must be above 0 and a number, not {share:g}: 0.5 is half a processor"
        )


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise ClusterError(
            'a sandbox makes network namespaces, which only root may: run it by `sudo env PATH="$PATH" weft sandbox ...`'
        )
    for tool in ("ip", "tc", "nsenter"):
        if shutil.which(tool) is None:
            raise ClusterError(f"a sandbox needs the command {tool}: install iproute2 and util-linux")


def _first_failure(processes: "list[subprocess.Popen[bytes]]", end: float | None) -> int:
    grace: float | None = None
    code = 0
    while any(process.poll() is None for process in processes):
        failed = next((p.returncode for p in processes if p.returncode), 0)
        if failed and grace is None:
            code, grace = failed, time.monotonic() + 30
        now = time.monotonic()
        if end is not None and now > end:
            print("weft: the sandbox's time is over; its workers are stopped", file=sys.stderr)
            return 124
        if grace is not None and now > grace:
            break
        time.sleep(0.05)
    code = code or next((p.returncode for p in processes if p.returncode), 0)
    return code if code >= 0 else 128 - code


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}; a sandbox needs root and its tools")
    return done.stdout
