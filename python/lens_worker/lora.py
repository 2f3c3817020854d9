"""Low-rank adapters on linear layers.

Names of the base weights stay as they are; each adapted layer has two more, `lora_A` and `lora_B`, of which
the adapter's file is made in PEFT's layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class LoraSettings:
    """Shape of the adapters."""

    rank: int
    alpha: float
    targets: tuple[str, ...]
    seed: int = 0

    @property
    def scale(self) -> float:
        """What `B @ A` is multiplied by."""
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """A linear layer whose weight is frozen, plus a trained product of low rank."""

    def __init__(self, base: nn.Linear, settings: LoraSettings, generator: torch.Generator) -> None:
        with torch.device("meta"):
            super().__init__(base.in_features, base.out_features, bias=base.bias is not None)
        self.weight, self.bias = base.weight, base.bias
        self.scale = settings.scale
        first = torch.empty(settings.rank, base.in_features)
        nn.init.kaiming_uniform_(first, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(first)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, settings.rank))

    def forward(self, input: Tensor) -> Tensor:
        """The base layer's answer and the adapter's."""
        low = F.linear(F.linear(input, self.lora_A), self.lora_B)
        return F.linear(input, self.weight, self.bias) + low * self.scale


def adapt(model: nn.Module, settings: LoraSettings) -> None:
    """Freezes the model and puts adapters on the layers whose last name is a target."""
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(settings.seed)
    found: set[str] = set()
    for name, module in list(model.named_modules()):
        last = name.rpartition(".")[2]
        if last in settings.targets and isinstance(module, nn.Linear):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, last, LoraLinear(module, settings, generator))
            found.add(last)
    missing = sorted(set(settings.targets) - found)
    if missing:
        raise ValueError(f"--lora-targets: the model has no linear layer named {', '.join(missing)}")


def merged(weight: Tensor, first: Tensor, second: Tensor, scale: float) -> Tensor:
    """Returns the weight with the adapter added."""
    return weight + scale * (second @ first)


def peft_name(name: str) -> str:
    """A parameter's name in PEFT's file: `x.lora_A` becomes `base_model.model.x.lora_A.weight`."""
    return f"base_model.model.{name}.weight"


def peft_config(settings: LoraSettings, base: str) -> dict[str, object]:
    """The content of `adapter_config.json`."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(settings.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }
