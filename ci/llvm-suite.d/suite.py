"""Runs LLVM's JITLink tests for ELF and Generic with Debian's llvm-jitlink and with ours, and both controls. Prints a table.

suite.py VERSION TESTS TOOL WORK: TESTS is llvm/test/ExecutionEngine/JITLink of that version, TOOL our llvm-jitlink, WORK a folder.

A test passes with our tool if lit says so and the tool's notes (src/link/llvm_suite.rs) say that each run of it in the test has linked
with our manager, preparation and passes: what a test expects to fail may fail for any reason, and most tests look at nothing.
Exit code 0: whatever passes with Debian's tool passes with ours, and each control fails as it should.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

# Folders of the tests, and which of their files are in question. `X86`: x86-64, up to 16. `i386`, later `x86`: i386.
FOLDERS = {"x86-64": "ELF*", "X86": "ELF*", "i386": "ELF*", "x86": "ELF*", "AArch64": "ELF*", "Generic": "*"}
SUFFIXES = {".s", ".test", ".ll", ".yaml"}
# Machines whose objects are not prepared.
UNPREPARED = {"i386", "x86"}
# Tests that hold only if something is as it is in LLVM: what (src/link/llvm_suite.rs), why, and what to say instead of it (pattern and
# replacement). They must pass with that, fail without it, and pass with everything of ours where they say what is right there.
ORDER = "segments in LLVM's order: it takes a distance between them for positive"
ORDERED = [(r"(decode_operand\(test_gotoff, 1\)|\*\{4\}\(eh_frame .*?\)) = (.*)", r"\1 = (\2)[31:0]")]
RELAXED = "it wants relaxed calls through the GOT, which we undo: wrong up to 22 (llvm#190968), later behind prefixes"
IN_GOT = r"*{4}(\1 + 2) = (got_addr(OBJECT, extern_in_range32) - (\1 + 6))[31:0]"
UNRELAXED = [
    (r"decode_operand\((test_call_gotpcrelx), 0\)\[31:0\] = extern_in_range32", IN_GOT),
    (r"decode_operand\((test_\w+_gotpcrelx), 0\) = \\\n.*jitlink-check: +extern_in_range32 - next_pc\(\1\)", IN_GOT),
    (r"\*\{1\}test_(call|jmp)_gotpcrelx = 0x(67|e9)", r"*{1}test_\1_gotpcrelx = 0xff"),
    (r"(\*\{1\}test_call_gotpcrelx\+1) = 0xe8", r"\1 = 0x15"),
    (r"\*\{1\}(test_jmp_gotpcrelx)\+5 = 0x90", IN_GOT),
]
LIKE_LLVM = {
    "ELF_got_plt_optimizations.s": ("relaxations", RELAXED, UNRELAXED),
    "ELF_x86-64_got_plt_optimizations.s": ("relaxations", RELAXED, UNRELAXED),
    "ELF_x86_small_pic_relocations_got.s": ("order", ORDER, ORDERED),
    "ELF_i386_small_pic_relocations_got.s": ("order", ORDER, ORDERED),
    "ELF_i386_small_pic_relocations.s": ("order", ORDER, ORDERED),
    "ELF_aarch64_ehframe.test": ("order", ORDER, ORDERED),
    "ELF_ehframe.test": ("order", ORDER, ORDERED),
    # Tables of another format's, which has to begin before the code.
    "MachO_universal_binaries.test": ("order", ORDER, []),
    "MachO_universal_binaries_weak_library.ll": ("order", ORDER, []),
}
# Tests of objects that we refuse, and LLVM links: what we say, and why.
REFUSED = {
    "ELF_x86-64-freebsd-triple.s": ("has ELF OS/ABI 9 version 0", "we refuse objects of FreeBSD's"),
}
# The tool's runs that link nothing.
WITHOUT_LINK = r"(?! -waiting-on-graph-replay)"
RUN = re.compile(r"RUN:\s*(.*)")
CHECK = "jitlink-check:"


def tests_in(root):
    for folder, pattern in FOLDERS.items():
        for file in sorted((root / folder).glob(pattern)):
            if file.is_file() and file.suffix in SUFFIXES:
                yield file


def copy_tests(source, destination):
    """The tests in question, and what they need, as a suite of lit's."""
    shutil.rmtree(destination, ignore_errors=True)
    destination.mkdir(parents=True)
    for file in tests_in(source):
        target = destination / file.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)
    for folder in {file.parent for file in tests_in(source)}:
        for beside in ("Inputs", "lit.local.cfg"):
            if (folder / beside).is_dir():
                shutil.copytree(folder / beside, destination / folder.name / beside)
            elif (folder / beside).exists():
                shutil.copy(folder / beside, destination / folder.name / beside)
    shutil.copy(pathlib.Path(__file__).with_name("lit.cfg.py"), destination)


