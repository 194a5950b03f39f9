"""y = factor * x * x by two kernels, one after the other, over a tensor between them. The second asks for shared memory."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

SQUARE_THREADS, SCALE_THREADS, SHARED_BYTES = 256, 64, 4096


@cute.kernel
def square_kernel(x: cute.Tensor, between: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * SQUARE_THREADS + thread
    if i < cute.size(x):
        between[i] = x[i] * x[i]


@cute.kernel
def scale_kernel(factor: cutlass.Float32, between: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * SCALE_THREADS + thread
    if i < cute.size(y):
        y[i] = factor * between[i]


@cute.jit
def two(factor: cutlass.Float32, x: cute.Tensor, between: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    n = cute.size(x)
    square_kernel(x, between).launch(
        grid=[(n + SQUARE_THREADS - 1) // SQUARE_THREADS, 1, 1], block=[SQUARE_THREADS, 1, 1], stream=stream
    )
    scale_kernel(factor, between, y).launch(
        grid=[(n + SCALE_THREADS - 1) // SCALE_THREADS, 1, 1],
        block=[SCALE_THREADS, 1, 1],
        smem=SHARED_BYTES,
        stream=stream,
    )


def arguments():
    n = cute.sym_int()
    x, between, y = (make_fake_compact_tensor(cutlass.Float32, (n,)) for _ in range(3))
    return cutlass.Float32(1), x, between, y, make_fake_stream()
