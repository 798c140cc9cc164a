import os

import lit.formats

config.name = "emit"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.pegen_build, "run")
config.substitutions += [
    ("%pegen", config.pegen_program),
    ("%specs", os.path.join(config.pegen_source, "specs")),
    ("%row_loop", "awk -f " + os.path.join(os.path.dirname(__file__), "row_loop.awk") + " -v function_name"),
]
config.environment["PATH"] = config.llvm_tools + os.pathsep + os.environ["PATH"]
