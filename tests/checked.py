"""Whether models mix rows, found out once for those that are alike: it costs as much as ten steps of a small graph."""

from functools import wraps
from threading import RLock

_HELD = ("_parameters", "_buffers", "_modules")  # whose shapes, and classes, tell


def once(check_rows):
    """The same check, but not of a model that is alike one that it has let pass; workers that are threads take turns."""
    passed, turn = set(), RLock()

    @wraps(check_rows)
    def check(model, *how):
        with turn:
            this = kind_of(model), how
            if this not in passed:
                check_rows(model, *how)
                passed.add(this)

    return check


def looked_once(looked):
    """The same look at which edges a black box hangs on, but not of one that is alike one that it has let pass."""
    found, turn = {}, RLock()

    @wraps(looked)
    def look(box, few):
        with turn:
            given = tuple((name, getattr(of, "shape", ())[1:]) for name, of in few.options.items())
            this = kind_of(box.conv), few.x.shape[1:], few.x.dtype, few.x.device.type, given, few.kinds
            if this not in found:
                further = looked(box, few)
                found[this] = further, box._numbers_lone
            further, lone = found[this]
            box._numbers_lone |= lone
            return further

    return look


def kind_of(model):
    """What tells a model from others: classes of its modules and what they keep, but for numbers of parameters.

    Nor does what Weft has a convolution call while it runs the model.
    """

    def kept_by(module):
        kept = ((name, of) for name, of in vars(module).items() if name not in _HELD)
        return tuple((name, repr(of)) for name, of in kept if type(of).__module__ != "weft.nn.rows")

    own = [(at, type(module), kept_by(module)) for at, module in model.named_modules()]
    numbers = [*model.named_parameters(), *model.named_buffers()]
    return tuple(own), tuple((name, of.shape, of.dtype, of.device.type) for name, of in numbers)
