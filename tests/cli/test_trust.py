"""A repository of anybody's: what looking at it, checking it and submitting from it run, what is said of its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_confirm import at_terminal

from hpclaunch import paths
from hpclaunch.job.consider import make_plan
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.runs import snapshot

GADI = ("--site", "gadi", "-A", "ab12", "--quiet", "--", "true")
HPCLAUNCH = Path(sys.executable).with_name("hpclaunch")  # python -m would import from the current folder
ESCAPES = [
    "''.__class__.__mro__[1].__subclasses__()",
    "cycler.__init__.__globals__.os.system('touch canary')",
    "plan.__class__.__init__",
    "plan.request.command_line.__func__.__globals__",
    "plan.summary.__globals__",
    "('{0.__class__}' ~ '').format(plan)",
    "plan | attr('__class__')",
    "(plan.command | map('sh')).gi_frame",
    "plan.scheduler.submit('touch canary')",
    "plan.scheduler.cancel([])",
    "self._TemplateReference__context.environment",
    "plan.command.append('x')",
    "plan.request.env.update(A='b')",
]


@pytest.fixture
def hostile(work, monkeypatch):
    """A cloned repository in which every file that is looked at would leave a canary."""
    canary = work / "canary"
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "gadi.yaml").write_text(
        f"extends: gadi\ntitle: Gadi\nhostnames: ['*']\naccount: ab12\nsetup: ['touch {canary}']\n"
        f"modules: ['{work}/evil']\nallocation: {{command: [touch, {canary}], remaining: Avail}}\n"
    )
    (work / "templates").mkdir()
    (work / "templates" / "gadi.sh.j2").write_text(
        '{%- extends "builtin/gadi.sh.j2" %}\n'
        f"{{%- block run_folder %}}\n# ---------- Your job ----------\ntouch {canary}\ncommand=(\n"
        "{{ super() }}{% endblock %}\n"
    )
    for name in ("python", "bin/activate", "torch.py", "evil", "sitecustomize.py"):
        path = work / name
        path.parent.mkdir(exist_ok=True)
        text = f"open({str(canary)!r}, 'w')\n" if name.endswith(".py") else f"#!/bin/bash\ntouch {canary}\n"
        path.write_text(text)
        path.chmod(0o755)
    (work / "hpclaunch.yaml").write_text(
        f"site: gadi\nsetup: ['touch {canary}']\nvenv: {work}\ncommand: [./python, train.py]\nenv: {{PYTHONPATH: .}}\n"
    )
    return canary


@pytest.mark.parametrize(
    "words",
    [
        ("render",),
        ("render", "--explain"),
        ("submit", "--dry-run"),
        ("check",),
        ("check", "--json"),
        ("compare", "--diff"),
        ("doctor",),
        ("site", "list"),
        ("site", "show", "gadi"),
        ("site", "check"),
        ("jobs",),
        ("completion", "bash"),
        ("workload", "list"),
    ],
    ids=" ".join,
)
def test_looking_at_a_repository_runs_nothing_of_it(hostile, words, tmp_path, monkeypatch):
    """No command that only shows or checks runs what a profile, a template or a config of the current folder names."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = subprocess.run([HPCLAUNCH, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr
    assert done.stdout or words == ("jobs",)
    assert not hostile.exists(), done.stdout + done.stderr


