"""The tests of each suite: what is compiled how, and what is run."""

import dataclasses
import pathlib
import re
import shlex

import dg

# Folders of which nothing is run here.
LEFT_OUT = {
    "asan": "AddressSanitizer has to be in a process from its start",
    "hwasan": "AddressSanitizer has to be in a process from its start",
    "tsan": "ThreadSanitizer has to be in a process from its start",
    "plugin": "plugins of the compiler",
    "guality": "drives a debugger",
    "simulate-thread": "drives a debugger",
    "modules": "modules are built in an order of their own",
    "pch": "precompiled headers",
    "lto": "several compilers' runs",
    "tree-prof": "two compilations with a run between",
    "bprob": "two compilations with a run between",
    "gcov": "looks at files that the run leaves",
    "performance": "measures",
}
# Options that folders' .exp files give.
FOLDER_OPTIONS = {
    "vect": "-ftree-vectorize -fno-vect-cost-model -fno-common -msse2",
    "gomp": "-fopenmp",
    "goacc": "-fopenacc",
    "goacc-gomp": "-fopenacc -fopenmp",
    "tm": "-fgnu-tm",
    "ubsan": "-fsanitize=undefined",
    "graphite": "-fgraphite",
    "autopar": "-ftree-parallelize-loops=2",
}
# Without a device: on the host.
OPENACC = ["-fopenacc", "-DACC_DEVICE_TYPE_host=1", "-DACC_MEM_SHARED=1"]
# Folders whose tests are run where they say nothing.
RUN_BY_DEFAULT = {"vect", "execute"}
# What is loaded beside the objects where an option asks for it. The first word: of the option.
RUNTIMES = [
    ("-fopenmp", "gomp"),
    ("-fopenacc", "gomp"),
    ("-ftree-parallelize-loops", "gomp"),
    ("-fgnu-tm", "itm"),
    ("-fsanitize=", "ubsan"),
    ("-fprofile-generate", "gcov"),
    ("-fprofile-arcs", "gcov"),
    ("--coverage", "gcov"),
]
# In libc, or in every process of ours.
IN_PROCESS = {"m", "pthread", "dl", "rt", "c", "gcc", "gcc_s", "util", "resolv"}


@dataclasses.dataclass
class Test:
    suite: str
    name: str
    # `gcc`, `g++`, or `ir`: LLVM's, which the program takes as it is.
    compiler: str
    sources: list
    options: list = dataclasses.field(default_factory=list)
    # Names of shared libraries as behind -l.
    libraries: list = dataclasses.field(default_factory=list)
    # Archives that every test of the suite is linked with.
    archives: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    arguments: list = dataclasses.field(default_factory=list)
    # Files that are to lie in the folder in which it is run.
    files: list = dataclasses.field(default_factory=list)
    # Options of `slabjit run`.
    run: list = dataclasses.field(default_factory=list)
    # It is to end with something else than 0.
    fails: bool = False
    skip: str = None

    @property
    def id(self):
        return f"{self.suite}/{self.name}"


def linker_options(test):
    """Takes what is for the linker out of the options: libraries, or a reason to leave the test out."""
    options = []
    for option in test.options:
        if option.startswith("-l"):
            if option[2:] not in IN_PROCESS and option[2:] not in test.libraries:
                test.libraries.append(option[2:])
        elif option.startswith(("-Wl,", "-Xlinker", "-T", "-nostdlib", "-nostartfiles", "-shared", "-static", "-r", "-fuse-ld", "-rdynamic")):
            test.skip = test.skip or f"an option for the linker: {option}"
        elif re.match(r"-m(32|x32|16)$", option):
            test.skip = test.skip or "for another machine"
        else:
            options.append(option)
        for start, library in RUNTIMES:
            if option.startswith(start) and library not in test.libraries:
                test.libraries.append(library)
    test.options = options
    return test


def from_dg(suite, root, file, cxx, default="compile", options=(), **more):
    """A test of GCC's; None where it is not one that is run."""
    text = file.read_text(errors="replace")
    # Options and defaults are of folders.
    folders = set(file.relative_to(root).parts[:-1]) | {root.name}
    left_out = next((why for folder, why in LEFT_OUT.items() if folder in folders), None)
    if folders & RUN_BY_DEFAULT:
        default = "run"
    base = ["-O2", "-w", *options, *(o for folder in sorted(folders) for o in shlex.split(FOLDER_OPTIONS.get(folder, "")))]
    said, standard = dg.read(text, default, cxx, base)
    if said.action != "run":
        return None
    test = Test(
        suite,
        str(file.relative_to(root)),
        "g++" if cxx else "gcc",
        [file, *(file.parent / source for source in said.sources)],
        [*base, *standard, *said.options],
        environment=said.environment,
        fails=said.fails,
        skip=left_out or said.skip,
        **more,
    )
    if cxx:
        test.libraries = ["stdc++", *test.libraries]
    return linker_options(test)


def all_of(suite, root, suffixes, cxx, **more):
    files = sorted(file for file in root.rglob("*") if file.suffix in suffixes and file.is_file())
    tests = (from_dg(suite, root, file, cxx, **more) for file in files)
    return [test for test in tests if test]


def compat(suite, root, suffix, cxx):
    """Three files a test: what one compiler's objects say to another's."""
    for main in sorted(root.rglob(f"*_main{suffix}")):
        test = from_dg(suite, root, main, cxx, default="run")
        if test:
            stem = str(main)[: -len(f"_main{suffix}")]
            test.sources += [main.with_name(f"{main.name[: -len(f'_main{suffix}')]}_{part}{suffix}") for part in "xy"]
            yield test


