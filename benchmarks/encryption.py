"""What `--tls` takes: messages between two workers of this machine, in the open and encrypted.

    python benchmarks/encryption.py            4 kB to 16 MB, both ways at once

Medians of rounds, each of as many exchanges as fill a quarter of a second; processors' seconds are those of both workers.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch

from weft.exchange import World, new_secret

SIZES = [1 << k for k in range(12, 25, 4)]  # bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", metavar="TLS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(None if args.worker == "none" else args.worker, args.rounds)
    found = {tls: measured(tls, args.rounds) for tls in ("none", "secret")}
    print(f"{'message':>10}  {'in the open':>30}  {'encrypted':>30}")
    for size, plain, encrypted in zip(SIZES, *found.values(), strict=True):
        told = (f"{ms:8.2f} ms {rate:7.0f} MB/s {cpu:5.2f} s/GB" for ms, rate, cpu in (plain, encrypted))
        print(f"{size / 1e3:7.0f} kB  " + "  ".join(told))


def measured(tls, rounds):
    """Milliseconds, MB/s each way and processors' seconds a GB, by size."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    run = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WEFT_SECRET": new_secret()}
    me = [sys.executable, __file__, "--worker", tls, "--rounds", str(rounds)]
    workers = [
        subprocess.Popen(me, env=os.environ | run | {"RANK": str(rank)}, stdout=subprocess.PIPE) for rank in range(2)
    ]
    told = [worker.communicate()[0] for worker in workers]
    assert not any(worker.returncode for worker in workers)
    return json.loads(told[0])


def work(tls, rounds):
    torch.set_num_threads(1)
    world = World.join(60, tls=tls)
    comm = world.communicator()
    found = [one_size(comm, size, rounds) for size in SIZES]
    if world.rank == 0:
        print(json.dumps(found), flush=True)
    world.leave()


def one_size(comm, size, rounds):
    rows, counts = torch.ones(size, dtype=torch.uint8), [size * other for other in comm.others]
    once = some(comm, rows, counts, 3)[0]
    times = max(3, round(0.25 / float(comm.sum(torch.tensor(once)) / comm.size)))
    seconds, processors = zip(*(some(comm, rows, counts, times) for _ in range(rounds)), strict=True)
    took, cpu = statistics.median(seconds), statistics.median(processors)
    return 1e3 * took, size / took / 1e6, float(comm.sum(torch.tensor(cpu))) / (2 * size / 1e9)


def some(comm, rows, counts, times):
    """Seconds of an exchange, and of this worker's processor, of as many one after the other."""
    comm.barrier()
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        comm.rows(rows, counts, counts, "exchange")
    return (time.perf_counter() - start) / times, (time.process_time() - cpu) / times


if __name__ == "__main__":
    main()
