#!/bin/bash
# jean-zay v100: 2 nodes x 4 tasks = world size 8, 80 cpus, 8 GPUs, walltime 3 attempts of 01:00:00, at most 24 GPU-hours
# Made by hpclaunch 0.1.0 from site profile jean-zay (checked 2026-11-21); the same again:
#   hpclaunch render --site jean-zay --nodes 2 --partition v100 --account abc@v100 --max-attempts 3 -- python train.py --epochs 3
#SBATCH --job-name=train
#SBATCH --account=abc@v100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --time=01:00:00
#SBATCH --output=%x_%j.out
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --hint=nomultithread

# shellcheck disable=SC2329 # the fan-out calls the functions
# Run folder, below the one the job was submitted from: a log for each rank, a note of the first failure.
# Slurm's USR1 comes 120 s before the walltime, or up to a minute earlier; the file tells every rank.
trap 'touch "$HPCLAUNCH_RUN_DIR/warned"' USR1
export HPCLAUNCH_ATTEMPT=$((${SLURM_RESTART_COUNT:-0} + 1))
if ((HPCLAUNCH_ATTEMPT > 3)); then # a node died, or the job was preempted, in the last one
    echo "hpclaunch: 3 attempts are used up"
    exit 75
fi
job_id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
export HPCLAUNCH_RUN_DIR=$PWD/hpclaunch-runs/$job_id
mkdir -p "$HPCLAUNCH_RUN_DIR" || exit 1
rm -f "$HPCLAUNCH_RUN_DIR"/{failed,exit,warned,again}
# Where a person submitted the job, `hpclaunch status`, `logs` and `why` learn from this file what it is.
(set -o noclobber && printf '{"id": "%s", "submitted": %s, "folder": "", %s\n' "$job_id" "$(date +%s)" \
    '"job_name": "train", "max_attempts": 3, "nodes": 2, "partition": "v100", "poll": 2, "scheduler": "slurm", "seconds": 3600, "site": "jean-zay", "tasks_per_node": 4}' >"$HPCLAUNCH_RUN_DIR/run.json") 2>/dev/null
echo "hpclaunch: logs in $HPCLAUNCH_RUN_DIR"

# The first failure is the job's; what fails after it is its consequence.
fail() { # EXIT_CODE LOG WHO
    (set -o noclobber && echo "$1 $2 $3" >"$HPCLAUNCH_RUN_DIR/failed") 2>/dev/null
}

# How the job ended, which the scheduler may forget, and which line of the environment ended it, if one did.
record() {
    local code=$?
    ((BASHPID == $$)) || kill -KILL "$BASHPID" # bash runs this also in a child that a signal ends right after its fork
    if [[ $stage == environment ]]; then
        echo "hpclaunch: the environment ended the job with exit code $code, at: $BASH_COMMAND"
        fail "$code" - "the environment, at: $BASH_COMMAND"
    fi
    [[ -n ${ended-} ]] || echo "$code" >"$HPCLAUNCH_RUN_DIR/exit"
    return "$code"
}
stage=environment
trap record EXIT
trap 'ended=1; exit 143' TERM # else that would be the code of the command before

# What the environment sets and traps in this shell lasts until the launch, and a trap on EXIT to the end of the job.
ours=$(set +o; shopt -p; trap -p; declare -f fail record)

# Environment.
# A job submitted from a non-login shell lacks the module command.
# shellcheck source=/dev/null
command -v module >/dev/null || source /etc/profile
module purge
module load pytorch-gpu/py3/2.8.0 || exit 1
export OMP_NUM_THREADS=10 PYTHONUNBUFFERED=1
command=(python train.py --epochs 3)

# The launch, the same for every job of this kind.
theirs=() && eval "theirs=($(trap -p EXIT))" # trap -- COMMAND EXIT
trap - ERR DEBUG RETURN INT TERM HUP QUIT USR1 USR2
eval "$ours"
trap 'record; [[ ${theirs[2]} == record ]] || eval "${theirs[2]}"' EXIT
stage=launch ended=""
IFS=$' \t\n'

# Rendezvous: the head node, at a port of this job's own, where nothing listens and which no other script of mine holds.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
take_port() { # PORT; the lock lasts as long as this script and what it starts
    (: <"/dev/tcp/127.0.0.1/$1" || : <"/dev/tcp/$MASTER_ADDR/$1") 2>/dev/null && return 1
    { exec {lock}>>"/tmp/hpclaunch-$UID-$1.port"; } 2>/dev/null || return 0
    flock -n "$lock" || (($? != 1)) # 1: another has it
}
until take_port "$MASTER_PORT"; do MASTER_PORT=$((MASTER_PORT + 1)); done
export MASTER_ADDR MASTER_PORT WORLD_SIZE=8 LOCAL_WORLD_SIZE=4

