"""Runs cells in a kernel of Jupyter, as a notebook does: `kernel_cells.py FOLDER < cells.json`.

stdin has a JSON list of texts, stdout gets one of what each cell showed: {"error", "streams",
"shown"}, where "streams" are the pieces of stdout and stderr in their order, and "shown" has the
results and displays by MIME type. It is a process of its own, as Jupyter warns and leaves event
loops behind.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

PATIENCE_S = 240  # for one cell


def main(folder: Path) -> None:
    manager = KernelManager(connection_file=str(folder / "k.json"), transport="ipc")
    manager.start_kernel(cwd=str(folder))
    try:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE_S)
        json.dump([run(client, cell) for cell in json.load(sys.stdin)], sys.stdout)
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)


def run(client: Any, cell: str) -> dict[str, Any]:
    told: dict[str, Any] = {"error": None, "streams": [], "shown": []}

    def keep(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            told["streams"].append(content["text"])
        elif message["msg_type"] in ("execute_result", "display_data"):
            told["shown"].append(content["data"])
        elif message["msg_type"] == "error":
            told["error"] = f"{content['ename']}: {content['evalue']}"

    client.execute_interactive(cell, output_hook=keep, timeout=PATIENCE_S)
    return told


if __name__ == "__main__":
    main(Path(sys.argv[1]))
