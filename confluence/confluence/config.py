"""Config: every setting of a run, flat, in one frozen dataclass.

A setting is a field, declared with its default, what it means and which values it may have, in the
group that `--help` lists it in. A name that is not a field is an error. Presets are
functions that return a `Config`; each says which command uses it and what to expect. Nothing else
in the package holds a default.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

from headwater.shared import nearest

from confluence.value_checks import (
    GROUPS,
    plain,
    problems_of_kinds,
    problems_of_values,
    setting,
    setting_kinds,
    tuple_kind,
)

AUTO = "auto"  # a `cell_budget` that `train` measures; contexts and batches that it chooses
USUAL_HOPS = 2
USUAL_BATCH = 32
USUAL_CONTEXTS = {"max_hops": USUAL_HOPS, "label_rows": 0}  # until they are chosen, or cannot be
OPEN_SETTINGS: dict[str, Any] = {
    "steps": None, "batch_size": AUTO, **dict.fromkeys(USUAL_CONTEXTS, AUTO)
}  # fmt: skip
"""Values that leave a choice to the training, which keeps it when it resumes."""
MEMORY_FRACTION = 0.9  # of the memory, which a step may take then


class ConfigError(ValueError):
    """A setting is unknown, or its value cannot work."""


_model, _contexts, _training, _expert = (functools.partial(setting, group) for group in GROUPS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the model, its contexts and its training; `replace` makes a changed copy."""

    width: int = _model(96, "D, width of a cell's vector", "[1, inf]")
    heads: int = _model(6, "H, attention heads; D must be a multiple", "[1, inf]")
    layers: int = _model(
        3, "N, layers of three attentions, a readout and a feed-forward", "[1, inf]"
    )

    sequence_length: int = _contexts(256, "S, most cells of a context", "[1, 65535]")
    max_rows: int = _contexts(64, "R, most rows of a context", "[1, 65535]")
    max_hops: int | str | None = _contexts(
        AUTO,
        "hops from the anchor; None: as far as S and R allow; auto: 1 or 2, by val",
        "[0, inf]",
        words=(AUTO,),
    )
    child_width: int = _contexts(12, "w, children drawn per row", "[1, inf]")
    child_order: str = _contexts("recent", "which children", words=("recent", "uniform"))
    child_counts: bool = _contexts(
        False, "cells for how many children a row has, and how old they are"
    )
    label_rows: int | str = _contexts(
        0,
        "most earlier seeds of the anchor in a context, with their known labels; auto: 0 or 8, by"
        " val",
        "[0, inf]",
        words=(AUTO,),
    )
    peer_labels: int = _contexts(
        0, "most known labels of other anchors in a context, the latest ones", "[0, 1024]"
    )
    staleness: tuple[float, float] | None = _contexts(
        None,
        "(p0, days): train seeds see less by a gap of up to so many days, of none with"
        " probability p0",
    )

    steps: int | None = _training(
        1800,
        "optimizer steps; None: as many as the seeds and their contexts are worth, about two"
        " minutes on two cores",
        "[1, inf]",
    )
    batch_size: int | str = _training(
        USUAL_BATCH,
        "B, contexts per step, over all devices; auto: as many as cell_budget holds",
        "[1, inf]",
        words=(AUTO,),
    )
    learning_rate: float = _training(3e-4, "peak, for everything that AdamW trains", "[0, inf]")
    muon_learning_rate: float = _training(
        0.02, "peak, for the matrices of attention and feed-forward", "[0, inf]"
    )
    cell_dropout: float = _training(
        0.0,
        "probability that a cell is left out of a train context; never the target, a masked cell or"
        " a row's first",
        "[0, 1)",
    )
    half_life_days: float | None = _training(
        None, "a train seed that much older than the last weighs half", "(0, inf]"
    )
    metric: str = _training(
        "mae", "of a numerical task; mae: Huber δ 0.2, rmse: δ 1", words=("mae", "rmse")
    )
    init_from: str | None = _training(
        None, "folder of a run whose weights this one starts with, by name"
    )
    train_on_val: bool = _training(False, "train has the seeds of val too: a last fit before test")
    eval_every: int | None = _training(
        None,
        "steps between evaluations on val during training; 0: never; None: ten on a sample of val,"
        " and the training ends if they get no better",
        "[0, inf]",
    )
    log_to: tuple[str, ...] = _training(
        (), "where the log goes too", words=("tensorboard", "wandb", "mlflow", "otel")
    )
    seed: int = _training(42, "order of seeds, draws of children, initial weights, dropout")

    compute_dtype: str = _expert(
        "auto", "auto: bfloat16 on GPU, else float32", words=("auto", "float32", "bfloat16")
    )
    attention: str = _expert(
        "auto",
        "which of the equal paths; auto: compiled on a processor, rows elsewhere; fused: kernels"
        " for a GPU, not yet measured",
        words=("auto", "compiled", "rows", "fused", "dense"),
    )
    identifier_cells: str = _expert(
        "none", "which keys become cells", words=("all", "foreign_keys", "none")
    )
    context_labels: str | None = _expert(
        None,
        "whose labels contexts show once known; all: a rolling evaluation sees those of val; None:"
        " as each task states",
        words=("train", "none", "all"),
    )
    visible_until: str | None = _expert(None, "frozen regime: contexts show nothing later")
    split_ratios: tuple[float, float, float] = _expert(
        (0.8, 0.1, 0.1), "train, val, test if not given"
    )
    split_seed: int = _expert(123, "decides who is in which split, nothing else")
    num_prefetch: int | None = _expert(
        None,
        "batches prepared ahead, at most; 0: made when asked for; None: headwater decides",
        "[0, inf]",
    )
    num_threads: int | None = _expert(
        None, "threads of the sampler; None: headwater decides", "[1, inf]"
    )
    prebatch: str | None = _expert(
        None,
        "memory: train batches are made before the first step, and kept; to keep them on disk:"
        " `confluence prebatch`",
        words=("memory",),
    )
    prebatch_epochs: int = _expert(
        1, "epochs of batches that prebatch keeps; then they repeat in a new order", "[1, inf]"
    )
    accumulate: int = _expert(
        1, "batches per step; their gradients are summed, as of one larger batch", "[1, inf]"
    )
    cell_budget: int | None = _expert(
        None,
        "most cells, padding included, that a step computes at once: a batch with more is computed"
        " in equal parts, and their gradients are summed; None: in one. `train` also takes auto:"
        " as many as the memory holds",
        "[1, inf]",
    )
    beta1: float = _expert(0.9, "AdamW, decay of the first moment", "[0, 1)")
    beta2: float = _expert(0.95, "AdamW, decay of the second moment", "[0, 1)")
    weight_decay: float = _expert(0.1, "AdamW, not for norms, biases and temperatures", "[0, inf]")
    final_learning_rate: float = _expert(
        0.1, "end of the cosine, as a share of the peak", "[0, inf]"
    )
    clip_norm: float = _expert(1.0, "global norm that gradients are cut to", "(0, inf]")
    objective: str = _expert(
        "task", "the objective; masked_cells: `confluence pretrain`",
        words=("task", "masked_cells"),
    )  # fmt: skip
    auxiliary_weight: float = _expert(
        0.0, "of the loss of masked cells, against a task's; 0: none is masked", "[0, inf]"
    )
    mask_ratio: float = _expert(
        0.15, "probability that a cell is masked, if cells are masked at all", "(0, 1]"
    )
    max_targets_per_type: int | None = _expert(
        None, "M, masked cells of one type in a context at most; None: chosen from a sample",
        "[1, inf]",
    )  # fmt: skip
    seed_tables: tuple[str, ...] | None = _expert(
        None,
        "with objective masked_cells: their rows are the contexts' anchors, in place of the tasks'"
        " seeds",
    )
    log_every: int = _expert(10, "steps between lines of the log", "[1, inf]")
    save_every: int = _expert(
        200, "steps between checkpoints; 0: only at the end, or when stopped", "[0, inf]"
    )
    collective_timeout_s: float = _expert(
        600.0, "after so long a rank that waits for another ends all", "(0, inf)"
    )

    def __post_init__(self) -> None:
        problems = list(problems_of_kinds(self))
        if not problems:  # else the others cannot be asked for
            problems += problems_of_values(self)
            problems += (message for broken, message in self._checks() if broken)
        if problems:
            raise ConfigError("; ".join(problems))
        for name, value in vars(self).items():
            object.__setattr__(self, name, plain(value))

    def _checks(self) -> list[tuple[bool, str]]:
        """The rules between settings: whether each is broken, and its message."""
        return [
            (self.heads > 0 and self.width % self.heads != 0, "width must be a multiple of heads"),
            (abs(sum(self.split_ratios) - 1) > 1e-6, "split_ratios must sum to 1"),
            (
                self.batch_size == AUTO and self.cell_budget is None,
                "batch_size 'auto' needs a cell_budget, the most cells of a batch",
            ),
            (self.train_on_val and bool(self.eval_every), "eval_every needs train_on_val off"),
            (
                self.prebatch is None and self.prebatch_epochs != Config.prebatch_epochs,
                "prebatch_epochs needs prebatch 'memory'",
            ),
            (
                self.train_on_val and self.past is not None,
                "train_on_val is not for a backtest, which leaves val alone",
            ),
            *self._objective_checks(),
        ]

    def _objective_checks(self) -> list[tuple[bool, str]]:
        alone = self.objective == "masked_cells"
        return [
            (alone and self.auxiliary_weight > 0, "auxiliary_weight needs objective 'task'"),
            (
                alone and self.half_life_days is not None,
                "half_life_days needs objective 'task'",
            ),
            (alone and self.batch_size == AUTO, "batch_size 'auto' needs objective 'task'"),
            (alone and self.label_row_limit > 0, "label_rows need objective 'task'"),
            (alone and self.peer_labels > 0, "peer_labels need objective 'task'"),
            (
                not alone and self.seed_tables is not None,
                "seed_tables need objective 'masked_cells'",
            ),
        ]

    def check_scored(self, split: str) -> None:
        """Raise if a split has no seeds to score, because they were trained on."""
        if split == "val" and self.train_on_val:
            raise ConfigError("val was trained on (train_on_val) and cannot be scored; test can")

    def check_ranks(self, count: int) -> None:
        """Raise if that many ranks cannot share a batch equally."""
        if self.batch_size != AUTO and self.contexts % count:
            raise ConfigError(
                f"batch_size is {self.batch_size}: {count} ranks need a multiple of {count}"
            )

    @property
    def past(self) -> tuple[str, str] | None:
        """(at, until) in a backtest, where the seeds of train are dealt anew (`PastConfig`)."""
        return None

    @property
    def masks_cells(self) -> bool:
        """Whether train contexts have masked cells."""
        return self.objective == "masked_cells" or self.auxiliary_weight > 0

    @property
    def head_width(self) -> int:
        """K, width of one attention head."""
        return self.width // self.heads

    @property
    def feed_forward_width(self) -> int:
        """F: ⌈8D/3⌉ rounded up to a multiple of 32."""
        return 32 * math.ceil(math.ceil(8 * self.width / 3) / 32)

    @property
    def contexts(self) -> int:
        """`batch_size` as a number; 32 until it is chosen (`data/planned_batches.py`)."""
        return USUAL_BATCH if isinstance(self.batch_size, str) else self.batch_size

    @property
    def hop_limit(self) -> int | None:
        """`max_hops` as a number; 2 until it is chosen (`training/context_choice.py`)."""
        return USUAL_HOPS if isinstance(self.max_hops, str) else self.max_hops

    @property
    def label_row_limit(self) -> int:
        """`label_rows` as a number; 0 until it is chosen (`training/context_choice.py`)."""
        return 0 if isinstance(self.label_rows, str) else self.label_rows

    @property
    def step_count(self) -> int:
        """`steps`, once they are known (`data/planned_steps.py`)."""
        assert self.steps is not None
        return self.steps

    @property
    def warmup(self) -> int:
        """Steps of linear warm-up: a twentieth of all, at most 2,000."""
        return min(2000, self.step_count // 20)

    def replace(self, **overrides: Any) -> Self:
        """A copy with some settings changed; an unknown name is an error."""
        return type(self).from_dict({**self.to_dict(), **overrides})

    def left_open(self) -> tuple[str, ...]:
        """The names of `OPEN_SETTINGS` that a training has to choose."""
        return tuple(n for n, word in OPEN_SETTINGS.items() if getattr(self, n) == word)

    def with_choices(self, made: Mapping[str, Any]) -> Self:
        """A copy that takes from others what it leaves open."""
        return self.replace(**{name: made[name] for name in self.left_open() if name in made})

    def with_usual_contexts(self) -> Self:
        """A copy with the usual contexts if they are left open."""
        open_ones = [name for name in self.left_open() if name in USUAL_CONTEXTS]
        return self.replace(**{name: USUAL_CONTEXTS[name] for name in open_ones})

    def for_answers(self) -> Self:
        """The settings of contexts that are to be answered: no gap is drawn, no cell is masked next
        to a task, and none is left out."""
        return self.replace(staleness=None, auxiliary_weight=0.0, cell_dropout=0.0)

    def to_dict(self) -> dict[str, Any]:
        """All settings by name; JSON can hold it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read settings back. Unknown names are errors that suggest the nearest known one."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ConfigError(
                "; ".join(f"unknown setting '{name}'{nearest(name, known)}" for name in unknown)
            )
        settings = dict(values)
        for name, kinds in setting_kinds(cls).items():
            if isinstance(settings.get(name), list) and tuple_kind(kinds) is not None:
                settings[name] = tuple(settings[name])  # JSON has lists
        return cls(**settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastConfig(Config):
    """Settings of a fit of a backtest: the seeds of train are dealt anew
    (docs/reference/sampling.md, "Splits by time")."""

    time_split: tuple[str, str]  # (at, until)

    @property
    def past(self) -> tuple[str, str]:
        """(at, until)."""
        return self.time_split


def until_measured(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with 1 for a `cell_budget` that is to be measured."""
    measures = overrides.get("cell_budget") == AUTO
    return {**overrides, "cell_budget": 1} if measures else dict(overrides)


def kept_config(values: Mapping[str, Any]) -> Config:
    """The settings that a run's record holds."""
    return (PastConfig if "time_split" in values else Config).from_dict(values)


def tiny() -> Config:
    """For tests: `confluence train STORE --task T --preset tiny`; seconds, learns little."""
    return Config(
        width=32, heads=2, layers=2, sequence_length=64, max_rows=16, max_hops=2, child_width=4,
        batch_size=8, steps=100,
    )  # fmt: skip


def small() -> Config:
    """For a first answer: `confluence run ... --preset small`; about 2 minutes on two CPU cores."""
    return Config(
        width=64, heads=4, layers=2, sequence_length=128, max_rows=32, child_width=8,
        label_rows=AUTO, batch_size=32, steps=None, learning_rate=3e-3,
    )  # fmt: skip


def demo() -> Config:
    """For `make demo`: the shop of `headwater.shop`; about 2 minutes on two CPU cores, AUROC 0.86.

    Three hops lead from a customer over orders and products to what others made of the same things.
    """
    return Config(
        width=64, heads=4, layers=2, sequence_length=96, max_rows=32, max_hops=3, child_width=4,
        batch_size=32, steps=1000, learning_rate=3e-3,
    )  # fmt: skip


def laptop() -> Config:
    """For two CPU cores: `confluence train STORE --task T --preset laptop`; about 20 minutes."""
    return Config(
        width=96, heads=6, layers=3, sequence_length=256, max_rows=64, child_width=12,
        batch_size=32, steps=1800, child_order="recent", identifier_cells="none",
    )  # fmt: skip


def base() -> Config:
    """For one GPU: `confluence train STORE --task T --preset base`; about 45M parameters."""
    return Config(
        width=512, heads=8, layers=6, sequence_length=1024, max_rows=256, child_width=16,
        batch_size=32, steps=20_000, child_order="uniform", max_hops=None,
    )  # fmt: skip


PRESETS: dict[str, Callable[[], Config]] = {
    "tiny": tiny,
    "small": small,
    "demo": demo,
    "laptop": laptop,
    "base": base,
}


def preset(name: str, **overrides: Any) -> Config:
    """The preset of that name with some settings changed. None as sequence_length or max_rows is
    the preset's own cap."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset '{name}', expected one of {', '.join(PRESETS)}")
    caps = ("sequence_length", "max_rows")
    given = {key: value for key, value in overrides.items() if key not in caps or value is not None}
    return PRESETS[name]().replace(**given)
