#!/bin/bash
# gadi gpuvolta: 2 nodes x 4 tasks = world size 8, 96 cpus, 8 GPUs, 760 GB, walltime 3 attempts of 01:00:00, at most 864 SU
# Made by hpclaunch 0.1.0 from site profile gadi (checked 2026-11-21); the same again:
#   hpclaunch render --site gadi --nodes 2 --partition gpuvolta --account ab12 --max-attempts 3 -- python train.py --epochs 3
#PBS -N train
#PBS -P ab12
#PBS -q gpuvolta
#PBS -l ncpus=96
#PBS -l ngpus=8
#PBS -l mem=760GB
#PBS -l jobfs=800GB
#PBS -l storage=gdata/dk92
#PBS -l wd
#PBS -l walltime=01:00:00
#PBS -r y
#PBS -j oe

# shellcheck disable=SC2329 # the fan-out calls the functions
# Run folder, below the folder of submission (PBS starts in $HOME): a log for each rank, a note of the first failure.
umask 027 # PBS's own, 077, keeps colleagues out
cd "$PBS_O_WORKDIR" || exit 1
# PBS gives no warning before the walltime: from then on every rank warns its own command.
export HPCLAUNCH_WARN_AT=$(($(date +%s) + 3480))
# A further attempt is a job of its own in the run folder of the first, whose id comes by qsub -v.
export HPCLAUNCH_ATTEMPT=${HPCLAUNCH_ATTEMPT:-1}
job_id=${HPCLAUNCH_JOB:-$PBS_JOBID}
export HPCLAUNCH_RUN_DIR=$PWD/hpclaunch-runs/$job_id
mkdir -p "$HPCLAUNCH_RUN_DIR" || exit 1
[[ -e $HPCLAUNCH_RUN_DIR/job.sh ]] || cp "$0" "$HPCLAUNCH_RUN_DIR/job.sh" # PBS's copy of this script, for the next attempt
rm -f "$HPCLAUNCH_RUN_DIR"/{failed,exit,again,node-*.beat}
# Where a person submitted the job, `hpclaunch status`, `logs` and `why` learn from this file what it is.
(set -o noclobber && printf '{"id": "%s", "submitted": %s, "folder": "", %s\n' "$job_id" "$(date +%s)" \
    '"job_name": "train", "max_attempts": 3, "nodes": 2, "partition": "gpuvolta", "poll": 600, "scheduler": "pbs", "seconds": 3600, "site": "gadi", "tasks_per_node": 4}' >"$HPCLAUNCH_RUN_DIR/run.json") 2>/dev/null
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
# A job submitted from a non-login shell lacks the module command.
# shellcheck source=/dev/null
command -v module >/dev/null || source /etc/profile
module use /g/data/dk92/apps/Modules/modulefiles
module load NCI-ai-ml/24.11 || exit 1
export OMP_NUM_THREADS=12 PYTHONUNBUFFERED=1
command=(python train.py --epochs 3)

