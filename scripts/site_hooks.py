"""What the site needs beside docs/: pages that stand beside what they are about, and links that lead out of docs/."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
MERMAID: Final = ROOT / ".cache" / "site" / "package" / "dist" / "mermaid.min.js"
BESIDE: Final = {
    "chart.md": "charts/elbowroom/README.md", "scheduler.md": "scheduler/README.md",
    "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md",
}  # fmt: skip
"""Pages of the site, and where they are."""
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, *, config: Any, **_: Any) -> Files:  # noqa: ANN401
    """Add what stands elsewhere."""
    for name, source in BESIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "assets/mermaid.min.js", content=MERMAID.read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:  # noqa: ANN401
    """Have links lead to pages of the site; a file that is none is named."""
    at = page.file.src_uri
    source = ROOT / BESIDE[at] if at in BESIDE else DOCS / at
    return _LINK.sub(lambda found: _led(found, source, at), markdown)


def _led(found: re.Match[str], source: Path, at: str) -> str:
    picture, text, target = found.groups()
    if "://" in target or target.startswith("#"):
        return found[0]
    path, _, heading = target.partition("#")
    file = (source.parent / path).resolve()
    names = {ROOT / place: name for name, place in BESIDE.items()}
    if file in names:
        there = names[file]
    elif file.is_relative_to(DOCS):
        there = str(file.relative_to(DOCS))
    else:
        return text if text == str(file.relative_to(ROOT)) else f"{text} (`{file.relative_to(ROOT)}`)"
    where = os.path.relpath(there, Path(at).parent)
    return f"{picture}[{text}]({where}{f'#{heading}' if heading else ''})"
