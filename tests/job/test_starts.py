"""How ranks are started: bound, wrapped, by whose MPI, over which network, in which environment."""

from __future__ import annotations

import subprocess

import pytest
from conftest import call, program

from hpclaunch.errors import ProfileError
from hpclaunch.job.consider import make_plan
from hpclaunch.job.render import render
from hpclaunch.job.request import make_request
from hpclaunch.profile import search
from hpclaunch.schedulers import scheduler


def script(site: str, **asked: object) -> str:
    """Return the job script of two nodes."""
    return render(make_plan(search.load(site), make_request({"nodes": 2, "command": ["./train"]} | asked)))[0]


BOUND = 'taskset -cp "${cores[LOCAL_RANK]}"'


@pytest.mark.parametrize("launcher", ["tasks", "torchrun", "mpirun"])
@pytest.mark.parametrize("site", ["dies", "tiles"])
def test_ranks_are_bound_to_the_cores_next_to_their_gpu(site, launcher):
    """Each rank of a whole node gets the profile's cores, under both schedulers and each launcher."""
    made = script(site, launcher=launcher)
    assert BOUND in made
    (partition, *_) = search.load(site).site.partitions.values()
    cores = " ".join(f'"{each}"' for each in partition.rank_cpus)
    assert f"local cores=({cores})" in made


@pytest.mark.parametrize("asked", [{"tasks_per_node": 4}, {"nodes": 1, "gpus_per_node": 4}, {"launcher": "lightning"}])
def test_other_ranks_are_not_bound(asked):
    """Where not each rank has its list of cores, or the node may be shared, nothing is bound."""
    assert BOUND not in script("dies", **asked)


def test_srun_has_the_profiles_options_and_the_cores_of_a_task():
    """The step has the profile's options, a partition's in place of the site's, and --cpus-per-task itself."""
    step = next(line for line in script("dies").split("srun ")[1:] if line.startswith("--nodes"))
    assert "--cpus-per-task=7 " in step
    assert "--kill-on-bad-exit=1 --gpu-bind=closest bash" in step
    assert "--gpu-bind=none --mpi=none bash" in script("dies", partition="part")


@pytest.mark.parametrize(
    ("mpi", "command", "rank"),
    [
        ("openmpi", 'mpirun -n 24 --bind-to none --map-by ppr:12:node "${hosts[@]}" \\', "$OMPI_COMM_WORLD_RANK"),
        ("pals", "mpiexec -n 24 --ppn 12 --depth 8 --cpu-bind none \\", "$PALS_RANKID"),
        ("mpich", "mpiexec -n 24 -ppn 12 \\", "$PMI_RANK"),
        ("intel", "export I_MPI_PIN=0 I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0", "$PMI_RANK"),
    ],
)
def test_mpirun_is_the_sites_own(work, mpi, command, rank):
    """The launcher mpirun calls the MPI that the profile names, and reads its number of the rank."""
    (work / "own.yaml").write_text(f"extends: tiles\ntitle: Own\nmpi: {mpi}\n")
    made = script("./own.yaml")
    assert command in made
    assert f"export RANK={rank}\n" in made
    assert ("ompi_info" in made) == (mpi == "openmpi")


def test_pals_binds_ranks_that_have_no_list():
    """With fewer ranks than lists PALS gives each its share of the cores."""
    assert "mpiexec -n 8 --ppn 4 --depth 26 --cpu-bind depth" in script("tiles", tasks_per_node=4)


def test_network_variables_by_name():
    """The profile's network is exported unless the request names another, or none; its own variables win."""
    assert 'export FI_PROVIDER="cxi"' in script("tiles")
    assert 'export FI_PROVIDER="tcp"' in script("tiles", network="tcp")
    assert "FI_PROVIDER" not in script("tiles", network="none")
    made = script("tiles", env={"FI_PROVIDER": "mine"})
    assert made.index('FI_PROVIDER="cxi"') < made.index("export FI_PROVIDER=mine")
    assert 'export https_proxy="http://proxy.tiles.example:3128"' in made


