"""The fault matrix as data: each cell is a fault, the stage of a run in which it comes, and how the run trains."""

from dataclasses import dataclass

STAGES = ("probe", "planning", "first batch", "mid-epoch", "evaluation", "checkpoint", "plan switch", "end")
MODES = ("batches", "graph")


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and what is to come of it.

    `expected`: ends (all workers, each with a sentence; one names whom they lost), stops (as it was told, with a checkpoint
    if it trained), survives (the model is the same), or either of ends and survives.
    """

    name: str
    does: str  # a method of `Trouble`
    victim: int | None = None  # a rank; None: a host, all, or the launcher
    expected: str = "ends"
    local: bool = False  # under `weft train --workers 4` on one host, in place of two hosts
    disk: bool = False  # all that the first host's workers write is on a small disk of their own


FAULTS = {
    fault.name: fault
    for fault in (
        *(Fault(f"kill -9 worker {rank}", "kill", rank) for rank in range(4)),
        Fault("kill -9 launcher", "kill_launcher", local=True),
        Fault("kill -9 a launcher's worker", "kill_child", local=True),
        *(Fault(f"SIGSTOP worker {rank}", "stop", rank) for rank in (0, 3)),
        Fault("SIGTERM worker 2", "terminate", 2, expected="stops"),
        Fault("SIGTERM all", "terminate_all", expected="stops"),
        Fault("SIGINT all", "interrupt_all", expected="stops"),
        Fault("SIGINT launcher", "interrupt_launcher", expected="stops", local=True),
        Fault("link cut", "cut", 2),
        Fault("link at 1%", "slow_link", expected="survives"),
        Fault("host 1 is not heard", "mute", 2),
        Fault("host 1 hears nothing", "deafen", 2),
        Fault("host 0 gone", "lose_host", 0),
        Fault("host 1 gone", "lose_host", 2),
        Fault("clock an hour ahead", "clock_ahead", expected="survives"),
        Fault("clock an hour back", "clock_back", expected="survives"),
        Fault("disk full", "fill_disk", expected="either", disk=True),
        Fault("disk read-only", "lock_disk", expected="either", disk=True),
        Fault("disk slow", "slow_disk", expected="survives"),
        *(Fault(f"out of memory, worker {rank}", "limit_memory", rank, expected="either") for rank in (0, 3)),
    )
}


@dataclass(frozen=True)
class Cell:
    """One run that is disturbed once, and then resumed."""

    fault: Fault
    stage: str
    mode: str

    def __str__(self) -> str:
        return f"{self.fault.name} / {self.stage} / {self.mode}"


CELLS = {
    str(cell): cell
    for cell in (Cell(fault, stage, mode) for mode in MODES for stage in STAGES for fault in FAULTS.values())
}
# Of the ordinary suite: each fault that takes a way of its own, once, where it takes little time.
QUICK = (
    "kill -9 worker 0 / mid-epoch / batches",
    "kill -9 worker 3 / mid-epoch / graph",
    "SIGTERM all / mid-epoch / batches",
    "clock an hour ahead / mid-epoch / batches",
    "disk full / checkpoint / batches",
)
