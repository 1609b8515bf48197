"""MkDocs hooks: pages that are made while the site is built, and links that lead out of docs/.

A page each for the shipped profiles, the commands, the notebook, and the documents at the top of the repository.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import api  # noqa: E402
import commands  # noqa: E402, F401 - changes mkdocs-click
import sites  # noqa: E402

COMMANDS = """# Commands

Each option can also be set in the environment (`HPCLAUNCH_NODES=2`) and in [a config file](config.md).

::: mkdocs-click
    :module: hpclaunch.cli
    :command: main
    :prog_name: hpclaunch
    :depth: 1
    :list_subcommands: True
"""
TOP = {"../CONTRIBUTING.md": "contributing.md", "../CHANGELOG.md": "changelog.md", "../README.md": "index.md"}
TOP |= {"notebook.ipynb": "notebook.md"}


def notebook(path: Path) -> str:
    """Return a notebook as a page."""
    text = ""
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        text += f"```python\n{source}\n```\n\n" if cell["cell_type"] == "code" else f"{source}\n\n"
    return text


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the sites to the navigation."""
    (entry,) = (one for one in config.nav if "Sites" in one)
    entry["Sites"] += [{name: f"sites/{name}.md"} for name in sites.NAMES]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    made = {f"sites/{name}.md": sites.page(name) for name in sites.NAMES}
    made["commands.md"] = COMMANDS
    made["notebook.md"] = notebook(HERE.parent / "notebook.ipynb")
    for source, name in list(TOP.items())[:2]:
        made[name] = (HERE.parent / source).read_text().replace("](docs/", "](")
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to pages of the site; those to files of the repository become words."""
    if page.file.src_uri == "sites.md":
        markdown = sites.index(markdown)
    if page.file.src_uri == "python.md":
        markdown += api.reference()
    for old, new in TOP.items():
        markdown = markdown.replace(f"]({old}", f"]({new}")
    markdown = re.sub(r"^([^-\s|>#`].*\n)(?=- )", r"\1\n", markdown, flags=re.MULTILINE)  # a list after a line of text
    if page.file.src_uri.startswith("sites/"):
        return markdown
    return re.sub(r"\[([^\]]+)\]\((?:\.\./|hpclaunch/|benchmarks/|templates/|site_profiles/)[^)]*\)", r"\1", markdown)
