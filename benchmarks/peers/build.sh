#!/usr/bin/env bash
# Builds the peers' environments: DGL 2.1 (needs torch 2.2.1 and numpy < 2; a CUDA build of 2 GB that runs on the CPU too)
# and PyG with torch_sparse compiled for torch 2.13 (minutes). Each is built once; WEFT_PEERS says where.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
envs=${WEFT_PEERS:-$here/envs}
mkdir -p "$envs"
unset PIP_CONSTRAINT
if ! "$envs/pyg/bin/python" -c "import torch_sparse, torch_geometric" 2>/dev/null; then
  python3 -m venv "$envs/pyg"
  "$envs/pyg/bin/pip" install -q torch==2.13.0 torch_geometric==2.8.1 numpy setuptools wheel ninja
  MAX_JOBS=2 "$envs/pyg/bin/pip" install -q --no-build-isolation torch_scatter torch_sparse
fi
if ! "$envs/dgl/bin/python" -c "import dgl.graphbolt" 2>/dev/null; then
  python3 -m venv "$envs/dgl"
  "$envs/dgl/bin/pip" install -q dgl==2.1.0 torch==2.2.1 'numpy<2' torchdata==0.7.1 pandas pydantic pyyaml setuptools
fi
echo "peers are in $envs"
