"""The relational transformer: from a batch of cells to what is known about its targets.

    batch ──► encode ──► layers × (outbound, inbound, column, readout, feed-forward)
          ──► norm ──► heads

There is no positional encoding. Structure comes from three attention patterns, time from the ages
of rows; by the readout a target looks at its whole context. Parameters are a flat dict from name to
array; `parameter_table` declares each once, with its shape, its first value and the optimizer that
trains it. All functions are pure.

All cells of a batch stand on one axis, contexts side by side (expand.py); only attention and
readout know contexts. Padding goes through every layer, looks at itself only, and nobody looks at
it.

Dimensions, one letter each: n contexts, N cells of all contexts, D width, H heads, K head width, F
feed-forward width, T width of a text embedding, U texts of a batch, C columns, V categories, L most
categories of a task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from headwater import SemanticType
from jax import Array

from confluence.config import Config
from confluence.model.attention import KeyVectors
from confluence.model.cells import Cells, at_targets, read_cells
from confluence.model.expand import Inputs, as_flat
from confluence.model.gather import look_up
from confluence.model.patterns import Mix, Patterns, make_patterns
from confluence.model.readout import Tiles, make_tiles, read_out
from confluence.model.row_attention import RowShape, unit_heads

Params = dict[str, Array]
Trainer = Literal["muon", "adamw", "adamw_without_decay", "temperature"]

PATTERNS = 3  # outbound, inbound, column
ALONG_KEYS = ("outbound", "inbound")  # those that follow foreign keys
TIME_PARTS = 15  # 14 cyclic parts of a timestamp, then its z-scored epoch
AGE_PARTS = 5  # features of a row's age
AGE_LIMIT_DAYS = 18_250.0  # 50 years
NORM_EPSILON = 1e-6  # added to the mean square in RMSNorm
VECTOR_SCALE = 0.02  # standard deviation of learned vectors


class Tables(NamedTuple):
    """Frozen embeddings of a store, on the device for the whole run."""

    columns: Array  # [C,T] float16
    keys: Array  # [keys,T] float32, names of the foreign keys: means of their columns
    key_starts: Array  # [tables+1] int32, number of the first foreign key of each table
    categories: Array  # [V+L,T] float16, padded by L rows so that a slice of L never clamps
    category_columns: Array | None = None  # [V+L] int32, the column of each category, padding -1;
    # only masked cells need it
    texts: Array | None = None  # [V_t,T] float16, for `to_device`; None: each batch brings its own


ForeignKeys = tuple[tuple[tuple[int, ...], ...], ...]
"""The columns of each foreign key of each table of a store, by their numbers."""


def key_names(keys: ForeignKeys, columns: Array) -> Array:
    """The name of each foreign key, the mean of its columns' names. [C,T] → [keys,T] float32"""
    names = [jnp.mean(columns[np.array(key)], 0, jnp.float32) for table in keys for key in table]
    return jnp.stack(names) if names else jnp.zeros((0, columns.shape[1]), jnp.float32)


def key_starts_of(keys: ForeignKeys) -> Array:
    """The number of the first foreign key of each table, and of all. → [tables+1] int32"""
    return jnp.asarray(np.cumsum([0, *map(len, keys)]), jnp.int32)


class Output(NamedTuple):
    """What the heads say at the target of each context; float32. Numbers are in z units."""

    null: Array  # [n] logit
    numerical: Array  # [n]
    timestamp: Array  # [n,15]
    boolean: Array  # [n] logit
    categorical: Array  # [n,L] logits, -1e9 beyond the task's categories


class Parameter(NamedTuple):
    """Declaration of one parameter."""

    shape: tuple[int, ...]
    first: Literal["xavier", "residual", "vector", "zeros", "ones"]
    trainer: Trainer


def parameter_table(cfg: Config, text_width: int) -> dict[str, Parameter]:
    """Every parameter of the model, by name, in the order of the data."""
    D, F, T = cfg.width, cfg.feed_forward_width, text_width
    layers, patterns = cfg.layers, PATTERNS
    table: dict[str, Parameter] = {}

    def affine(name: str, width_in: int, width_out: int) -> None:
        table[f"{name}.weight"] = Parameter((width_in, width_out), "xavier", "adamw")
        table[f"{name}.bias"] = Parameter((width_out,), "zeros", "adamw_without_decay")

    affine("encoder.column", T, D)
    table["encoder.identifier"] = Parameter((1, D), "vector", "adamw")
    affine("encoder.numerical", 1, D)
    affine("encoder.timestamp", TIME_PARTS, D)
    table["encoder.boolean"] = Parameter((2, D), "vector", "adamw")
    affine("encoder.categorical", T, D)
    affine("encoder.text", T, D)
    table["encoder.null"] = Parameter((1, D), "vector", "adamw")
    table["encoder.mask"] = Parameter((SemanticType.TEXT + 1, D), "vector", "adamw")
    affine("encoder.age", AGE_PARTS, D)
    table["encoder.timeless"] = Parameter((1, D), "vector", "adamw")
    table["encoder.norm"] = Parameter((D,), "zeros", "adamw_without_decay")
    for pattern in ALONG_KEYS:
        affine(f"keys.{pattern}", T, D)

    table["attention.norm"] = Parameter((layers, patterns, D), "zeros", "adamw_without_decay")
    for name in ("query", "key", "value"):
        table[f"attention.{name}"] = Parameter((layers, patterns, D, D), "xavier", "muon")
    table["attention.out"] = Parameter((layers, patterns, D, D), "residual", "muon")
    table["attention.gate"] = Parameter((layers, patterns, D, D), "zeros", "muon")
    table["attention.temperature"] = Parameter((layers, patterns, cfg.heads), "ones", "temperature")
    for name in ("query", "key", "value"):
        table[f"readout.{name}"] = Parameter((layers, D, D), "xavier", "muon")
    table["readout.out"] = Parameter((layers, D, D), "zeros", "muon")
    table["readout.gate"] = Parameter((layers, D, D), "zeros", "muon")
    table["readout.temperature"] = Parameter((layers, cfg.heads), "ones", "temperature")
    table["feed_forward.norm"] = Parameter((layers, D), "zeros", "adamw_without_decay")
    table["feed_forward.gate"] = Parameter((layers, D, F), "xavier", "muon")
    table["feed_forward.up"] = Parameter((layers, D, F), "xavier", "muon")
    table["feed_forward.down"] = Parameter((layers, F, D), "residual", "muon")

    table["heads.norm"] = Parameter((D,), "zeros", "adamw_without_decay")
    affine("heads.null", D, 1)
    affine("heads.numerical", D, 1)
    affine("heads.timestamp", D, TIME_PARTS)
    affine("heads.boolean", D, 1)
    affine("heads.categorical", D, D)
    if cfg.masks_cells:
        affine("heads.text", D, T)
    return table


def init(
    key: Array, cfg: Config, text_width: int, first_biases: Mapping[str, float] | None = None
) -> Params:
    """First parameters, float32. `first_biases` starts heads at base rates: {"heads.null": -3}."""
    table = parameter_table(cfg, text_width)
    params: Params = jax.jit(lambda key: _first_values(key, cfg, table))(key)
    for head, value in (first_biases or {}).items():
        params[f"{head}.bias"] = jnp.full_like(params[f"{head}.bias"], value)
    return params


def _first_values(key: Array, cfg: Config, table: dict[str, Parameter]) -> Params:
    """One draw per distribution, cut into parameters: one for each takes seconds to compile."""
    uniform_key, normal_key = jax.random.split(key)
    sizes = {name: math.prod(parameter.shape) for name, parameter in table.items()}
    count = sum(sizes.values())
    uniform = jax.random.uniform(uniform_key, (count,), jnp.float32, -1.0, 1.0)
    normal = jax.random.normal(normal_key, (count,), jnp.float32)
    params: Params = {}
    start = 0
    for name, parameter in table.items():
        place = slice(start, start + sizes[name])
        start = place.stop
        match parameter.first:
            case "zeros":
                value = jnp.zeros(sizes[name], jnp.float32)
            case "ones":
                value = jnp.ones(sizes[name], jnp.float32)
            case "vector":
                value = VECTOR_SCALE * normal[place]
            case _:
                value = _xavier_limit(parameter, cfg) * uniform[place]
        params[name] = value.reshape(parameter.shape)
    return params


def _xavier_limit(parameter: Parameter, cfg: Config) -> float:
    """Bound of the uniform distribution; last matrices of a sublayer get 1/√(4·layers) of it."""
    limit = math.sqrt(6.0 / (parameter.shape[-2] + parameter.shape[-1]))
    return limit / math.sqrt(4.0 * cfg.layers) if parameter.first == "residual" else limit


def compute_dtype(cfg: Config) -> jnp.dtype:
    """bfloat16 on GPU and TPU, float32 on CPU, unless the configuration says otherwise."""
    name = cfg.compute_dtype
    if name == "auto":
        name = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    return jnp.dtype(name)


