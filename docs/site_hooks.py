"""What the site has beside these files: the pages of the API, from the docstrings of the
public names; and links to files outside of this folder, which lead to the repository.

mkdocs.yml loads it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)#\s]*)(#[^)\s]*)?\)")
_API = """# Python API

The names that `pytest_kernelprof` exports. Shapes, units and errors are in each entry.

"""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page of the API."""
    entries = "\n".join(f"::: {name}\n" for name in public_names())
    files.append(File.generated(config, "api.md", content=_API + entries))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the repository's other files there; without its address they are text."""
    url = (config.repo_url or "").rstrip("/")

    def outside(found: re.Match[str]) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        if not (ROOT / path).exists():
            return found[0]  # a broken link, of which the build warns
        return f"[{words}]({url}/blob/main/{path}{anchor})" if url else words

    return _OUTSIDE.sub(outside, markdown)


def public_names() -> list[str]:
    """Return the public names with the modules that define them: the entry points first, then
    records, then exceptions."""
    tree = ast.parse((ROOT / "pytest_kernelprof" / "__init__.py").read_text())
    homes = {
        alias.name: node.module or ""
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    entries = ("plugin.fixture", "api", "plugin.benchmark", "allowances")
    ranked = (*entries, "records.profile", "errors")
    order = {f"pytest_kernelprof.{name}": at for at, name in enumerate(ranked)}
    named = sorted(homes.items(), key=lambda one: (order[one[1]], one[0] != "KernelProfile"))
    return [f"{home}.{name}" for name, home in named]
