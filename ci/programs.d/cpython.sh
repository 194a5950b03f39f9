# Modules of CPython's own tests. Left out are those that start the interpreter again (test_hash, test_struct: under slabjit it is no file),
# and one that prints what it draws at random (test_sort).
packages=(python3-venv libpython3.11-dev libpython3.11-testsuite libpython3.11-stdlib libexpat1-dev zlib1g-dev)
modules=(
    test_augassign test_binop test_bool test_bisect test_class test_compare test_complex test_contains
    test_decorators test_deque test_dict test_dictviews test_enumerate test_exception_group test_funcattrs
    test_genexps test_global test_grammar test_heapq test_index test_int test_isinstance test_iter test_keywordonlyarg
    test_list test_listcomps test_long test_named_expressions test_operator test_opcodes test_pow test_property test_raise test_range
    test_scope test_set test_setcomps test_slice test_string_literals test_super test_tuple test_unary test_unpack
    test_with test_yield_from
)
# Those whose extension modules are files, which find the interpreter's names only because `slabjit run` exports them. (test_asyncio,
# test_json.test_tool and others start the interpreter again.)
extended=(
    test_bz2 test_contextlib_async test_ctypes test_hashlib test_json.test_decode test_json.test_encode_basestring_ascii test_json.test_speedups
    test_lzma test_mmap test_queue test_ssl.MemoryBIOTests test_ssl.ContextTests test_zoneinfo
)
# What is done with such modules in use.py.
used=(ctypes hashlib ssl sqlite3 decimal json numpy)
limit=300
cases=("${modules[@]/#/run.py }" "${extended[@]/#/run.py }" "${used[@]/#/use.py }")
# Times, and addresses of objects.
normalize() { sed -E 's/ in [0-9.]+s$//; s/0x[0-9a-f]+/0x…/g'; }
build() {
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
    cat >use.py <<'PY'
import sys
def use_ctypes():
    import ctypes
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))(lambda a, b: a[0] - b[0])
    numbers = (ctypes.c_int * 5)(5, 3, 9, 1, 4)
    ctypes.CDLL(None).qsort(numbers, 5, ctypes.sizeof(ctypes.c_int), compare)
    print(list(numbers), ctypes.pythonapi.PyLong_AsLong(ctypes.py_object(42)))
    print(ctypes.PyDLL(None).PyUnicode_GetLength(ctypes.py_object("eight...")))
def use_hashlib():
    import hashlib
    for name in sorted(hashlib.algorithms_guaranteed):
        if not name.startswith("shake"): print(name, hashlib.new(name, b"slabjit").hexdigest())
def use_ssl():
    import ssl
    context = ssl.create_default_context()
    print(ssl.OPENSSL_VERSION, len(context.get_ciphers()), context.verify_mode)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try: context.wrap_bio(incoming, outgoing, server_hostname="example.org").do_handshake()
    except ssl.SSLWantReadError as error: print(type(error).__name__, outgoing.read(3).hex())
def use_sqlite3():
    import sqlite3
    base = sqlite3.connect(":memory:")
    base.create_function("half", 1, lambda n: n / 2)
    base.execute("create table t (n)")
    base.executemany("insert into t values (?)", [(n,) for n in range(100)])
    print(base.execute("select sum(half(n)), count(*) from t where n % 3 = 1").fetchall())
def use_decimal():
    import decimal
    decimal.getcontext().prec = 60
    print(decimal.Decimal(2).sqrt(), decimal.__name__, decimal.Decimal.__module__)
def use_json():
    import json, _json
    print(json.dumps({"a": [1.5, None, "\u00e9"]}), json.loads('{"b": [1, 2e3]}'), _json.scanstring('x"', 0))
def use_numpy():
    try: import numpy
    except ModuleNotFoundError: return print("no numpy")
    a = numpy.arange(10000, dtype=numpy.float64).reshape(100, 100) % 7 + numpy.eye(100)
    print((a @ a).sum(), round(float(numpy.linalg.det(a[:5, :5] + 9 * numpy.eye(5))), 6), numpy.fft.fft(a[0]).real.round(6)[:5])
    print(numpy.random.default_rng(1).integers(100, size=5), numpy.sort(a, axis=None)[::2500])
globals()["use_" + sys.argv[1]]()
PY
    # pip is one of this Python's, to which the other's folders mean nothing.
    if ! (unset PYTHONHOME PYTHONPATH; python3 -m venv pip && pip/bin/pip install --quiet --disable-pip-version-check --target site \
        --only-binary :all: --implementation cp --python-version 3.11 'numpy<3'); then
        echo "numpy is not used: pip cannot get it" >notes
    fi
    gcc -O1 -c driver.c -o driver.o
    # The extension modules bind to a program that exports its names.
    gcc -rdynamic driver.o -Wl,--whole-archive "$folder/libpython3.11-pic.a" -Wl,--no-whole-archive -lexpat -lz -lm -ldl -lutil -o native
    echo "inputs=(--library libexpat.so.1 --library libz.so.1 --library libm.so.6 driver.o '$folder/libpython3.11-pic.a')" >inputs
}
export PYTHONHOME=/usr PYTHONPATH=site PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=1
