import os

import lit.formats

config.name = "program"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.pegen_build, "run")
config.substitutions += [
    ("%pegen", config.pegen_program),
    ("%specs", os.path.join(config.pegen_source, "specs")),
]
config.environment["PATH"] = config.llvm_tools + os.pathsep + os.environ["PATH"]