def test_what_the_options_and_the_provenance_say_of_the_network(cli):
    """--network is an option, is in the line that makes the script again, and is the reason for its variables."""
    result = cli("render", "-s", "tiles", "--network", "tcp", "--", "true")
    assert "--network tcp" in result.stdout.splitlines()[3]
    explained = cli("render", "-s", "tiles", "--network", "tcp", "--explain", "--", "true").stdout
    assert "networks.tcp" in explained


@pytest.mark.parametrize(
    ("suffix", "host", "found"),
    [
        (".hsn.example", "x3001", "x3001.hsn.example"),
        (".hsn.example", "x3001.hsn.example", "x3001.hsn.example"),
        (".hsn.example", "x3001.cm.example", "x3001.hsn.example"),
        ("i", "jwb01", "jwb01i"),
        ("i", "jwb01i", "jwb01i"),
        (".other", "x3001", "x3001"),
    ],
)
def test_suffix_of_the_head_nodes_name(programs, work, suffix, host, found):
    """MASTER_ADDR gets the suffix once, and only if there is a host of that name."""
    (work / "own.yaml").write_text(f"extends: tiles\ntitle: Own\nmaster_suffix: {suffix}\n")
    made = script("./own.yaml").splitlines()
    start = next(i for i, line in enumerate(made) if line.startswith("fast="))
    programs("getent", "[[ $2 == x3001.hsn.example || $2 == jwb01i ]]")
    lines = [f"MASTER_ADDR={host}", *made[start : start + 2], "echo $MASTER_ADDR"]
    assert subprocess.check_output(["bash", "-c", "\n".join(lines)], text=True).strip() == found


@pytest.mark.parametrize("kind", ["venv", "uv", "conda"])
def test_an_environment_is_activated_whatever_made_it(work, kind):
    """--venv takes a venv, a project of uv, and an environment of conda, whose scripts are run too."""
    folder = work / "my env"
    inner = folder / ".venv" if kind == "uv" else folder
    (inner / "bin").mkdir(parents=True)
    program(inner / "bin" / "train", "echo mine $FROM")
    if kind == "conda":
        (folder / "conda-meta").mkdir()
        scripts = folder / "etc" / "conda" / "activate.d"
        scripts.mkdir(parents=True)
        (scripts / "a.sh").write_text("export FROM=$CONDA_PREFIX\n")
    else:
        (inner / "bin" / "activate").write_text(f"PATH='{inner}/bin':$PATH\nexport FROM=activate\n")
    said = call("run", "--venv", folder, "--", "train")
    assert f"mine {folder if kind == 'conda' else 'activate'}" in said


def test_without_modules_the_job_says_so(work):
    """A node without a command module ends the job with a sentence, not with the shell's."""
    if (
        subprocess.run(
            ["bash", "-c", "source /etc/profile; command -v module"], check=False, capture_output=True
        ).returncode
        == 0
    ):
        pytest.skip("this machine has modules")
    said = call("run", "--module", "torch", "--", "true", code=1)
    assert "at: module: this node has neither Lmod nor Environment Modules" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("network: {}\n", "str"),
        ("network: slingshots\n", "no such network (did you mean slingshot?)"),
        ("partitions: {work: {compute_capability: 8.0}}\n", "is NVIDIA's, and the vendor is intel"),
        ("partitions: {work: {rank_cpus: [all]}}\n", 'cores like "49-55"'),
        ("partitions: {work: {gpus_per_node: 0}}\n", "gpus_per_node is 0: leave it out"),
    ],
)
def test_mistakes_in_a_profile(work, text, said):
    """What contradicts itself in a profile is named."""
    (work / "own.yaml").write_text(f"extends: tiles\ntitle: Own\n{text}")
    with pytest.raises(ProfileError) as error:
        search.load("./own.yaml")
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"])
def test_gpus_of_an_allocation_by_the_vendors_variable(work, name):
    """`launch` on PBS counts the GPUs by their vendor's variable, of which each host has its own."""
    (work / "nodes").write_text("a\n")
    environment = {"PBS_JOBID": "1.x", "PBS_NODEFILE": "nodes", name: "0,1,2"}
    assert scheduler("pbs").allocation(environment).gpus == 3
    assert name in script("tiles").partition("unset HOSTNAME")[2].partition("#")[0]