def torture(root):
    """gcc.c-torture/execute: with what builtins/ is linked with."""
    for file in sorted(root.rglob("*.c")):
        name = file.relative_to(root)
        if name.parts[:2] == ("builtins", "lib") or file.name.endswith("-lib.c"):
            continue
        test = from_dg("gcc.c-torture", root, file, False, default="run")
        if not test:
            continue
        if name.parts[0] == "builtins":
            test.sources += [file.with_name(f"{file.stem}-lib.c"), root / "builtins/lib/main.c"]
            test.options += "-fno-tree-dse -fno-tree-loop-distribute-patterns -fno-tracer -fno-ipa-ra -fno-inline-functions".split()
        yield test


def of_gcc(source, made):
    """MADE: what libstdc++'s tests are linked with."""
    suites = source / "gcc/testsuite"
    gomp = source / "libgomp/testsuite"
    c, cxx = {".c"}, {".C"}
    for test in torture(suites / "gcc.c-torture/execute"):
        yield test
    yield from all_of("gcc.dg", suites / "gcc.dg", c, False)
    yield from compat("gcc.dg", suites / "gcc.dg", ".c", False)
    yield from all_of("c-c++-common, C", suites / "c-c++-common", c, False)
    yield from all_of("c-c++-common, C++", suites / "c-c++-common", c, True)
    yield from all_of("g++.dg", suites / "g++.dg", cxx, True)
    yield from compat("g++.dg", suites / "g++.dg", ".C", True)
    yield from all_of("g++.old-deja", suites / "g++.old-deja", cxx, True)
    yield from all_of("gcc.target/i386", suites / "gcc.target/i386", c, False)
    yield from all_of("libgomp.c", gomp / "libgomp.c", c, False, default="run", options=["-fopenmp"])
    yield from all_of("libgomp.c-c++-common", gomp / "libgomp.c-c++-common", c, False, default="run", options=["-fopenmp"])
    yield from all_of("libgomp.c++", gomp / "libgomp.c++", cxx, True, default="run", options=["-fopenmp"])
    for folder in ("libgomp.oacc-c", "libgomp.oacc-c-c++-common"):
        yield from all_of(folder, gomp / folder, c, False, default="run", options=OPENACC)
    yield from all_of("libatomic", source / "libatomic/testsuite", c, False, options=["-latomic"])
    yield from all_of("libitm", source / "libitm/testsuite", {".c", ".C"}, True, options=["-fgnu-tm"])
    yield from all_of(
        "libstdc++",
        source / "libstdc++-v3/testsuite",
        {".cc"},
        True,
        options=["-D_GNU_SOURCE", f"-I{source}/libstdc++-v3/testsuite/util"],
        archives=made,
        files=sorted((source / "libstdc++-v3/testsuite/data").iterdir()),
    )


def of_libffi(source, configuration):
    root = next(source.glob("**/testsuite"))
    for file in sorted(root.glob("libffi.*/*.c")):
        if file.name == "testcases.c":
            continue
        test = from_dg("libffi", root, file, False, default="run", options=[f"-I{configuration}", f"-I{root}/libffi.call"])
        if test:
            test.libraries.append("ffi")
            yield test


# Arguments as tests2/Makefile has them.
TCC_ARGUMENTS = {"31_args.c": ["arg1", "arg2", "arg3", "arg4", "arg 5"], "46_grep.c": [r"[^* ]*[:a:d: ]+\:\*-/: $", "46_grep.c"]}


def of_tcc(source):
    for file in sorted((source / "tests/tests2").glob("*.c")):
        # A second file of a program has a plus sign.
        second = file.with_name(file.name.replace("_", "+_", 1))
        if "+" not in file.name:
            sources = [file, second] if second.exists() else [file]
            yield Test("tcc", file.name, "gcc", sources, ["-O2", "-w"], arguments=TCC_ARGUMENTS.get(file.name, []), files=[file])


def of_llvm(source, version):
    """ExecutionEngine's modules that have a main, and the ORC runtime's files for this machine. Each is a program by itself, or with
    what its RUN lines name as further modules; modules once more with functions that are compiled when they are called."""
    root = source / "llvm/test/ExecutionEngine"
    for file in sorted(root.rglob("*.ll")):
        name = file.relative_to(root)
        text = file.read_text(errors="replace")
        if name.parts[0] in ("JITLink", "RuntimeDyld") or "Inputs" in name.parts:
            continue
        if not re.search(r"^define .*@main\(", text, re.M):
            continue
        script = " ".join(re.findall(r"RUN:(.*)", text)).replace("\\ ", " ").replace("\\\n", " ")
        more = [file.parent / path for path in dict.fromkeys(re.findall(r"%p/(Inputs/\S+\.ll)", script))]
        behind = re.search(r"%s((?: [a-z]\b)+)", script)
        arguments = behind.group(1).split() if behind else []
        for suite, run in ((f"LLVM {version} ExecutionEngine", []), (f"LLVM {version} ExecutionEngine lazily", ["--lazy"])):
            yield Test(suite, str(name), "ir", [file, *more], libraries=["stdc++"], arguments=arguments, run=run)
    suite = f"LLVM {version} ORC runtime"
    root = source / "compiler-rt/test/orc/TestCases/Linux/x86-64"
    for file in sorted(root.iterdir()):
        if file.suffix == ".ll":
            for run in ([], ["--lazy"]):
                yield Test(suite + " lazily" * len(run), file.name, "ir", [file], libraries=["stdc++"], run=run)
        elif file.suffix in (".S", ".c", ".cpp"):
            cxx = file.suffix == ".cpp"
            sources = [file, pathlib.Path(__file__).with_name("override.c")]
            yield Test(suite, file.name, "g++" if cxx else "gcc", sources, ["-O2", "-w"], libraries=["stdc++"] if cxx else [])
