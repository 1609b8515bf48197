"""Site profiles: what people may write, and what they are told when it is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpclaunch import paths
from hpclaunch.cli import main
from hpclaunch.errors import HpclaunchError, ProfileError
from hpclaunch.profile import model, search

GOOD = """\
title: Test
scheduler: slurm
default_partition: gpu
partitions:
  gpu:
    cores_per_node: 40
    gpus_per_node: 4
    cpus_per_gpu: 10
"""


@pytest.fixture
def profile(work):
    """Write a profile into ./site_profiles."""

    def write(text: str, name: str = "test") -> str:
        folder = work / "site_profiles"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(textwrap.dedent(text))
        return name

    return write


def refused(name: str) -> list[str]:
    with pytest.raises(HpclaunchError) as error:
        search.load(name)
    return str(error.value).splitlines()


def test_every_mistake_is_named_at_once_with_file_and_line(profile):
    """Mistakes of form, then those of sense, come in one go, each with its line, its key and what would be right."""
    text = """\
        title: Test
        scheduler: slurn
        default_partition: gpus
        default_walltime: 48:00:00
        partitions:
          gpu:
            cores_per_nod: 40
            gpus_per_node: -4
            charge: {unit: SU, per: core, rate: free}
            walltime:
              - max_walltime: 2 days
        """
    profile(text)
    at = "site_profiles/test.yaml"
    assert refused("test") == [
        f'{at}:4: default_walltime: YAML reads 48:00:00 as a number: quote it, "48:00:00"',
        f"{at}:7: partitions.gpu.cores_per_nod: unknown key (did you mean cores_per_node?)",
        f"{at}:8: partitions.gpu.gpus_per_node: expected `int` >= 0 (it says '-4')",
        f"{at}:9: partitions.gpu.charge.rate: expected `float`, got `str` (it says 'free')",
        f"{at}:11: partitions.gpu.walltime.0.max_walltime: "
        "expected HH:MM:SS in quotes, like \"48:00:00\" (it says '2 days')",
    ]
    for old, new in (
        ("48:00:00", "'48:00:00'"),
        ("_nod:", "_node:"),
        ("-4", "4"),
        ("free", "3"),
        ("2 days", "'48:00:00'"),
    ):
        text = text.replace(old, new)
    profile(text)
    assert refused("test") == [
        f"{at}:2: scheduler: no such scheduler (did you mean slurm?)",
        f"{at}:3: default_partition: no such partition (did you mean gpu?)",
    ]


AT_TOP, IN_GPU = "title: Test", "    gpus_per_node: 4"


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("default_partition: gpu", "default_partition: cpus", ":3: default_partition: no such partition (known: gpu)"),
        (
            "cores_per_node: 40",
            "cores_per_node: 39",
            "cpus_per_gpu: 4 GPUs x 10 cpus are more than the node's 39 cores",
        ),
        ("gpus_per_node: 4", "gpus_per_node: 0", ":8: partitions.gpu.cpus_per_gpu: gpus_per_node is 0"),
        (AT_TOP, AT_TOP + "\nlauncher: mpi", ":2: launcher: invalid enum value 'mpi'"),
        (AT_TOP, AT_TOP + "\nhostnames: login*", ":2: hostnames: expected `array`, got `str`"),
        (AT_TOP, AT_TOP + "\ndetect: {/scratch: yes there}", ":2: detect./scratch: expected a variable and its value"),
        (AT_TOP, AT_TOP + "\numask: 027", ":2: umask: expected `str`, got `int`"),
        (AT_TOP, AT_TOP + "\nenv: {A-B: c}", ":2: env.A-B: expected a variable's name (it says 'A-B')"),
        (AT_TOP, AT_TOP + '\nsetup: ["a\\nb"]', ":2: setup.0: expected one line of text"),
        (AT_TOP, AT_TOP + "\nqos: 1", ":2: qos: unknown key"),
        (AT_TOP, "", ":1: title: missing"),
        (IN_GPU, IN_GPU + "\n    gpus_per_node: 8", ":8: gpus_per_node: given twice"),
        (
            IN_GPU,
            IN_GPU + "\n    unconfirmed: [max_core]",
            "unconfirmed.0: max_core: no such key (did you mean max_cores?)",
        ),
        (IN_GPU, IN_GPU + "\n    default_mem_gb_per_node: 20", "default_mem_gb_per_node: more than mem_gb_per_node"),
        (
            IN_GPU,
            IN_GPU + "\n    min_cores: 9\n    max_cores: 5",
            ":8: partitions.gpu.min_cores: more than max_cores, 5",
        ),
        ("cpus_per_gpu: 10", "aliases: [x]\n  x: {}", "partitions.x: the name x is partition gpu's already"),
        (IN_GPU, IN_GPU + "\n    qos: [{name: a}]", "partitions.gpu.qos.0.max_walltime: missing"),
    ],
)
def test_impossible_values_are_refused(profile, place, change, message):
    """A value that cannot be is refused in words, at its line."""
    profile(GOOD.replace(place, change))
    found = refused("test")
    assert any(message in line for line in found), found
    assert all(line.startswith("site_profiles/test.yaml:") for line in found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- a\n- b\n", "test.yaml:1: expected keys and values, got a list"),
        (b"\xff\xfe", "test.yaml: not UTF-8"),
        (b"a: [1\n", "test.yaml:2: did not find expected ',' or ']'"),
        (b"a: !!python/object:os.system {}\n", "could not determine a constructor"),
        (b"a: 1\na: 2\n", "test.yaml:2: a: given twice"),
        (b"? [a]\n: 1\n", "test.yaml:1: found unhashable key"),
        (b"a: 2026-99-99\n", "test.yaml: no valid YAML: month must be in 1..12"),
        (b"a: \x00\n", "test.yaml: no valid YAML"),
        (b"", "test.yaml:1: title: missing"),
        (b"[" * 600, "test.yaml"),
        (b"extends: [gadi]\n", "test.yaml:1: extends: expected the name of one profile"),
        (GOOD.encode() + b"env: {1: a, 0x1: b}\n", "test.yaml:9: env.1: expected"),
    ],
)
def test_what_is_no_profile_at_all_is_refused_in_words(work, content, message):
    """Any file gets a message with its name, never a traceback."""
    path = work / "test.yaml"
    path.write_bytes(content)
    assert message in refused(str(path))[0]


def test_yaml_anchors_and_merges_are_fine(profile):
    """A key of a merged mapping may be given again."""
    profile(GOOD + "  more: &more {cores_per_node: 8}\n  most: {<<: *more, cores_per_node: 16}\n")
    assert search.load("test").site.partitions["most"].cores_per_node == 16


def test_own_profile_changes_a_few_keys(profile):
    """`extends` takes everything else from the parent; null takes a key away; the parent's file stays known."""
    name = profile("""\
        extends: gadi
        title: Mine
        account: ab12
        modules: []
        partitions:
          copyq: null
          gpuvolta: {max_cores: 96}
        """)
    mine, gadi = search.load(name), search.load("gadi")
    assert (mine.site.title, mine.site.account, mine.site.modules) == ("Mine", "ab12", [])
    assert mine.site.partitions["gpuvolta"].max_cores == 96
    assert mine.site.partitions["gpuvolta"].gpu == gadi.site.partitions["gpuvolta"].gpu
    assert mine.site.partitions.keys() == gadi.site.partitions.keys() - {"copyq"}
    assert [layer.path.name for layer in mine.layers] == ["test.yaml", "gadi.yaml"]


