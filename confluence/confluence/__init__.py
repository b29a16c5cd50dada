"""confluence trains relational transformers on the batches of headwater.

run = confluence.train("shop.hw", task="churn", out="runs/churn", preset="small")
run.evaluate("test")
run.predict(keys=[42, 77], at="2026-11-01")
"""

from confluence.backtest import backtest
from confluence.checkpoint import CheckpointError
from confluence.config import PRESETS, Config, ConfigError, preset
from confluence.data import TaskError
from confluence.meeting import RendezvousError
from confluence.pretrain import pretrain
from confluence.run import Run, load, train
from confluence.stop import TrainingStopped
from confluence.train import NonFiniteLossError, RecompilationError

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "CheckpointError",
    "Config",
    "ConfigError",
    "NonFiniteLossError",
    "RecompilationError",
    "RendezvousError",
    "Run",
    "TaskError",
    "TrainingStopped",
    "backtest",
    "load",
    "preset",
    "pretrain",
    "train",
]
