"""`make docs`: the pages of docs/ as a site that needs no network, of which no link is broken and
to which no page is lost."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def site(project: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` runs."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=project, capture_output=True, text=True,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


def test_the_site_has_every_page_and_fetches_nothing(tmp_path: Path) -> None:
    assert "mkdocs build --strict\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    done = site(ROOT, tmp_path)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    made = {path.relative_to(tmp_path).with_suffix("") for path in tmp_path.rglob("*.html")}
    assert made == pages | {Path("404")}
    for path in tmp_path.rglob("*.html"):
        fetched = re.findall(
            r"<(?:script|link|img)[^>]*(?:src|href)=\"(\w+:[^\"]*)", path.read_text()
        )
        assert fetched == [], path


def test_broken_links_and_pages_that_nobody_links_are_errors(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    (tmp_path / "docs" / "guides" / "lost.md").write_text("# Lost\n")
    with (tmp_path / "docs" / "guides" / "audit.md").open("a") as page:
        page.write(
            "\n[a](gone.md) [b](sources.md#gone) [c](/guides/sources.md) [d](../../README.md)\n"
        )
    done = site(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for told in ("lost.md", "'gone.md'", "'#gone'", "'/guides/sources.md'", "'../../README.md'"):
        assert told in done.stderr
    assert done.stderr.count("WARNING") == 5


def test_the_index_links_every_page() -> None:
    """A code host shows a page without navigation."""
    links = re.findall(r"\]\(([^)#]+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"index.md"}
    assert {*links} == pages


def test_pages_that_code_and_comments_name_are_there() -> None:
    endings = {".c", ".h", ".py", ".sh", ".md", ".json", ".toml", ".build", ".options"}
    files = [ROOT / "Makefile", *ROOT.glob("*.md")]
    for folder in ("headwater", "confluence", "docs", "examples", "tools"):
        found = [path for path in (ROOT / folder).rglob("*") if path.suffix in endings]
        files += [path for path in found if ".venv" not in path.parts]
    named = {
        (name, str(path.relative_to(ROOT)))
        for path in files
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert len({name for name, _ in named}) > 15
    gone = {(name, where) for name, where in named if not (ROOT / name).exists()}
    moved = "docs/14-rel-f1.md"  # two pages say what it is called now
    assert {name for name, _ in gone} <= {moved}, gone
