"""weft sandbox: a command on several hosts that are namespaces of this machine."""

import argparse
import json

import weft.lab
import weft.report
from weft.commands.flags import add_number
from weft.errors import ConfigError

_STDERR = 2  # the descriptor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `weft sandbox`."""
    add_number(parser, "--hosts", 4, "how many hosts")
    add_number(parser, "--workers-per-host", 1, "workers on each host")
    parser.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="RATE",
        help="speed of all links (1gbit), or of one host's (h2=100mbit); none: unshaped (default)",
    )
    parser.add_argument(
        "--cpu", action="append", default=[], metavar="HOST=SHARE", help="processors of one host: h1=0.5 is half of one"
    )
    parser.add_argument("--timeout", type=float, help="seconds after which the workers are stopped")
    parser.add_argument(
        "--json", action="store_true", help="print the hosts' traffic as JSON, and on stderr what the command prints"
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what each worker runs")


def run(args: argparse.Namespace) -> int:
    """Build the sandbox, run the command, show the traffic, remove the sandbox."""
    command = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not command:
        raise ConfigError("weft sandbox needs a command: weft sandbox --hosts 4 --link 1gbit -- weft train GRAPH")
    if args.timeout is not None and not args.timeout > 0:
        raise ConfigError(f"--timeout {args.timeout:g} is out of range: give seconds above 0, or drop it for no limit")
    links = dict(_pair(text) for text in args.link if "=" in text)
    common = [text for text in args.link if "=" not in text]
    shares = {}
    for text in args.cpu:
        host, share = _pair(text)
        try:
            shares[host] = float(share)
        except ValueError:
            raise ConfigError(f"--cpu {text} is not possible: give HOST=SHARE, such as h1=0.5") from None
    link = common[-1] if common else "none"
    with weft.lab.Sandbox(args.hosts, args.workers_per_host, link, links, shares) as sandbox:
        code = sandbox.run(command, output=_STDERR if args.json else None, timeout=args.timeout)
        traffic = sandbox.traffic()
    print(json.dumps({"traffic": traffic})) if args.json else weft.report.print_traffic(traffic)
    return code


def _pair(text: str) -> tuple[str, str]:
    host, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"{text} is not possible: give HOST=VALUE, such as h1=0.5")
    return host, value