def test_own_profile_may_have_the_name_of_the_one_it_extends(profile):
    """A person's gadi.yaml wins over the shipped one and can still extend it."""
    profile("extends: gadi\ntitle: Mine\n", "gadi")
    assert search.load("gadi").site.title == "Mine"
    assert "gpuvolta" in search.load("gadi").site.partitions


def test_mistake_is_placed_in_the_layer_that_made_it(profile):
    """What the child gets wrong is shown in the child's file."""
    name = profile("extends: gadi\npartitions:\n  gpuvolta:\n    max_cores: many\n")
    assert refused(name) == [
        "site_profiles/test.yaml:4: partitions.gpuvolta.max_cores: expected `int`, got `str` (it says 'many')"
    ]


def test_profiles_that_extend_each_other_are_refused(profile):
    """A loop ends in a message that names the files."""
    profile("extends: b\n", "a")
    profile("extends: a\n", "b")
    assert "no site profile 'a' besides site_profiles/a.yaml, site_profiles/b.yaml" in refused("a")[0]


def test_unknown_parent_and_site_are_refused_with_a_suggestion(profile):
    """A wrong name gets the nearest right one."""
    profile("extends: gady\n")
    assert refused("test") == ["site_profiles/test.yaml: extends: no site profile 'gady' (did you mean gadi?)"]
    assert refused("jeanzay") == ["no site profile 'jeanzay' (did you mean jean-zay?)"]


