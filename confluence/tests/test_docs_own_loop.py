"""docs/guides/own-training-loop.md, the section about confluence's model: its code runs and learns.

../shared/seeds next to the project may have the text that this interface was first described in.
The blocks are its code then, statement by statement, but for what is replaced here by name.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

import headwater.cli.main
import numpy as np
import pytest
from headwater import shop

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "own-training-loop.md").read_text(encoding="utf-8")
COMMANDS = PAGE.split("\n```\n")[1].splitlines()
_, SECTION = PAGE.split("\n## Confluence's model in a loop of your own\n")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
(
    SAMPLER, _, TABLES, ACCESSORS, _, MODEL, _, VALIDATION, LOOP, _, BY_TIME, _,
) = BLOCKS  # fmt: skip
SEEDS = ROOT.parent / "shared" / "seeds"
SIZES = "default_batch_size=32, default_sequence_length=128, bfs_child_width=8)"
REPLACED = {  # code of the seed by code of the page
    # The path and the sizes.
    "'data/processed/my_database'": "'shop.store'",
    "default_batch_size=32, default_sequence_length=1024, bfs_child_width=16)": SIZES,
    "seed=42, num_prefetch=3)": f"seed=42, num_prefetch=3, {SIZES}",
    # One device.
    "    grads = jax.lax.pmean(grads, axis_name='devices')\n": "",
    "    loss = jax.lax.pmean(loss, axis_name='devices')\n": "",
    # The update rule.
    "    params, opt_state = optimizer.update(grads, opt_state, params)\n": (
        "    updates, opt_state = optimizer.update(grads, opt_state, params)\n"
        "    params = optax.apply_updates(params, updates)\n"
    ),
    # What the seed leaves out.
    "run_validation(sampler, model, params, ...)": (
        "run_validation(sampler, model, params, col_emb_table, cat_emb_table, num_val_steps,"
        " device)"
    ),
    "eval_step(params, batch, ...)": "eval_step(params, batch, col_emb_table, cat_emb_table)",
}

Names = dict[str, Any]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """What the section leaves behind; `losses` are those of its steps."""
    folder = tmp_path_factory.mktemp("own_loop")
    (folder / "examples").symlink_to(ROOT / "examples")
    found: Names = {"losses": []}
    with contextlib.chdir(folder):
        shop.main(shlex.split(COMMANDS[0])[3:])
        assert not headwater.cli.main.main(shlex.split(COMMANDS[1])[1:])
        for block in BLOCKS:
            if block == LOOP:
                found["compiled"] = found["train_step"]
                found["train_step"] = lambda *args: kept(found["compiled"](*args), found["losses"])
            exec(compile(block, "guides/own-training-loop.md", "exec"), found)
    return found


def kept(result: tuple[Any, Any, Any], losses: list[Any]) -> tuple[Any, Any, Any]:
    losses.append(result[2])
    return result


def test_the_loop_learns_in_twenty_steps(names: Names) -> None:
    losses = [float(loss) for loss in names["losses"]]
    assert len(losses) == 20
    assert np.mean(losses[-5:]) <= 0.95 * np.mean(losses[:5])
    assert names["val_metrics"] < np.mean(losses[:5])


def test_the_step_compiles_once_for_each_number_of_texts(names: Names) -> None:
    shape = names["sampler"].shape
    assert names["compiled"]._cache_size() <= len({shape["usual_texts"], shape["text_budget"]})


def test_metrics_are_told_apart_by_time(names: Names) -> None:
    assert list(names["val_metrics_by_time"]) == ["2025-07", "2025-08"]
    losses = [float(loss) for found in names["val_metrics_by_time"].values() for loss in found]
    assert len(losses) == 2
    assert np.isfinite(losses).all()


def test_the_blocks_are_those_of_the_seed() -> None:
    seed = seed_text()
    used: set[str] = set()

    def blocks(section: str) -> list[str]:
        _, _, rest = seed.partition(f"\n### {section}. ")
        assert rest, f"the seed has no section {section}"
        rest = re.split(r"^###? ", rest, maxsplit=1, flags=re.MULTILINE)[0]
        found = re.findall(r"^```python\n(.*?)^```$", rest, re.MULTILINE | re.DOTALL)
        return [replaced(plain(block), used) for block in found]

    assert [plain(BY_TIME)] == [block for block in blocks("2b") if "time_bucket" in block]
    assert [f"import jax\nimport numpy as np\n{block}" for block in blocks("3a")[:1]] == [
        plain(SAMPLER)
    ]
    assert blocks("3a")[1:] == [plain(ACCESSORS)]
    assert blocks("4b") == [plain(TABLES)]
    assert blocks("4c") == [f"{plain(MODEL)}\n{plain(LOOP)}"]
    assert blocks("4d") == [plain(VALIDATION)]
    assert used == set(REPLACED)


def seed_text() -> str:
    """The text that has the code; skips the test where it is absent."""
    found = sorted(SEEDS.glob("001_*.txt"))
    if not found:
        pytest.skip(f"'{SEEDS}' is not here")
    return found[0].read_text(encoding="utf-8")


def plain(code: str) -> str:
    """Code without comments, empty lines and the writer's own breaks and quotes."""
    lines = ast.unparse(ast.parse(code)).splitlines()
    return "\n".join(line for line in lines if line)


def replaced(code: str, used: set[str]) -> str:
    """Code of the seed as the page has it; replacements are noted."""
    for old, new in REPLACED.items():
        if old in code:
            used.add(old)
            code = code.replace(old, new)
    return code
