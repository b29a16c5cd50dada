"""confluence trains relational transformers on the batches of headwater.

run = confluence.train("shop.hw", task="churn", out="runs/churn", preset="small")
run.evaluate("test")
run.predict(keys=[42, 77], at="2026-11-01")

What is named here is imported when it is first used: `confluence --help` needs no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from confluence.version import VERSION

if TYPE_CHECKING:
    from confluence.config import PRESETS as PRESETS
    from confluence.config import Config as Config
    from confluence.config import ConfigError as ConfigError
    from confluence.config import preset as preset
    from confluence.data.tasks import TaskError as TaskError
    from confluence.folder.checkpoint import CheckpointError as CheckpointError
    from confluence.measure.advise import advise as advise
    from confluence.packs.pack import PackError as PackError
    from confluence.packs.prebatch import prebatch as prebatch
    from confluence.ranks.rendezvous import RendezvousError as RendezvousError
    from confluence.ranks.stop import TrainingStopped as TrainingStopped
    from confluence.runs.backtest import backtest as backtest
    from confluence.runs.load import load as load
    from confluence.runs.pretrain import pretrain as pretrain
    from confluence.runs.run import Run as Run
    from confluence.runs.train import train as train
    from confluence.training.own_loop import RelationalTransformer as RelationalTransformer
    from confluence.training.own_loop import compute_loss as compute_loss
    from confluence.training.step import NonFiniteLossError as NonFiniteLossError
    from confluence.training.step import RecompilationError as RecompilationError

__version__ = VERSION

HOMES = {
    "PRESETS": "config",
    "CheckpointError": "folder.checkpoint",
    "Config": "config",
    "ConfigError": "config",
    "NonFiniteLossError": "training.step",
    "PackError": "packs.pack",
    "RecompilationError": "training.step",
    "RelationalTransformer": "training.own_loop",
    "RendezvousError": "ranks.rendezvous",
    "Run": "runs.run",
    "TaskError": "data.tasks",
    "TrainingStopped": "ranks.stop",
    "advise": "measure.advise",
    "backtest": "runs.backtest",
    "compute_loss": "training.own_loop",
    "load": "runs.load",
    "prebatch": "packs.prebatch",
    "preset": "config",
    "pretrain": "runs.pretrain",
    "train": "runs.train",
}

__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'confluence' has no attribute '{name}'")
    found = getattr(importlib.import_module(f"confluence.{HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
