#!/bin/bash
# pbs workq: 2 nodes x 4 tasks = world size 8, 96 cpus, 8 GPUs, walltime 01:00:00
# Made by hpclaunch 0.1.0 from site profile pbs (checked 2026-11-21); the same again:
#   hpclaunch render --site pbs --nodes 2 --gpus-per-node 4 --cpus-per-task 12 -- python train.py --epochs 3
#PBS -N train
#PBS -q workq
#PBS -l select=2:ncpus=48:ngpus=4:mpiprocs=4
#PBS -l place=scatter
#PBS -l walltime=01:00:00

# shellcheck disable=SC2329 # the fan-out calls the functions
# Run folder, below the folder of submission (PBS starts in $HOME): a log for each rank, a note of the first failure.
cd "$PBS_O_WORKDIR" || exit 1
job_id=$PBS_JOBID
export HPCLAUNCH_RUN_DIR=$PWD/hpclaunch-runs/$job_id
mkdir -p "$HPCLAUNCH_RUN_DIR" || exit 1
rm -f "$HPCLAUNCH_RUN_DIR"/{failed,exit,node-*.beat}
# Where a person submitted the job, `hpclaunch status`, `logs` and `why` learn from this file what it is.
(set -o noclobber && printf '{"id": "%s", "submitted": %s, "folder": "", %s\n' "$job_id" "$(date +%s)" \
    '"job_name": "train", "max_attempts": 1, "nodes": 2, "partition": "workq", "poll": 30, "scheduler": "pbs", "seconds": 3600, "site": "pbs", "tasks_per_node": 4}' >"$HPCLAUNCH_RUN_DIR/run.json") 2>/dev/null
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
    echo "$code" >"$HPCLAUNCH_RUN_DIR/exit"
    return "$code"
}
stage=environment
trap record EXIT
trap 'exit 143' TERM # else that would be the code of the command before

# What the environment sets and traps in this shell lasts until the launch, and a trap on EXIT to the end of the job.
ours=$(set +o; shopt -p; trap -p; declare -f fail record)

# Environment.
export OMP_NUM_THREADS=12 PYTHONUNBUFFERED=1
command=(python train.py --epochs 3)

# The launch, the same for every job of this kind.
theirs=() && eval "theirs=($(trap -p EXIT))" # trap -- COMMAND EXIT
trap - ERR DEBUG RETURN INT TERM HUP QUIT USR1 USR2
eval "$ours"
trap 'record; [[ ${theirs[2]} == record ]] || eval "${theirs[2]}"' EXIT
stage=launch
IFS=$' \t\n'

