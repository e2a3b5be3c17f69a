"""Joining a Ray cluster that runs, and its nodes; what is wrong with its address is told in a sentence, and soon."""

import importlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from weft.errors import ClusterError, ConfigError, WeftError, reason_of

_CONNECT = 5.0  # seconds to reach an address


@contextmanager
def joined_ray(address: str | None = None) -> Iterator[ModuleType]:
    """The module of Ray, joined to the cluster at an address, or the environment's; a script's own connection stays."""
    address = os.environ.get("RAY_ADDRESS", "auto") if address is None else address
    loaded = sys.modules.get("ray")
    if loaded is None or not loaded.is_initialized():
        _check_address(address)  # sooner than what takes seconds to be imported
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


def nodes_of(ray: ModuleType) -> list[dict[str, Any]]:
    """Those that are there."""
    return [node for node in ray.nodes() if node["Alive"]]


@contextmanager
def ray_errors(ray: ModuleType, lost: str) -> Iterator[None]:
    """Ray's errors in Weft's words; `lost`: what is said where what was called is gone, with {} for the reason."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, WeftError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise ClusterError(lost.format(reason_of(error))) from None


def _check_address(address: str) -> None:
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
