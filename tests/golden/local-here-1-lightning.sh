#!/bin/bash
# local here: 1 node x 2 tasks = world size 2
# Made by hpclaunch 0.1.0 from site profile local; the same again:
#   hpclaunch render --site local --nodes 1 --partition here --tasks-per-node 2 --launcher lightning -- python train.py --epochs 3

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
export MASTER_ADDR MASTER_PORT WORLD_SIZE=2 LOCAL_WORLD_SIZE=2

# What carries MARK in its environment ends with the shells that have $guard open, even if these are killed: the guard has
# a session of its own, and reads until the other end of its pipe is gone.
start_guard() { # MARK
    local sweep="grep -lszxF ${1@Q} /proc/[0-9]*/environ | cut -d / -f 3 | xargs -r kill -KILL"
    exec {guard}> >(exec setsid bash -c "read -r; $sweep" &>/dev/null)
}

# The ranks of one node: its place in the world, its log, its exit code. Signals are for the command to handle.
run_rank() { # COMMAND...
    unset RANK LOCAL_RANK
    trap : INT TERM USR1 USR2
    set +eu # which the file of a BASH_ENV may set
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.err" || exit 1
    (exec "$@") # a program, never one of this shell's own words
    local code=$?
    ((code == 0)) || fail "$code" "node-$NODE_RANK.log" "node $NODE_RANK on $(hostname)"
    return "$code"
}

# What a rank writes is shown here too, behind its number.
show() { # LOG NAME PID: as long as that process lives
    local log=$HPCLAUNCH_RUN_DIR/$1
    tail -q -n +1 -F -s 0.2 --pid="$3" "$log.log" "$log.err" 2>/dev/null | sed -u "s/^/[$2] /"
}

# One node: its processes, each the leader of a group, end together when one fails, here or elsewhere.
run_node() { # NODE_RANK
    export NODE_RANK=$1 HPCLAUNCH_NODE=$HPCLAUNCH_RUN_DIR/node-$1.$BASHPID
    trap : INT HUP # the head of the job hears them too
    trap 'fail 143 "node-$NODE_RANK.log" "node $NODE_RANK (told to end)"' TERM
    local pid tick pids=() verdict=0 left=12 mark=HPCLAUNCH_NODE=$HPCLAUNCH_NODE
    set -m
    run_rank "${command[@]}" &
    pids+=($!)
    set +m
    unset HPCLAUNCH_NODE
    start_guard "$mark" # after the processes, which must not have its pipe open
    local sweeper=$!
    while [[ -n $(jobs -pr) && ! -e $HPCLAUNCH_RUN_DIR/failed ]] && kill -0 $$; do
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
    return "$verdict"
}

trap 'fail 130 - "the run, interrupted"' INT
trap 'fail 143 - "the run, terminated"' TERM HUP QUIT
# Fan-out: 1 emulated node.
emulated=() code=0
for ((node = 0; node < 1; node++)); do
    run_node "$node" &
    pid=$!
    emulated+=("$pid")
    show "node-$node" "node $node" "$pid" &
done
for node in "${emulated[@]}"; do
    while kill -0 "$node" 2>/dev/null; do wait "$node"; done # a signal ends a wait
    wait "$node" || code=$?
done
wait # for the last words

# The first failure gives the job its exit code.
if [[ -e $HPCLAUNCH_RUN_DIR/failed ]]; then
    IFS=' ' read -r code log who <"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: first failure: $who, exit code $code"
    for end in "$HPCLAUNCH_RUN_DIR/${log%.log}".{log,err}; do
        [[ -s $end ]] && echo "The end of $end:" && tail -n 20 "$end"
    done
fi
exit "${code:-1}"
