"""The result of `Run.evaluate`: the dict that its file holds, which prints as tables."""

from __future__ import annotations

from typing import Any

from headwater.shared import counted, html_line, html_table, short

from confluence.report.page import evaluation_html
from confluence.report.tables import describe_evaluation, four_digits

SHOWN_BYTES, LINE_BYTES = 1_900, 160  # at a prompt: of all lines, and of one


class Evaluation(dict[str, Any]):
    """Scores by name. `str()` is the table that `confluence evaluate` prints, `repr()` its first
    lines and the verdict."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        lines = [short(line, LINE_BYTES) for line in self._lines()]
        verdict = [short(text, 2 * LINE_BYTES) for text in self._verdict()]
        kept = lines[:-2] if verdict else list(lines)
        room = SHOWN_BYTES - sum(len(line.encode()) for line in verdict)
        tables = len(kept)
        while sum(len(line.encode()) + 1 for line in kept) > room:
            kept.pop()
        more = tables - len(kept)
        rest = [f"  ... and {counted(more, 'more line')}: print(evaluation)"] if more else []
        return "\n".join(kept + rest + verdict)

    def _repr_html_(self) -> str:
        if "metrics" in self:
            return "".join(map(html_line, self._verdict())) + evaluation_html(self)
        headline, *_ = self._lines()
        types = self.get("types", {})  # of masked cells
        rows = [[name, four_digits(of["loss"]), f"{of['cells']:,}"] for name, of in types.items()]
        if rows:
            rows.insert(0, ["all", four_digits(self["loss"]), ""])
        return str(html_line(headline) + html_table(["", "loss", "cells"], rows, "type"))

    def _verdict(self) -> list[str]:
        """The sentence, which is the last line, after an empty line; empty without a verdict."""
        return [self["verdict"]["text"]] if "verdict" in self and "metrics" in self else []

    def _lines(self) -> list[str]:
        try:
            return describe_evaluation(self)
        except KeyError:  # a rank that does not score returned it, or it was changed
            return [f"<Evaluation with {', '.join(self) or 'nothing in it'}>"]
