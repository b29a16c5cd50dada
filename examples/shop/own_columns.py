"""A gradient-boosted tree on the anchor's own columns: what there is to know without relations.

    python own_columns.py shop.hw churn

The columns come from a sampler that stops at the anchor, so the tree gets exactly the seeds of the
split, and of the anchor's row exactly the cells that were known at the time: a column filled in
later does not leak into the baseline either. Needs scikit-learn, or lightgbm if it is installed.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

import headwater

CATEGORICAL = 4


def own_columns(
    store: headwater.Store, task: str, split: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], list[str]]:
    """Features [seeds, columns] (NaN where NULL or not known), target [seeds], names of columns.

    Per column of the anchor's table its value: z-score, category number, 0 or 1, time as z-score;
    and the age of the row in days. Works for boolean and numerical targets.
    """
    metadata = store.metadata
    about = next(entry for entry in metadata["tasks"] if entry["name"] == task)
    table = next(entry for entry in metadata["tables"] if entry["name"] == about["anchor_table"])
    low, high = table["column_range"]
    anchor = 1 if about["kind"] == "derived" else 0  # the local row of the anchor
    features: list[npt.NDArray[np.float64]] = []
    targets: list[npt.NDArray[np.float64]] = []
    with headwater.Sampler(
        store=store,
        tasks=[task],
        max_hops=anchor,
        identifier_cells="none",
        default_batch_size=256,
        default_sequence_length=2 + high - low,
    ) as sampler:
        for batch in sampler.epoch(split, task=task):
            count = int(batch["num_sequences"][0])
            features.append(anchor_values(batch, anchor, low, high)[:count])
            values = batch["bool_values"] + batch["numeric_values"]
            targets.append((values * batch["is_target"]).sum(axis=1)[:count].astype(np.float64))
    names = [column["name"] for column in metadata["columns"][low:high]] + ["row_age"]
    return np.concatenate(features), np.concatenate(targets), names


def anchor_values(
    batch: dict[str, npt.NDArray[Any]], anchor: int, low: int, high: int
) -> npt.NDArray[np.float64]:
    sequences = batch["column_ids"].shape[0]
    values = np.full((sequences, high - low + 1), np.nan)
    own = (batch["is_padding"] == 0) & (batch["is_target"] == 0) & (batch["is_null"] == 0)
    own &= batch["seq_row_ids"] == anchor
    sequence, cell = np.nonzero(own)
    number = batch["numeric_values"] + batch["timestamp_values"][..., 14] + batch["bool_values"]
    number = np.where(
        batch["semantic_types"] == CATEGORICAL, batch["categorical_embed_ids"], number
    )
    values[sequence, batch["column_ids"][sequence, cell] - low] = number[sequence, cell]
    ages = batch["row_ages"][:, anchor]
    values[:, -1] = np.where(ages >= 0, ages, np.nan)
    return values


def auroc_of_own_columns(store: headwater.Store, task: str) -> dict[str, float]:
    """AUROC by split of a tree fitted on the train seeds of a boolean task."""
    from sklearn.metrics import roc_auc_score

    features, targets, _ = own_columns(store, task, "train")
    model = boosted_tree().fit(features, targets)
    scores = {}
    for split in ("val", "test"):
        features, targets, _ = own_columns(store, task, split)
        scores[split] = float(roc_auc_score(targets, model.predict_proba(features)[:, 1]))
    return scores


def boosted_tree() -> Any:
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(learning_rate=0.05, max_iter=150, random_state=0)
    return LGBMClassifier(
        learning_rate=0.05, n_estimators=150, num_leaves=15, random_state=0, n_jobs=1, verbose=-1
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: own_columns.py STORE TASK")
    for split, score in auroc_of_own_columns(headwater.Store(sys.argv[1]), sys.argv[2]).items():
        print(f"{split}: AUROC {score:.3f}")
