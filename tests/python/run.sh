#!/usr/bin/env bash
# run.sh PYTHON TEST.py: 77 where what the test is about is not installed.
python=$1 test=$2
cd "$(dirname "$0")" || exit 1
module=${test%_test.py}
case $module in
  kernel* | hostile | formulas* | papers | conform) modules="numpy" ;;
  jax_sequences) modules="jax" ;;
  jax_cuda) modules="jax torch" ;;
  onnx) modules="numpy onnx" ;;
  explore) modules="numpy pandas altair vl_convert" ;;
  workbench) modules="numpy pandas altair vl_convert starlette uvicorn selenium" ;;
  lab) modules="torch sklearn scipy optuna pandas altair vl_convert" ;;
  cuda | gpu | packed | products | distributed | engines | attention_gallery) modules="torch" ;;
  conform_engines) modules="torch transformers torchvision timm diffusers jax" ;;
  checkpoints) modules="torch transformers torchvision timm diffusers" ;;
  models | like_model | transformers | config | vit | models_bench) modules="torch transformers torchvision timm" ;;
  torch*) modules="torch" ;;
  jax | tvm_ffi) modules=$module ;;
  hub) modules="torch kernels huggingface_hub" ;;
  use_kernels) modules="torch kernels transformers torchvision timm" ;;
  *)
    echo "run.sh does not say which packages $test needs"
    exit 1
    ;;
esac
for module in $modules; do
  "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" || {
    echo "$module is not installed: not tested"
    exit 77
  }
done
exec "$python" -W error::DeprecationWarning:pegen_kernels "$test"