def test_search_path_first_wins(work, monkeypatch, tmp_path):
    """./site_profiles, then $HPCLAUNCH_PATH, then the user's folder, then what is shipped."""
    extra = tmp_path / "extra"
    monkeypatch.setenv("HPCLAUNCH_PATH", f"{extra}:{tmp_path / 'nothing'}")
    places = [paths.user_config() / "site_profiles", extra, extra / "site_profiles", work / "site_profiles"]
    assert search.load("gadi").site.title == "NCI Gadi"
    for number, folder in enumerate(places):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "gadi.yaml").write_text(f"extends: gadi\ntitle: place {number}\n")
        assert search.load("gadi").site.title == f"place {number}"


def test_host_name_chooses_the_site():
    """A login node's name is enough to know the site."""
    assert search.match_host("gadi-login-03.gadi.nci.org.au") == "gadi"
    assert search.match_host("jean-zay3") == "jean-zay"
    assert search.match_host("laptop") is None


def test_variables_and_paths_choose_the_site(profile, monkeypatch, tmp_path):
    """If host names are not unique, the site is known by its variables and paths, all of them."""
    profile(f"extends: slurm\ndetect: {{HERE_HOST: 'perl*', {tmp_path}: exists}}\n", "here")
    profile(f"extends: slurm\ndetect: {{HERE_HOST: '*', {tmp_path}/none: exists}}\n", "elsewhere")
    assert search.match_host() is None
    monkeypatch.setenv("HERE_HOST", "perlmutter")
    assert search.match_host() == "here"
    assert search.match_host("another") is None


def test_sites_lists_all_and_marks_the_unusable(cli, profile):
    """`sites` shows every profile, one that is broken as well, as a table and as JSON."""
    profile("title: 1\n", "broken")
    table = cli("site", "list").stdout
    assert re.search(r"^gadi +pbs +15 +2026-\S+ +97 % +NCI Gadi; gadi.yaml$", table, re.MULTILINE)
    assert re.search("^broken +broken +site_profiles/broken.yaml:", table, re.MULTILINE)
    rows = {row["name"]: row for row in json.loads(cli("site", "list", "--json").stdout)}
    assert rows["jean-zay"]["scheduler"] == "slurm"
    assert "title: expected `str`" in rows["broken"]["error"]


def test_site_check_reports_every_file(cli, profile):
    """`site check` exits 1 with all mistakes of all profiles, 0 where there are none."""
    assert cli("site", "check").exit_code == 0
    profile("title: 1\n", "one")
    profile("titel: x\n", "two")
    result = cli("site", "check")
    assert result.exit_code == 1
    assert "one.yaml:1: title: " in result.stderr
    assert "two.yaml:1: titel: unknown key (did you mean title?)" in result.stderr
    assert "gadi.yaml: fine" in result.stdout
    answer = {row["name"]: row["mistakes"] for row in json.loads(cli("site", "check", "--json").stdout)}
    assert answer["gadi"] == [] and "one.yaml:1: title: " in answer["one"][0]


def test_site_show_gives_what_counts(cli, profile):
    """`site show` prints the profile with its parents filled in, as YAML that loads again and as JSON."""
    profile("extends: gadi\ntitle: Mine\naccount: ab12\n")
    shown = cli("site", "show", "test").stdout
    assert shown.startswith("# site_profiles/test.yaml, which extends ")
    profile(shown, "again")
    assert search.load("again").site == search.load("test").site.__class__(
        **{**{f: getattr(search.load("test").site, f) for f in model.Site.__struct_fields__}, "extends": None}
    )
    assert json.loads(cli("site", "show", "test", "--json").stdout)["account"] == "ab12"


