"""Workers on Ray while they run: what they say is told, signals are passed on, and who is lost is named."""

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from types import FrameType, ModuleType
from typing import Any

from weft.cluster.agent import LOST
from weft.cluster.crew import GRACE, Errors, Lines
from weft.errors import reason_of
from weft.stopping import listening

_LOOK = 0.5  # seconds between looks for signals, and after which a host says that nothing has happened
_HURRY = 3.0  # seconds in which workers must end once a second signal was sent
_TOLD = "weft: "


@dataclass
class Running:
    """A host whose workers run."""

    actor: Any
    node: str
    places: list[dict[str, str]]
    code: int | None = None  # how they have ended
    lines: dict[str, Lines] = field(default_factory=lambda: {"stdout": Lines(), "stderr": Lines()})

    @property
    def ranks(self) -> list[str]:
        """Its workers."""
        return [place["RANK"] for place in self.places]

    @property
    def title(self) -> str:
        """Its name and its workers."""
        ranks = dict.fromkeys((self.ranks[0], self.ranks[-1]))
        return f"node {self.node} (worker{'s' * (len(ranks) - 1)} {' to '.join(ranks)})"


class RunningHosts:
    """Tells what workers say, and passes signals on to them, until all have ended."""

    def __init__(self, ray: ModuleType, hosts: Sequence[Running]) -> None:
        self._ray, self._hosts, self._errors = ray, hosts, Errors()
        self.reason = ""  # the last error that workers told
        self.gone: set[str] = set()  # nodes that do not answer
        self._signals: list[int] = []  # that came, and how many of them were passed on
        self._passed_on = 0

    def wait(self, grace: float) -> tuple[int, bool]:
        """The first failure's code, and whether workers were lost. The others then get so many seconds to end."""
        with listening(self._note):
            return self._wait(grace)

    def _wait(self, grace: float) -> tuple[int, bool]:
        first, end = 0, float("inf")
        calls = {host.actor.look.remote(_LOOK): host for host in self._hosts}
        while calls and time.monotonic() < end:
            for call in self._ray.wait(list(calls), timeout=_LOOK)[0]:
                host = calls.pop(call)
                self._look(host, call)
                if host.code is None:
                    calls[host.actor.look.remote(_LOOK)] = host
                elif host.code and not first:
                    first = host.code
                    end = time.monotonic() + (grace if first == LOST else GRACE)
            self._errors.late(time.monotonic(), self._ended())
            if self._pass_on() and len(self._signals) > 1:  # the first lets the batch in hand be finished
                end = min(end, time.monotonic() + _HURRY)
        self._errors.late(float("inf"), self._ended())
        hung = [host for host in self._hosts if host.code is None]  # though others have given up
        for host in hung if first != LOST and not self._signals else ():
            print(f"weft: {host.title} does not answer", file=sys.stderr, flush=True)
            self.gone.add(host.node)
        lost = bool(hung) or any(host.code == LOST for host in self._hosts)
        if hung and self._signals:
            return 128 + self._signals[0], False
        return first, lost and not self._signals

    def _look(self, host: Running, call: Any) -> None:
        try:
            said, host.code = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            self._lose(host, reason_of(error))
            self.gone.add(host.node)
            return
        for stream, text in said:
            lines = host.lines[stream].read(text)
            if stream == "stderr":
                self._errors.tell(lines, host.ranks)
                told = [line for line in lines if line.startswith(_TOLD)]
                self.reason = told[-1].removeprefix(_TOLD).strip() if told else self.reason
            else:
                sys.stdout.write("".join(lines))
                sys.stdout.flush()
        if host.code is not None and host.code < 0:
            self._lose(host, f"what starts them was killed by {signal.Signals(-host.code).name}")

    def _ended(self) -> list[str]:
        """The workers of hosts that told of a mistake, or were stopped: not of those that were lost."""
        return [rank for host in self._hosts if host.code and host.code != LOST for rank in host.ranks]

    def _lose(self, host: Running, reason: str) -> None:
        host.code = LOST
        print(f"weft: {host.title} was lost: {reason}", file=sys.stderr, flush=True)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._signals.append(signum)

    def _pass_on(self) -> bool:
        """Pass on the signals that have come since. Were there any?"""
        came = self._signals[self._passed_on :]
        self._passed_on += len(came)
        for host, signum in product(self._hosts, came):
            if host.code is None:
                host.actor.send.remote(signum)
        return bool(came)
