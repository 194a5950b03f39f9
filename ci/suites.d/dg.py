"""Reads DejaGnu's directives of GCC's tests, as far as a comparison with the native run needs them.

What is not understood is taken as true: only tests that pass natively count, so a wrong guess costs a test and never makes one.
"""

import fnmatch
import re
import shlex

TRIPLETS = ("x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu")
# Effective targets that compilers would not tell by failing.
TRUE = set(
    "lp64 int128 c99_runtime fpic pie pie_enabled shared tls tls_native tls_runtime pthread pthread_h fenv fenv_exceptions int32 int32plus"
    " size32plus ptr32plus double64 double64plus longdouble64plus x86 x86_64 hosted exceptions_enabled rtti non_strict_align float128"
    " float128_runtime float64 float64x float32 float32x dfp dfprt int_eq_float ptr_eq_long named_sections size20plus stdint_types wchar"
    " inf inff fork signal alloca indirect_jumps nonlocal_goto label_values trampolines untyped_assembly mmap unwind".split()
)
FALSE = set(
    "ilp32 ia32 x32 llp64 int16 short_enums default_packed simulator freestanding nonpic run_expensive_tests keeps_null_pointer_checks"
    " word_mode_align natural_alignment_32 avr_tiny offload_device offload_target_nvptx no_fsplit_stack unsigned_char"
    " packed_layout vxworks_kernel uclibc no_trampolines bswap16_hw".split()
)
OTHER = re.compile(r"(arm|aarch64|powerpc|ppc|s390|mips|sparc|alpha|hppa|riscv|nios2|ia64|newlib|avr|msp430|nvptx|openacc_|amdgcn|sh_|rs6000)")
CXX = re.compile(r"c\+\+(\d\w)(_only|_down)?$")
YEARS = {"98": 98, "03": 98, "0x": 111, "1y": 114, "11": 111, "14": 114, "17": 117, "1z": 117, "2a": 120, "20": 120, "23": 123, "2b": 123}


def words_at(text, at):
    """Tcl's words from behind a brace to the one that closes it: a string each, or a list where the word is braced."""
    words, n = [], len(text)
    while at < n:
        c = text[at]
        if c == "}":
            return words, at + 1
        if c.isspace():
            at += 1
        elif c == "{":
            inner, at = words_at(text, at + 1)
            words.append(inner)
        elif c == '"':
            end, word = at + 1, ""
            while end < n and text[end] != '"':
                if text[end] == "\\" and end + 1 < n:
                    end += 1
                word += text[end]
                end += 1
            words.append(word)
            at = end + 1
        else:
            end = at
            while end < n and not text[end].isspace() and text[end] not in "{}":
                end += 1
            words.append(text[at:end])
            at = end
    return words, at


def directives(text):
    """(name, its words) of each directive."""
    for match in re.finditer(r"\{\s*(dg-[a-z0-9+-]+)", text):
        yield match.group(1), words_at(text, match.end())[0]


def flat(word):
    """A word as text: {-O2 -g} is the same as "-O2 -g"."""
    return word if isinstance(word, str) else " ".join(flat(w) for w in word)


def one(word, year):
    """Whether the target is WORD; None if that is not known. YEAR: of the C++ standard, None for C."""
    if word.count("-") >= 2 or "*" in word:
        return any(fnmatch.fnmatch(triplet, word) for triplet in TRIPLETS)
    standard = CXX.match(word)
    if standard:
        named = YEARS.get(standard.group(1))
        if year is None or named is None:
            return False
        return {None: year >= named, "_only": year == named, "_down": year <= named}[standard.group(2)]
    if word in ("c", "c++"):
        return (year is not None) == (word == "c++")
    if word in TRUE:
        return True
    if word in FALSE or OTHER.match(word):
        return False
    return None


