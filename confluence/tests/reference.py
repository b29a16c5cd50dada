"""The model once more in plain NumPy, float64, one sequence and one cell at a time.

Written from docs/reference/model.md, not from the package: loops, full softmax with its maximum, no
shortcuts at the target. Padding cells are left out altogether, so agreement also shows that
the package's masks do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from headwater import SemanticType as T

from confluence.config import Config

Array = np.ndarray[Any, Any]


def norm(x: Array, gamma: Array) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * (1 + gamma)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def encode_cell(p: dict[str, Array], b: dict[str, Array], tables: Any, i: int, s: int) -> Array:
    def affine(name: str, x: Array) -> Array:
        return x @ p[f"encoder.{name}.weight"] + p[f"encoder.{name}.bias"]

    stype = T(int(b["semantic_types"][i, s]))
    if b["is_target"][i, s]:
        value = p["encoder.mask"][stype]
    elif b["is_null"][i, s]:
        value = p["encoder.null"][0]
    elif stype == T.IDENTIFIER:
        value = p["encoder.identifier"][0]
    elif stype == T.NUMERICAL:
        value = affine("numerical", b["numeric_values"][i, s : s + 1])
    elif stype == T.TIMESTAMP:
        value = affine("timestamp", b["timestamp_values"][i, s])
    elif stype == T.BOOLEAN:
        value = p["encoder.boolean"][b["bool_values"][i, s]]
    elif stype == T.CATEGORICAL:
        value = affine("categorical", tables.categories[b["categorical_embed_ids"][i, s]])
    else:
        value = affine("text", b["text_batch_embeddings"][b["text_embed_ids"][i, s]])
    age = float(b["row_ages"][i, b["seq_row_ids"][i, s]])
    parts = [np.log1p(max(age, 0)) / 8, min(age, 18250) / 3650]
    parts += [np.exp(-age / days) for days in (30, 365, 3650)]
    when = affine("age", np.array(parts)) if age >= 0 else p["encoder.timeless"][0]
    column = affine("column", tables.columns[b["column_ids"][i, s]])
    return norm(column + value + when, p["encoder.norm"])


def edge(b: dict[str, Array], tables: Any, i: int, pattern: int, s: int, t: int) -> list[int]:
    """The foreign keys along which cell s looks at cell t; -1 of a task's row."""
    rows = [b["seq_row_ids"][i, cell] for cell in (s, t)]
    child, parent = rows if pattern == 0 else rows[::-1]
    slots = np.flatnonzero(b["parents"][i, child] == parent) if pattern < 2 else []
    table, starts = int(b["row_tables"][i, child]), tables.key_starts
    return [int(starts[table]) + slot if table < len(starts) - 1 else -1 for slot in slots]


def allowed(b: dict[str, Array], tables: Any, i: int, pattern: int, s: int, t: int) -> bool:
    row, other = b["seq_row_ids"][i, s], b["seq_row_ids"][i, t]
    if s == t or (pattern == 0 and row == other):
        return True
    if pattern == 2:
        return bool(b["column_ids"][i, s] == b["column_ids"][i, t])
    return bool(edge(b, tables, i, pattern, s, t))


def key_vectors(p: dict[str, Array], tables: Any, cfg: Config, layer: int, pattern: int) -> Any:
    """Of each foreign key: unit vectors [keys,H,K], and values [keys,D]."""
    name = "keys.outbound" if pattern == 0 else "keys.inbound"
    e = norm(tables.keys @ p[f"{name}.weight"] + p[f"{name}.bias"], 0)
    key = (e @ p["attention.key"][layer, pattern]).reshape(len(e), cfg.heads, -1)
    unit = key / np.linalg.norm(key, axis=2, keepdims=True)
    return unit, e @ p["attention.value"][layer, pattern]


