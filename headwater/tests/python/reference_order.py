"""The order of docs/reference/sampling.md: random draws (section 2), splits (5), who comes when
(6).

Written from that page and the published algorithms it names; shares no code with the library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from plain_database import ALWAYS, NEVER, NUMERICAL, Database, Options, Seed, Table, Task

MASK32, MASK64 = 2**32 - 1, 2**64 - 1

# ---- 2. random draws ---------------------------------------------------------------------------


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        left, right = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (right >> 32) ^ c1 ^ k0,
            right & MASK32,
            (left >> 32) ^ c3 ^ k1,
            left & MASK32,
        )
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


class Stream:
    def __init__(self, seed: int, index: int, epoch: int, task: int, split: int) -> None:
        self.words = self.blocks((seed & MASK32, seed >> 32), index, epoch, task * 4 + split)

    @staticmethod
    def blocks(
        key: tuple[int, int], index: int, epoch: int, last: int, block: int = 0
    ) -> Iterator[int]:
        while True:
            yield from philox4x32((block, index, epoch, last), key)
            block += 1

    def below(self, n: int) -> int:
        if n == 1:
            return 0
        product = next(self.words) * n
        while product & MASK32 < (2**32 - n) % n:
            product = next(self.words) * n
        return product >> 32


# ---- 5. splits ---------------------------------------------------------------------------------

PRIME = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK64


def xx_round(accumulator: int, lane: int) -> int:
    return rotate((accumulator + lane * PRIME[1]) & MASK64, 31) * PRIME[0] & MASK64


def hash64(data: bytes, seed: int) -> int:
    """XXH64, from its published specification."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [seed + PRIME[0] + PRIME[1], seed + PRIME[1], seed, seed - PRIME[0]]
        lanes = [lane & MASK64 for lane in lanes]
        while at + 32 <= size:
            for i in range(4):
                word = int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little")
                lanes[i] = xx_round(lanes[i], word)
            at += 32
        h = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            h = ((h ^ xx_round(0, lane)) * PRIME[0] + PRIME[3]) & MASK64
    else:
        h = seed + PRIME[4]
    h = (h + size) & MASK64
    while at + 8 <= size:
        h ^= xx_round(0, int.from_bytes(data[at : at + 8], "little"))
        h = (rotate(h, 27) * PRIME[0] + PRIME[3]) & MASK64
        at += 8
    if at + 4 <= size:
        h ^= int.from_bytes(data[at : at + 4], "little") * PRIME[0] & MASK64
        h = (rotate(h, 23) * PRIME[1] + PRIME[2]) & MASK64
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * PRIME[4] & MASK64, 11) * PRIME[0] & MASK64
    h = (h ^ h >> 33) * PRIME[1] & MASK64
    h = (h ^ h >> 29) * PRIME[2] & MASK64
    return h ^ h >> 32


def key_bytes(parts: tuple[str, ...]) -> bytes:
    texts = [part.encode() for part in parts]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def split_of(database: Database, task: Task, seed: Seed, options: Options) -> int:
    if seed.split is not None:
        return seed.split
    keys = database.table(task.anchor_table).primary_key
    key = key_bytes(keys[seed.anchor]) if keys else seed.anchor.to_bytes(8, "little")
    return hashed_split(key, task.name, options)


def hashed_split(key: bytes, name: str, options: Options) -> int:
    numbers = (hash64(key, 0), hash64(name.encode(), 0), options.split_seed)
    bucket = hash64(b"".join(n.to_bytes(8, "little") for n in numbers), 0) % 1000
    train, val, _ = options.split_ratios
    bounds = (math.floor(1000 * train + 0.5), math.floor(1000 * (train + val) + 0.5))
    return sum(bucket >= bound for bound in bounds)


NO_SEED = 3


def row_seeds(database: Database, table: Table, options: Options) -> Task:
    """The rows of a table as the seeds of a task that asks nothing; seed i is row i."""
    task, seeds = Task(table.name, table.name, "", NUMERICAL, (), derived=False), []
    for row in range(table.row_count):
        split = split_of(database, task, Seed(row, 0), options)
        until = options.visible_until[split]
        time = until if table.times is None else table.times[row]
        if table.times is not None and (time in (ALWAYS, NEVER) or time > until):
            split = NO_SEED
        seeds.append(Seed(row, time, None, False, split))
    return replace(task, seeds=tuple(seeds), exclusive=True)


