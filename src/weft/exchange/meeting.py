"""How the workers of a run meet: at a store that the first one, or torchrun, holds. Those that don't fit together part."""

import contextlib
import hmac
import json
import os
import resource
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

import weft
from weft.errors import ClusterError, ConfigError, WeftError, reason_of
from weft.exchange.communicator import SilentWorkersError
from weft.exchange.connections import addresses
from weft.exchange.encryption import OF_SECRET
from weft.exchange.listener import STORE_SOCKET, new_secret
from weft.memory import MORE_PROCESSES, lacks_threads
from weft.place import WorkerPlace
from weft.threads import answered_within, cores, processors

_ANSWER = 15.0  # seconds that torch gets to say itself that nobody was there in time
_READ = timedelta(seconds=5)  # that the first worker waits for the others to read why they don't fit together
_SECRET, _STRANGERS = "weft/secret", "weft/strangers"
_ABSENT = {"absent": "true"}  # in place of what a worker says that has not come
_ATTEMPT = "weft/attempt"  # the name of the one that began last
_AGAIN = timedelta(seconds=1)  # in which all must have come to an attempt; else it may be an earlier one
_PAUSE, _LATER = 0.1, 5.0  # seconds between looks, and for the first worker to say who did not come
_FILES, _FILES_A_WORKER = 32, 8  # that a worker has open: its own, and its connections to each
_FILES_OF_STRANGERS = 16384  # who connect to the store, or to this worker, and say nothing


def meet(
    place: WorkerPlace,
    timeout: float,
    transport: str,
    secret: bytes | None,
    devices: bool = False,
    tls: str | None = None,
) -> tuple[dist.Store, list[int], bytes, float, str]:
    """The store, the host of each worker, the run's secret, this one's part of its host's processors, and lacking devices.

    All must have the same versions and transport. `secret`: the one that was given; None: the first worker makes one.
    `devices`: may rows be on CUDA's devices, if each worker has one for itself? Lacking are none then.
    """
    rank, size, limit = place.rank, place.size, timedelta(seconds=timeout)
    if transport == "gloo" and os.environ.get("WEFT_SECRET_FILE"):
        raise ConfigError("WEFT_SECRET_FILE means nothing to transport = 'gloo': drop it, or set transport = 'sockets'")
    _check_backends(tls, backends_for(transport, False))
    own = devices_here() if devices else []
    where = f"[{place.master}]:{place.port}" if ":" in place.master else f"{place.master}:{place.port}"
    facts = {
        "version of Weft": weft.__version__,
        "version of PyTorch": torch.__version__.partition("+")[0],
        "number of workers": str(size),
        "transport": transport,
        "tls": tls if tls in (None, OF_SECRET) else "a file",
        "secret": "none given" if secret is None else "given",
    }
    try:
        store = of_attempt(_store(place, where, limit), rank, size, limit)
        store.set_timeout(limit)
        run = "" if secret is None else hmac.digest(secret, b"run", "sha256").hex()
        _check_run(store, rank, run, where)
        _check_alone(store, rank)
        more = {"host": place.host, "devices": " ".join(own), "run": run, "cores": f"{cores():x}"}
        cards = compare(store, rank, size, "host", facts, more)
        names = [card["host"] for card in cards]
        hosts = [list(dict.fromkeys(names)).index(name) for name in names]
        lacking = lacking_devices(names, [card["devices"].split() for card in cards])
        devices = bool(own) and not lacking
        backends = backends_for(transport, devices)
        _check_backends(tls, backends)
        if devices:
            torch.cuda.set_device(place_at(hosts, rank, len(own)))  # what NCCL and pinned memory take, unasked
        if backends:
            dist.init_process_group(backends, store=store, rank=rank, world_size=size, timeout=limit)
        if secret is None:
            if rank == 0:
                store.set(_SECRET, new_secret())
            secret = store.get(_SECRET)
    except (RuntimeError, ValueError, SilentWorkersError) as error:
        refuse_without_threads(rank, error)
        raise ClusterError(
            f"worker {rank} of {size} could not meet the others at {where} within {timeout:g} s ({_reason(place, error)}): "
            f"start all {size}, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT, at which nothing else listens"
        ) from error
    beside = [
        int(card["cores"], 16) for other, card in enumerate(cards) if other != rank and names[other] == place.host
    ]
    return store, hosts, secret, processors(beside), lacking


def refuse_without_threads(rank: int, error: Exception) -> None:
    """Say it if it was for want of threads that something failed at the start: nobody else is to blame then."""
    if lacks_threads(error):
        raise ClusterError(
            f"worker {rank} could start no more threads during the start: {MORE_PROCESSES}, or lower --threads"
        ) from error


def _check_run(store: dist.Store, rank: int, run: str, where: str) -> None:
    """Refuse to be a worker of another run, whose first worker was given another secret, before it is written to."""
    theirs = _said(store, ["weft/host/0"])[0].get("run") if rank and run else None
    if theirs and theirs != run:
        store.add(_STRANGERS, 1)  # by which the run does not go, but tells of it
        raise ClusterError(
            f"the workers at {where} are of another run, with another secret than worker {rank}'s: start all with the same "
            f"WEFT_SECRET or WEFT_SECRET_FILE, and runs beside each other with a MASTER_PORT of their own"
        )


