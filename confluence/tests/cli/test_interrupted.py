"""Ctrl-C at any moment of a command ends it with status 130, whatever XLA is doing."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import SMALL, words

import confluence

SHOP = Path(__file__).resolve().parents[3] / "examples" / "shop" / "shop.json"
MOMENTS = 10  # of each command
STEPS = 30
BAD = re.compile(r"Exception ignored|Fatal|terminate called|Segmentation|core dumped")

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def trained(shop_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    confluence.train(shop_store, task="subscribed", trees=False, out=out, **SMALL, steps=2)
    return out


@pytest.fixture(params=["train", "evaluate", "run"])
def arguments(
    request: pytest.FixtureRequest, shop_store: Path, shop_database: Path, trained: Path,
    tmp_path: Path,
) -> list[str]:  # fmt: skip
    """A command that writes `tmp_path / "out"`, or asks a run that is there."""
    if request.param == "evaluate":
        return ["evaluate", str(trained), "--split", "val"]
    settings = [*words(SMALL), "--steps", str(STEPS), "--out", str(tmp_path / "out")]
    if request.param == "train":
        return ["train", str(shop_store), "--task", "subscribed", *settings]
    source = f"sqlite:///{shop_database}"
    return ["run", source, "--metadata", str(SHOP), "--task", "churn", *settings]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "confluence", *arguments],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def test_ctrl_c_at_any_moment_ends_a_command_with_130(arguments: list[str], tmp_path: Path) -> None:
    began = time.monotonic()
    whole = start(arguments)
    said = whole.communicate()[1]
    assert whole.returncode == 0, said
    took = time.monotonic() - began
    for number in range(MOMENTS):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        process = start(arguments)
        time.sleep(took * (number + 0.5) / MOMENTS)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        if "Traceback" in said:  # of Python itself, while it imports the command
            assert re.search(r"\n    (import|from) ", said), said
        # 0: it was quicker this time. By the signal, for which shells have 130 too: while Python
        # imports the command, and while the interpreter shuts down after it.
        assert process.returncode in (0, 130, -signal.SIGINT), (number, said)
        assert not BAD.search(said), said
        saved = re.search(r"after step (\d+) of \d+ and saved in '(.*)': the same", said)
        if saved is not None:
            assert Path(saved[2], "checkpoints", saved[1]).is_dir()
            with_resume = ["--resume"] if arguments[0] == "train" else []
            resumed = start([*arguments, *with_resume])
            said = resumed.communicate()[1]
            assert resumed.returncode == 0, said
