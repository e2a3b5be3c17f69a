"""The workers of one host of a cluster: a process that a launcher starts there, and tells in a file what to start."""

import json
import signal
import sys

from weft.cluster.crew import LOST_OTHERS, Crew
from weft.cluster.forks import end_with, forkable
from weft.cluster.launcher import nothing_to_check
from weft.errors import WeftError
from weft.own_process import set_up_own_process
from weft.stopping import SIGNALS

LOST = 1  # the exit code where workers were lost; any other is a worker's own


def main() -> int:
    """Run them; the exit code. The argument is the file's descriptor."""
    set_up_own_process()
    with open(int(sys.argv[1])) as file:
        job = json.load(file)
    end_with(job["launcher"])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # Ray blocks SIGINT in what it starts
    try:
        with Crew(job["arguments"], job["places"], forkable(nothing_to_check), job["module"], job["store"]) as crew:
            code, lost = crew.wait(job["grace"])
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 2
    if lost is None:
        return code
    return LOST if lost else LOST_OTHERS


if __name__ == "__main__":
    sys.exit(main())
