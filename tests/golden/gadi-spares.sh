#!/bin/bash
# gadi gpuvolta: 2 nodes x 4 tasks = world size 8, 1 spare node, 144 cpus, 12 GPUs, 1140 GB, walltime 3 attempts of 01:00:00, at most 1,296 SU
# Made by hpclaunch 0.1.0 from site profile gadi (checked 2026-11-21); the same again:
#   hpclaunch render --site gadi --nodes 2 --partition gpuvolta --account ab12 --launcher torchrun --max-attempts 3 --spares 1 -- python train.py --epochs 3
#PBS -N train
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=144
#PBS -l ngpus=12
#PBS -l mem=1140GB
#PBS -l jobfs=1200GB
#PBS -l storage=gdata/dk92
#PBS -l wd
#PBS -l walltime=01:00:00
#PBS -r y
#PBS -j oe

# shellcheck disable=SC1090,SC1091,SC2015,SC2016,SC2206,SC2329
# The run folder, below the folder of submission: a log for each rank, a note of the first failure.
umask 027; cd "$PBS_O_WORKDIR" || exit 1 # PBS starts in $HOME, with umask 077
# PBS gives no warning before the walltime: from then on every rank warns its own command.
export HPCLAUNCH_WARN_AT=$(($(date +%s) + 3480))
# A further attempt is a job of its own in the run folder of the first, whose id comes by qsub -v.
export HPCLAUNCH_ATTEMPT=${HPCLAUNCH_ATTEMPT:-1}
job_id=${HPCLAUNCH_JOB:-$PBS_JOBID}
export HPCLAUNCH_RUN_DIR=$PWD/hpclaunch-runs/$job_id
mkdir -p "$HPCLAUNCH_RUN_DIR" && rm -f "$HPCLAUNCH_RUN_DIR"/{failed,exit,warned,again,node-*.starts,node-*.heartbeat.*} || exit 1
[[ -e $HPCLAUNCH_RUN_DIR/job.sh ]] || cp "$0" "$HPCLAUNCH_RUN_DIR/job.sh" # PBS's copy of this script, for the next attempt
echo '{"job_name": "train", "max_attempts": 3, "nodes": 3, "partition": "gpuvolta", "poll": 600, "scheduler": "pbs",
    "seconds": 3600, "site": "gadi", "tasks_per_node": 4}' >"$HPCLAUNCH_RUN_DIR/about.json" # for hpclaunch status
echo "hpclaunch: logs in $HPCLAUNCH_RUN_DIR"
trap 'code=$? at=${at:-$BASH_COMMAND}; [[ $launched || $BASHPID != "$$" ]] || { echo "$code" >"$HPCLAUNCH_RUN_DIR/exit"
    echo "$code - the environment, at: $at" >"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: the environment ended the job with exit code $code, at: $at"; }' EXIT # if a line of your job does
trap 'exit 143' TERM
launched="" at="" hpclaunch_settings=$(set +o; shopt -p)

# ---------- Your job ----------
command -v module >/dev/null || source /etc/profile # a job submitted from a non-login shell lacks it
command -v module >/dev/null || { at="module: this node has neither Lmod nor Environment Modules"; exit 1; }
module use /g/data/dk92/apps/Modules/modulefiles
module load NCI-ai-ml/24.11 || { at='module load NCI-ai-ml/24.11'; exit 1; }
export OMP_NUM_THREADS=12 PYTHONUNBUFFERED=1
command=(python train.py --epochs 3)

