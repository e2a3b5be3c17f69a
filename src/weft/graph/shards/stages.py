"""The stages of a job, by name: each a function of the job's folder, a number and where to write."""

from pathlib import Path

from weft.graph.shards import assembly, edges, names, vertices
from weft.graph.shards.work import StageFunction, TaskResult, do_task

STAGES: dict[str, StageFunction] = {
    "looked": vertices.looked_at,
    "highest": edges.highest,
    "ends": edges.named,
    "vertices": vertices.written,
    "known": names.known_names,
    "firsts": names.first_names,
    "ranks": names.ranked_names,
    "numbers": names.appeared_names,
    "sent": edges.sent,
    "lists": edges.listed,
    "places": edges.placed,
    "copies": assembly.copied,
}


def run_task(folder: Path, run: str, stage: str, index: int) -> TaskResult:
    """Run a task of a job, wherever its folder is seen. `run`: a name of the command that asks for it."""
    return do_task(STAGES[stage], folder, run, stage, index)
