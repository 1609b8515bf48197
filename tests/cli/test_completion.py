"""What the tab key gives, in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import call
from test_shell import Terminal

HERE = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# What bash's programmable completion does at a tab: the words, the last of them incomplete, to the function.
BASH = """
eval "$(hpclaunch completion bash)"
COMP_LINE=$1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
compopt() { local IFS=" "; echo "compopt $*"; }
_hpclaunch_completion hpclaunch "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
IFS=$'\\n'; echo "${COMPREPLY[*]}"
"""


def tab(*words: str) -> list[str]:
    """Return what bash offers for the last of these words."""
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", " ".join(words), *words],
        env=os.environ | {"PATH": HERE}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_sites_partitions_qos_and_jobs_are_completed(work, tmp_path, monkeypatch):
    """Each option and argument offers what there is: at the site and in the partition that are typed already."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    job = call("submit", "--quiet", "--site", "local", "--wait", "--", "true").strip()
    assert tab("hpclaunch", "ren") == ["render"]
    assert tab("hpclaunch", "render", "--site", "ga") == ["gadi"]
    assert tab("hpclaunch", "render", "--site", "=", "ga") == ["gadi"]  # as bash splits --site=ga
    assert tab("hpclaunch", "render", "-s", "gadi", "-p", "gpuv") == ["gpuvolta"]
    jean_zay = ("hpclaunch", "submit", "-s", "jean-zay", "-p", "a100", "--qos")
    assert "qos_gpu_a100-t3" in tab(*jean_zay, "")
    assert not [name for name in tab(*jean_zay, "") if "h100" in name]
    assert tab("hpclaunch", "submit", "--after", "local-") == [job]
    for command in ("status", "logs", "wait", "cancel", "why"):
        assert tab("hpclaunch", command, "local-") == [job]


def test_the_command_is_completed_with_files(work):
    """After -- and in place of COMMAND the shell offers files."""
    for words in (("run", "--", "python", "tr"), ("run", "python", "tr"), ("check", "--script", "tr")):
        assert "compopt -o default" in tab("hpclaunch", *words)


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(
    ("typed", "becomes"),
    [("--site=ga", "--site=gadi "), ("--site ga", "--site gadi "), ("--script=ol", "--script=old.sh ")],
)
def test_zsh_completes_the_value_of_an_option(work, monkeypatch, typed, becomes):
    """`--site=ga<TAB>` becomes --site=gadi: the option stays."""
    (work / "old.sh").touch()
    (Path.home() / ".zshrc").write_text(
        'autoload -Uz compinit; compinit -u; PS1="ready> "; eval "$(hpclaunch completion zsh)"\n'
        "shown() { print -r; print -r -- \"<$BUFFER>\"; zle accept-line }; zle -N shown; bindkey '^X' shown\n"
    )
    monkeypatch.setenv("PATH", HERE)
    monkeypatch.setenv("TERM", "dumb")
    zsh = Terminal(program=["zsh", "-i"])
    zsh.wait_for("ready> ")
    os.write(zsh.file, f"hpclaunch check {typed}\t\x18".encode())
    assert zsh.wait_for("<hpclaunch check (.*)>")[1] == becomes
