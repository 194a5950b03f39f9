"""Runs the tests natively and through `slabjit run`, and compares what they do. Prints tables, and what differs.

run.py [--every K] [--of-llvm] [--only TEXT]... [--option=OPTION]... --sources FOLDER --work FOLDER VERSION=PROGRAM...: FOLDER has the sources by name,
of which each may be missing; OPTION is one of `slabjit run`'s; PROGRAM is the `slabjit` with that LLVM.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import functools
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading

import collect

HERE = pathlib.Path(__file__).parent
# Seconds. A test that takes longer natively is left out; with ours it may take longer, as there LLVM is started, beside other work.
NATIVE, OURS, COMPILER = 10, 60, 120
# All of it means every Kth of these: compiling them takes seconds each.
ALREADY_EVERY = {"libstdc++": 10}
OUR_FAILURE = 125


class Outcome:
    """How a program ended."""

    def __init__(self, status, output, errors):
        self.status, self.output, self.errors = status, output, errors

    def __eq__(self, other):
        return (self.status, self.output) == (other.status, other.output)

    def described(self):
        if self.status is None:
            return "still ran after its time"
        if self.status < 0:
            return f"signal {signal.Signals(-self.status).name}"
        return f"status {self.status}"


def call(command, folder, seconds, environment=None, executable=None):
    """Runs a command in a folder, in a process group of its own, of which nothing is left afterwards."""
    files = [folder.with_name(f"{folder.name}.{stream}") for stream in ("stdout", "stderr")]
    with open(files[0], "wb") as out, open(files[1], "wb") as errors:
        process = subprocess.Popen(
            [str(word) for word in command],
            executable=executable and str(executable),
            cwd=folder,
            env=environment or os.environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    return Outcome(status, files[0].read_bytes(), files[1].read_bytes().decode(errors="replace"))


@functools.cache
def library(name):
    """The file that -lNAME means."""
    for file in (f"lib{name}.so", f"lib{name}.a"):
        found = subprocess.check_output(["g++", f"-print-file-name={file}"], text=True).strip()
        if os.path.isabs(found):
            return os.path.realpath(found)
    return f"lib{name}.so"


def wants_executable_stack(program):
    """Whether the linker gave it one, as an object asked for it (PT_GNU_STACK of a 64-bit program, little-endian)."""
    data = program.read_bytes()
    start, size, count = (int.from_bytes(data[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2)))
    headers = (struct.unpack_from("<II", data, start + size * n) for n in range(count))
    return any(kind == 0x6474E551 and flags & 1 for kind, flags in headers)


class Case:
    """A test in a folder of its own."""

    def __init__(self, test, folder):
        self.test, self.folder = test, folder
        self.environment = {**os.environ, "TMPDIR": str(folder), **test.environment}
        folder.mkdir(parents=True)

    def compile(self):
        """Objects, and the program that gcc makes of them; or why there is none."""
        test, objects = self.test, []
        build = self.folder / "build"
        build.mkdir()
        for number, source in enumerate(test.sources):
            (build / str(number)).mkdir()
            object = build / str(number) / f"{source.stem}.o"
            if test.compiler == "ir":
                command = [self.llc, "-relocation-model=pic", "-filetype=obj", source, "-o", object]
            else:
                # What is for link-time optimisation is also ordinary code, which is what is linked here.
                fat = ["-ffat-lto-objects"] if any(o.startswith("-flto") for o in test.options) else []
                command = [test.compiler, *test.options, *fat, "-c", source, "-o", object]
            if call(command, build, COMPILER).status != 0:
                return "does not compile"
            objects.append(object)
        self.program = build / "program"
        compiler = "g++" if "stdc++" in test.libraries else "gcc"
        link = [compiler, *test.options, *objects, *test.archives, "-o", self.program, *[f"-l{name}" for name in test.libraries], "-lm"]
        if call(link, build, COMPILER).status != 0:
            return "does not link"
        self.inputs = list(test.sources) if test.compiler == "ir" else objects
        return None

    def place(self, name):
        """A fresh folder with what is run, under the same names for every way to run it."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        names = []
        for number, file in enumerate(self.inputs):
            names.append(f"{number}-{file.name}")
            shutil.copy(file, folder / names[-1])
        for file in self.test.files:
            shutil.copy(file, folder)
        return folder, names

    def native(self):
        folder, names = self.place("native")
        # Called by the name that it has here.
        return call([names[0], *self.test.arguments], folder, NATIVE, self.environment, executable=self.program)

    def ours(self, program, version):
        folder, names = self.place(f"slabjit-{version}")
        libraries = [library(name) for name in self.test.libraries]
        shared = [f"--library={file}" for file in libraries if not file.endswith(".a")]
        # libgcc.a is what the compiler has every program linked with.
        archives = [*self.test.archives, *(file for file in libraries if file.endswith(".a")), library("gcc")]
        stack = ["--executable-stack"] if wants_executable_stack(self.program) else []
        command = [program, "run", *self.given, *self.test.run, *stack, *shared, *names, *archives]
        if self.test.arguments:
            command += ["--", *self.test.arguments]
        self.command = command
        return call(command, folder, OURS, self.environment)


