"""Joining a Ray cluster that runs: what is wrong with its address is told in a sentence, and soon."""

import importlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from weft.cluster.launcher import Request
from weft.errors import ClusterError, ConfigError, reason_of

_CONNECT = 5.0  # seconds to reach an address


def address_of(request: Request) -> str:
    """The address that a request names, or the environment."""
    return request.option("address", os.environ.get("RAY_ADDRESS", "auto"))


@contextmanager
def joined_ray(address: str) -> Iterator[ModuleType]:
    """The module of Ray, joined to the cluster at an address; a script's own connection is used, and stays."""
    if not _is_joined():
        check_address(address)  # sooner than what takes seconds to be imported
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ClusterError(
            f"Ray is not installed here ({error}): `pip install 'weft-gnn[ray]'`, on every node"
        ) from None
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # there is no common class of what may be wrong
        raise ClusterError(
            f"no Ray cluster could be joined at {address} ({reason_of(error)}): start it with `ray start --head`, run "
            f"this on one of its nodes, and name its address in RAY_ADDRESS"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _is_joined() -> bool:
    loaded = sys.modules.get("ray")
    return loaded is not None and bool(loaded.is_initialized())


def check_address(address: str) -> None:
    """Refuse an address where nothing is, which Ray itself would try for a minute."""
    if address == "auto":
        return
    if "://" in address:
        raise ConfigError(
            f"address = {address!r} is not possible: run this on a node of the cluster, and give HOST:PORT"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"address = {address!r} is no address of Ray's: give HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
    except socket.gaierror:
        raise ClusterError(
            f"the name {host} of Ray's address does not resolve: give one that does, or a number"
        ) from None
    except OSError as error:
        raise ClusterError(
            f"there is no Ray at {address} ({error.strerror or error}): start it with `ray start --head`, or give another "
            f"address"
        ) from None
