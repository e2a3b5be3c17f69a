"""Does a convolution do what its class says, so that other code may stand in for its forward?"""

from torch_geometric.nn import MessagePassing

_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "update", "edge_update")


def as_its_class(conv: MessagePassing) -> bool:
    """Has it no options or hooks that change its message passing?"""
    plain = conv.flow == "source_to_target" and not conv.explain and conv.decomposed_layers == 1
    return plain and not has_steps_of_its_own(conv)


def has_steps_of_its_own(conv: MessagePassing) -> bool:
    """Does a step of its message passing have hooks, or is one replaced on the module itself?"""
    of_module = vars(conv)
    hooks = [f"_{step}_forward{when}_hooks" for step in _STEPS for when in ("", "_pre")]
    return any(of_module.get(name) for name in hooks) or any(step in of_module for step in _STEPS)
