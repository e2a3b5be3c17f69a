"""Compiles Triton's kernels as a device would have them launched, without one: `python compiling.py CAPABILITY [DTYPE...]`.

Prints a line of JSON a kernel: its name, bytes of machine code, whether it adds floats atomically, what cuobjdump says.
"""

import json
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
import triton
from small_blocks import random_block
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from weft import triton_kernels as kernels
from weft.operations import JoinedTerms, Lists, Scores, Terms

FLOAT_ATOMICS = re.compile(r"\b(atom|red)\.\S*\.(f16|bf16|f32|f64|f16x2|bf16x2)\b")
TYPES = {torch.int32: "*i32", torch.int64: "*i64", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
TYPES |= {torch.float32: "*fp32", torch.float64: "*fp64"}
OPTIONS = ("num_warps", "num_stages")


def compile_launches(capability, dtype):
    """From now on a launch compiles, and says what came out."""

    def run(kernel, *args, grid, warmup, **options):
        given = dict(zip(kernel.arg_names, args, strict=False))
        given |= {name: value for name, value in options.items() if name not in OPTIONS}
        pointers = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        of_launch = {param.name for param in kernel.params if not param.is_constexpr}
        numbers = {name: "i64" for name, value in given.items() if name in of_launch and isinstance(value, int)}
        constants = {name: value for name, value in given.items() if name not in pointers and name not in numbers}
        types = {name: TYPES[value.dtype] for name, value in pointers.items()} | numbers
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        aligned = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in pointers}
        source = ASTSource(kernel, signature, constants, aligned)
        asked = {name: value for name, value in options.items() if name in OPTIONS}
        made = triton.compile(source, GPUTarget("cuda", capability, 32), asked)
        name = f"{kernel.fn.__module__.rsplit('.', 1)[-1]}.{kernel.fn.__name__}"
        print(json.dumps({"kernel": name, "dtype": str(dtype), **told(made)}), flush=True)

    JITFunction.run = run


def told(made):
    """What there is to say of a compiled kernel."""
    ptx, code = made.asm["ptx"], made.asm["cubin"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    figures = {key.lower(): int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", usage)}
    target = re.search(r"\.target (\w+)", ptx)
    return {
        "bytes": len(code),
        "target": target and target[1],
        "float_atomics": len(FLOAT_ATOMICS.findall(ptx)),
        "wide_loads": len(re.findall(r"ld\.global\S*\.v4\.", ptx)),
        **figures,
    }


def call_all(dtype):
    """Each operation once, forward and backward, in this type."""
    block = random_block(20, 40, 150)
    lists, turned = Lists(block.indptr, block.src), block.transposed()
    x, g, weight = torch.zeros(40, 128, dtype=dtype), torch.zeros(20, 128, dtype=dtype), torch.zeros(150, dtype=dtype)
    kernels.sum_rows(lists, weight, x, g, True, False)
    kernels.sum_rows(turned, weight, g, x, False, True)
    kernels.edge_dot(lists, g, x)
    kernels.max_rows_backward(turned, *kernels.max_rows(lists, x), x)
    kernels.film(lists, x, g, g, True)
    kernels.film_backward(lists, turned, x, g, g, g)
    scores = Scores(torch.zeros(40, 8, dtype=dtype), torch.zeros(40, 8, dtype=dtype), None, None, 0.2, True)
    square = Lists(torch.zeros(41, dtype=torch.int64), block.src)
    *of, saved = kernels.edge_shares(square, scores)
    kernels.edge_shares_backward(square, turned, scores, saved, *of)
    x, keep, att = x.view(40, 8, 16), torch.zeros(150, 8, dtype=dtype), torch.zeros(8, 16, dtype=dtype)
    terms = Terms(torch.zeros(40, 8, dtype=dtype), torch.zeros(20, 8, dtype=dtype), None, keep, 0.2)
    out, _, saved = kernels.attend(lists, x, terms)
    kernels.attend_backward(lists, turned, x, terms, saved, out, None)
    kernels.head_terms_backward(x, att, kernels.head_terms(x, att, 20), x)
    joined = JoinedTerms(x, out, att, keep, 0.2)
    out, saved = kernels.attend_v2(lists, joined)
    kernels.attend_v2_backward(lists, turned, joined, saved, out)


def call_once():
    """What has no type of float, or one only."""
    ids, places = torch.arange(20), torch.arange(41)
    for replace in (False, True):
        kernels.draw(places, ids, 10, 2**63, None, replace, 0)
    for numbered in (ids, ids.int()):
        with suppress(IndexError):  # places that nothing computed
            kernels.number(numbered)
    rows = torch.zeros(20, 128)
    kernels.dropout_mask(2**63, ids, 2**31, 2.0, rows)
    kernels.gather_tiers(ids, rows.half(), rows, rows)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        compile_launches(int(sys.argv[1]), name)
        call_once() if name == "once" else call_all(getattr(torch, name))
