"""Compiles a model of two layers by TVM into one object with its weights, and writes an input and numpy's answer.

model.py FOLDER: writes mlp.o, x.bin and y.bin (f32) there. The weights are constants of the model.
"""

import os
import subprocess
import sys

import numpy as np
import tvm
from tvm import relax

folder = sys.argv[1]
rng = np.random.default_rng(28)


def random(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


w1, b1, w2, b2, x = random(16, 64), random(64), random(64, 8), random(8), random(4, 16)

builder = relax.BlockBuilder()
given = relax.Var("x", relax.TensorType((4, 16), "float32"))
with builder.function("main", [given]):
    with builder.dataflow():
        hidden = relax.op.add(relax.op.matmul(given, relax.const(w1)), relax.const(b1))
        hidden = builder.emit(relax.op.nn.relu(hidden))
        result = builder.emit_output(relax.op.add(relax.op.matmul(hidden, relax.const(w2)), relax.const(b2)))
    builder.emit_func_output(result)
# The prefix makes it a part of the program that registers itself when its initialisers run ("system library").
module = builder.get().with_attr("system_lib_prefix", "mlp_")
compiled = tvm.compile(module, target=tvm.target.Target("llvm"))


def merge(output, files, options=None, **_):
    """Merges code and constants into one object, where TVM would link a shared library."""
    subprocess.check_call(["ld", "-r", "-o", output, *files])


compiled.export_library(os.path.join(folder, "mlp.o"), fcompile=merge, workspace_dir=folder)
x.tofile(os.path.join(folder, "x.bin"))
(np.maximum(x @ w1 + b1, 0) @ w2 + b2).tofile(os.path.join(folder, "y.bin"))
