"""Which plan wins where: epoch times on four hosts by hidden width, model and partition; needs root (network namespaces).

    python benchmarks/crossovers.py

The shape of APT's Figures 8a (hidden width), 10 (GAT) and 11 (random partition), on a communities graph. Medians of the
epochs after the first; widths of GAT are those of all its heads together.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from cluster import graphs, options, run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/benchmarks"))
    parser.add_argument("--cases", default="sage:metis,sage:random,gat:metis")
    parser.add_argument("--widths", default="8,32,128,512")
    parser.add_argument("--plans", default="gdp,nfp,snp,dnp,leap,split")
    parser.add_argument("--link", default="1gbit")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--vertices", type=int, default=60_000)
    parser.add_argument("--edges", type=int, default=1_250_000)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    plans, widths = args.plans.split(","), [int(width) for width in args.widths.split(",")]
    for case in args.cases.split(","):
        model, method = case.split(":")
        graph, _, parts = graphs(args.data, args.vertices, args.edges, args.hosts, method)
        print(f"\n{model}, {method} partition, links {args.link}: seconds an epoch, by hidden width")
        print(f"{'hidden':>8}" + "".join(f"{plan:>10}" for plan in plans) + "   fastest", flush=True)
        winners = []
        for width in widths:
            job = {"model": model, "hidden": width, "batch_size": 512, "fanouts": [10, 10, 10], "epochs": args.epochs}
            job |= {"classes": graph.num_classes, "graph": str(parts)}
            medians = {}
            with tempfile.TemporaryDirectory() as folder:
                for plan in plans:
                    epochs, _ = run(plan, job | {"options": options(plan)}, args.link, args.hosts, Path(folder))
                    medians[plan] = statistics.median(epoch["seconds"] for epoch in epochs)
            winners.append(min(medians, key=medians.__getitem__))
            print(f"{width:8}" + "".join(f"{medians[plan]:10.2f}" for plan in plans) + f"   {winners[-1]}", flush=True)
        spans = [
            f"{winner} from {width}"
            for width, winner, before in zip(widths, winners, [None, *winners], strict=False)
            if winner != before
        ]
        print(f"{model}, {method}: {', then '.join(spans)}")


if __name__ == "__main__":
    main()
