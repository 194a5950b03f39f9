"""lit's configuration for LLVM's JITLink tests against an installed LLVM.

What lit would be told by LLVM's own build comes through the environment: SUITE_LLVM_CONFIG (llvm-config of that LLVM), SUITE_PATH (where
tools are looked for), SUITE_OUT (where tests write). Features are named as in llvm/test/lit.cfg.py and lit/llvm/config.py.
"""

import os
import re
import subprocess

import lit.formats


def llvm_config(option):
    return subprocess.check_output([os.environ["SUITE_LLVM_CONFIG"], option], text=True).strip()


config.name = "JITLink"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".s", ".test", ".ll", ".yaml"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.environ["SUITE_OUT"]
config.environment["PATH"] = os.environ["SUITE_PATH"]
config.environment["SLABJIT_SUITE_LIKE_LLVM"] = os.environ.get("SLABJIT_SUITE_LIKE_LLVM", "")

config.target_triple = llvm_config("--host-target")
config.targets = frozenset(llvm_config("--targets-built").split())
# The lit.local.cfg files of the tests ask for these.
header = os.path.join(llvm_config("--includedir"), "llvm", "Config", "llvm-config.h")
with open(header) as text:
    config.llvm_use_intel_jitevents = bool(re.search(r"define LLVM_USE_INTEL_JITEVENTS 1", text.read()))

config.available_features.add("native")
config.available_features.add("system-linux")
config.available_features.add("target=" + config.target_triple)
config.available_features.update(target.lower() + "-registered-target" for target in config.targets)
if re.match(r"^x86_64.*-linux", config.target_triple):
    config.available_features.add("x86_64-linux")
if llvm_config("--assertion-mode") == "ON":
    config.available_features.add("asserts")

# A test of 18's sets a variable as shells do. lit's own shell wants `env` for that.
config.substitutions.append((r"(?<!env )\bJITDUMPDIR=", "env JITDUMPDIR="))
# Each run of the tool leaves a note beside the test's other files.
config.substitutions.append((r"(?<![\w/.-])llvm-jitlink(?![\w.-])", "env SLABJIT_SUITE_WITNESS=%t.witness llvm-jitlink"))