def test_completing_in_a_repository_runs_nothing_of_it(hostile, monkeypatch):
    """Nor does the shell's completion of sites and partitions."""
    monkeypatch.setenv("_HPCLAUNCH_COMPLETE", "bash_complete")
    for words in ("hpclaunch render --site ", "hpclaunch render --site gadi -p ", "hpclaunch logs "):
        done = subprocess.run(
            [HPCLAUNCH],
            env=os.environ | {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "Traceback" not in done.stderr
    assert not hostile.exists()


def test_the_doctor_says_what_it_did_not_try(hostile, cli):
    """It names the files whose lines would run, and where one's own belong."""
    said = " ".join(cli("doctor").stdout.split())
    assert "not tried: site_profiles/gadi.yaml, ./hpclaunch.yaml, templates/gadi.sh.j2 may be anybody's" in said
    assert "move what is yours to" in said


def test_the_doctor_imports_nothing_of_the_current_folder(work):
    """Its look at the job's python takes no module from a repository, also where it tries everything."""
    for name in ("json", "platform", "importlib", "torch", "lightning"):
        (work / f"{name}.py").write_text(f"open({str(work / 'canary')!r}, 'w')\n")
    subprocess.run(
        [HPCLAUNCH, "doctor", "--site", "local", "--", f"{sys.base_prefix}/bin/python3", "x.py"],
        capture_output=True,
        check=False,
    )
    assert not (work / "canary").exists()


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("words", [("render",), ("render", "--explain")], ids=" ".join)
def test_a_template_reaches_nothing_but_the_plan(cli, work, escape, words):
    """What would lead out of the plan's values, or change them, is refused in one line."""
    (work / "own.sh.j2").write_text("#!/bin/bash\n{{ " + escape + " }}\n")
    result = cli(*words, "--template", "./own.sh.j2", *GADI)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "hpclaunch: template own.sh.j2: " in result.stderr
    reasons = ("unsafe", "not callable", "undefined")
    assert any(reason in result.stderr for reason in reasons), result.stderr


@pytest.mark.parametrize(
    "body", ["{% include 'own.sh.j2' %}", "{{ 'a' * 10**15 }}", "{{ 5 | indent }}", "{{ 1 // 0 }}"]
)
def test_a_template_may_fail_in_any_way(cli, work, body):
    """Recursion without end, more than fits into memory, a filter on the wrong thing: one line, no traceback."""
    (work / "own.sh.j2").write_text("#!/bin/bash\n" + body)
    result = cli("render", "--template", "./own.sh.j2", *GADI)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "hpclaunch: template own.sh.j2: " in result.stderr


def test_files_that_are_not_shipped_are_named(cli, work):
    """Profiles, what they extend and templates that are not shipped ones are named on stderr and in the script."""
    assert "hipped" not in cli("render", *GADI).output
    own = paths.user_config() / "site_profiles"
    own.mkdir(parents=True)
    (own / "base.yaml").write_text("extends: gadi\ntitle: Base\n")
    (work / "site_profiles").mkdir()
    (work / "site_profiles" / "gadi.yaml").write_text("extends: base\ntitle: Gadi\n")
    (work / "templates" / "launch").mkdir(parents=True)
    (work / "templates" / "launch" / "tasks.sh.j2").write_text('{% extends "builtin/launch/tasks.sh.j2" %}')
    (work / "templates" / "gadi.sh.j2").write_text('{% extends "builtin/gadi.sh.j2" %}')
    profiles = "site_profiles/gadi.yaml " + paths.shown(own / "base.yaml")
    result = cli("render", *GADI)
    templates = "templates/gadi.sh.j2"
    assert result.stderr == (
        f"hpclaunch: not shipped with hpclaunch: {profiles}\nhpclaunch: not shipped with hpclaunch: {templates}\n"
    )
    assert result.stdout.splitlines()[:2] == ["#!/bin/bash", f"# Not shipped with hpclaunch: {profiles} {templates}"]
    assert profiles in cli("check", *[word for word in GADI if word != "--quiet"]).stderr
    assert profiles in cli("compare", *[word for word in GADI if word != "--quiet"]).stderr


def test_a_files_name_stays_on_the_comments_line(cli, tmp_path, monkeypatch):
    """A newline in a path cannot begin a line of the script."""
    folder = tmp_path / "a\ntouch canary #"
    folder.mkdir()
    (folder / "own.sh.j2").write_text("echo hello\n")
    monkeypatch.setenv("HPCLAUNCH_PATH", str(folder))
    note, hello = cli("render", "--template", "own", "--force", "repeated", *GADI).stdout.splitlines()
    assert note.startswith("# Not shipped with hpclaunch: $'")
    assert hello == "echo hello"


@pytest.mark.parametrize(("command", "code"), [("check", 0), ("submit", 1)])
def test_a_repositorys_allocation_command_is_not_run(hostile, command, code):
    """Where the site's command would be asked, one line says that it is not, and where a profile of one's own goes."""
    (hostile.parent / "hpclaunch.yaml").unlink()
    (hostile.parent / "templates" / "gadi.sh.j2").unlink()
    limit = ("--confirm-above", "1") if command == "submit" else ()
    _, talk = at_terminal("--site", "gadi", *limit, answer=b"n\n", code=code, command=command)
    assert "site_profiles/gadi.yaml: allocation.command is not run; if it is yours, move it to " in talk
    assert not hostile.exists()


@pytest.mark.parametrize(
    ("folder", "runs"),
    [("config", True), ("elsewhere", True), ("work/below", False), ("work", False)],
)
def test_a_profile_of_ones_own_may_name_commands(work, tmp_path, monkeypatch, folder, runs):
    """The user's config folder and folders of HPCLAUNCH_PATH are trusted, unless they lie in the current folder."""
    monkeypatch.setenv("HPCLAUNCH_PATH", f"{tmp_path}/elsewhere:{work}/below:below")
    path = tmp_path / folder / "hpclaunch" if folder == "config" else tmp_path / folder
    (path / "site_profiles").mkdir(parents=True)
    profile = path / "site_profiles" / "mine.yaml"
    profile.write_text("extends: gadi\ntitle: Mine\n")
    assert paths.is_trusted(profile) == runs
    assert paths.is_trusted(search.load("mine").layers[0].path) == runs
    assert paths.is_trusted(search.load("mine").layers[1].path)
    link = work / "linked.yaml"
    link.symlink_to("/etc/hostname")
    assert not paths.is_trusted(link)


def test_a_home_is_no_part_of_the_current_folder(work, monkeypatch):
    """Relative XDG folders and an empty HOME do not make the current folder the user's config folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", ".config")
    monkeypatch.setenv("HOME", "")
    assert not paths.user_config().is_relative_to(work)
    assert not paths.is_trusted(work / ".config" / "hpclaunch" / "site_profiles" / "gadi.yaml")


@pytest.mark.parametrize("spoil", ["mode", "link", "owner"])
def test_compiled_templates_of_others_are_not_loaded(tmp_path, monkeypatch, spoil):
    """A cache that others can write, that is a link or another user's is neither read nor written."""
    plan = make_plan(search.load("gadi"), make_request({"account": "ab12", "command": ["true"]}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = paths.user_cache()
    fine = render(plan)
    assert list(folder.iterdir())
    for file in folder.iterdir():
        file.write_bytes(b"not ours")
    if spoil == "mode":
        folder.chmod(0o777)
    elif spoil == "owner":
        if os.geteuid():
            pytest.skip("only root can give a folder to another user")
        os.chown(folder, 12345, 12345)
    else:
        folder.rename(tmp_path / "real")
        folder.symlink_to(tmp_path / "real")
    assert render(plan) == fine
    assert {file.read_bytes() for file in folder.iterdir()} == {b"not ours"}


def test_a_config_that_may_be_anybodys_is_named(cli, work, tmp_path, monkeypatch):
    """That of the current folder and of those above it, on stderr; not the user's own."""
    paths.user_config().mkdir(parents=True)
    (paths.user_config() / "hpclaunch.yaml").write_text("account: ab12\n")
    (work / "below").mkdir()
    monkeypatch.chdir(work / "below")
    assert "config" not in cli("render", *GADI).stderr
    Path("hpclaunch.yaml").write_text("nodes: 1\n")
    (work / "hpclaunch.yaml").write_text("setup: ['touch canary']\n")
    for command in ("render", "check", "doctor", "config", "compare"):
        result = cli(command, *[word for word in GADI if word != "--quiet"])
        assert f"hpclaunch: config: ./hpclaunch.yaml, {work}/hpclaunch.yaml\n" in result.stderr
    assert f"not tried: {work}/hpclaunch.yaml" in " ".join(cli("doctor", "--site", "gadi").stdout.split())
    assert not [*work.rglob("canary")]


def test_what_anybody_can_put_above_a_folder_is_not_read(cli, tmp_path):
    """Another user's file in a folder like /tmp; a colleague's in a folder of their own is."""
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    config = tmp_path / "hpclaunch.yaml"
    config.write_text("nodes: 7\n")
    os.chown(config, 12345, 12345)
    assert "--nodes 7" in cli("render", *GADI).stdout
    tmp_path.chmod(0o1777)
    result = cli("render", *GADI)
    assert "--nodes 7" not in result.stdout
    assert result.stderr == (
        f"hpclaunch: warning: {config}: another user's file in a folder that all can write to, not read\n"
    )


def test_a_snapshot_runs_nothing_that_a_repository_names(cli, work):
    """Git has no monitor, hook, filter, differ or transport of it, and no python of it is asked for its packages."""
    canary = work / "canary"
    script = work / "evil"
    script.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    script.chmod(0o755)
    (work / "venv" / "bin").mkdir(parents=True)
    (work / "venv" / "bin" / "python").symlink_to(script)
    (work / "hpclaunch.yaml").write_text(f"site: local\nsnapshot: true\nvenv: {work}/venv\n")
    (work / ".gitattributes").write_text("* filter=evil diff=evil\n")
    commands = [
        "git init -q",
        "git add -A",
        "git -c user.name=n -c user.email=e commit -qm x",
        "echo '#' >>hpclaunch.yaml",
    ]
    keys = ("core.fsmonitor", "core.hooksPath", "filter.evil.clean", "filter.evil.process", "diff.evil.command",
            "diff.evil.textconv", "diff.external")  # fmt: skip
    commands += [f"git config {key} {work if 'hooks' in key else script}" for key in keys]
    (work / "post-index-change").symlink_to(script)
    subprocess.run(["bash", "-c", " && ".join(commands)], check=True)
    canary.unlink(missing_ok=True)
    for command in ("render", "check", "config"):
        assert cli(command, "--", "true").exit_code == 0
    name = snapshot.look()[0]
    snapshot.write(name)
    assert b"+#\n" in (snapshot.FOLDER / name / "code.diff").read_bytes()
    assert not canary.exists()
