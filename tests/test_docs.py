"""The pages in docs/: what is made from the code is up to date, links lead somewhere, the notebook runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.shipped
@pytest.mark.parametrize("made", ["templates.md", "concepts.svg"])
def test_made_pages_are_up_to_date(made):
    """The table has every block of the templates, the picture the numbers of a plan: make docs writes them."""
    program = (ROOT / "docs" / made).with_suffix(".py")
    printed = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs" / made).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """A link of a page leads to a file of the repository."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_readme_is_short():
    """The README takes a minute to read; the rest is in docs/."""
    assert (ROOT / "README.md").stat().st_size <= 5000


@pytest.mark.slow
@pytest.mark.train
def test_notebook_runs(work, plots):
    """Users get through the notebook: two ranks train in a cell, jobs are submitted, their losses come back."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(shutil.copy(ROOT / "docs/notebook.ipynb", work), as_version=4)
    nbclient.execute(notebook, cwd=str(work), timeout=300)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    assert "y = 2.00 x + 1.00 by 2 ranks" in text
    assert "rate 0.02: 2 ranks, last losses" in text
    assert "image/png" in outputs[-1]["data"]
