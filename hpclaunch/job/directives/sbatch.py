"""The options of sbatch, as data."""

import re

# sbatch's long options; behind a blank the short one. `=` takes a value, `?` may have one (only as --option=VALUE).
_SLURM = """
account= A, acctg-freq=, array= a, batch=, bb=, bbf=, begin= b, chdir= D, workdir=, cluster-constraint=, cluster=,
clusters= M, comment=, consolidate-segments, constraint= C, container=, container-id=, contiguous, core-spec= S,
cores-per-socket=, cpu-freq=, cpus-per-gpu=, cpus-per-task= c, deadline=, delay-boot=, dependency= d, distribution= m,
error= e, exclude= x, exclusive?, export=, export-file=, extra=, extra-node-info= B, get-user-env?, gid=, gpu-bind=,
gpu-freq=, gpus= G, gpus-per-node=, gpus-per-socket=, gpus-per-task=, gres=, gres-flags=, hint=, hold H, ignore-pbs,
input= i, job-name= J, kill-on-invalid-dep=, licenses= L, mail-type=, mail-user=, mcs-label=, mem=, mem-bind=,
mem-per-cpu=, mem-per-gpu=, mincpus=, network=, nice?, no-kill? k, no-requeue, nodefile= F, nodelist= w, nodes= N,
ntasks= n, ntasks-per-core=, ntasks-per-gpu=, ntasks-per-node=, ntasks-per-socket=, oom-kill-step?, open-mode=,
output= o, overcommit O, oversubscribe s, parsable, partition= p, power=, prefer=, priority=, profile=, propagate?,
qos= q, quiet Q, reboot, requeue, reservation=, resv-ports?, segment=, share, signal=, sockets-per-node=, spread-job,
stepmgr, switches=, tasks-per-node=, test-only, thread-spec=, threads-per-core=, time= t, time-min=, tmp=, tres-bind=,
tres-per-task=, uid=, use-min-nodes, verbose v, wait W, wait-all-nodes=, wckey=, wrap=
"""

_ROWS = re.findall(r"([a-z-]+)([=?]?)(?: (\w))?(?:,|$)", _SLURM.strip())
SLURM_TAKES = {name: takes for name, takes, _ in _ROWS}
SLURM_SHORT = {letter: name for name, _, letter in _ROWS if letter}
SLURM_SAME = {"cluster": "clusters", "workdir": "chdir", "share": "oversubscribe", "tasks-per-node": "ntasks-per-node"}