def rms_norm(x: Array, gamma: Array, dtype: jnp.dtype) -> Array:
    """x / rms(x)·(1 + γ), computed in float32, returned as `dtype`. [...,D], [D] → [...,D]."""
    x = x.astype(jnp.float32)
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(mean_square + NORM_EPSILON) * (1.0 + gamma)).astype(dtype)


# ------------------------------------------------------------------------------------- the encoder


def encode(params: Params, batch: Inputs, cells: Cells, tables: Tables, cfg: Config) -> Array:
    """h0 = RMSNorm(column + value + age). → [N,D]

    Each cell takes one row of one table (identifier, biases, boolean, NULL, mask, categories,
    texts) and adds what is linear in its numbers: its value or time, and the age of its row.
    """
    dtype = compute_dtype(cfg)
    value_table, value_ids = _value_table(params, batch, cells, tables, dtype)
    columns = project(params, "encoder.column", tables.columns, dtype)  # [C,D]
    numbers = jnp.concatenate([_value_numbers(batch, cells), _age_numbers(batch, cells)], axis=-1)
    weights = jnp.concatenate(
        [
            params["encoder.numerical.weight"],
            params["encoder.timestamp.weight"],
            params["encoder.age.weight"],
            params["encoder.age.bias"][None],
            params["encoder.timeless"],
        ]
    )  # [23,D]
    with jax.default_matmul_precision("float32"):  # 8 bits of an epoch or an age are weeks
        from_numbers = numbers @ weights
    total = look_up(columns, cells.column_ids) + look_up(value_table, value_ids)  # [N,D] float32
    total = total + from_numbers
    return rms_norm(total, params["encoder.norm"], dtype)


def project(params: Params, name: str, table: Array, dtype: jnp.dtype) -> Array:
    """Linear(T→D) of a frozen table. [m,T] float16 → [m,D]."""
    weight = params[f"{name}.weight"].astype(dtype)
    return table.astype(dtype) @ weight + params[f"{name}.bias"].astype(dtype)


def _value_table(
    params: Params, batch: Inputs, cells: Cells, tables: Tables, dtype: jnp.dtype
) -> tuple[Array, Array]:
    """All vectors that a value can be looked up in, and which one each cell takes: [m,D], [N]."""
    parts: dict[str, Array] = {
        "identifier": params["encoder.identifier"],
        "numerical": params["encoder.numerical.bias"][None],
        "timestamp": params["encoder.timestamp.bias"][None],
        "boolean": params["encoder.boolean"],
        "null": params["encoder.null"],
        "mask": params["encoder.mask"],
        "categorical": project(params, "encoder.categorical", tables.categories, dtype),
        "text": project(params, "encoder.text", batch["text_batch_embeddings"], dtype),
    }
    starts: dict[str, int] = {}
    count = 0
    for name, part in parts.items():
        starts[name], count = count, count + part.shape[0]
    offsets = {
        SemanticType.IDENTIFIER: jnp.asarray(0, jnp.int32),
        SemanticType.NUMERICAL: jnp.asarray(0, jnp.int32),
        SemanticType.TIMESTAMP: jnp.asarray(0, jnp.int32),
        SemanticType.BOOLEAN: batch["bool_values"].astype(jnp.int32),
        SemanticType.CATEGORICAL: batch["categorical_embed_ids"].astype(jnp.int32),
        SemanticType.TEXT: batch["text_embed_ids"].astype(jnp.int32),
    }
    ids = jnp.zeros_like(cells.stypes)
    for stype, offset in offsets.items():
        ids = jnp.where(cells.stypes == stype, starts[stype.name.lower()] + offset, ids)
    ids = jnp.where(batch["is_null"] > 0, starts["null"], ids)
    ids = jnp.where(cells.is_target, starts["mask"] + cells.stypes, ids)
    ids = jnp.where(cells.is_cell, ids, starts["identifier"])
    return jnp.concatenate([part.astype(dtype) for part in parts.values()]), ids


def _value_numbers(batch: Inputs, cells: Cells) -> Array:
    """[value, 15 parts of a time], zero where the cell shows neither. → [N,16] float32"""
    shows = cells.is_cell & (batch["is_null"] == 0) & ~cells.is_target
    is_number = shows & (cells.stypes == SemanticType.NUMERICAL)
    is_time = shows & (cells.stypes == SemanticType.TIMESTAMP)
    number = jnp.where(is_number, batch["numeric_values"], 0.0)[..., None]
    time = jnp.where(is_time[..., None], batch["timestamp_values"], 0.0)
    return jnp.concatenate([number, time], axis=-1)