# ---- 6. order ----------------------------------------------------------------------------------


def mix(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


def order_key(seed: int, domain: int, a: int, b: int) -> int:
    return mix(mix(mix(seed ^ mix(domain)) ^ a) ^ b)


def permute(key: int, n: int, i: int) -> int:
    q = 1
    while 4**q < n:
        q += 1
    while True:
        left, right = i >> q, i & (2**q - 1)
        for r in range(8):
            left, right = right, left ^ mix(key ^ (r << 32 | right)) & (2**q - 1)
        i = left << q | right
        if i < n:
            return i


@dataclass(frozen=True)
class Position:
    """A place in a batch: seed `index` of the task in `epoch`; index None: an empty sequence."""

    task: int
    split: int
    index: int | None
    epoch: int


class Order:
    """Which seed stands where, for one database and one set of options."""

    def __init__(self, database: Database, options: Options) -> None:
        self.database, self.options = database, options
        self.tasks = dict(enumerate(database.tasks))
        if options.seed_tables is not None:
            count = len(database.tasks)
            self.tasks = {
                count + number: row_seeds(database, table, options)
                for number, table in enumerate(database.tables)
                if table.name in options.seed_tables
            }
        self.splits = {
            number: [split_of(database, task, seed, options) for seed in task.seeds]
            for number, task in self.tasks.items()
        }
        weights = options.task_weights
        self.weights = {
            number: 1.0 if weights is None else weights[task.name]
            for number, task in self.tasks.items()
        }

    def seeds(self, split: int, task: int) -> list[int]:
        return [i for i, own in enumerate(self.splits[task]) if own == split]

    def active(self, split: int) -> list[int]:
        return [
            task for task, weight in self.weights.items() if weight > 0 and self.seeds(split, task)
        ]

    def own_seeds(self, split: int, task: int) -> list[int]:
        """Those that this rank's positions count."""
        seeds = self.seeds(split, task)
        return seeds if self.options.dealt else seeds[self.options.rank :: self.options.world_size]

    def at(self, split: int, task: int, position: int) -> Position:
        seeds = self.own_seeds(split, task)
        if not seeds:
            return Position(task, split, None, 0)
        epoch, place = divmod(position, len(seeds))
        rank = 0 if self.options.dealt else self.options.rank
        key = order_key(self.options.seed, 1, split << 32 | task, rank << 32 | epoch)
        return Position(task, split, seeds[permute(key, len(seeds), place)], epoch)

    def own_position(self, place: int) -> int:
        """Of the n-th seed that this rank takes."""
        options = self.options
        return place * options.world_size + options.rank if options.dealt else place

    def task_of_batch(self, split: int, k: int) -> int:
        tasks = self.active(split)
        if self.options.round_robin:
            return tasks[k % len(tasks)]
        shares = [self.weights[t] / sum(self.weights[t] for t in tasks) * 1024 for t in tasks]
        slots = [int(share) for share in shares]
        by_rest = sorted(range(len(tasks)), key=lambda i: (slots[i] - shares[i], i))
        for i in by_rest[: 1024 - sum(slots)]:
            slots[i] += 1
        key = order_key(self.options.seed, 2, split, k // 1024)
        slot = permute(key, 1024, k % 1024)
        owners = [task for task, count in zip(tasks, slots, strict=True) for _ in range(count)]
        return owners[slot]

    def batch(self, split: int, k: int) -> list[Position]:
        task = self.task_of_batch(split, k)
        m = sum(self.task_of_batch(split, before) == task for before in range(k))
        size = self.options.batch_size
        return [self.at(split, task, self.own_position(m * size + i)) for i in range(size)]

    def epoch(self, split: int, task: int, index: int = 0) -> list[list[Position]]:
        size, world = self.options.batch_size, self.options.world_size
        n = len(self.own_seeds(split, task))
        empty = Position(task, split, None, index)
        batches = []
        for j in range(-(-len(self.seeds(split, task)) // (size * world))):
            places = [self.own_position(j * size + i) for i in range(size)]
            batches.append(
                [self.at(split, task, index * n + p) if p < n else empty for p in places]
            )
        return batches
