"""One cell of the matrix: a run, its fault, how all workers ended, and what resuming it made."""

import re
import signal
import threading
import time
from typing import Any

import torch
from laboratory import EPOCHS, MODE, PLAN, SIZE, SWITCHED, USUAL, WITHIN, Laboratory, Run, remove
from matrix import Cell
from safetensors.torch import load
from trouble import Trouble

_SLOWLY = 40_000  # microseconds of an fsync, so that a checkpoint takes long enough to be met
_RESUMED_WITHIN = 120.0


# What is said to have been going on, when a fault comes in a stage, or soon after: epochs take a hundredth of a second.
STAGE_WORDS = {
    "probe": ("measuring",),
    "planning": ("measuring", "planning"),
    "first batch": ("epoch",),
    "mid-epoch": ("epoch",),
    "evaluation": ("epoch",),  # the evaluation after epoch 2, or the next one
    "checkpoint": ("epoch",),
    "plan switch": ("change of plans", "epoch"),
    "end": ("end", f"epoch {EPOCHS}"),
}


class Experiment:
    """A cell's run. Its first host's workers write to `base` only."""

    def __init__(self, lab: Laboratory, cell: Cell) -> None:
        self._lab, self._cell, self._wrong = lab, cell, []
        self._folder = lab.folder / "cell"
        remove(self._folder)
        self._folder.mkdir()
        self._base = lab.small_disk() if cell.fault.disk else self._folder / "first"
        self._seen = lab.seen(self._base) if cell.fault.disk else self._base
        self._moment = threading.Event()
        self._batches = 0

    def result(self) -> dict[str, Any]:
        """Run the cell; what is wrong, how it went, and what was said."""
        start = time.monotonic()
        try:
            run, came = self._disturbed()
            survived = all(code == 0 for code in run.codes.values())
            sentences = _sentences(run)
            if not came:
                self._wrong.append("it came too late: all had ended")
            self._judge(run, survived)
            self._look_for_rest(run)
            if not survived:
                self._resume()
            self._compare()
        finally:
            if self._cell.fault.disk:
                self._lab.remove_disk()
        return {
            "cell": str(self._cell),
            "ok": not self._wrong,
            "outcome": "survived" if survived else f"ended in {run.seconds:.1f} s",
            "wrong": self._wrong,
            "said": sentences,
            "seconds": round(time.monotonic() - start, 1),
        }

    @property
    def _argv(self) -> list[str]:
        stage, mode = self._cell.stage, self._cell.mode
        plan = {"probe": [], "planning": [], "plan switch": ["--plan", SWITCHED[mode]]}.get(
            stage, ["--plan", PLAN[mode]]
        )
        where = ["--checkpoint", str(self._base / "runs"), "--out", str(self._base / "model")]
        watch = [] if stage == "plan switch" or plan else ["--no-watch"]
        return ["train", str(self._lab.folder / "parts"), *USUAL, *MODE[mode], *plan, *watch, *where]

    def _start(self, argv: list[str], kept: bool, notice=lambda record: None) -> Run:
        """`kept`: is it known what the cluster is like?"""
        for name in ("cache", "tmp"):
            (self._seen / name).mkdir(parents=True, exist_ok=True)
            (self._folder / f"{name}-1").mkdir(exist_ok=True)
        if kept:
            for file in self._lab.kept.iterdir():
                (self._seen / "cache" / file.name).write_bytes(file.read_bytes())

        def environment(rank: int) -> dict[str, str]:
            first = self._cell.fault.local or rank < 2
            names = {"TMPDIR": "tmp", "WEFT_CACHE": "cache"}
            return {key: str(self._base / name if first else self._folder / f"{name}-1") for key, name in names.items()}

        changes = ["switch"] if self._cell.stage == "plan switch" else []
        local = self._cell.fault.local
        return self._lab.start(
            argv, self._folder / "said", local=local, changes=changes, environment=environment, notice=notice
        )

    def _disturbed(self) -> tuple[Run, bool]:
        """The run, and whether the fault came before its end."""
        stage = self._cell.stage
        if stage == "checkpoint":
            self._lab.controls[0].disk(_SLOWLY)
        self._run = run = self._start(self._argv, stage != "probe", self._notice)
        end = time.monotonic() + WITHIN
        while not self._is_moment() and not run.done and time.monotonic() < end:
            time.sleep(0.001 if stage == "checkpoint" else 0.005)
        came = not run.done and self._is_moment()
        trouble = Trouble(self._lab, run, self._cell.fault)
        trouble.begin()
        if stage == "checkpoint" and self._cell.fault.name != "disk slow":
            self._lab.controls[0].disk(0)
        stopped = frozenset(trouble.lost) if self._cell.fault.does == "stop" else frozenset()
        self._lab.wait(run, but=stopped)
        seconds = run.seconds
        trouble.end()
        if stopped:  # it goes on, finds itself alone, and ends
            self._lab.wait(run)
        run.seconds, self._lost = seconds, trouble.lost
        return run, came

    def _is_moment(self) -> bool:
        if self._cell.stage == "checkpoint":
            return any((self._seen / "runs").glob(".step-*.writing-*"))
        if self._cell.stage == "probe":
            return self._lab.connected(self._run)
        return self._moment.is_set()

    def _notice(self, record: dict[str, Any]) -> None:
        kind, text = record["record"], str(record.get("text", ""))
        if kind == "Started":
            self._batches = record["batches"]
        epoch, batch = record.get("epoch"), record.get("batch")
        stage, whole = self._cell.stage, self._cell.mode == "graph"
        mid = (kind, epoch) == ("EpochEnded", 1) if whole else (kind, epoch, batch) == ("Stepped", 2, 2)
        here = {
            "planning": kind == "Notice" and text.startswith("the cluster as measured"),
            "first batch": kind == "Started",
            "mid-epoch": mid,
            "evaluation": (kind, epoch, batch) == ("Stepped", 1, self._batches),
            "plan switch": kind == "Notice" and text.startswith("from now on"),
            "end": (kind, epoch) == ("EpochEnded", EPOCHS - 1),
        }
        if here.get(stage):
            self._moment.set()

    def _judge(self, run: Run, survived: bool) -> None:
        expected, wrong = self._cell.fault.expected, self._wrong
        late = [rank for rank, code in run.codes.items() if code is None]
        if late:
            wrong.append(f"worker {late[0]} had not ended after {run.seconds:.0f} s: {run.stack(late[0])}")
        if expected == "survives" and not survived:
            wrong.append(f"it did not survive: {run.codes}")
        if expected in ("ends", "stops") and survived and self._cell.stage != "end":
            wrong.append("all went on as if nothing had been")
        for rank, code in run.codes.items():
            said = run.said(rank)
            if "Traceback" in said or "terminate called" in said:
                wrong.append(f"worker {rank} gave a traceback: {said.strip().splitlines()[-1][:300]}")
            if code and code not in (1, 2, 128 + signal.SIGTERM, 128 + signal.SIGINT) and code > 0:
                wrong.append(f"worker {rank} ended with code {code}")
            if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
                wrong.append(f"worker {rank} crashed: {signal.Signals(-code).name}")
            stopped = rank > 0 and (code or 0) > 128  # the first worker tells for all
            if code and code > 0 and not stopped and not re.search(r"^weft: ", said, re.M):
                wrong.append(f"worker {rank} ended without a word")
        if not survived and self._lost and expected == "ends":
            self._judge_words(run)

    def _judge_words(self, run: Run) -> None:
        """Somebody who is left names one who is lost, and each what to do."""
        others = [run.said(rank) for rank in range(SIZE) if rank not in self._lost]
        if not any(f"worker {rank} (host {rank // 2})" in said for said in others for rank in self._lost):
            self._wrong.append("nobody names who was lost")
        during = [what for said in others for what in re.findall(r"stopped answering during (.*?);", said)]
        expected = STAGE_WORDS[self._cell.stage]
        self._wrong += [f"lost during {what}, it says" for what in during if not any(word in what for word in expected)]
        if not all("--resume" in said for said in others if said):
            self._wrong.append("somebody does not say what to do")

    def _look_for_rest(self, run: Run) -> None:
        self._wrong += [f"left: {what}" for what in self._lab.left(run)]
        for folder in (self._seen / "tmp", self._folder / "tmp-1"):
            for _ in range(100):
                left = [*folder.iterdir()]
                if not left:
                    break
                time.sleep(0.05)
            self._wrong += [f"left: a temporary {path.name}" for path in left]

    def _resume(self) -> None:
        for rank in range(SIZE):
            (self._folder / "said" / f"err-{rank}").unlink(missing_ok=True)
        run = self._start([*self._argv, "--resume"], True)
        self._lab.wait(run, _RESUMED_WITHIN)
        if any(run.codes.values()) or None in run.codes.values():
            said = "; ".join(_sentences(run)) or run.said(0)[-1000:]
            self._wrong.append(f"it could not be resumed: {run.codes} {said}")
        self._look_for_rest(run)

    def _compare(self) -> None:
        file = self._seen / "model" / "state.safetensors"
        if not file.exists():
            self._wrong.append("there is no model")
            return
        found, wanted = load(file.read_bytes()), self._lab.reference(self._cell.mode)
        exact = self._cell.stage not in ("probe", "planning", "plan switch") and not self._cell.fault.local
        same = torch.equal if exact else lambda a, b: torch.allclose(a, b, rtol=0, atol=1e-9)
        if not all(same(found[name], wanted[name]) for name in wanted):
            self._wrong.append("the model is another one")
        hidden = {path.name for path in [*self._seen.glob(".*"), *self._seen.glob("*/.*")]} - {".lock"}
        self._wrong += [f"left: {name}" for name in hidden]


def _sentences(run: Run) -> list[str]:
    """What workers said of the end, each sentence once."""
    lines = [line for rank in range(len(run.pids)) for line in run.said(rank).splitlines() if line.startswith("weft: ")]
    return list(dict.fromkeys(lines))[:6]