def _check_alone(store: dist.Store, rank: int) -> None:
    """Refuse to be a worker that another process is."""
    mine = f"process {os.getpid()} on {socket.gethostname()}".encode()
    first = store.compare_set(f"weft/taken/{rank}", "", mine.decode())
    if first != mine:
        raise ClusterError(
            f"two workers have RANK {rank}, this one and {first.decode()}: give each its own, from 0 to WORLD_SIZE - 1"
        )


def _reason(place: WorkerPlace, error: Exception) -> str:
    """Why workers could not meet: torch waits for names that nobody knows, too."""
    try:
        socket.getaddrinfo(place.master, place.port)
    except OSError as unknown:
        return f"no host is known here as {place.master}: {reason_of(unknown)}"
    return reason_of(error)


def devices_here() -> list[str]:
    """CUDA's devices that this process sees, each by a name that no other has."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [str(torch.cuda.get_device_properties(at).uuid) for at in range(count)]


def place_at(hosts: Sequence[int | str], rank: int, places: int) -> int:
    """Which of so many places of its host a worker takes: a host's workers take turns."""
    return hosts[:rank].count(hosts[rank]) % places


def lacking_devices(hosts: Sequence[str], devices: Sequence[Sequence[str]]) -> str:
    """Where workers lack a device for themselves, which NCCL needs; nothing, where each has one.

    `hosts` and `devices`: of each worker, its host and the devices that it sees.
    """
    for host in dict.fromkeys(hosts):
        mates = [rank for rank, other in enumerate(hosts) if other == host]
        if not all(devices[rank] for rank in mates):
            return f"a worker on host {host} has no CUDA device"
        taken = {devices[rank][place_at(hosts, rank, len(devices[rank]))] for rank in mates}
        if len(taken) < len(mates):
            s = "s" if len(taken) > 1 else ""
            return (
                f"{len(mates)} workers on host {host} have {len(taken)} CUDA device{s}, and each needs one for itself"
            )
    return ""


def backends_for(transport: str, devices: bool) -> str:
    """What torch.distributed is to carry, and by what: rows in host memory, rows on devices."""
    carried = {"cpu:gloo": transport == "gloo", "cuda:nccl": devices}
    return ",".join(backend for backend, wanted in carried.items() if wanted)


def _check_backends(tls: str | None, backends: str) -> None:
    """Refuse what torch.distributed can't carry."""
    if backends and dist.is_initialized():
        raise ConfigError(
            f"this script has called torch.distributed.init_process_group, which Weft does itself here ({backends}): "
            f"leave it out, and DistributedDataParallel, for run.sync() sums gradients"
        )
    if tls and backends:
        raise ConfigError(
            f"tls encrypts what goes over Weft's own sockets, and rows of this run go by torch.distributed in the open "
            f"({backends}): set device = 'cpu' and transport = 'sockets', or drop tls and let the network encrypt"
        )


def compare(
    store: dist.Store,
    rank: int,
    size: int,
    name: str,
    facts: Mapping[str, object],
    more: Mapping[str, str] = {},
) -> list[dict[str, str]]:
    """What each worker says; refused where the facts differ (not what it says more). All call this together."""
    store.set(f"weft/{name}/{rank}", json.dumps({**facts, **more}))
    first, own = _said(store, [f"weft/{name}/0", f"weft/{name}/{rank}"])
    cards, wrong = {0: first, rank: own}, _difference(rank, own, first, more)
    if wrong is None:  # else the others, if there are as many, need not be waited for
        cards = dict(enumerate(_said(store, [f"weft/{name}/{other}" for other in range(size)])))
        differences = (_difference(other, card, first, more) for other, card in cards.items())
        wrong = next((one for one in differences if one), None)
    absent = [other for other, card in cards.items() if card == _ABSENT]
    if wrong is None and absent:
        strangers = ", but one that has another secret did" if store.check([_STRANGERS]) else ""
        workers = ", ".join(f"worker {other}" for other in absent)
        wrong = SilentWorkersError(f"{workers} did not come{strangers}", absent)
    if wrong is not None:
        _wait_for_readers(store, rank, [other for other in cards if other not in absent], f"weft/{name}/read")
        raise wrong
    return list(cards.values())


def _difference(
    rank: int, card: Mapping[str, str], first: Mapping[str, str], more: Mapping[str, str]
) -> WeftError | None:
    """What is wrong with a worker whose facts are others than the first one's."""
    differ = [fact for fact in {**first, **card} if fact not in more and card.get(fact) != first.get(fact)]
    if not differ or _ABSENT in (card, first):
        return None
    told = ", ".join(f"{fact} = {card.get(fact)} (worker 0: {first.get(fact)})" for fact in differ)
    return ConfigError(
        f"worker {rank} and worker 0 do not fit together, and would train different models: {told}; start all "
        f"workers with one command, one graph and one version of Weft"
    )


