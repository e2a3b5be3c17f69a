"""What each worker of the exactness test of links does: a trainer's epochs under each case's plan."""

import torch
from full_steps import full_model
from steps import open_graph

from weft.nn import LinkPredictor, make_decoder
from weft.plan import Plan, Settings
from weft.training import Trainer

EPOCHS, WIDTH = 2, 5


def link_model(name, width, dropout, settings):
    encoder = full_model(name, width, WIDTH, dropout)
    return LinkPredictor(encoder, make_decoder(settings.task.decoder, WIDTH, settings.optimisation.seed)).double()


def link_settings(case, workers):
    """The settings of a case; the same batches whatever the number of workers."""
    batches = {}
    if not case["settings"].get("full_graph"):
        batches = {"fanouts": tuple(case["fanouts"]), "batch_size": case["batch_size"] // workers}
        if case["settings"].get("evaluation") != "exact":
            batches["eval_batch_size"] = 45  # which cut vertices otherwise for each number of workers
    return Settings.of(
        task="link",
        seed=5,
        dtype="float64",
        lr=0.01,
        epochs=EPOCHS,
        eval_negatives=7,
        hits=3,
        **batches,
        **case["settings"],
    )


def train_links(case, world):
    """By epoch the loss and the figures on the validation split after it; and the parameters in the end."""
    graph = open_graph(case["graph"])
    plan = None if "plan" in case["settings"] or world.size == 1 else Plan.from_dict(case["plan"])
    settings = link_settings(case, world.size)
    model = link_model(case["model"], graph.num_features, case["dropout"], settings)
    trainer = Trainer(graph, model, settings, world=world, plan=plan)
    seen = []
    for epoch in range(EPOCHS):
        seen += [trainer.train_epoch(epoch)[1], *trainer.measure("validation").values()]
    trainer.close()
    return seen, torch.cat([p.detach().flatten() for p in model.parameters()])
