"""The demo in Python: build a store, train on it, evaluate, and ask about three customers.

python -m headwater.shop shop.sqlite
python examples/shop/train.py shop.sqlite runs/churn
"""

from __future__ import annotations

import sys
from pathlib import Path

import confluence
import headwater


def main(database: str, out: Path) -> None:
    """What `confluence run` does, step by step; about 2 minutes on two CPU cores."""
    metadata = Path(__file__).with_name("shop.json")
    headwater.build(f"sqlite:///{database}", out / "store", metadata=metadata)
    run = confluence.train(out / "store", task="churn", out=out, preset="demo")
    result = run.evaluate("test")
    print("model", result["metrics"])
    for name, baseline in result["baselines"].items():
        print(name, baseline["metrics"])
    print(result["verdict"]["text"])
    for row in run.predict(keys=[1, 2, 3], at="2025-12-01"):
        print(row)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: train.py DATABASE OUT")
    main(sys.argv[1], Path(sys.argv[2]))