# Rendezvous: the head node, at a port of this job's own, where nothing listens and which no other script of mine holds.
mapfile -t nodes < <(awk '!seen[$0]++ {print NR - 1, $0}' "$PBS_NODEFILE") # "index host"; hosts stand there repeatedly
if ((${#nodes[@]} != 2)); then
    echo "hpclaunch: PBS gave ${#nodes[@]} hosts, the job is made for 2"
    exit 1
fi
MASTER_ADDR=${nodes[0]#* }
job_number=${PBS_JOBID%%[!0-9]*}
MASTER_PORT=$((20000 + job_number % 10000))
take_port() { # PORT; the lock lasts as long as this script and what it starts
    (: <"/dev/tcp/127.0.0.1/$1" || : <"/dev/tcp/$MASTER_ADDR/$1") 2>/dev/null && return 1
    { exec {lock}>>"/tmp/hpclaunch-$UID-$1.port"; } 2>/dev/null || return 0
    flock -n "$lock" || (($? != 1)) # 1: another has it
}
until take_port "$MASTER_PORT"; do MASTER_PORT=$((MASTER_PORT + 1)); done
export MASTER_ADDR MASTER_PORT WORLD_SIZE=8 LOCAL_WORLD_SIZE=4

# What carries MARK in its environment ends with the shells that have $guard open, even if these are killed: the guard has
# a session of its own, and reads until the other end of its pipe is gone.
start_guard() { # MARK
    local sweep="grep -lszxF ${1@Q} /proc/[0-9]*/environ | cut -d / -f 3 | xargs -r kill -KILL"
    exec {guard}> >(exec setsid bash -c "read -r; $sweep" &>/dev/null)
}

# One rank: its place in the world, its log, its exit code. Signals are for the command to handle.
run_rank() { # LOCAL_RANK COMMAND...
    export LOCAL_RANK=$1 RANK=$((NODE_RANK * LOCAL_WORLD_SIZE + $1))
    shift
    trap : INT TERM USR1 USR2
    set +eu # which the file of a BASH_ENV may set
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/rank-$RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/rank-$RANK.err" || exit 1
    (exec "$@") # a program, never one of this shell's own words
    local code=$?
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

# One node: its processes, each the leader of a group, end together when one fails, here or elsewhere.
run_node() { # NODE_RANK
    export NODE_RANK=$1 HPCLAUNCH_NODE=$HPCLAUNCH_RUN_DIR/node-$1.$BASHPID
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>&1
    trap : INT HUP # the head of the job hears them too
    trap 'fail 143 "node-$NODE_RANK.log" "node $NODE_RANK (told to end)"' TERM
    local pid tick pids=() verdict=0 left=12 mark=HPCLAUNCH_NODE=$HPCLAUNCH_NODE
    set -m
    local i
    for ((i = 0; i < LOCAL_WORLD_SIZE; i++)); do
        run_rank "$i" "${command[@]}" &
        pids+=($!)
    done
    set +m
    unset HPCLAUNCH_NODE
    start_guard "$mark" # after the processes, which must not have its pipe open
    local sweeper=$!
    local beat=0
    while [[ -n $(jobs -pr) && ! -e $HPCLAUNCH_RUN_DIR/failed ]]; do
        echo $((++beat)) >"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.beat"
        ls "$HPCLAUNCH_RUN_DIR" >/dev/null # NFS tells of new files only to those who look
        sleep 1 & tick=$!
        wait -n # the end of a process is seen at once
        { kill "$tick" && wait "$tick"; } 2>/dev/null
    done
    # TERM, six seconds to save, KILL; the mark's bearers have them too: torchrun, told more than once, ends before its ranks.
    for pid in $(jobs -pr); do kill -TERM -- "-$pid"; done
    while ((left-- > 0)); do
        [[ -n $(jobs -pr) ]] || { [[ -e $HPCLAUNCH_RUN_DIR/failed ]] && grep -qszxF "$mark" /proc/[0-9]*/environ; } || break
        sleep 0.5
    done
    for pid in $(jobs -pr); do kill -KILL -- "-$pid"; done
    exec {guard}>&- && wait "$sweeper"
    for pid in "${pids[@]}"; do wait "$pid" || verdict=$?; done
    ((verdict == 0)) || fail "$verdict" - "node $NODE_RANK"
    echo "end $verdict" >"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.beat"
    return "$verdict"
}

trap 'fail 143 - "the job, ended by PBS (qdel or walltime)"' TERM
# What a node needs, in a file: programs started by pbsdsh get nothing of this shell's environment.
(umask 077 && : >"$HPCLAUNCH_RUN_DIR/node.sh") || exit 1 # there may be keys in it
{
    # Not what belongs to the head node alone.
    (unset HOSTNAME TMPDIR CUDA_VISIBLE_DEVICES PBS_ENVIRONMENT PBS_JOBCOOKIE PBS_MOMPORT PBS_NODEFILE PBS_NODENUM PBS_TASKNUM && export -p)
    declare -f fail run_rank start_guard run_node
    declare -p command
    echo 'export -f fail run_rank'
    printf 'cd %q || exit 1\n' "$PWD"
    echo 'run_node "$@"'
} >"$HPCLAUNCH_RUN_DIR/node.sh" || exit 1

# Fan-out: pbsdsh starts one program on each node; -n counts lines of the nodefile.
for ((node = 0; node < 2; node++)); do
    pbsdsh -n "${nodes[node]%% *}" -- /bin/bash -c "$(printf '. %q' "$HPCLAUNCH_RUN_DIR/node.sh") $node" & # no newline passes
    shells[node]=$! beats[node]="" silent[node]=0
done

# pbsdsh returns 0 whatever happens and never notices a dead node, so each node writes a beat, and at the end its code.
# Rounds of a second are counted, not the time: when the file system stalls, head and nodes stall together.
code=0 left=15 second=0
while ((left > 0)); do
    running=0
    for ((node = 0; node < 2; node++)); do
        beat="" && { read -r beat <"$HPCLAUNCH_RUN_DIR/node-$node.beat"; } 2>/dev/null
        if [[ $beat == end* ]]; then
            [[ $beat == "end 0" ]] || code=${beat#end }
            continue
        fi
        running=1
        silent[node]=$((silent[node] + second))
        [[ $beat == "${beats[node]}" ]] || beats[node]=$beat silent[node]=0
        if ((silent[node] > 45)) || { ((silent[node] > 8)) && ! kill -0 "${shells[node]}" 2>/dev/null; }; then
            fail 1 - "node ${nodes[node]#* }, which is silent"
            code=1
        fi
    done
    ((running)) || break
    [[ $code == 0 && ! -e $HPCLAUNCH_RUN_DIR/failed ]] || ((left -= second)) # the time that the others have to end
    second=1
    sleep 1 & tick=$!
    wait -n # the end of a pbsdsh is seen at once
    { kill "$tick" && second=0 && wait "$tick"; } 2>/dev/null
done
for _ in {1..10}; do kill -0 "${shells[@]}" && sleep 0.1; done 2>/dev/null # pbsdsh ends just after its node's script
kill "${shells[@]}" 2>/dev/null
{ kill "$follower" && wait "$follower"; } 2>/dev/null
show
ls "$HPCLAUNCH_RUN_DIR" >/dev/null # NFS tells of new files only to those who look

# The first failure gives the job its exit code.
if [[ -e $HPCLAUNCH_RUN_DIR/failed ]]; then
    IFS=' ' read -r code log who <"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: first failure: $who, exit code $code"
    for end in "$HPCLAUNCH_RUN_DIR/${log%.log}".{log,err}; do
        [[ -s $end ]] && echo "The end of $end:" && tail -n 20 "$end"
    done
fi
exit "${code:-1}"