def _age_numbers(batch: Inputs, cells: Cells) -> Array:
    """[5 features of the age, has an age, has none] of each cell's row. → [N,7] float32"""
    age = batch["row_ages"].astype(jnp.float32)  # [Rn] days
    has_age = age >= 0
    a = jnp.where(has_age, age, 0.0)
    features = jnp.stack(
        [
            jnp.log1p(a) / 8.0,
            jnp.minimum(a, AGE_LIMIT_DAYS) / 3650.0,
            jnp.exp(-a / 30.0),
            jnp.exp(-a / 365.0),
            jnp.exp(-a / 3650.0),
            jnp.ones_like(a),
        ],
        axis=-1,
    )  # [Rn,6]
    features = jnp.where(has_age[..., None], features, 0.0)
    features = jnp.concatenate([features, 1.0 - features[..., -1:]], axis=-1)  # [Rn,7]
    return features[cells.row_ids]


# -------------------------------------------------------------------------------------- the layers


def name_keys(params: Params, tables: Tables, dtype: jnp.dtype) -> list[Array]:
    """The vector of each foreign key, by its name, for each of ALONG_KEYS. → [keys,D] each"""
    projected = [project(params, f"keys.{name}", tables.keys, dtype) for name in ALONG_KEYS]
    return [rms_norm(x, jnp.zeros(x.shape[1]), dtype) for x in projected]


def attention_sublayer(
    params: Params, layer: int, pattern: int, normed: Array, rows: Array, mix: Mix,
    keys: Array | None = None,
) -> Array:  # fmt: skip
    """The sum that one attention adds to all cells, or to the targets.

    Args:
        normed: [N,D], the cells. rows: [Q,D], those that look, normed too; maybe `normed` itself.
        keys: [keys,D] of the foreign keys, of a pattern that follows these.
    """
    dtype = normed.dtype

    def weight(name: str) -> Array:
        return params[f"attention.{name}"][layer, pattern].astype(dtype)

    temperature = params["attention.temperature"][layer, pattern]
    if rows is normed:  # one product for all four
        joined = jnp.concatenate([weight(n) for n in ("query", "gate", "key", "value")], axis=1)
        query, gate, key, value = jnp.split(normed @ joined, 4, axis=-1)  # [N,D] each
    else:
        query, gate = rows @ weight("query"), rows @ weight("gate")
        key, value = normed @ weight("key"), normed @ weight("value")  # [N,D]
    along = []
    if keys is not None:
        units = unit_heads(keys @ weight("key"), temperature.shape[0]).reshape(keys.shape)
        values = (keys @ weight("value")).astype(jnp.float32)
        along = [KeyVectors(*(jnp.pad(v, ((1, 0), (0, 0))) for v in (units, values)))]
    mixed = mix(query, key, value, temperature, *along)
    return 2.0 * jax.nn.sigmoid(gate) * (mixed @ weight("out"))