# ---------- Launch, the same for every job here: nothing to edit ----------
trap - ERR DEBUG RETURN INT HUP QUIT USR1 USR2; eval "$hpclaunch_settings" # what your job set was for your job
IFS=$' \t\n' run=${HPCLAUNCH_RUN_DIR##*/} ended=""; [[ $WANDB_RUN_ID != "$HPCLAUNCH_RUN_ID" ]] || export WANDB_RUN_ID=$run WANDB_RESUME=allow
lost=""
fail() { (trap '' HUP INT TERM USR1 USR2; set -C; echo "$1 $2 $3" >"$HPCLAUNCH_RUN_DIR/failed") 2>/dev/null; return "$1"; } # CODE LOG WHO; noted once
# Rendezvous: the head node, at a port of this job's own where nothing listens.
mapfile -t nodes < <(awk '!seen[$0]++ {print NR - 1, $0}' "$PBS_NODEFILE") # "index host"; hosts stand there repeatedly
((${#nodes[@]} == 3)) || { at="PBS gave ${#nodes[@]} hosts, the job is made for 3"; exit 1; }
MASTER_ADDR=${nodes[0]#* }
MASTER_PORT=$((20000 + ${PBS_JOBID%%[!0-9]*} % 10000))
while (: <"/dev/tcp/0/$MASTER_PORT" || : <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT++)); done
export MASTER_ADDR MASTER_PORT WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 HPCLAUNCH_RUN_ID=$run # one for all attempts

# What this node uses, each 10 s until the shell that holds the pipe ends: ms of cores and MB of PID and the processes below it, and
# of each GPU %, MB and W. Builtins read it, which takes less than 0.1 % of a core.
sample() { # PID; in a process of its own
    set +eu; trap '' HUP INT TERM USR1 USR2; exec &>/dev/null
    local page=$(($(getconf PAGESIZE) / 1024)) pause=1 code=142 ms mb gpus i pids field file more
    printf '%(%s)T node %s %s\n' -1 "$(hostname)" "${HPCLAUNCH_ATTEMPT:-1}" >>"$HPCLAUNCH_USAGE"
    exec {smi}< <(exec nvidia-smi ${CUDA_VISIBLE_DEVICES:+"--id=$CUDA_VISIBLE_DEVICES"} --loop=10 \
        --query-gpu=index,utilization.gpu,memory.used,power.draw --format=csv,noheader,nounits)
    local reader=$!
    while :; do
        ms=0 mb=0 gpus="" pids=("$1")
        for ((i = 0; i < ${#pids[@]}; i++)); do # time of it and of its ended children in 1/100 s, resident pages: proc_pid_stat(5)
            [[ ${pids[i]} != "$BASHPID" ]] && read -r more <"/proc/${pids[i]}/stat" || continue
            field=(${more##*) }) # without the number and the name, which may have blanks
            ((ms += 10 * (field[11] + field[12] + field[13] + field[14]), mb += i ? field[21] : 0))
            for file in "/proc/${pids[i]}"/task/*/children; do more=(); read -ra more <"$file"; pids+=("${more[@]}"); done
        done
        while read -t 0 -u "$smi" && read -rt 1 -u "$smi" more; do gpus+=" ${more// /}"; done
        printf '%(%s)T %d %d%s\n' -1 "$ms" "$((mb * page / 1024))" "$gpus" >>"$HPCLAUNCH_USAGE"
        ((code > 128)) || break
        read -rt "$pause"; code=$? # above 128 after that time, else the pipe is closed
        ((pause = pause < 5 ? 2 * pause : 10)) # a short job has samples too
    done
    # It ignores what this shell ignores. Once it has ended its number can be that of any process: is it still a child of this one?
    read -r more <"/proc/$reader/stat" && field=(${more##*) }) && ((field[1] == BASHPID)) && kill -KILL "$reader"
}

last_sample() { # closes the pipe of the sampler and lets it write its last line; to wait for it could be for ever
    exec {sampler}>&-
    for _ in {1..20}; do kill -0 "$sampling" || break; sleep 0.1; done 2>/dev/null # bash names a sleep that a TERM ends
}

# One rank: its place in the world, its logs, its exit code. Signals are for the command to handle.
run_rank() { # COMMAND...
    ((RANK)) || rm -f "$HPCLAUNCH_RUN_DIR"/{failed,again} # of a start before
    ((LOCAL_RANK)) || echo "$GROUP_RANK $GROUP_WORLD_SIZE $(hostname)" >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.starts"
    export NODE_RANK=$GROUP_RANK # torchrun numbers the nodes
    trap : INT TERM USR1 USR2
    set +eu # which the file of a BASH_ENV may set
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/rank-$RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/rank-$RANK.err" || exit 1
    local code=0
    { printf '%(%s)T %s\n' -1 "start rank $RANK" >>"$HPCLAUNCH_USAGE"; } 2>/dev/null
    echo "--- attempt $HPCLAUNCH_ATTEMPT of 3 ---"
    (exec "$@") &
    local pid=$! warner warned=0 verdict
    (until ((warn_at = HPCLAUNCH_WARN_AT, $(date +%s) >= warn_at - 2)); do
        sleep 1
    done
    # All ranks at once, or those that save in the midst of different steps wait for each other for ever; 4 s at most.
    for _ in {1..400}; do (($(date +%s) < warn_at)) || break; sleep 0.01; done
    kill -USR1 "$pid") &
    warner=$!
    # Polls, without a fork: `wait` of bash 5.2 loses the exit code of what ends just as a signal comes, and may then wait for ever.
    local still pause=0
    exec {still}<> <(:)
    while kill -0 "$pid" 2>/dev/null; do read -rt "0.0$((pause < 9 ? ++pause : 9))" -u "$still"; done
    wait "$pid"
    code=$? verdict=$code
    kill "$warner" 2>/dev/null || warned=1
    # Warned of the end, or by the TERM of a preemption, the command may save and leave with 75: "start me again".
    # One that does not know the signal dies of it, 138, and is started again as well.
    if ((code == 75 || (warned && code == 138))); then
        touch "$HPCLAUNCH_RUN_DIR/again"
        verdict=0
    fi
    ((verdict == 0)) || fail "$verdict" "rank-$RANK.log" "rank $RANK on $(hostname)"
    { printf '%(%s)T %s\n' -1 "end rank $RANK $code" >>"$HPCLAUNCH_USAGE"; } 2>/dev/null
    return "$verdict"
}

# The agent of one node; it starts the node's ranks, again if some fail. What is more than --nodes waits for a place.
run_torchrun() { # COMMAND...
    trap : TERM
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # else a start finds addresses of the one before in the store (torch 2.13)
    python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --max-restarts=1 \
        --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="${HPCLAUNCH_RUN_DIR##*/}" \
        --rdzv-conf="is_host=$((NODE_RANK == 0))" --no-python bash -c 'run_rank "$@"' "$0" "$@" \
        >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>&1
    local code=$?
    ((code)) || {
        [[ ! -e $HPCLAUNCH_RUN_DIR/node-$NODE_RANK.starts ]] || echo finished >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.starts"
        return 0
    }
    [[ -e $HPCLAUNCH_RUN_DIR/again ]] && return # its ranks left to be started again
    return "$code" # the others may go on
}

declare -A size && readers=()
for kind in log err; do size[$kind]=$(($(cat "$HPCLAUNCH_RUN_DIR/rank-0.$kind" 2>/dev/null | wc -c) + 1)); done
launched=1; trap 'fail 143 - "the job, ended by PBS (qdel or walltime)"; ended=1' TERM
# One node: its ranks, each the leader of a group, end together when one fails or the node gets TERM.
run_node() { # NODE_RANK
    export NODE_RANK=$1 HPCLAUNCH_NODE=$HPCLAUNCH_RUN_DIR/node-$1.$BASHPID HPCLAUNCH_USAGE=$HPCLAUNCH_RUN_DIR/node-$1.usage
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>&1
    local pid pids=() reaped=() alive=1 verdict=0 left=12 mark=HPCLAUNCH_NODE=$HPCLAUNCH_NODE
    trap '((verdict)) || verdict=143; fail 143 "node-$NODE_RANK.log" "node $NODE_RANK, terminated"' TERM
    set -m
    run_torchrun "${command[@]}" & pids+=($!)
    set +m; unset HPCLAUNCH_NODE
    local sampler sampling
    exec {sampler}> >(sample "${mark##*.}"); sampling=$!
    # What carries the mark ends with this shell, even if that is killed: the guard reads until its pipe is closed.
    local sweep="grep -lszxF ${mark@Q} /proc/[0-9]*/environ | cut -d / -f 3 | xargs -r kill -KILL"
    exec {guard}> >(exec setsid bash -c "read -r; $sweep" &>/dev/null {sampler}>&-)
    local sweeper=$! beat=0 state=$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.heartbeat
    while ((verdict == 0 && alive)); do
        mv -T "$state.$beat" "$state.$((++beat))" || mv "$state".* "$state.$beat" # the head reads all names at once
        sleep 1 {guard}>&- {sampler}>&- & wait -n # the end of a process is seen at once
        { kill $! && wait $!; } 2>/dev/null; alive=0
        # Each is waited for once: bash forgets the exit codes of long ago, and another process may get the number.
        for pid in "${pids[@]}"; do [[ ${reaped[pid]} ]] || { kill -0 "$pid" 2>/dev/null && alive=1; } || { wait "$pid" && reaped[pid]=1; } || verdict=$?; done
    done
    mv "$state".* "$state.stopping"
    # TERM, 6 s to save, KILL by the guard. torchrun may end before its ranks, these before their shells.
    trap '' TERM; for pid in "${pids[@]}"; do kill -TERM -- "-$pid" 2>/dev/null; done
    while ((left-- > 0)) && { kill -0 "${pids[@]}" || grep -qszxF "$mark" /proc/[0-9]*/environ; } 2>/dev/null; do sleep 0.5; done
    exec {guard}>&-; last_sample; wait "$sweeper"
    mv "$state".* "$state.end-$verdict"
    return "$verdict"
}

# pbsdsh passes nothing of this shell on: what a node needs is in a file, its owner's only, as there may be keys in it.
(umask 077 && exec >"$HPCLAUNCH_RUN_DIR/node.sh" && declare -f fail sample last_sample run_rank run_torchrun run_node && declare -p command &&
    unset HOSTNAME TMPDIR CUDA_VISIBLE_DEVICES \
        ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ZE_AFFINITY_MASK PBS_ENVIRONMENT PBS_JOBCOOKIE PBS_MOMPORT PBS_NODEFILE PBS_NODENUM PBS_TASKNUM &&
    export -p && printf 'export -f fail run_rank; umask 027; cd %q && run_node "$1"\n' "$PWD") || exit 1
touch "$HPCLAUNCH_RUN_DIR"/node-{0..2}.heartbeat.0; shells=() beats=() heard=()
for ((node = 0; node < 3; node++)); do # -n counts lines of the nodefile; no newline passes
    pbsdsh -n "${nodes[node]%% *}" -- /bin/bash -c "$(printf '. %q' "$HPCLAUNCH_RUN_DIR/node.sh") $node" & shells+=($!)
done
(trap '' TERM; exec tail -f /dev/null --pid=$$) & head=$!
# Rank 0 writes to the job's output too, whatever signal ends the job.
for kind in log err; do # from where an earlier attempt ended
    (trap '' TERM; exec tail -c "+${size[$kind]}" -F --pid="$head" "$HPCLAUNCH_RUN_DIR/rank-0.$kind" 2>/dev/null) &
    readers+=($!)
done
# pbsdsh returns 0 whatever happens and never notices a dead node, so the nodes send heartbeats.
# Rounds of a second are counted, not the time: when the file system stalls, head and nodes stall together.
code=0 round=0 deadline=0
while ((deadline == 0 || round < deadline)); do
    over=0 gone=0
    for node in "${!shells[@]}"; do kill -0 "${shells[node]}" || unset "shells[node]"; done 2>/dev/null # its number may become another's
    for file in "$HPCLAUNCH_RUN_DIR"/node-*.heartbeat.*; do
        beat=${file##*.} node=${file##*/node-} && node=${node%%.*}
        [[ ${beats[node]} == "$beat" ]] || beats[node]=$beat heard[node]=$round
        silent=$((round - heard[node]))
        if [[ $beat == end-* ]]; then
            ((++over, code = code ? code : ${beat#end-}))
        elif ((silent > 45)) || { ((silent > 8)) && ! kill -0 "${shells[node]}" 2>/dev/null; }; then
            ((++over, ++gone <= 1)) && continue # its place is taken, or the others go on without it
            ((deadline)) || rm -f "$HPCLAUNCH_RUN_DIR/failed" # of ranks, for want of it
            lost="node ${nodes[node]#* } is silent"
            fail 1 - "node ${nodes[node]#* }, which is silent" || code=1
        fi
        # What fails first may be the others, for want of it. A node that lives stops within seconds, and says so.
        if ((deadline && deadline - round < 4)) && [[ $beat == [1-9]* ]]; then
            lost="node ${nodes[node]#* } is silent"
        fi
    done
    ((over < 3)) || break
    if ((gone > 1)) || [[ $ended ]] || ! kill -0 "${shells[@]}" 2>/dev/null; then
        kill "${shells[@]}" 2>/dev/null; ((deadline)) || deadline=$((round + 15)) # pbsdsh passes it on
    fi
    sleep 1 & wait -n # the end of a pbsdsh is seen at once
    { kill $! && ! wait $!; } 2>/dev/null || ((++round))
done
((over == 3 || code)) || code=1 # a pbsdsh ends just after its node's script
{ for _ in {1..10}; do kill -0 "${shells[@]}" && sleep 0.1; done; kill "${shells[@]}"; } 2>/dev/null
{ kill -KILL "$head"; wait "$head"; } 2>/dev/null
wait "${readers[@]}"

# Done if each node of the last start says so, whatever became of the others.
if awk '$1 == "finished" { n++; of = before } { before = $2 } END { exit !n || n < of }' "$HPCLAUNCH_RUN_DIR"/node-*.starts 2>/dev/null &&
    [[ ! -e $HPCLAUNCH_RUN_DIR/failed ]]; then
    code=0
elif [[ -z $ended && ! -e $HPCLAUNCH_RUN_DIR/again ]]; then
    fail $((code ? code : 1)) node-0.log "torchrun, without nodes or restarts to go on with" || code=$?
fi

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

leave() { echo "$1" >"$HPCLAUNCH_RUN_DIR/exit"; exit "$1"; } # EXIT_CODE
# Saved and not done, or a node was lost: the job goes on as a new one. Of these there is one, whatever PBS starts twice.
if [[ -z $ended && (-n $lost || (-e $HPCLAUNCH_RUN_DIR/again && ! -e $HPCLAUNCH_RUN_DIR/failed)) ]]; then
    code=75 next=$((HPCLAUNCH_ATTEMPT + 1))
    if ((next <= 3)); then
        echo "hpclaunch: ${lost:-the walltime is near}, going on in attempt $next of 3"
        (set -o noclobber && : >"$HPCLAUNCH_RUN_DIR/attempt-$next") 2>/dev/null || leave 75
        cd "$PBS_O_WORKDIR" || leave 75
        again=("HPCLAUNCH_JOB=$job_id,HPCLAUNCH_ATTEMPT=$next" "$HPCLAUNCH_RUN_DIR/job.sh")
        submit() { answer=$(qsub -W depend=afterany:"$PBS_JOBID" -v "${again[@]}"); }
        if insist $((HPCLAUNCH_WARN_AT + 120)) submit; then
            echo "${answer##*[[:space:]]}" | tee -a "$HPCLAUNCH_RUN_DIR/attempts" # submitted, though that may be full
            leave 75
        fi
        give_up "$(printf 'cd %q && qsub -v %q %q | tee -a %q' "$PBS_O_WORKDIR" "${again[@]}" "$HPCLAUNCH_RUN_DIR/attempts")"
    else
        echo "hpclaunch: not done, and 3 attempts are used up"
    fi
fi

# The first failure gives the job its exit code.
[[ ! -e $HPCLAUNCH_RUN_DIR/failed || -s $HPCLAUNCH_RUN_DIR/failed ]] || { sleep 1; ((code)) || code=1; } # it is being written, or could not be
{ read -r first log who <"$HPCLAUNCH_RUN_DIR/failed" && code=$first && echo "hpclaunch: first failure: $who, exit code $code" &&
    tail -n 20 "$HPCLAUNCH_RUN_DIR/${log%.log}".{log,err}; } 2>/dev/null
echo "$code" >"$HPCLAUNCH_RUN_DIR/exit"
exit "$code"