def expressions(lines):
    """Of each -check expression the line it ends on: after a backslash it goes on."""
    return [number for number, line in enumerate(lines) if CHECK in line and not line.rstrip().endswith("\\")]


def write_amended(source, destination):
    """The tests, those in LIKE_LLVM saying what is right with everything of ours."""
    copy_tests(source, destination)
    for file in tests_in(destination):
        amendments = like_llvm(file)[2]
        text = file.read_text(errors="surrogateescape")
        for pattern, replacement in amendments:
            text = re.sub(rf"(?<={CHECK} ){pattern}", replacement, text)
        if amendments:
            # What the test calls its object.
            named = re.search(r"\S*/(\S+\.o)\b", script_of(text))
            text = text.replace("OBJECT", named.group(1) if named else "")
            file.write_text(text, errors="surrogateescape")


def falsified(source, destination, wanted):
    """For each -check expression of the tests that are `wanted` (by path) a copy of its test in which that one says something else:
    `+1` is added on its right side. Returns them: by path, the original's."""
    copy_tests(source, destination)
    copies = {}
    for file in list(tests_in(destination)):
        text = file.read_text(errors="surrogateescape")
        original = str(file.relative_to(destination))
        file.unlink()
        # Without -check the expressions mean nothing.
        if original not in wanted or not re.search(r"\s--?check[ =]", script_of(text)):
            continue
        lines = text.splitlines()
        for n, last in enumerate(expressions(lines), 1):
            changed = lines.copy()
            # No blank: the parser takes none behind a number.
            changed[last] = changed[last].rstrip() + "+1"
            copy = file.with_name(f"{file.stem}.falsified-{n}{file.suffix}")
            copy.write_text("\n".join(changed) + "\n", errors="surrogateescape")
            copies[str(copy.relative_to(destination))] = original
    return copies


class Lit:
    def __init__(self, version, work):
        self.config = shutil.which(f"llvm-config-{version}")
        prefix = pathlib.Path(subprocess.check_output([self.config, "--prefix"], text=True).strip())
        # The programs of an LLVM that ci/llvm unpacked do not start by themselves: scripts beside llvm-config start them.
        self.tools = pathlib.Path(self.config).resolve().parent
        self.work = work
        for library in (prefix / "build/utils/lit", prefix / "utils/lit"):
            if (library / "lit/main.py").exists():
                self.library = library
                return
        sys.exit(f"llvm-suite: no lit in {prefix}: install llvm-{version}-tools")

    def run(self, name, tests, tool=None, like=""):
        """lit's verdict and the tool's notes, by the test's path. `like`: what is to be as it is in LLVM."""
        out = self.work / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        path = [str(self.tools), "/usr/bin", "/bin"]
        if tool:
            first = out / "first-in-path"
            first.mkdir()
            (first / "llvm-jitlink").symlink_to(tool)
            path.insert(0, str(first))
        environment = os.environ | {"SUITE_LLVM_CONFIG": self.config, "SUITE_PATH": ":".join(path), "SUITE_OUT": str(out)}
        environment["SLABJIT_SUITE_LIKE_LLVM"] = like
        environment["PYTHONPATH"] = str(self.library)
        results = out / "results.json"
        lit = [sys.executable, "-c", "from lit.main import main; main()"]
        command = [*lit, "-q", "--output", str(results), "-j", str(os.cpu_count()), str(tests)]
        with open(out / "log", "w") as log:
            subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if not results.exists():
            sys.exit(f"llvm-suite: lit failed:\n{(out / 'log').read_text()}")
        verdicts = {}
        for test in json.loads(results.read_text())["tests"]:
            path = test["name"].split(" :: ", 1)[1]
            notes = out / pathlib.Path(path).parent / "Output" / (pathlib.Path(path).name + ".tmp.witness")
            notes = notes.read_text().splitlines() if notes.exists() else []
            verdicts[path] = Verdict(test["code"], test["output"], [line.split("\t") for line in notes])
        return verdicts


