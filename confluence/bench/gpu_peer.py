"""A step of relational-transformer's model on the contexts of ours, for gpu.py.

Its unpacked wheel is imported as it is, and nothing of it is kept here. Width, heads, layers,
feed-forward, contexts and cells are those of preset `base`. Its model has no readout, no ages and
no types of foreign keys, so it does a little less for a cell. As in its own training weights are in
bfloat16 with float32 masters, FlexAttention has masks of blocks, all is compiled, and Muon trains
the matrices and AdamW the rest.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

from confluence.config import preset
from confluence.data.tasks import open_sampler
from confluence.data.verification import open_store

STEPS, WARM = 20, 4
NONE = -1  # of a foreign key


def contexts(store: str, task: str, cfg: Any) -> tuple[dict[str, np.ndarray], int]:
    """A batch of ours as padded arrays [B,S,...] by the other's names, and its cells."""
    with open_sampler(open_store(store), cfg, task, layout="dense", num_prefetch=0) as sampler:
        batch = sampler.next_train_batch()
        width = int(sampler.database_metadata()["text"]["dim"])
        rows = batch["seq_row_ids"].astype(np.int64)
        parents = batch["parents"].astype(np.int64)  # [B,R,P]
        parents = np.where(parents < parents.shape[1], parents, NONE)
        is_padding = batch["is_padding"].astype(bool)
        at = np.arange(len(rows))[:, None], np.where(is_padding, 0, rows)
        draws = np.random.default_rng(0)
        shape = rows.shape
        found = {
            "node_idxs": np.where(is_padding, NONE, rows),
            "f2p_nbr_idxs": np.where(is_padding[..., None], NONE, parents[at]),
            "col_name_idxs": batch["column_ids"].astype(np.int64),
            "table_name_idxs": np.zeros(shape, np.int64),  # our columns are of one table each
            "is_padding": is_padding,
            "sem_types": batch["semantic_types"].astype(np.int64) % 3,
            "is_targets": batch["is_target"].astype(bool),
            "col_name_values": draws.normal(size=(*shape, width)),
            "number_values": draws.normal(size=(*shape, 1)),
            "datetime_values": draws.normal(size=(*shape, 1)),
            "text_values": draws.normal(size=(*shape, width)),
        }
        return found, int((~is_padding).sum())


def peer_modules(wheel: Path) -> tuple[Any, Any]:
    """The model and its optimizer, without what downloads models and data and needs much else."""
    for name in ("rt", "rt.model", "rt.train"):
        package = types.ModuleType(name)
        package.__path__ = [str(wheel.joinpath(*name.split(".")))]
        sys.modules[name] = package
    absent = types.ModuleType("rt.model.checkpoints")
    vars(absent).update(dict.fromkeys(("MODEL_DIM_KEYS", "load_model", "resolve_checkpoint")))
    sys.modules[absent.__name__] = absent
    return importlib.import_module("rt.model.net"), importlib.import_module("rt.train.muon")


def measure(store: str, task: str, wheel: Path, *, device: str = "cuda", **sizes: Any) -> Any:
    """Milliseconds of a step, and the peak of memory. `sizes`: other settings of preset `base`."""
    import torch

    net_of, muon = peer_modules(wheel)

    cfg = preset("base", **sizes)
    arrays, cells = contexts(store, task, cfg)
    is_gpu = device == "cuda"
    net = net_of.RelationalTransformer(
        num_blocks=cfg.layers, d_model=cfg.width, d_text=arrays["text_values"].shape[-1],
        num_heads=cfg.heads, d_ff=cfg.feed_forward_width, compile=is_gpu,
        materialize_attn_masks=True,
    ).to(device).to(torch.bfloat16)  # fmt: skip
    batch = {
        name: torch.from_numpy(x).to(device, torch.bfloat16 if x.dtype == np.float64 else None)
        for name, x in arrays.items()
    }
    weights = dict(net.named_parameters())
    masters = {n: p.detach().float().clone().requires_grad_(True) for n, p in weights.items()}
    is_matrix = {
        n: p.ndim == 2 and min(p.shape) > 1 and not n.startswith(("enc_dict", "dec_dict"))
        for n, p in masters.items()
    }
    optimizers = [
        muon.Muon(
            [p for n, p in masters.items() if is_matrix[n]], lr=1e-3,
            adjust_lr_fn="match_rms_adamw", compile=is_gpu,
        ),
        torch.optim.AdamW([p for n, p in masters.items() if not is_matrix[n]], fused=is_gpu),
    ]  # fmt: skip

    def step() -> float:
        loss = net(batch, return_embeddings=False)[0]
        loss.backward()
        for name, weight in weights.items():
            masters[name].grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(masters.values(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(masters[name])
        return float(loss.item())  # which waits for the device

    taken = []
    for _ in range(WARM + STEPS):
        started = time.perf_counter()
        loss = step()
        taken.append(time.perf_counter() - started)
    median = statistics.median(taken[WARM:])
    return {
        "ms": 1e3 * median, "first_step_seconds": taken[0], "cells_per_second": cells / median,
        "parameters": sum(p.numel() for p in weights.values()), "loss": loss,
        "memory": torch.cuda.max_memory_allocated() if is_gpu else None,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if is_gpu else "cpu",
    }  # fmt: skip