class Result:
    """Of one test: why it does not count; else, by LLVM, None or what is different."""

    def __init__(self, test, skipped=None, differences=None, controls=()):
        self.test, self.skipped, self.differences, self.controls = test, skipped, differences or {}, controls


def difference(native, ours):
    if native == ours and ours.status != OUR_FAILURE:
        return None
    # An error's first line says what, the next which.
    lines = [line.strip() for line in ours.errors.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if line.startswith(("slabjit: ", "fatal runtime error"))), 0)
    said = " ".join(line[:400] for line in lines[first : first + 2])
    what = f"{ours.described()}, natively {native.described()}"
    if ours.status == native.status:
        what = f"other output, {ours.described()}"
    return f"{what}: {said}" if said else what


def run(test, programs, given, folder, controlled):
    if test.skip:
        return Result(test, test.skip)
    case = Case(test, folder)
    keep = False
    try:
        programs = {v: p for v, p in programs.items() if not test.suite.startswith("LLVM ") or test.suite.split()[1] == v}
        case.llc, case.given = f"llc-{next(iter(programs))}", given
        why = case.compile()
        if why:
            return Result(test, why)
        native = case.native()
        if native.status is None or (native.status == 0) == test.fails:
            return Result(test, "fails natively")
        differences = {}
        for version, program in programs.items():
            what = difference(native, case.ours(program, version))
            # What is not the same natively cannot be compared.
            if what and any(case.native() != native for _ in range(2)):
                return Result(test, "is not the same natively each time")
            differences[version] = what and f"{what}\n      {' '.join(str(word) for word in case.command)}"
            keep = keep or what
        controls = []
        if controlled and native.status == 0:
            controls = [difference(native, case.ours(shutil.which("false"), "control"))]
        return Result(test, None, differences, controls)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def read_list(name):
    """Patterns of tests' names, each with what stands behind it."""
    lines = (HERE / name).read_text().splitlines()
    return [(line.split(None, 1) + [""])[:2] for line in lines if line.strip() and not line.startswith("#")]


def matches(test, patterns):
    return next((pattern for pattern, _ in patterns if fnmatch.fnmatchcase(test.id.replace(" ", "-"), pattern)), None)


def chosen(tests, every, only):
    """A deterministic sample of each suite, and what is always run."""
    always, seen = read_list("always"), collections.Counter()
    for test in tests:
        number = seen[test.suite]
        seen[test.suite] += 1
        if only:
            if any(text in test.id for text in only):
                yield test
        elif number % (every * ALREADY_EVERY.get(test.suite, 1)) == 0 or matches(test, always):
            yield test


def libstdcxx_archive(source, work):
    """What libstdc++'s tests share, compiled; nothing where that fails."""
    folder, work = source / "libstdc++-v3/testsuite/util", work / "libtestc++"
    work.mkdir()
    made = []
    for name in ("testsuite_hooks", "testsuite_allocator", "testsuite_character", "testsuite_abi"):
        target = work / f"{name}.o"
        command = ["g++", "-O2", "-w", "-D_GNU_SOURCE", f"-I{folder}", "-c", folder / f"{name}.cc", "-o", target]
        if call(command, work, COMPILER).status == 0:
            made.append(target)
    archive = work / "libtestc++.a"
    return [archive] if call(["ar", "rcs", archive, *made], work, COMPILER).status == 0 else []


