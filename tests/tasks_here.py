"""Tasks of a job that run in this process, where commands have Ray's."""


def here(task):
    """Runs tasks one after another."""

    def run(folder, name, stage, indices):
        for index in indices:
            yield index, task(folder, name, stage, index)

    return run