def test_site_new_writes_a_starter_that_checks(cli):
    """`site new` writes a profile that is valid at once, beside its schema, and never overwrites one."""
    result = cli("site", "new", "mine", "--from", "gadi")
    assert result.exit_code == 0, result.stderr
    path = paths.user_config() / "site_profiles" / "mine.yaml"
    assert result.stdout.strip() == str(path)
    assert path.read_text().startswith("# yaml-language-server: $schema=site.schema.json\n")
    assert (path.parent / "site.schema.json").is_file()
    assert cli("site", "check", "mine").exit_code == 0
    assert cli("render", "--site", "mine", "--nodes", "2", "--", "true").exit_code == 0
    path.write_text("precious")
    again = cli("site", "new", "mine", "--from", "gadi")
    assert again.exit_code == 1
    assert "exists; edit it" in again.stderr
    assert path.read_text() == "precious"


def test_site_new_asks_on_a_terminal(cli, monkeypatch):
    """Without --from and --detect four answers make a commented profile that checks and renders."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    result = CliRunner().invoke(main, ["site", "new", "mine"], input="slurm\ngpu\n64\n4\nabc@gpu\n")
    assert result.exit_code == 0, result.stderr
    path = paths.user_config() / "site_profiles" / "mine.yaml"
    assert result.stdout.strip() == str(path)
    assert "Partition or queue of your jobs: " in result.stderr
    assert 25 <= len(path.read_text().splitlines()) <= 45
    script = cli("render", "--site", "mine", "--nodes", "2", "--", "true").stdout
    assert "#SBATCH --partition=gpu\n" in script and "#SBATCH --account=abc@gpu\n" in script
    assert "--gres=gpu:4" in script


@pytest.mark.parametrize("name", ["../evil", "a b", "", "ä"])
def test_site_new_refuses_names_that_are_no_names(cli, name):
    """A profile's name is a plain word."""
    result = cli("site", "new", name, "--from", "gadi")
    assert result.exit_code == 1
    assert "a profile's name may only have letters" in result.stderr


def test_every_commented_line_of_the_starter_is_right(cli):
    """A person who takes the comment signs away gets a profile that checks."""
    cli("site", "new", "mine", "--from", "gadi")
    path = paths.user_config() / "site_profiles" / "mine.yaml"
    lines = path.read_text().splitlines()
    begin = lines.index("# The account to charge without --account.")
    opened = [line.removeprefix("# ") for line in lines[begin:]]
    kept = [line for line in opened if ":" in line or line.strip().startswith("-")]
    path.write_text("\n".join(lines[:begin] + kept).replace("NAME", "gpuvolta"))
    result = cli("site", "check", "mine")
    assert result.exit_code == 0, result.stderr


def test_schema_file_is_the_models(cli):
    """Editors complete by the schema beside the profiles, which is the one that the model makes."""
    shipped = paths.shipped("site_profiles")
    assert cli("site", "schema").stdout == (shipped / "site.schema.json").read_text()
    for path in shipped.glob("*.yaml"):
        assert path.read_text().startswith("# yaml-language-server: $schema=site.schema.json\n")


def test_the_page_of_keys_is_up_to_date():
    """docs/profile.md has every key of the model, with its meaning."""
    root = Path(__file__).parents[2]
    made = subprocess.run([sys.executable, root / "docs/profile.py"], capture_output=True, text=True, check=True).stdout
    assert made == (root / "docs" / "profile.md").read_text(), "run make docs"
    for part in (model.Site, model.Partition, model.Qos, model.Charge):
        assert all(f"\n| `{key}` | " in made for key in part.__struct_fields__)
    assert not re.search(r"^\| `\w+` \| [^|]* \| [^|]* \|  \|", made, re.MULTILINE)


def test_unreadable_profile_is_said_so(work):
    """A folder in a profile's place gets a message."""
    (work / "a.yaml").mkdir()
    with pytest.raises(ProfileError, match="cannot be read"):
        search.load("./a.yaml")