# One rank: its place in the world, its log, its exit code. Signals are for the command to handle.
run_rank() { # COMMAND...
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID NODE_RANK=$SLURM_NODEID
    trap : INT TERM USR1 USR2
    set +eu # which the file of a BASH_ENV may set
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/rank-$RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/rank-$RANK.err" || exit 1
    echo "--- attempt $HPCLAUNCH_ATTEMPT of 3 ---"
    (exec "$@") &
    local pid=$! warner code told=0
    (until [[ -e $HPCLAUNCH_RUN_DIR/warned ]]; do
        ((LOCAL_RANK)) || ls "$HPCLAUNCH_RUN_DIR" >/dev/null # NFS tells of new files only to those who look
        sleep 1
    done && kill -USR1 "$pid") &
    warner=$!
    while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done # a signal ends a wait
    wait "$pid"
    code=$?
    kill "$warner" 2>/dev/null || told=1
    # Told that the end is near, or by the TERM of a preemption, the command may save and leave with 75: "start me again".
    # One that does not know the signal dies of it, 138, and is started again as well.
    if ((code == 75 || (told && code == 138))); then
        touch "$HPCLAUNCH_RUN_DIR/again"
        return 0
    fi
    ((code == 0)) || fail "$code" "rank-$RANK.log" "rank $RANK on $(hostname)"
    return "$code"
}

# Rank 0 speaks here too. The loop and the last look share the open files, and so where they have read to.
first=$HPCLAUNCH_RUN_DIR/rank-0
exec {out}<>"$first.log" {err}<>"$first.err"
# NFS sees what another node wrote when it opens a file.
show() { : <"$first.log" && cat <&"$out" && : <"$first.err" && cat <&"$err"; }
show >/dev/null # what is there is of an earlier start
(trap exit TERM; while kill -0 $$; do show; sleep 1 &>/dev/null & wait $!; done) 2>/dev/null &
follower=$!

# Fan-out: srun carries environment and functions to every node, and ends all when one fails. It is told every size, since
# what the allocation has in SLURM_NTASKS and the like would win.
export -f fail run_rank
srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=10 \
    --distribution=block --export=ALL --kill-on-bad-exit=1 bash -c 'run_rank "$@"' "$0" "${command[@]}" &
job=$!
while kill -0 "$job" 2>/dev/null; do wait "$job"; done # a signal ends a wait
wait "$job"
code=$?
{ kill "$follower" && wait "$follower"; } 2>/dev/null
show
ls "$HPCLAUNCH_RUN_DIR" >/dev/null # NFS tells of new files only to those who look

# A scheduler may be out of reach for a while: COMMAND again and again until it succeeds or the time is up.
insist() { # WALLTIME_ENDS COMMAND...
    local until=$(($(date +%s) + 120))
    ((until < $1)) || until=$1
    until "${@:2}"; do
        (($(date +%s) + 10 < until)) && [[ -z $ended ]] || return 1
        sleep 5
    done
}

# Nobody else will start the next attempt: the job ends here, and says how to go on.
give_up() { # COMMAND
    echo "75 - the next attempt, which could not be submitted" >"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: attempt $((HPCLAUNCH_ATTEMPT + 1)) could not be submitted, for what is said above; to go on by hand: $1"
}

# Saved and not done: this script requeues the job, unless a handler in the command did (Lightning's own does).
if [[ -e $HPCLAUNCH_RUN_DIR/again && ! -e $HPCLAUNCH_RUN_DIR/failed ]]; then
    if ((HPCLAUNCH_ATTEMPT < 3)); then
        echo "hpclaunch: the walltime is near, going on in attempt $((HPCLAUNCH_ATTEMPT + 1)) of 3"
        warned=$(stat -c %Y "$HPCLAUNCH_RUN_DIR/warned" 2>/dev/null || date +%s)
        if insist $((warned + 120)) scontrol requeue "$SLURM_JOB_ID"; then
            ended=1
            sleep 60 # Slurm ends this script
            exit 75
        fi
        give_up "scontrol requeue $SLURM_JOB_ID"
    else
        echo "hpclaunch: not done, and 3 attempts are used up"
    fi
    code=75
fi

# The first failure gives the job its exit code.
if [[ -e $HPCLAUNCH_RUN_DIR/failed ]]; then
    IFS=' ' read -r code log who <"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: first failure: $who, exit code $code"
    for end in "$HPCLAUNCH_RUN_DIR/${log%.log}".{log,err}; do
        [[ -s $end ]] && echo "The end of $end:" && tail -n 20 "$end"
    done
fi
exit "${code:-1}"
