"""A run in words."""

from weft.training.run import Run


def description(run: Run) -> str:
    """The plan in one line."""
    loader, threads, named, kind = run.loader, run.threads, run.settings.model.name, run.forward.kind
    parts = [
        f"{loader.team.describe()}, {threads} thread{'s' if threads > 1 else ''}",
        f"{named if named in kind.lower() or '.py' in named else kind}, {run.forward.describe()}",
        *loader.mode.describe(loader.team.plan, loader.fanouts),
    ]
    return " | ".join(parts)