def collected(sources, work, programs, all):
    """All tests, or LLVM's only; what cannot be run is said."""

    def there(name):
        if (sources / name / "complete").exists():
            return sources / name
        print(f"not run: {name}: its source could not be had")
        return None

    gcc, ffi, tcc = (all and there(name) for name in ("gcc", "libffi", "tcc"))
    if gcc:
        yield from collect.of_gcc(gcc, libstdcxx_archive(gcc, work))
    for version in programs:
        llvm = there(f"llvm-{version}")
        if llvm:
            yield from collect.of_llvm(llvm, version)
    if ffi:
        configuration = work / "libffi"
        configuration.mkdir(exist_ok=True)
        (configuration / "fficonfig.h").write_text("#define HAVE_STDINT_H 1\n#define HAVE_INTTYPES_H 1\n#define HAVE_LONG_DOUBLE 1\n")
        yield from collect.of_libffi(ffi, configuration)
    if tcc:
        yield from collect.of_tcc(tcc)


def report(results, programs, known):
    """The tables, and whether all is well."""
    suites = list(dict.fromkeys(result.test.suite for result in results))
    print()
    print("| suite | tests | not comparable | pass natively | " + " | ".join(f"the same, LLVM {v}" for v in programs) + " | differ | of these listed |")
    print("|---|" + "---|" * (5 + len(programs)))
    passed = failed = 0
    unlisted, listed, used, met = [], [], set(), set()
    sums = collections.Counter()
    for suite in [*suites, None]:
        of_suite = [r for r in results if suite in (r.test.suite, None)]
        counted = [r for r in of_suite if not r.skipped]
        differ = [r for r in counted if any(r.differences.values())]
        same = [sum(v in r.differences and not r.differences[v] for r in counted) for v in programs]
        named = [r for r in differ if matches(r.test, known)]
        print(f"| {suite or 'all'} | {len(of_suite)} | {len(of_suite) - len(counted)} | {len(counted)} | "
              + " | ".join(map(str, same)) + f" | {len(differ)} | {len(named)} |")
    for result in results:
        pattern = matches(result.test, known)
        if pattern and not result.skipped:
            met.add(pattern)
        for version, what in result.differences.items():
            if not what:
                passed += 1
            elif pattern:
                used.add(pattern)
                listed.append(result.test.id)
            else:
                failed += 1
                unlisted.append(f"{result.test.id}, LLVM {version}: {what}")
    for result in results:
        sums[result.skipped] += bool(result.skipped)
    print()
    print("Not comparable: " + "; ".join(f"{why}: {n}" for why, n in sums.most_common() if why))
    print()
    print(f"Listed differences ({len(set(listed))} tests), see ci/suites.d/differences:")
    for pattern, reason in known:
        if pattern in used:
            print(f"  {pattern}: {reason}")
    for pattern in sorted(met - used):
        print(f"  stale, it differs no longer: {pattern}")
    print()
    if unlisted:
        print("Differ:")
    for line in unlisted:
        print(f"  {line}")
    controls = [what for result in results for what in result.controls]
    unseen = sum(not what for what in controls)
    print(f"Control: with `false` in the place of slabjit, {len(controls) - unseen} of {len(controls)} differ.")
    failed += unseen
    if passed and not controls:
        print("Control: none was run")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return not failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--of-llvm", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("programs", nargs="+")
    given = parser.parse_args()
    programs = dict(one.split("=", 1) for one in given.programs)
    # No core files, and no output without end.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    for name in ("RUST_LOG", "LD_PRELOAD", "LD_LIBRARY_PATH", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    work = given.work
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)

    known = read_list("differences")
    tests = list(chosen(collected(given.sources, work, programs, not given.of_llvm), given.every, given.only))
    seen, lock, results = collections.Counter(), threading.Lock(), []

    def one(numbered):
        number, test = numbered
        with lock:
            # Until some of each suite were run as a control.
            controlled = seen[test.suite] < 3
        result = run(test, programs, given.option, work / "tests" / f"{number}-{pathlib.Path(test.name).stem}", controlled)
        with lock:
            seen[test.suite] += bool(result.controls)
            results.append(result)
            if len(results) % 500 == 0:
                print(f"ci/suites: {len(results)} of {len(tests)}", file=sys.stderr, flush=True)
        return result

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ordered = list(pool.map(one, enumerate(tests)))
    if not ordered:
        print("nothing was run")
        print("0 passed, 0 failed")
        return True
    return report(ordered, programs, known)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