def attention(
    p: dict[str, Array], tables: Any, cfg: Config, layer: int, pattern: int, x: Array,
    mask: Array, edges: list[list[list[int]]],
):  # fmt: skip
    def weight(name: str) -> Array:
        return p[f"attention.{name}"][layer, pattern]

    h = norm(x, weight("norm"))
    q, k, v = h @ weight("query"), h @ weight("key"), h @ weight("value")
    mixed = np.zeros_like(x)
    width = cfg.width // cfg.heads
    kappa, nu = key_vectors(p, tables, cfg, layer, pattern)
    for head in range(cfg.heads):
        at = slice(head * width, (head + 1) * width)
        tau = weight("temperature")[head]
        for s in range(len(x)):
            keys = np.flatnonzero(mask[s])
            cosine = (k[keys, at] @ q[s, at]) / np.linalg.norm(q[s, at])
            cosine /= np.linalg.norm(k[keys, at], axis=1)
            values = v[keys, at].copy()
            for n, t in enumerate(keys):
                for key in edges[s][t]:  # a task's row has no name
                    if key >= 0:
                        part = kappa[key, head] / len(edges[s][t])
                        cosine[n] += part @ q[s, at] / np.linalg.norm(q[s, at])
                        values[n] += nu[key, at] / len(edges[s][t])
            logit = np.clip(np.clip(tau * np.log(1 + len(keys)), -40, 40) * cosine, -40, 40)
            share = np.exp(logit - logit.max())
            mixed[s, at] = (share / share.sum()) @ values
    return 2 * sigmoid(h @ weight("gate")) * (mixed @ weight("out"))


def readout(p: dict[str, Array], cfg: Config, layer: int, x: Array, target: int) -> Array:
    """What the target gets from all cells: heads differ in what they ask, not in whom."""

    def weight(name: str) -> Array:
        return p[f"readout.{name}"][layer]

    h = norm(x, p["attention.norm"][layer, 2])
    query, mixed = h[target] @ weight("query"), np.zeros(cfg.width)
    width = cfg.width // cfg.heads
    for head in range(cfg.heads):
        at = slice(head * width, (head + 1) * width)
        wanted = weight("key")[:, at] @ query[at]
        cosine = h @ wanted / np.linalg.norm(wanted) / np.linalg.norm(h, axis=1)
        logit = np.clip(weight("temperature")[head] * np.log(1 + len(x)), -40, 40) * cosine
        share = np.exp(logit - logit.max())
        mixed[at] = (share / share.sum()) @ h @ weight("value")[:, at]
    return 2 * sigmoid(h[target] @ weight("gate")) * (mixed @ weight("out"))


def forward(params: Any, batch: Any, tables: Any, cfg: Config) -> list[dict[str, Array]]:
    """Outputs of the heads at each sequence's target."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    b = {name: np.asarray(value) for name, value in batch.items()}
    for name in ("numeric_values", "timestamp_values", "text_batch_embeddings"):
        b[name] = b[name].astype(np.float64)
    tables = type(tables)(*(np.asarray(t).astype(np.float64) for t in tables))
    return [_sequence(p, b, tables, cfg, i) for i in range(int(b["num_sequences"][0]))]


def _sequence(p: dict[str, Array], b: dict[str, Array], tables: Any, cfg: Config, i: int):
    cells = np.flatnonzero(b["is_padding"][i] == 0)
    x = np.stack([encode_cell(p, b, tables, i, s) for s in cells])
    masks = [
        np.array([[allowed(b, tables, i, pattern, s, t) for t in cells] for s in cells])
        for pattern in range(3)
    ]
    edges = [
        [[edge(b, tables, i, pattern, s, t) for t in cells] for s in cells] for pattern in range(3)
    ]
    target = list(cells).index(int(np.flatnonzero(b["is_target"][i])[0]))
    for layer in range(cfg.layers):
        for pattern in range(2):
            x = x + attention(p, tables, cfg, layer, pattern, x, masks[pattern], edges[pattern])
        read = readout(p, cfg, layer, x, target)
        x = x + attention(p, tables, cfg, layer, 2, x, masks[2], edges[2])
        x[target] += read
        h = norm(x, p["feed_forward.norm"][layer])
        gate, up = h @ p["feed_forward.gate"][layer], h @ p["feed_forward.up"][layer]
        x = x + (gate * sigmoid(gate) * up) @ p["feed_forward.down"][layer]
    h = norm(x[target], p["heads.norm"])
    out = {
        name: h @ p[f"heads.{name}.weight"] + p[f"heads.{name}.bias"]
        for name in ("null", "numerical", "timestamp", "boolean", "categorical")
    }
    start, count = int(b["cat_emb_start"][0]), int(b["cat_emb_count"][0])
    choices = tables.categories[start : start + count] @ p["encoder.categorical.weight"]
    out["categorical"] = (choices + p["encoder.categorical.bias"]) @ out["categorical"]
    return out
