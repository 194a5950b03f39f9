"""Loads objects for `compare`, and says what that cost this process.

A command is a line of JSON on standard input: what to do, and each object's function, number of bytes, question and answer. The bytes
follow. The clock starts when they are all here.
"""

import json
import os
import resource
import sys
import time

# Nothing that others print gets between the answers.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import tvm_ffi_orcjit

session = tvm_ffi_orcjit.default_session()
# Modules with their functions: since the last `unload` or `keep`, and those that stay.
loaded, kept = [], []


def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), time.process_time(), usage.ru_minflt + usage.ru_majflt


def ask(module, name, question, expected):
    function = module.get_function(name)
    answer = function(question)
    if answer != expected:
        raise ValueError(f"WRONG ANSWER: {name} is {answer}, not {expected}")
    loaded.append((module, function))


def each(objects):
    for name, data, question, expected in objects:
        ask(session.load_module(data), name, question, expected)
    return len(objects)


def together(objects):
    module = session.load_module([data for _, data, _, _ in objects])
    for name, _, question, expected in objects:
        ask(module, name, question, expected)
    return len(objects)


def unload(_):
    count = len(loaded)
    # There are no cycles, so this frees everything; the garbage collector would find nothing, and take longer than all
    # of it.
    loaded.clear()
    return count


def keep(_):
    kept.extend(loaded)
    loaded.clear()
    return 0


def answer(line):
    what, headers = json.loads(line)
    objects = [(name, sys.stdin.buffer.read(size), *question) for name, size, *question in headers]
    command = {"each": each, "together": together, "unload": unload, "keep": keep}[what]
    before = used()
    count = command(objects)
    after = used()
    wall, cpu, faults = (b - a for a, b in zip(before, after))
    return {"count": count, "wall": wall, "cpu": cpu, "faults": faults}


def say(result):
    print(json.dumps(result), file=answers, flush=True)


# That it has come this far.
say({"Ok": {"count": 0, "wall": 0, "cpu": 0, "faults": 0}})
for line in iter(sys.stdin.buffer.readline, b""):
    try:
        result = {"Ok": answer(line)}
    except Exception as error:
        result = {"Err": str(error) or repr(error)}
    say(result)
