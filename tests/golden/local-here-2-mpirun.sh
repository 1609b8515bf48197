#!/bin/bash
# local here: 2 nodes x 2 tasks = world size 4
# Made by hpclaunch 0.1.0 from site profile local; the same again:
#   hpclaunch render --site local --nodes 2 --partition here --tasks-per-node 2 --launcher mpirun -- python train.py --epochs 3

# shellcheck disable=SC2329 # the fan-out calls the functions
# Run folder: a log for each rank, a note of the first failure. `hpclaunch run` gives the run its name.
job_id=${HPCLAUNCH_JOB_ID:-local-$(date +%Y%m%d-%H%M%S)-$$}
unset HPCLAUNCH_JOB_ID
export HPCLAUNCH_RUN_DIR=$PWD/hpclaunch-runs/$job_id
mkdir -p "$HPCLAUNCH_RUN_DIR" || exit 1
rm -f "$HPCLAUNCH_RUN_DIR"/failed
echo "hpclaunch: logs in $HPCLAUNCH_RUN_DIR"

# The first failure is the job's; what fails after it is its consequence.
fail() { # EXIT_CODE LOG WHO
    (set -o noclobber && echo "$1 $2 $3" >"$HPCLAUNCH_RUN_DIR/failed") 2>/dev/null
}

# What the environment sets and traps in this shell lasts until the launch, and a trap on EXIT to the end of the job.
ours=$(set +o; shopt -p; trap -p; declare -f fail)

# Environment.
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
command=(python train.py --epochs 3)

# The launch, the same for every job of this kind.
trap - ERR DEBUG RETURN INT TERM HUP QUIT USR1 USR2
eval "$ours"
IFS=$' \t\n'

# Rendezvous: the head node, at a port of this job's own, where nothing listens and which no other script of mine holds.
MASTER_ADDR=127.0.0.1
MASTER_PORT=$((20000 + $$ % 10000))
take_port() { # PORT; the lock lasts as long as this script and what it starts
    (: <"/dev/tcp/127.0.0.1/$1" || : <"/dev/tcp/$MASTER_ADDR/$1") 2>/dev/null && return 1
    { exec {lock}>>"/tmp/hpclaunch-$UID-$1.port"; } 2>/dev/null || return 0
    flock -n "$lock" || (($? != 1)) # 1: another has it
}
until take_port "$MASTER_PORT"; do MASTER_PORT=$((MASTER_PORT + 1)); done
export MASTER_ADDR MASTER_PORT WORLD_SIZE=4 LOCAL_WORLD_SIZE=2

# What carries MARK in its environment ends with the shells that have $guard open, even if these are killed: the guard has
# a session of its own, and reads until the other end of its pipe is gone.
start_guard() { # MARK
    local sweep="grep -lszxF ${1@Q} /proc/[0-9]*/environ | cut -d / -f 3 | xargs -r kill -KILL"
    exec {guard}> >(exec setsid bash -c "read -r; $sweep" &>/dev/null)
}

# One rank: its place in the world, its log, its exit code. Signals are for the command to handle.
run_rank() { # COMMAND...
    export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$((OMPI_COMM_WORLD_RANK % LOCAL_WORLD_SIZE))
    export NODE_RANK=$((RANK / LOCAL_WORLD_SIZE))
    trap : INT TERM USR1 USR2
    set +eu # which the file of a BASH_ENV may set
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/rank-$RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/rank-$RANK.err" || exit 1
    local mark=$HPCLAUNCH_RUN_DIR/rank-$RANK.$$
    start_guard "HPCLAUNCH_NODE=$mark"
    export HPCLAUNCH_NODE=$mark
    (exec "$@" {guard}>&-) # a program, never one of this shell's own words
    local code=$?
    ((code == 0)) || fail "$code" "rank-$RANK.log" "rank $RANK on $(hostname)"
    return "$code"
}

# What a rank writes is shown here too, behind its number.
show() { # LOG NAME PID: as long as that process lives
    local log=$HPCLAUNCH_RUN_DIR/$1
    tail -q -n +1 -F -s 0.2 --pid="$3" "$log.log" "$log.err" 2>/dev/null | sed -u "s/^/[$2] /"
}

# What the ranks need, in a file: mpirun carries no environment to some kinds of node.
(umask 077 && : >"$HPCLAUNCH_RUN_DIR/rank.sh") || exit 1 # there may be keys in it
{
    # Not what belongs to the head node alone.
    (unset HOSTNAME TMPDIR CUDA_VISIBLE_DEVICES && export -p)
    declare -f fail start_guard run_rank
    echo 'run_rank "$@"'
} >"$HPCLAUNCH_RUN_DIR/rank.sh" || exit 1

# Fan-out: mpirun starts the ranks and ends them all when one fails. It would bind each of two ranks to a single core.
mpirun -n 4 --bind-to none --oversubscribe \
    bash "$HPCLAUNCH_RUN_DIR/rank.sh" "${command[@]}" &
job=$!
trap 'fail 130 - "the run, interrupted"; kill -TERM "$job"' INT
trap 'fail 143 - "the run, terminated"; kill -TERM "$job"' TERM HUP QUIT
for ((number = 0; number < WORLD_SIZE; number++)); do show "rank-$number" "$number" "$job" & done
while kill -0 "$job" 2>/dev/null; do wait "$job"; done # a signal ends a wait
wait "$job"
code=$?

# The first failure gives the job its exit code.
if [[ -e $HPCLAUNCH_RUN_DIR/failed ]]; then
    IFS=' ' read -r code log who <"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: first failure: $who, exit code $code"
    for end in "$HPCLAUNCH_RUN_DIR/${log%.log}".{log,err}; do
        [[ -s $end ]] && echo "The end of $end:" && tail -n 20 "$end"
    done
fi
exit "${code:-1}"
