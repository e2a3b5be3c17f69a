"""A process that is forked for each worker, once it has everything imported."""

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from weft.garbage import importing, let_stay
from weft.stopping import SIGNALS, heard

COMMAND, NEEDED = "weft.cli", "weft.api"  # the module that workers run, and one that imports what training needs
_DEATH_SIGNAL = 1  # prctl's name for it (PR_SET_PDEATHSIG)
_NOT_INITIALISED = 3  # the CUDA driver's (CUDA_ERROR_NOT_INITIALIZED)


def forkable(check: Callable[[], object]) -> bool:
    """Import what workers need, and call `check`; may this process be forked afterwards?

    A fork has only the thread that made it. So `check` computes with one, and a process that may have more, or uses
    CUDA, is not forked: its workers import for themselves.
    """
    alone = "torch" not in sys.modules or _threads() == 1  # torch's threads, if it has any, can't be told from numpy's
    with importing():
        import torch

        for module in (COMMAND, NEEDED):
            import_module(module)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        check()
    finally:
        torch.set_num_threads(before)
    may_fork = alone and threading.active_count() == 1 and not _uses_cuda()
    if may_fork:
        let_stay()  # so that workers share these pages: collecting garbage writes to all that it looks at
    return may_fork


def fork(module: str, arguments: Sequence[str], environment: Mapping[str, str], errors: int, imported: bool) -> int:
    """Start a module with arguments, more environment variables, and its errors to this file; its process's number.

    `imported`: may it use what this process has imported? It ends when this process does, however that ends.
    """
    launcher = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # not twice, by the fork too
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
        if not pid:
            _work(module, arguments, environment, errors, launcher, imported)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _work(
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    errors: int,
    launcher: int,
    imported: bool,
) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)  # Ctrl-C reaches the launcher alone, which passes it on
        end_with(launcher)
        for signum in heard():
            signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.dup2(errors, 2)
        os.close(errors)
        os.environ.update(environment)
        if not imported:
            os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        code = import_module(module).main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # what called the launcher is not for a worker to go on with


def end_with(launcher: int, by: int = signal.SIGKILL) -> None:
    """Have the system send this process a signal when its launcher ends."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, by)
    if os.getppid() != launcher:  # it has ended already
        os._exit(1)


def _threads() -> int:
    """Threads of this process, Python's and others; 0: not known."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 0


def _uses_cuda() -> bool:
    """Has the CUDA driver been initialised in this process? It does not work in forks then."""
    import torch

    if torch.version.cuda is None:
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver, no devices
        return False
    return torch.cuda.is_initialized() or driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALISED
