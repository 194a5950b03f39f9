"""Puts our session parts into a copy of LLVM's llvm-jitlink.

edit.py SOURCE DESTINATION: copies the tool's files and makes the replacements below in them. A text that is not there exactly once is
an error: then LLVM's source has changed, and someone has to look. IN_SOME is what only some versions have.
"""

import pathlib
import re
import sys

# (file, pattern, replacement): the layer's class, and the function that makes the memory manager.
EDITS = [
    ("llvm-jitlink.h", r'(#include "llvm/ExecutionEngine/RuntimeDyldChecker.h"\n)', r'\1#include "suite.h"\n'),
    ("llvm-jitlink.h", r"\borc::ObjectLinkingLayer(>? ObjLayer;)", r"slabjit_suite::Layer\1"),
    (
        "llvm-jitlink.cpp",
        r"(static std::unique_ptr<JITLinkMemoryManager> create(?:InProcess)?MemoryManager\(\) \{\n)",
        r"\1  return slabjit_suite::createMemoryManager(\n"
        r"      SlabAllocateSizeString.empty() ? 0 : ExitOnErr(getSlabAllocSize(SlabAllocateSizeString)),\n"
        r"      NoExec ? uint64_t(SlabAddress) : ~uint64_t(0), NoExec);\n",
    ),
]
# From 23 on, the tool makes the layer behind a pointer: it would not compile without this.
IN_SOME = [("llvm-jitlink.cpp", r"(ObjLayer = std::make_unique<)orc::ObjectLinkingLayer>", r"\1slabjit_suite::Layer>")]


def main(source: pathlib.Path, destination: pathlib.Path) -> None:
    destination.mkdir(parents=True, exist_ok=True)
    texts = {file.name: file.read_text() for pattern in ("*.cpp", "*.h") for file in source.glob(pattern)}
    for least, (file, pattern, replacement) in [(1, edit) for edit in EDITS] + [(0, edit) for edit in IN_SOME]:
        found = len(re.findall(pattern, texts[file]))
        if not least <= found <= 1:
            sys.exit(f"llvm-suite: {source / file} has {found} places like {pattern!r}, not 1")
        texts[file] = re.sub(pattern, replacement, texts[file])
    for name, text in texts.items():
        (destination / name).write_text(text)


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
