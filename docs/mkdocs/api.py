"""The Python reference, from the signatures and docstrings of what programs may use. Nothing is imported."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "hpclaunch"
PARTS = {
    "Submit functions": {
        "executors/__init__.py": ["executor"],
        "executors/script.py": ["ScriptExecutor"],
        "executors/job.py": ["ScriptJob"],
    },
    "Save and go on": {"workloads/resume.py": ["SaveAndLeave", "resume_path", "trainer_places"]},
}
MADE = ("ScriptExecutor", "ScriptJob")  # by executor() and submit(): nobody else calls the class
HOOKS = ("on_", "listen", "setup", "resumable", "leave", "save")  # for Lightning and the callback itself


def entry(node: ast.ClassDef | ast.FunctionDef, owner: str = "") -> str:
    """Return the signature and docstring of a function or class, with a class's public methods."""
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
    start = next((one for one in methods if one.name == "__init__"), None) if isinstance(node, ast.ClassDef) else node
    words = ast.unparse(start.args).replace("self, ", "").replace("self", "") if start else ""
    is_property = any(ast.unparse(one) == "property" for one in node.decorator_list)
    title = f"{owner}{node.name}" + ("" if is_property else f"({words})")
    if node.name in MADE:
        title = ast.unparse(node).partition(":\n")[0]
    returns = getattr(node, "returns", None)
    title += f" -> {ast.unparse(returns)}" if returns else ""
    text = f"{'####' if owner else '###'} {owner}{node.name}\n\n```python\n{title}\n```\n\n"
    text += inspect.cleandoc(ast.get_docstring(node) or "") + "\n\n"
    if isinstance(node, ast.ClassDef):
        shown = [one for one in methods if not one.name.startswith(("_", *HOOKS)) and ast.get_docstring(one)]
        text += "".join(entry(one, f"{node.name}.") for one in shown)
    return text


def reference() -> str:
    """Return the reference as Markdown."""
    text = ""
    for title, files in PARTS.items():
        text += f"\n## {title}\n\n"
        for file, names in files.items():
            nodes = {getattr(one, "name", ""): one for one in ast.parse((PACKAGE / file).read_text()).body}
            text += "".join(entry(nodes[name]) for name in names)  # type: ignore[arg-type]
    return text