def _said(store: dist.Store, keys: list[str]) -> list[dict[str, str]]:
    """What workers have said. Who has waited in vain says for those who have not come that they did not: all know then."""
    try:
        said = store.multi_get(keys)
    except dist.DistStoreError:
        said = [store.compare_set(key, "", json.dumps(_ABSENT)) for key in keys]
    return [_read(one) for one in said]


def _wait_for_readers(store: dist.Store, rank: int, readers: Sequence[int], read: str) -> None:
    """The store ends with the first worker, so that one ends last."""
    store.set(f"{read}/{rank}", "1")
    if rank == 0:
        with contextlib.suppress(RuntimeError):  # some are gone
            store.wait([f"{read}/{other}" for other in readers], _READ)


def have_files(size: int) -> None:
    """See that this process may open as many files as connections to so many workers take, raising its limit if it may."""
    least = _FILES + _FILES_A_WORKER * size
    ample = 4 * least + _FILES_OF_STRANGERS  # with loaders and lanes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ample if hard == resource.RLIM_INFINITY else min(hard, ample)
    if most < least:
        raise ClusterError(
            f"this process may open {most} files, and connections to {size - 1} other worker{'s' if size > 2 else ''} take "
            f"about {least}: raise the limit (ulimit -n)"
        )
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _read(said: bytes) -> dict[str, str]:
    """A worker's card; before there were any, a worker of Weft only named its host."""
    card = json.loads(said) if said.startswith(b"{") else {}
    return card or {"version of Weft": "0.1.0 or older", "host": said.decode(errors="replace")}


def _store(place: WorkerPlace, where: str, limit: timedelta) -> dist.Store:
    """The store; if the first worker is to hold it, at the address that the others know only (torch takes all addresses)."""
    if place.rank == 0 and not _agents_store():
        try:
            kept = os.environ.pop(STORE_SOCKET, "")  # for the first store only
            bound = place.master if kept else addresses(place)[0]
            if bound:
                family = socket.AF_INET6 if ":" in bound else socket.AF_INET
                address = bound, place.port
                listening = int(kept) if kept else socket.create_server(address, backlog=1024, family=family).detach()
                return dist.TCPStore(
                    bound, place.port, place.size, True, limit, False, multi_tenant=True, master_listen_fd=listening
                )
        except OSError:  # torch has a store of this process's there, or says what is wrong
            pass
    try:  # torch waits for ever for what takes a connection and then says nothing
        return answered_within(
            limit.total_seconds() + _ANSWER,
            lambda: next(rendezvous(f"tcp://{where}", place.rank, place.size, timeout=limit))[0],
        )
    except TimeoutError:
        raise RuntimeError("what listens there takes connections, and does not answer") from None


def _agents_store() -> bool:
    """Does torchrun's agent hold the store?"""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def of_attempt(store: dist.Store, rank: int, size: int, limit: timedelta) -> dist.Store:
    """The part of a store in which the workers of this attempt write. All call this together.

    torchrun's store lives over all attempts at a run, which its agents count each for itself: the first worker names them.
    """
    if not _agents_store():
        return store
    here, absent = _begin(store, size, limit) if rank == 0 else _come(store, rank, size, limit)
    if absent:
        raise SilentWorkersError(f"{', '.join(f'worker {other}' for other in absent)} did not come", absent)
    return here


def _begin(store: dist.Store, size: int, limit: timedelta) -> tuple[dist.Store, list[int]]:
    """Name an attempt; its part of the store, and the workers that have not come."""
    name = new_secret()[:16]
    store.set(_ATTEMPT, name)
    here, absent = dist.PrefixStore(name, store), list[int]()
    coming = {rank: _comes(rank) for rank in range(1, size)}
    try:
        here.wait([*coming.values()], limit)
    except dist.DistStoreError:
        absent = [rank for rank, key in coming.items() if not here.check([key])]
    here.set(_begins(size), json.dumps(absent))
    return here, absent


def _come(store: dist.Store, rank: int, size: int, limit: timedelta) -> tuple[dist.Store, list[int]]:
    """Come to the attempt that is named, unless it is an earlier one: to that another process came as this worker."""
    mine, other = f"process {os.getpid()} on {socket.gethostname()} ({new_secret()[:16]})", ""
    end = time.monotonic() + limit.total_seconds() + _LATER
    while time.monotonic() < end:
        with contextlib.suppress(dist.DistStoreError):  # none is named, or not all have come
            here = dist.PrefixStore(store.get(_ATTEMPT).decode(), store)
            came = here.compare_set(_comes(rank), "", mine).decode()
            other = "" if came == mine else f", and {came} came as worker {rank} when it last did"
            if came == mine:
                here.wait([_begins(size)], _AGAIN)
                absent = json.loads(here.get(_begins(size)))
                if rank not in absent:
                    return here, absent
        time.sleep(_PAUSE)
    raise SilentWorkersError(f"worker 0 did not come{other}", [0])


def _comes(rank: int) -> str:
    return f"weft/comes/{rank}"


def _begins(size: int) -> str:
    return f"weft/begins/{size}"