def readout_sublayer(
    params: Params, layer: int, normed: Array, targets: Array, tiles: Tiles
) -> Array:
    """The sum that the readout adds to each target. normed [N,D], targets [n,D] of it → [n,D]"""
    dtype = normed.dtype

    def weight(name: str) -> Array:
        return params[f"readout.{name}"][layer].astype(dtype)

    temperature = params["readout.temperature"][layer]
    heads, width = temperature.shape[0], normed.shape[1]
    by_head = (width, heads, width // heads)  # [D,H,K]
    query = (targets @ weight("query")).reshape(-1, *by_head[1:])
    wanted = jnp.einsum("nhk,dhk->nhd", query, weight("key").reshape(by_head))
    found = read_out(wanted, normed, temperature, tiles).astype(dtype)  # [n,H,D]
    values = jnp.einsum("nhd,dhk->nhk", found, weight("value").reshape(by_head))
    gate = 2.0 * jax.nn.sigmoid(targets @ weight("gate"))
    return gate * (values.reshape(targets.shape) @ weight("out"))


def feed_forward_sublayer(params: Params, layer: int, x: Array) -> Array:
    """SwiGLU of the normed input. [Q,D] → [Q,D]"""
    normed = rms_norm(x, params["feed_forward.norm"][layer], x.dtype)
    gate = normed @ params["feed_forward.gate"][layer].astype(x.dtype)  # [Q,F]
    up = normed @ params["feed_forward.up"][layer].astype(x.dtype)  # [Q,F]
    down = params["feed_forward.down"][layer].astype(x.dtype)
    return (jax.nn.silu(gate) * up) @ down


def transform(
    params: Params, x: Array, cells: Cells, patterns: Patterns, cfg: Config, keys: list[Array], *,
    everywhere: bool,
) -> Array:  # fmt: skip
    """All layers. [N,D] → [n,D] at the targets, or [N,D] everywhere.

    Where only the targets are read, the last column attention and feed-forward are computed there
    alone; this changes no result. Contexts of masked cells alone have no target and no readout.
    """
    contexts, tiles = cells.contexts, make_tiles(cells)
    along_keys = (patterns.outbound, patterns.inbound)
    for layer in range(cfg.layers):
        gammas = params["attention.norm"][layer]
        for pattern, (mix, names) in enumerate(zip(along_keys, keys, strict=True)):
            normed = rms_norm(x, gammas[pattern], x.dtype)
            x = x + attention_sublayer(params, layer, pattern, normed, normed, mix, names)
        normed = rms_norm(x, gammas[2], x.dtype)
        targets = at_targets(normed, contexts)  # [n,D]
        read = jnp.zeros_like(targets)
        if cfg.objective != "masked_cells":
            read = readout_sublayer(params, layer, normed, targets, tiles)
        if layer < cfg.layers - 1 or everywhere:
            x = x + attention_sublayer(params, layer, 2, normed, normed, patterns.column)
            x = x.at[contexts.targets].add(read, mode="drop")
        else:
            mix = patterns.target_column
            x = at_targets(x, contexts) + read
            x = x + attention_sublayer(params, layer, 2, normed, targets, mix)
        x = x + feed_forward_sublayer(params, layer, x)
    return x


# --------------------------------------------------------------------------------------- the heads


def apply_heads(
    params: Params, h: Array, batch: Inputs, tables: Tables, category_limit: int, dtype: jnp.dtype
) -> Output:
    """Every head at the target; which one counts is the loss's business. [n,D] float32 → Output"""

    def head(name: str) -> Array:
        return h @ params[f"heads.{name}.weight"] + params[f"heads.{name}.bias"]

    start = batch["cat_emb_start"][0].astype(jnp.int32)
    count = batch["cat_emb_count"][0].astype(jnp.int32)
    choices = jax.lax.dynamic_slice_in_dim(tables.categories, start, category_limit)  # [L,T]
    projected = project(params, "encoder.categorical", choices, dtype)  # [L,D]
    scores = jnp.einsum("nd,ld->nl", head("categorical"), projected.astype(jnp.float32))
    is_choice = jnp.arange(category_limit) < count
    return Output(
        null=head("null")[:, 0],
        numerical=head("numerical")[:, 0],
        timestamp=head("timestamp"),
        boolean=head("boolean")[:, 0],
        categorical=jnp.where(is_choice, scores, -1e9),
    )


def read_context(
    params: Params,
    batch: Inputs,
    tables: Tables,
    cfg: Config,
    *,
    row_shape: RowShape | None = None,
    everywhere: bool = False,
) -> Array:
    """What the layers make of a batch, normed for the heads. → [n,D] or [N,D] float32

    Args:
        batch: a batch of any layout, its arrays by `data.to_device`, or of `as_flat`.
        row_shape: most cells of a row (`data.read_row_shape`); needed by path "rows".
        everywhere: at every cell, not at the targets alone.
    """
    flat = as_flat(batch)
    cells = read_cells(flat, tables.key_starts)
    patterns = make_patterns(cells, cfg, row_shape, 1 + tables.keys.shape[0])
    x = encode(params, flat, cells, tables, cfg)  # [N,D]
    keys = name_keys(params, tables, x.dtype)
    x = transform(params, x, cells, patterns, cfg, keys, everywhere=everywhere)
    h = rms_norm(x, params["heads.norm"], jnp.dtype(jnp.float32))
    if (is_whole := patterns.is_whole) is not None:  # a context that was cut has no answer
        if everywhere:
            is_whole = jnp.append(is_whole, True)[cells.contexts.of_cell]
        h = jnp.where(is_whole[:, None], h, jnp.nan)
    return h


def forward(
    params: Params,
    batch: Inputs,
    tables: Tables,
    cfg: Config,
    *,
    category_limit: int,
    row_shape: RowShape | None = None,
) -> Output:
    """The whole model, at the targets; the other arguments are those of `read_context`.

    Args:
        category_limit: L, most categories of the run's tasks, at least 1.
    """
    h = read_context(params, batch, tables, cfg, row_shape=row_shape)  # [n,D]
    return apply_heads(params, h, batch, tables, category_limit, compute_dtype(cfg))