class Verdict:
    def __init__(self, code, output, notes):
        self.code, self.output, self.notes = code, output, notes

    def lit_passed(self):
        return self.code == "PASS"

    def objects(self, step):
        return [note[1] for note in self.notes if note[0] == step]

    def details(self, step):
        return [note[2] for note in self.notes if note[0] == step and note[2]]

    def wrong(self, path, text):
        """Why it counts as failed; None if it passed."""
        if not self.lit_passed():
            return f"lit: {self.code}"
        runs = runs_of(text)
        started = collections.Counter(note[0] for note in self.notes)
        if started["start"] != len(runs):
            return f"{len(runs)} runs, of which {started['start']} used our manager"
        to_succeed = sum(not refused for refused in runs)
        for step in ("manager", "passes", "linked"):
            if started[step] < to_succeed:
                return f"{to_succeed} runs that succeed, and only {started[step]} objects with '{step}'"
        linked = {name for name in self.objects("linked") if not name.startswith("(")}
        if linked - set(self.objects("passes")):
            return "an object was linked without our passes"
        prepared = set(self.objects("prepared")) | set(self.objects("refused"))
        if pathlib.PurePath(path).parts[0] not in UNPREPARED | {"Generic"} and linked - prepared:
            return "an object was linked without our preparation"
        refusal, _ = refused(path)
        contradictions = self.details("contradiction")
        if refusal and not any(refusal in text for text in contradictions):
            return "we do not refuse it"
        return next((text for text in contradictions if not refusal or refusal not in text), None)


def script_of(text):
    return "\n".join(match.group(1) for match in RUN.finditer(text)).replace("\\\n", " ")


def runs_of(text):
    """The runs of the tool in a test: for each, whether it is to fail."""
    return [bool(match.group(1)) for match in re.finditer(r"(\bnot\s+)?(?<![\w/.-])llvm-jitlink(?![\w.-])" + WITHOUT_LINK, script_of(text))]


def complaints(output):
    """What the tool said is wrong."""
    return re.findall(r"(?:Expression|Error evaluating expression) '.*|llvm-jitlink error: .*", output)


def like_llvm(path):
    return LIKE_LLVM.get(pathlib.PurePath(path).name, ("", "", ""))


def refused(path):
    return REFUSED.get(pathlib.PurePath(path).name, ("", ""))


def run_ours(lit, suite, amended, tool):
    """All tests with everything of ours, as they are and amended; and as they count: with what they need as it is in LLVM."""
    plain = lit.run("ours", suite, tool)
    counting = dict(plain)
    for like in sorted({like for like, _, _ in LIKE_LLVM.values()}):
        again = lit.run(f"ours-{like}", suite, tool, like)
        counting |= {path: again[path] for path in plain if like_llvm(path)[0] == like}
    return plain, lit.run("ours-amended", amended, tool), counting


