"""Priorities of threads."""

import os
import sys
import threading


def yield_to_others() -> None:
    """Lower this thread's priority, where threads have one of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