# The launch, the same for every job of this kind.
theirs=() && eval "theirs=($(trap -p EXIT))" # trap -- COMMAND EXIT
trap - ERR DEBUG RETURN INT TERM HUP QUIT USR1 USR2
eval "$ours"
trap 'record; [[ ${theirs[2]} == record ]] || eval "${theirs[2]}"' EXIT
stage=launch ended=""
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
run_rank() { # COMMAND...
    export NODE_RANK=$GROUP_RANK # torchrun numbers the nodes
    trap : INT TERM USR1 USR2
    set +eu # which the file of a BASH_ENV may set
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/rank-$RANK.log" 2>>"$HPCLAUNCH_RUN_DIR/rank-$RANK.err" || exit 1
    echo "--- attempt $HPCLAUNCH_ATTEMPT of 3 ---"
    (exec "$@") &
    local pid=$! warner code told=0
    (until (($(date +%s) >= HPCLAUNCH_WARN_AT)); do
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

# The agent of one node; it starts the node's ranks.
run_torchrun() { # COMMAND...
    trap : TERM
    python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 \
        --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="${HPCLAUNCH_RUN_DIR##*/}" \
        --rdzv-conf="is_host=$((NODE_RANK == 0))" --no-python bash -c 'run_rank "$@"' "$0" "$@" \
        >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>&1 && return
    local code=$?
    [[ -e $HPCLAUNCH_RUN_DIR/again ]] && return # its ranks left to be started again
    fail "$code" "node-$NODE_RANK.log" "torchrun on $(hostname)"
    return 1
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
    umask 027
    exec </dev/null >>"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.log" 2>&1
    trap : INT HUP # the head of the job hears them too
    trap 'fail 143 "node-$NODE_RANK.log" "node $NODE_RANK (told to end)"' TERM
    local pid tick pids=() verdict=0 left=12 mark=HPCLAUNCH_NODE=$HPCLAUNCH_NODE
    set -m
    run_torchrun "${command[@]}" &
    pids+=($!)
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
    echo stopping >"$HPCLAUNCH_RUN_DIR/node-$NODE_RANK.beat"
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

lost=""
trap 'fail 143 - "the job, ended by PBS (qdel or walltime)"; ended=1' TERM
# What a node needs, in a file: programs started by pbsdsh get nothing of this shell's environment.
(umask 077 && : >"$HPCLAUNCH_RUN_DIR/node.sh") || exit 1 # there may be keys in it
{
    # Not what belongs to the head node alone.
    (unset HOSTNAME TMPDIR CUDA_VISIBLE_DEVICES PBS_ENVIRONMENT PBS_JOBCOOKIE PBS_MOMPORT PBS_NODEFILE PBS_NODENUM PBS_TASKNUM && export -p)
    declare -f fail run_rank run_torchrun start_guard run_node
    declare -p command
    echo 'export -f fail run_rank run_torchrun'
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
            [[ -e $HPCLAUNCH_RUN_DIR/failed ]] || lost="node ${nodes[node]#* } is silent"
            fail 1 - "node ${nodes[node]#* }, which is silent"
            code=1
        fi
        # What fails first may be the others, for want of it. A node that lives stops its beat within seconds, and says so.
        if [[ -e $HPCLAUNCH_RUN_DIR/failed && $beat == [1-9]* ]] && ((silent[node] > 12)); then
            lost="node ${nodes[node]#* } is silent"
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

# Saved and not done, or a node was lost: the job goes on as a new one. Of these there is one, whatever PBS starts twice.
if [[ -z $ended && (-n $lost || (-e $HPCLAUNCH_RUN_DIR/again && ! -e $HPCLAUNCH_RUN_DIR/failed)) ]]; then
    code=75 next=$((HPCLAUNCH_ATTEMPT + 1))
    if ((next <= 3)); then
        echo "hpclaunch: ${lost:-the walltime is near}, going on in attempt $next of 3"
        (set -o noclobber && : >"$HPCLAUNCH_RUN_DIR/attempt-$next") 2>/dev/null || exit 75
        cd "$PBS_O_WORKDIR" || exit 75
        again=("HPCLAUNCH_JOB=$job_id,HPCLAUNCH_ATTEMPT=$next" "$HPCLAUNCH_RUN_DIR/job.sh")
        submit() { answer=$(qsub -W depend=afterany:"$PBS_JOBID" -v "${again[@]}"); }
        insist $((HPCLAUNCH_WARN_AT + 120)) submit &&
            echo "${answer##*[[:space:]]}" >>"$HPCLAUNCH_RUN_DIR/attempts" && exit 75
        give_up "$(printf 'cd %q && qsub -v %q %q | tee -a %q' "$PBS_O_WORKDIR" "${again[@]}" "$HPCLAUNCH_RUN_DIR/attempts")"
    else
        echo "hpclaunch: not done, and 3 attempts are used up"
    fi
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
