"""distributed_job.py in four processes of this machine, over gloo."""
import os
import pathlib
import subprocess
import sys

job = pathlib.Path(__file__).with_name("distributed_job.py")
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(job)]
sys.exit(subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=600).returncode)
