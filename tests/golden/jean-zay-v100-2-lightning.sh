#!/bin/bash
# jean-zay v100: 2 nodes x 4 tasks = world size 8, 80 cpus, 8 GPUs, walltime 01:00:00, at most 8 GPU-hours
# Made by hpclaunch 0.1.0 from site profile jean-zay (checked 2026-11-21); the same again:
#   hpclaunch render --site jean-zay --nodes 2 --partition v100 --account abc@v100 --launcher lightning -- python train.py --epochs 3
#SBATCH --job-name=train
#SBATCH --account=abc@v100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=40
#SBATCH --time=01:00:00
#SBATCH --output=%x_%j.out
#SBATCH --hint=nomultithread

# shellcheck disable=SC1090,SC1091,SC2015,SC2016,SC2206,SC2329
# The run folder, below the folder of submission: a log for each rank, a note of the first failure.
job_id=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
export HPCLAUNCH_RUN_DIR=$PWD/hpclaunch-runs/$job_id
mkdir -p "$HPCLAUNCH_RUN_DIR" && rm -f "$HPCLAUNCH_RUN_DIR"/{failed,exit} || exit 1
echo '{"job_name": "train", "max_attempts": 1, "nodes": 2, "partition": "v100", "poll": 2, "scheduler": "slurm",
    "seconds": 3600, "site": "jean-zay", "tasks_per_node": 4}' >"$HPCLAUNCH_RUN_DIR/about.json" # for hpclaunch status
echo "hpclaunch: logs in $HPCLAUNCH_RUN_DIR"
trap 'code=$? at=${at:-$BASH_COMMAND}; [[ $launched || $BASHPID != "$$" ]] || { echo "$code" >"$HPCLAUNCH_RUN_DIR/exit"
    echo "$code - the environment, at: $at" >"$HPCLAUNCH_RUN_DIR/failed"
    echo "hpclaunch: the environment ended the job with exit code $code, at: $at"; }' EXIT # if a line of your job does
trap 'launched=1; exit 143' TERM
launched="" at="" hpclaunch_settings=$(set +o; shopt -p)

# ---------- Your job ----------
command -v module >/dev/null || source /etc/profile # a job submitted from a non-login shell lacks it
command -v module >/dev/null || { at="module: this node has neither Lmod nor Environment Modules"; exit 1; }
module purge
module load pytorch-gpu/py3/2.8.0 || { at='module load pytorch-gpu/py3/2.8.0'; exit 1; }
export OMP_NUM_THREADS=10 PYTHONUNBUFFERED=1
command=(python train.py --epochs 3)

# ---------- Launch, the same for every job here: nothing to edit ----------
trap - ERR DEBUG RETURN INT HUP QUIT USR1 USR2; eval "$hpclaunch_settings" # what your job set was for your job
IFS=$' \t\n' run=${HPCLAUNCH_RUN_DIR##*/} ended=""; [[ $WANDB_RUN_ID != "$HPCLAUNCH_RUN_ID" ]] || export WANDB_RUN_ID=$run WANDB_RESUME=allow
fail() { (trap '' HUP INT TERM USR1 USR2; set -C; echo "$1 $2 $3" >"$HPCLAUNCH_RUN_DIR/failed") 2>/dev/null; return "$1"; } # CODE LOG WHO; noted once
# Rendezvous: the head node, at a port of this job's own where nothing listens.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
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

# The ranks of one node: its place in the world, its logs, its exit code. Signals are for the command to handle.
run_rank() { # COMMAND...
    export NODE_RANK=$SLURM_NODEID
    unset SLURM_NTASKS # else Lightning waits for ranks started by srun
    unset RANK LOCAL_RANK
    # A signal comes to this shell only (Slurm's proctrack/cgroup, some MPIs), or to each process, the one that just sleeps too.
    local signal asleep="" heard=()
    pass_on() { { sleep 0.1; kill -0 "$asleep" && for signal in "${heard[@]}"; do kill -s "$signal" "$pid"; done && heard=(); } 2>/dev/null; }
    trap 'heard+=(INT); pass_on' INT; trap 'heard+=(TERM); pass_on' TERM; trap 'heard+=(USR1); pass_on' USR1; trap 'heard+=(USR2); pass_on' USR2
    set +eu # which the file of a BASH_ENV may set
    export HPCLAUNCH_USAGE=$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.usage
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.err" || exit 1
    exec {sampler}> >( ((${LOCAL_RANK:-0})) || sample "$PPID")
    local sampling=$!
    local code=0
    { printf '%(%s)T %s\n' -1 "start node $NODE_RANK" >>"$HPCLAUNCH_USAGE"; } 2>/dev/null
    (exec "$@" {sampler}>&-) <&0 &
    local pid=$!
    # Polls, without a fork: `wait` of bash 5.2 loses the exit code of what ends just as a signal comes, and may then wait for ever.
    local still pause=0
    exec {still}<> <(exec sleep infinity {sampler}>&-); asleep=$!
    ((${#heard[@]} == 0)) || pass_on
    while kill -0 "$pid" 2>/dev/null; do read -rt "0.0$((pause < 9 ? ++pause : 9))" -u "$still"; done
    kill "$asleep" 2>/dev/null
    wait "$pid" || fail $? "node-$NODE_RANK.log" "node $NODE_RANK on $(hostname)" || code=$?
    { printf '%(%s)T %s\n' -1 "end node $NODE_RANK $code" >>"$HPCLAUNCH_USAGE"; } 2>/dev/null
    last_sample
    return "$code"
}

launched=1; trap 'ended=1' TERM
# srun carries environment and functions to every node. Without each size, SLURM_NTASKS and the like would win.
export -f fail sample last_sample run_rank
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=40 \
    --distribution=block --export=ALL --kill-on-bad-exit=1 bash -c 'run_rank "$@"' "$0" "${command[@]}" & job=$!
# Rank 0 writes to the job's output too, whatever signal ends the job.
(trap '' TERM; cd "$HPCLAUNCH_RUN_DIR" && touch node-0.{log,err} && exec tail -q -c +1 -F --pid="$job" \
    node-0.{log,err} 2>/dev/null) & readers=($!)
while kill -0 "$job" 2>/dev/null; do wait "$job"; done # a signal ends a wait
wait "$job"; code=$?
wait "${readers[@]}"; ls "$HPCLAUNCH_RUN_DIR" >/dev/null # NFS tells of new files only to those who look

# The first failure gives the job its exit code.
[[ ! -e $HPCLAUNCH_RUN_DIR/failed || -s $HPCLAUNCH_RUN_DIR/failed ]] || { sleep 1; ((code)) || code=1; } # it is being written, or could not be
{ read -r first log who <"$HPCLAUNCH_RUN_DIR/failed" && code=$first && echo "hpclaunch: first failure: $who, exit code $code" &&
    tail -n 20 "$HPCLAUNCH_RUN_DIR/${log%.log}".{log,err}; } 2>/dev/null
[[ $ended ]] && code=143 || echo "$code" >"$HPCLAUNCH_RUN_DIR/exit" # once ended, a requeue may follow
exit "$code"
