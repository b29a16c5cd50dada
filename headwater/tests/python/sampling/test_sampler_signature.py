"""Type checkers and editors know the options of `Sampler`. Run as a script, it writes down what the
table of options says now."""

from __future__ import annotations

from pathlib import Path

from headwater.binding import header
from headwater.sampling.sampler_options import choices, signature
from mypy import api

WRITTEN = Path(__file__).parents[3] / "python" / "headwater" / "sampling" / "sampler_signature.py"
KINDS = {header.HW_OPTION_FLAG: "bool", header.HW_OPTION_DOUBLE: "float"}
TYPES = {
    "db_path": "str | os.PathLike[str]", "store": "Store", "load": 'Literal["mmap", "ram"]',
    "verify": 'Literal["once", "header", "full"]', "split_ratios": "tuple[float, float, float]",
    "staleness": "tuple[float, float]", "tasks": "Sequence[str]", "seed_tables": "Sequence[str]",
    "task_weights": "Mapping[str, float] | Sequence[float]", "time_split": "tuple[Time, Time]",
    "visible_until": "Time | Mapping[str, Time | None]", "local_world_size": "int",
}  # fmt: skip


def type_of(name: str) -> str:
    if name in TYPES:
        return TYPES[name]
    option = choices()[name].option
    words = ", ".join(f'"{one}"' for one in option.words if one != "default")
    return f"Literal[{words}]" if words else KINDS.get(option.type, "int")


def expected() -> str:
    """The file up to its parameters stays as it is."""
    lines = [WRITTEN.read_text(encoding="utf-8").partition("    self: object,\n")[0]]
    lines.append("    self: object,\n")
    for name, parameter in signature().parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "    *,\n" not in lines:
            lines.append("    *,\n")
        kind = type_of(name) + " | None" * (parameter.default is None)
        default = repr(parameter.default).replace("'", '"')
        lines.append(f"    {name}: {kind} = {default},\n")
    return "".join(lines) + ") -> None: ...\n"


def test_the_signature_is_that_of_the_table_of_options() -> None:
    assert WRITTEN.read_text(encoding="utf-8") == expected()


def test_a_type_checker_tells_of_a_wrong_option(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from headwater import Sampler\n"
        'Sampler("x", 0, 2, tasks=["churn"], num_prefetch=None, child_order="recent")\n'
        'Sampler("x", max_hop=3)\n'
        'Sampler("x", child_order="latest")\n'
    )
    found, _, _ = api.run(["--strict", str(script)])
    errors = [line for line in found.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["3", "4"], found
    assert '"max_hop"' in found and '"child_order"' in found


if __name__ == "__main__":
    WRITTEN.write_text(expected(), encoding="utf-8")
