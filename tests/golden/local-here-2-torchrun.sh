#!/bin/bash
# local here: 2 nodes x 2 tasks = world size 4
# Made by hpclaunch 0.1.0 from site profile local; the same again:
#   hpclaunch render --site local --nodes 2 --partition here --tasks-per-node 2 --launcher torchrun -- python train.py --epochs 3

# shellcheck disable=SC1090,SC1091,SC2015,SC2016,SC2206,SC2329
# The run folder, below the folder of submission: a log for each rank, a note of the first failure.
# `hpclaunch run` gives the run its name.
export HPCLAUNCH_RUN_DIR=$PWD/hpclaunch-runs/${HPCLAUNCH_JOB_ID:-local-$(date +%Y%m%d-%H%M%S)-$$}
unset HPCLAUNCH_JOB_ID
mkdir -p "$HPCLAUNCH_RUN_DIR" && rm -f "$HPCLAUNCH_RUN_DIR"/{failed,exit} || exit 1
# For hpclaunch status, unless hpclaunch submit has written it.
[[ -e $HPCLAUNCH_RUN_DIR/pid ]] || {
    echo $$ >"$HPCLAUNCH_RUN_DIR/pid"; echo -n "$(uname -n)" >"$HPCLAUNCH_RUN_DIR/host"; touch "$HPCLAUNCH_RUN_DIR/started"
}
echo '{"job_name": "train", "max_attempts": 1, "nodes": 2, "partition": "here", "poll": 2, "scheduler": "local",
    "seconds": 3600, "site": "local", "tasks_per_node": 2}' >"$HPCLAUNCH_RUN_DIR/about.json" # for hpclaunch status
echo "hpclaunch: logs in $HPCLAUNCH_RUN_DIR"
trap 'code=$? at=${at:-$BASH_COMMAND}; [[ $launched || $BASHPID != "$$" ]] || { echo "$code" >"$HPCLAUNCH_RUN_DIR/exit"
    echo "$code - the environment, at: $at" >"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: the environment ended the job with exit code $code, at: $at"; }' EXIT # if a line of your job does
launched="" at="" hpclaunch_settings=$(set +o; shopt -p)

# ---------- Your job ----------
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
command=(python train.py --epochs 3)

