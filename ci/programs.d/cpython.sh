# Modules of CPython's own tests that want no extension module from a file: those look for the interpreter's names in the process.
# They wait until a library can export its names. Left out are also those that start the interpreter again (test_hash, test_struct: under
# slabjit it is no file), and one that prints what it draws at random (test_sort).
packages=(libpython3.11-dev libpython3.11-testsuite libpython3.11-stdlib libexpat1-dev zlib1g-dev)
modules=(
    test_augassign test_binop test_bool test_bisect test_class test_compare test_complex test_contains
    test_decorators test_deque test_dict test_dictviews test_enumerate test_exception_group test_funcattrs
    test_genexps test_global test_grammar test_heapq test_index test_int test_isinstance test_iter test_keywordonlyarg
    test_list test_listcomps test_long test_named_expressions test_operator test_opcodes test_pow test_property test_raise test_range
    test_scope test_set test_setcomps test_slice test_string_literals test_super test_tuple test_unary test_unpack
    test_with test_yield_from
)
# Those whose extension modules are files, and find the interpreter's names only if the process exports them: `slabjit run` cannot yet.
waiting=(test_asyncio test_bz2 test_ctypes test_decimal test_hashlib test_json test_lzma test_mmap test_queue test_sqlite3 test_ssl test_zoneinfo)
limit=300
cases=("${modules[@]/#/run.py }")
# Times, and addresses of objects.
normalize() { sed -E 's/ in [0-9.]+s$//; s/0x[0-9a-f]+/0x…/g'; }
build() {
    echo "not run until names can be exported to the process: ${waiting[*]}" >notes
    local folder
    folder=$(dirname "$(dpkg -L libpython3.11-dev | grep '/config.*/libpython3.11-pic\.a$')")
    cat >driver.c <<'C'
int Py_BytesMain(int argc, char **argv);
int main(int argc, char **argv) { return Py_BytesMain(argc, argv); }
C
    cat >run.py <<'PY'
import sys, unittest
result = unittest.TextTestRunner(sys.stdout, verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName("test." + sys.argv[1]))
sys.exit(not result.wasSuccessful())
PY
    gcc -O1 -c driver.c -o driver.o
    gcc driver.o "$folder/libpython3.11-pic.a" -lexpat -lz -lm -ldl -lutil -o native
    echo "inputs=(--library libexpat.so.1 --library libz.so.1 --library libm.so.6 driver.o '$folder/libpython3.11-pic.a')" >inputs
}
export PYTHONHOME=/usr PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=1
