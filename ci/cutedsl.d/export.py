"""export.py FOLDER KERNEL...: compiles kernels of the modules beside this one without a GPU, and writes for each

KERNEL.o, KERNEL.h          the plain C form
KERNEL.tvm_ffi.o            the TVM-FFI form
KERNEL.tvm_ffi_static.o     the same, not position independent
"""

import ctypes
import importlib
import os
import sys

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass.cute as cute
from cutlass.cute.runtime import find_runtime_libraries

# Without it `export_to_c` of the plain C form says "Symbols not found: [ _cudaLibraryLoadData, …": an engine resolves the object's imports.
# Where there is a driver, an engine that `compile` makes has opened it.
for runtime in find_runtime_libraries(enable_tvm_ffi=False):
    ctypes.CDLL(runtime, ctypes.RTLD_GLOBAL)

folder, *names = sys.argv[1:]
for name in names:
    module = importlib.import_module(name)

    def compiled(**options):
        # Before 4.5, an engine asks for a driver when it is made.
        return cute.compile(getattr(module, name), *module.arguments(), no_jit_engine=True, **options)

    compiled().export_to_c(file_path=folder, file_name=name, function_prefix=name)
    tvm_ffi = compiled(options="--enable-tvm-ffi")
    tvm_ffi.export_to_c(f"{folder}/{name}.tvm_ffi.o", function_name=name)
    tvm_ffi.export_to_c(f"{folder}/{name}.tvm_ffi_static.o", function_name=name, enable_pic=False)
