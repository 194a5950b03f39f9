"""out[i, j] = value for a matrix of any size, row by row: a grid and blocks of two dimensions."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

ROWS, COLUMNS = 8, 32


@cute.kernel
def fill_kernel(value: cutlass.Int32, out: cute.Tensor):
    column, row, _ = cute.arch.thread_idx()
    column_block, row_block, _ = cute.arch.block_idx()
    i, j = row_block * ROWS + row, column_block * COLUMNS + column
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = value


@cute.jit
def fill(value: cutlass.Int32, out: cute.Tensor, stream: cuda.CUstream):
    rows, columns = out.shape
    grid = [(columns + COLUMNS - 1) // COLUMNS, (rows + ROWS - 1) // ROWS, 1]
    fill_kernel(value, out).launch(grid=grid, block=[COLUMNS, ROWS, 1], stream=stream)


def arguments():
    shape = (cute.sym_int(), cute.sym_int())
    out = make_fake_compact_tensor(cutlass.Int32, shape, stride_order=(1, 0))
    return cutlass.Int32(0), out, make_fake_stream()
