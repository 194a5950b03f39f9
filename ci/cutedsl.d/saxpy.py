"""y = a * x + y: a scalar, two tensors of any length, and a stream."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

THREADS = 128


@cute.kernel
def saxpy_kernel(a: cutlass.Float32, x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < cute.size(x):
        y[i] = a * x[i] + y[i]


@cute.jit
def saxpy(a: cutlass.Float32, x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    blocks = (cute.size(x) + THREADS - 1) // THREADS
    saxpy_kernel(a, x, y).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


def arguments():
    n = cute.sym_int()
    x, y = (make_fake_compact_tensor(cutlass.Float32, (n,)) for _ in range(2))
    return cutlass.Float32(1), x, y, make_fake_stream()
