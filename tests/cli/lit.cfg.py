import os
import sys

import lit.formats

config.name = "pegen"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.pegen_build, "run")
config.substitutions += [
    ("%pegen", config.pegen_program),
    ("%specs", os.path.join(config.pegen_source, "specs")),
    ("%source", config.pegen_source),
    ("%build", config.pegen_binary_dir),
    ("%cmake", config.cmake),
    ("%cc", config.compiler),
    ("%cxx", config.cxx_compiler),
    ("%python", sys.executable),
]
if config.sanitized:
    config.available_features.add("sanitized")
config.environment["PATH"] = config.llvm_tools + os.pathsep + os.environ["PATH"]