def holds(selector, year):
    """A selector's value: words of which one must hold, or an expression of !, && and ||. None: not known."""
    if isinstance(selector, str):
        return one(selector, year)
    items = [item for item in selector if item != []]
    if "||" in items:
        at = items.index("||")
        values = (holds(items[:at], year), holds(items[at + 1 :], year))
        return True if True in values else None if None in values else False
    if "&&" in items:
        at = items.index("&&")
        values = (holds(items[:at], year), holds(items[at + 1 :], year))
        return False if False in values else None if None in values else True
    if items and items[0] == "!":
        value = holds(items[1:], year)
        return None if value is None else not value
    if items and isinstance(items[0], str) and items[0].startswith("!") and len(items) == 1:
        value = one(items[0][1:], year)
        return None if value is None else not value
    values = [holds(item, year) for item in items]
    return True if True in values else None if None in values else False


def applies(words, year):
    """Whether a directive with these words behind its own is for this target: `{ target X }` says so, or nothing does."""
    for word in words:
        if isinstance(word, list) and word[:1] == ["target"] and holds(word[1:], year) is False:
            return False
    return True


def split(options):
    try:
        return shlex.split(options)
    except ValueError:
        return options.split()


class Directives:
    """What the directives of a test say, for one that is compiled with BASE and what it asks for itself."""

    def __init__(self, text, default, year, base):
        self.action, self.sources, self.environment = default, [], {}
        self.fails, self.skip = False, None
        own, extra, skips = [], [], []
        for name, words in directives(text):
            if name == "dg-do" and words:
                # The last one whose target it is; one for another target takes the test away from this one.
                if applies(words[1:], year):
                    self.action = flat(words[0])
                elif self.action == default:
                    self.action = "nothing"
            elif name == "dg-options" and words and applies(words[1:], year):
                own = split(flat(words[0]))
            elif name == "dg-additional-options" and words and applies(words[1:], year):
                extra += split(flat(words[0]))
            elif name == "dg-additional-sources" and words and applies(words[1:], year):
                self.sources += flat(words[0]).split()
            elif name == "dg-set-target-env-var" and len(words) >= 2 and applies(words[2:], year):
                self.environment[flat(words[0])] = flat(words[1])
            elif name == "dg-shouldfail":
                self.fails = True
            elif name == "dg-require-effective-target" and words and holds(words[0], year) is False:
                self.skip = f"needs {flat(words[0])}"
            elif name == "dg-skip-if" and len(words) > 1 and holds(words[1], year) is True:
                skips.append(words[2:])
        self.options = [*own, *extra]
        if any(not self.spared(words, [*base, *self.options]) for words in skips):
            self.skip = "left out for this target or these options"

    @staticmethod
    def spared(words, options):
        """`dg-skip-if WHY TARGET { OPTIONS } { BUT }`: only with one of these options, and without any of the last."""
        having = [flat(word) for word in words[:1] if word != []]
        if having and having != ["*"] and having != [""]:
            patterns = words[0] if isinstance(words[0], list) else [words[0]]
            if not any(all(any(fnmatch.fnmatch(o, p) for o in options) for p in flat(pattern).split()) for pattern in patterns):
                return True
        but = words[1] if len(words) > 1 else []
        return any(fnmatch.fnmatch(o, flat(p)) for p in (but if isinstance(but, list) else [but]) if p for o in options)


def read(text, default, cxx, base):
    """The directives, and for C++ the standard at which the test wants to be run, if not the compiler's own."""
    if not cxx:
        return Directives(text, default, None, base), []
    first = Directives(text, default, YEARS["17"], base)
    named = [match.group(1) for match in map(re.compile(r"-std=[a-z]+\+\+(\w+)$").match, first.options) if match]
    if named:
        return Directives(text, default, YEARS.get(named[-1], YEARS["17"]), base), []
    for flag in ("17", "20", "23", "14", "11", "98"):
        found = Directives(text, default, YEARS[flag], base)
        if found.action == "run" and not found.skip:
            return found, [] if flag == "17" else [f"-std=gnu++{flag}"]
    return first, []
