"""A worker that a script has started: it calls what the script has sent along, and the first one gives back the result."""

import json
import os
import signal
import sys
from collections.abc import Sequence

from weft.errors import ConfigError, WeftError, reason_of
from weft.stopping import Interrupted


def main(arguments: Sequence[str]) -> int:
    """`arguments`: the file descriptors of what is called and of the result, and what going on has changed."""
    from ray import cloudpickle  # what Ray has carried here, and carries back

    called, result, changes = int(arguments[0]), int(arguments[1]), json.loads(arguments[2])
    try:
        with open(f"/proc/self/fd/{called}", "rb") as file:  # from its beginning, whatever other workers have read
            try:
                work = cloudpickle.load(file)
            except (ImportError, AttributeError) as error:
                raise ConfigError(
                    f"a worker can't make what the script has sent ({reason_of(error)}): install the modules that it uses "
                    f"on all nodes, or put them into the folder in which the script is started"
                ) from error
        value = work(changes)
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        print(f"weft: {stop}", file=sys.stderr)
        return 128 + stop.signum
    except KeyboardInterrupt:  # before it trains, or the second one
        return 128 + signal.SIGINT
    if os.environ["RANK"] == "0":
        with os.fdopen(result, "wb", closefd=False) as file:
            file.write(cloudpickle.dumps(value))
    return 0