# ---------- Launch, the same for every job here: nothing to edit ----------
trap - ERR DEBUG RETURN INT TERM HUP QUIT USR1 USR2; eval "$hpclaunch_settings" # what your job set was for your job
IFS=$' \t\n' run=${HPCLAUNCH_RUN_DIR##*/}; [[ $WANDB_RUN_ID != "$HPCLAUNCH_RUN_ID" ]] || export WANDB_RUN_ID=$run WANDB_RESUME=allow
fail() { (trap '' HUP INT TERM USR1 USR2; set -C; echo "$1 $2 $3" >"$HPCLAUNCH_RUN_DIR/failed") 2>/dev/null; return "$1"; } # CODE LOG WHO; noted once
# Rendezvous: the head node, at a port of this job's own.
MASTER_ADDR=127.0.0.1
MASTER_PORT=$((20000 + $$ % 10000))
# The next one where something listens, or where another script of mine has the lock, which lasts as long as its job.
while (: <"/dev/tcp/127.0.0.1/$MASTER_PORT" || : <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null ||
    { { exec {lock}>>"/tmp/hpclaunch-$UID-$MASTER_PORT.port"; } 2>/dev/null && flock -n "$lock"; (($? == 1)); }; do
    MASTER_PORT=$((MASTER_PORT + 1))
done
export MASTER_ADDR MASTER_PORT WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 HPCLAUNCH_RUN_ID=$run # one for all attempts

# What this node uses, each 10 s until the shell that holds the pipe ends: ms of cores and MB of PID and the processes below it, and
# of each GPU %, MB and W. Builtins read it, which takes less than 0.1 % of a core.
sample() { # PID; in a process of its own
    set +eu; trap '' HUP INT TERM USR1 USR2; exec &>/dev/null
    local page=$(($(getconf PAGESIZE) / 1024)) pause=1 code=142 ms mb gpus i pids field file more
    printf '%(%s)T node %s %s\n' -1 "$(hostname)" "${HPCLAUNCH_ATTEMPT:-1}" >>"$HPCLAUNCH_USAGE"
    while :; do
        ms=0 mb=0 gpus="" pids=("$1")
        for ((i = 0; i < ${#pids[@]}; i++)); do # time of it and of its ended children in 1/100 s, resident pages: proc_pid_stat(5)
            [[ ${pids[i]} != "$BASHPID" ]] && read -r more <"/proc/${pids[i]}/stat" || continue
            field=(${more##*) }) # without the number and the name, which may have blanks
            ((ms += 10 * (field[11] + field[12] + field[13] + field[14]), mb += i ? field[21] : 0))
            for file in "/proc/${pids[i]}"/task/*/children; do more=(); read -ra more <"$file"; pids+=("${more[@]}"); done
        done
        printf '%(%s)T %d %d%s\n' -1 "$ms" "$((mb * page / 1024))" "$gpus" >>"$HPCLAUNCH_USAGE"
        ((code > 128)) || break
        read -rt "$pause"; code=$? # above 128 after that time, else the pipe is closed
        ((pause = pause < 5 ? 2 * pause : 10)) # a short job has samples too
    done
}

last_sample() { # closes the pipe of the sampler and lets it write its last line; to wait for it could be for ever
    exec {sampler}>&-
    for _ in {1..20}; do kill -0 "$sampling" || break; sleep 0.1; done 2>/dev/null # bash names a sleep that a TERM ends
}

# One rank: its place in the world, its logs, its exit code. Signals are for the command to handle.
run_rank() { # COMMAND...
    export NODE_RANK=$GROUP_RANK # torchrun numbers the nodes
    trap : INT TERM USR1 USR2
    set +eu # which the file of a BASH_ENV may set
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/rank-$RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/rank-$RANK.err" || exit 1
    local code=0
    { printf '%(%s)T %s\n' -1 "start rank $RANK" >>"$HPCLAUNCH_USAGE"; } 2>/dev/null
    (exec "$@") || fail $? "rank-$RANK.log" "rank $RANK on $(hostname)" || code=$? # exec: no word of this shell
    { printf '%(%s)T %s\n' -1 "end rank $RANK $code" >>"$HPCLAUNCH_USAGE"; } 2>/dev/null
    return "$code"
}

# The agent of one node; it starts the node's ranks.
run_torchrun() { # COMMAND...
    trap : TERM
    python -m torch.distributed.run --nnodes=2 --nproc-per-node=2 \
        --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="${HPCLAUNCH_RUN_DIR##*/}" \
        --rdzv-conf="is_host=$((NODE_RANK == 0))" --local-addr=127.0.0.1 --no-python bash -c 'run_rank "$@"' "$0" "$@" \
        >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>&1
    local code=$?
    ((code)) || return 0
    fail "$code" "node-$NODE_RANK.log" "torchrun on $(hostname)"
    return 1
}

launched=1
# One node: its ranks, each the leader of a group, end together when one fails or the node gets TERM.
run_node() { # NODE_RANK
    export NODE_RANK=$1 HPCLAUNCH_NODE=$HPCLAUNCH_RUN_DIR/node-$1.$BASHPID HPCLAUNCH_USAGE=$HPCLAUNCH_RUN_DIR/node-$1.usage
    local pid pids=() reaped=() alive=1 verdict=0 left=12 mark=HPCLAUNCH_NODE=$HPCLAUNCH_NODE
    trap : INT HUP # the head of the job hears them too
    trap '((verdict)) || verdict=143; fail 143 "node-$NODE_RANK.log" "node $NODE_RANK, terminated"' TERM
    set -m
    run_torchrun "${command[@]}" & pids+=($!)
    set +m; unset HPCLAUNCH_NODE
    local sampler sampling
    exec {sampler}> >(sample "${mark##*.}"); sampling=$!
    # What carries the mark ends with this shell, even if that is killed: the guard reads until its pipe is closed.
    local sweep="grep -lszxF ${mark@Q} /proc/[0-9]*/environ | cut -d / -f 3 | xargs -r kill -KILL"
    exec {guard}> >(exec setsid bash -c "read -r; $sweep" &>/dev/null {sampler}>&-)
    local sweeper=$!
    while ((verdict == 0 && alive)); do
        sleep 1 {guard}>&- {sampler}>&- & wait -n # the end of a process is seen at once
        { kill $! && wait $!; } 2>/dev/null; alive=0
        # Each is waited for once: bash forgets the exit codes of long ago, and another process may get the number.
        for pid in "${pids[@]}"; do [[ ${reaped[pid]} ]] || { kill -0 "$pid" 2>/dev/null && alive=1; } || { wait "$pid" && reaped[pid]=1; } || verdict=$?; done
        kill -0 $$ 2>/dev/null || verdict=143 # the head is gone
    done
    ((verdict == 0)) || fail "$verdict" - "node $NODE_RANK" # before others fail of the TERM
    # TERM, 6 s to save, KILL by the guard. torchrun may end before its ranks, these before their shells.
    trap '' TERM; for pid in "${pids[@]}"; do kill -TERM -- "-$pid" 2>/dev/null; done
    while ((left-- > 0)) && { kill -0 "${pids[@]}" || grep -qszxF "$mark" /proc/[0-9]*/environ; } 2>/dev/null; do sleep 0.5; done
    exec {guard}>&-; last_sample; wait "$sweeper"
    return "$verdict"
}

trap 'fail 130 - "the run, interrupted"' INT
trap 'fail 143 - "the run, terminated"' TERM HUP QUIT
# What a rank writes is shown here too, behind its number.
follow() { # LOG NAME PID: as long as that process lives
    local log=$HPCLAUNCH_RUN_DIR/$1
    tail -q -n +1 -F -s 0.2 --pid="$3" "$log.log" "$log.err" 2>/dev/null | sed -u "s/^/[$2] /"
}
readers=()
# 2 emulated nodes.
export -f fail run_rank
shells=() code=0
for ((node = 0; node < 2; node++)); do
    run_node "$node" &
    pid=$!
    shells+=("$pid")
    for ((number = node * LOCAL_WORLD_SIZE; number < (node + 1) * LOCAL_WORLD_SIZE; number++)); do
        follow "rank-$number" "$number" "$pid" &
        readers+=($!)
    done
done
# The first node to fail ends the others, and a signal all of them.
while kill -0 "${shells[@]}" 2>/dev/null; do
    [[ ! -e $HPCLAUNCH_RUN_DIR/failed ]] || kill "${shells[@]}" 2>/dev/null
    sleep 1 &
    wait -n
    { kill $! && wait $!; } 2>/dev/null
done
for pid in "${shells[@]}"; do wait "$pid" || code=$?; done
wait "${readers[@]}"

# The first failure gives the job its exit code.
[[ ! -e $HPCLAUNCH_RUN_DIR/failed || -s $HPCLAUNCH_RUN_DIR/failed ]] || { sleep 1; ((code)) || code=1; } # it is being written, or could not be
{ read -r first log who <"$HPCLAUNCH_RUN_DIR/failed" && code=$first && echo "hpclaunch: first failure: $who, exit code $code" &&
    tail -n 20 "$HPCLAUNCH_RUN_DIR/${log%.log}".{log,err}; } 2>/dev/null
echo "$code" >"$HPCLAUNCH_RUN_DIR/exit"
exit "$code"