def row(path, text, stock, plain, amended, ours):
    """A line of the table, and why the test counts as failed."""
    wrong = ours.wrong(path, text)
    like, why, amendments = like_llvm(path)
    notes = []
    if like and ours.code != "UNSUPPORTED":
        notes.append(why)
        if not wrong and plain.lit_passed():
            wrong = "it passes without that"
        elif not wrong and amendments:
            amended = amended.wrong(path, text)
            wrong = amended and f"and where it says what is right for us: {amended}"
    if stock.code == "UNSUPPORTED":
        notes.append(stock.output.strip().splitlines()[-1] if stock.output.strip() else "needs what this LLVM has not")
    elif wrong:
        notes.append(wrong)
    if ours.details("prepared"):
        notes.append("; ".join(ours.details("prepared")))
    if refused(path)[1]:
        notes.append(refused(path)[1])
    elif ours.objects("refused"):
        notes.append(f"our refusals are off ({len(ours.objects('refused'))}): it wants LLVM's words")
    verdict = "UNSUPPORTED" if ours.code == "UNSUPPORTED" else "FAIL" if wrong else "PASS"
    counts = [str(len(ours.objects(step)) or "-") for step in ("manager", "prepared", "passes")]
    return "| " + " | ".join([path, stock.code, verdict, *counts, "; ".join(notes)]) + " |", wrong


def main(version, source, tool, work):
    lit = Lit(version, work)
    suite = work / "suite"
    copy_tests(source, suite)
    texts = {str(file.relative_to(suite)): file.read_text(errors="replace") for file in tests_in(suite)}

    stock = lit.run("stock", suite)
    write_amended(suite, work / "amended-suite")
    plain, amended, ours = run_ours(lit, suite, work / "amended-suite", tool)
    failed = {}
    print(f"LLVM {version}: objects that went through our manager, preparation and passes, by test")
    print()
    print("| test | Debian's | ours | manager | preparation | passes | notes |")
    print("|---|---|---|---|---|---|---|")
    for path, text in texts.items():
        line, wrong = row(path, text, stock[path], plain[path], amended[path], ours[path])
        print(line)
        if stock[path].lit_passed() and wrong:
            failed[path] = wrong
    passing = [path for path in texts if stock[path].lit_passed()]
    print()
    print(f"LLVM {version}: Debian's llvm-jitlink passes {len(passing)} of {len(texts)} tests; ours passes {len(passing) - len(failed)} of these.")

    # A tool that does nothing.
    nothing = lit.run("nothing", suite, shutil.which("true"))
    unseen = [path for path in passing if not nothing[path].wrong(path, texts[path])]
    by_lit = sum(nothing[path].lit_passed() for path in passing)
    print(f"Control: with the tool replaced by `true`, {len(passing) - len(unseen)} of {len(passing)} fail (lit alone lets {by_lit} pass).")
    # Each expression for itself: the tool has to say of this one, and of no other, that it is false.
    copies = falsified(work / "amended-suite", work / "falsified-suite", passing)
    results = lit.run("falsified", work / "falsified-suite", tool)
    through = []
    for path in copies:
        said = complaints(results[path].output)
        if results[path].lit_passed() or len(said) != 1 or "' is false: " not in said[0]:
            through.append(path)
    files = len(set(copies.values()))
    print(f"Control: {len(copies)} `-check` expressions in {files} tests, falsified one by one: {len(copies) - len(through)} fail.")

    for path in unseen + through:
        print(f"a control that did not fail: {path}")
    for path, wrong in failed.items():
        print(f"\n==== {path}: {wrong}\n{ours[path].output}")
        if like_llvm(path)[2]:
            print(f"---- with everything of ours, amended:\n{amended[path].output}")
    good = bool(passing) and not failed and not unseen and bool(copies) and not through
    # As test harnesses have it, for ci/matrix.
    bad = len(failed) + len(unseen) + len(through)
    print(f"test result: {'ok' if good else 'FAILED'}. {len(passing) - len(failed)} passed; {bad} failed; {len(texts) - len(passing)} ignored")
    return good


version, source, tool, work = sys.argv[1:]
sys.exit(0 if main(version, pathlib.Path(source), tool, pathlib.Path(work)) else 1)
