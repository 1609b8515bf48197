#!/bin/bash
# PID: of a job script on this machine.
# Bash that is killed leaves the program running for which it waits, as a line of setup. This waits for its end
# and ends what is left, after the time that ranks have to save. The names come by stdin, as everything with them in its
# environment is ended. It is not a child of the job script's bash, which would wait for it.
names=$(cat)
{
    tail -s 0.2 --pid="$1" -f /dev/null || exit
    for signal in TERM KILL; do
        mapfile -t left < <(grep -lszxF "$names" /proc/[0-9]*/environ | cut -d / -f 3)
        [[ ${left[*]} ]] || exit
        kill -$signal "${left[@]}"
        sleep 8
    done
} &
