"""Lets timm be imported beside a PyTorch without CUDA: torchvision's own operators, which come for CUDA alone, are
declared, and nothing here calls them."""
import torch

_declared = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    try:
        _declared.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:  # this torchvision has them
        pass
