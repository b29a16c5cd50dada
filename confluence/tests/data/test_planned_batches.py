"""How many contexts a batch has if a budget of cells decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small import SMALL, events, opened, words

import confluence
from confluence.cli.main import main
from confluence.config import Config, ConfigError, preset
from confluence.data.planned_batches import most_within, with_batch_size
from confluence.data.stores import find_places
from confluence.data.tasks import most_cells, open_sampler
from confluence.data.verification import open_store
from confluence.folder import checkpoint
from confluence.packs.pack import Pack
from confluence.runs.pipeline import train_or_load

AUTO: dict[str, Any] = {**SMALL, "batch_size": "auto", "cell_budget": 400, "steps": 2}
CFG = preset(AUTO["preset"], **{n: v for n, v in AUTO.items() if n != "preset"})


@pytest.mark.parametrize(
    ("cells", "budget", "most", "tried"),
    [
        # As many as 32 say, then some more; the first that are too many are cut in half.
        (lambda n: 10 * n, 1000, 500, [32, 100, 104, 102, 101]),
        (lambda n: 10 * n, 1000, 60, [32, 60]),  # all that there are
        (lambda n: 10 * n, 1000, 20, [20]),
        (lambda n: 10 * n, 100, 500, [32, 16, 8, 12, 10, 11]),
        (lambda n: 10 * n, 9, 500, [32, 16, 8, 4, 2, 1]),
        # In steps of 64 cells each 30 contexts: 32 * 640 / 128, 160 * 640 / 384, 266 * 640 / 576
        (lambda n: 64 * -(-n // 30), 640, 900, [32, 160, 266, 295, 311, 303, 299, 301, 300]),
    ],
)
def test_the_most_contexts_are_found_in_few_tries(
    cells: Callable[[int], int], budget: int, most: int, tried: list[int]
) -> None:
    seen: list[int] = []

    def counted(contexts: int) -> int:
        seen.append(contexts)
        return cells(contexts)

    fitting = [contexts for contexts in range(1, most + 1) if cells(contexts) <= budget]
    assert most_within(counted, budget, most) == max(fitting, default=0)
    assert seen == tried


def cells_of(store: Path, contexts: int, **more: Any) -> int:
    """N, of a sampler that knows nothing of a budget."""
    cfg = CFG.replace(batch_size=contexts, cell_budget=None)
    with open_sampler(open_store(store), cfg, "device", **more) as sampler:
        return most_cells(sampler)


def chosen(store: Path, cfg: Config, ranks: int = 1, *tasks: str) -> int:
    known = opened(store)
    return with_batch_size(
        cfg, known, find_places(known, tasks or ("device",)), ranks=ranks
    ).contexts


def test_one_context_more_would_exceed_the_budget(
    shop_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contexts = chosen(shop_store, CFG)
    assert cells_of(shop_store, contexts) <= 400 < cells_of(shop_store, contexts + 1)
    assert capsys.readouterr().err == (
        f"batch_size {contexts} (--batch-size auto): the most contexts whose batches have at most"
        " 400 cells\n"
    )
    assert chosen(shop_store, CFG.replace(batch_size=7)) == 7  # is not chosen
    assert capsys.readouterr().err == ""


def test_ranks_have_as_many_contexts_each(
    shop_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contexts = chosen(shop_store, CFG, 3)
    assert contexts % 3 == 0
    cells = [
        cells_of(shop_store, n, world_size=3, default_batch_size=n // 3)
        for n in (contexts, contexts + 3)
    ]
    assert cells[0] <= 400 < cells[1]
    assert "at most 400 cells on each of 3 ranks\n" in capsys.readouterr().err


def test_a_batch_has_no_more_contexts_than_train_has_seeds(
    shop_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_sampler(open_store(shop_store), CFG.replace(batch_size=1), "device") as sampler:
        seeds = sampler.num_seeds("train")
    assert chosen(shop_store, CFG.replace(cell_budget=10**7)) == seeds
    assert "as many contexts as train has seeds; a batch has" in capsys.readouterr().err


def test_what_no_budget_decides_is_refused(shop_store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size 'auto' needs a cell_budget"):
        CFG.replace(cell_budget=None)
    with pytest.raises(ConfigError, match="batch_size 'auto' needs a cell_budget"):
        confluence.train(shop_store, task="device", out=tmp_path / "run", batch_size="auto")
    with pytest.raises(ConfigError, match="batch_size 'auto' needs objective 'task'"):
        confluence.pretrain(shop_store, out=tmp_path / "run", batch_size="auto", cell_budget=400)
    with pytest.raises(ConfigError, match="cell_budget is for a run of one task, and this one"):
        chosen(shop_store, CFG, 1, "device", "rating")
    with pytest.raises(ConfigError, match="cell_budget is 3, and a batch of one context has up"):
        chosen(shop_store, CFG.replace(cell_budget=3))
    with pytest.raises(ConfigError, match="advise measures one batch_size"):
        confluence.advise(shop_store, task="device", batch_size="auto", cell_budget=400)
    with pytest.raises(ConfigError, match="batch_size is 'many', expected a whole number, or one"):
        preset("tiny", batch_size="many")
    assert list(tmp_path.iterdir()) == []


def test_a_run_keeps_the_number_that_was_chosen(
    shop_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out, contexts = tmp_path / "run", chosen(shop_store, CFG)
    command = ["train", str(shop_store), "--task", "device", "--no-trees", *words(AUTO)]
    assert main([*command, "--out", str(out)]) == 0
    assert f"batch_size {contexts} (--batch-size auto)" in capsys.readouterr().err
    (start,) = events(out, "start")
    assert (start["config"]["batch_size"], start["parts"]) == (contexts, 1)
    assert start["batches"]["device"]["cells"] <= 400
    run = confluence.load(out)
    assert run.config.batch_size == contexts
    assert run.evaluate("val", trees=False, resamples=0)["scored"] > 0
    with pytest.raises(confluence.CheckpointError, match=f"batch_size was {contexts} and is 5"):
        confluence.train(
            shop_store, task="device", trees=False, out=out, resume=True,
            **{**AUTO, "batch_size": 5},
        )  # fmt: skip
    monkeypatch.setattr("confluence.data.planned_batches.most_within", None)  # not asked
    again = confluence.train(shop_store, task="device", trees=False, out=out, resume=True, **AUTO)
    assert again.config == run.config
    known, told = opened(shop_store), list[str]()
    as_run = train_or_load(known, "device", out, run.config, say=told.append, trees=False)
    assert train_or_load(known, "device", out, CFG, say=told.append, trees=False).config == (
        as_run.config
    )
    assert told == [f"the model in {out} is trained already"] * 2


def test_a_pack_has_the_number_that_was_chosen(shop_store: Path, tmp_path: Path) -> None:
    contexts = chosen(shop_store, CFG)
    pack = tmp_path / "pack"
    made = confluence.prebatch(shop_store, task="device", out=pack, **AUTO)
    assert made["batches"] == 2
    assert Pack.open(pack).about["settings"]["batch_size"] == contexts
    run = confluence.train(prebatched=pack, trees=False, out=tmp_path / "run", batch_size="auto")
    assert run.config.batch_size == contexts
    assert checkpoint.saved_steps(tmp_path / "run") == [2]
