#!/bin/bash
# FOLDER [KIND:FOLDER]...: of a run on this machine. Waits for the runs before it, runs the script, keeps its exit code; the
# process group ends with it.
cd "$1" || exit 1
alive() { [[ ! -e $1/exit && ($(cat "$1/host") != "$HOSTNAME" || -e /proc/$(cat "$1/pid")) ]]; }
for before in "${@:2}"; do # KIND:FOLDER
    while [[ ! -e exit ]] && alive "${before#*:}"; do sleep 0.5; done
    [[ $(cat "${before#*:}/exit") == 0 ]]
    case ${before%%:*}$? in afterok0 | afterany? | afternotok1) ;; *) echo '-' >./exit; exit ;; esac
done
touch started
(cd ../.. && exec bash "$1/job.sh") >>job.out 2>&1 &
trap 'kill -TERM $!' TERM
while kill -0 $! 2>/dev/null; do wait $!; done # a signal ends a wait
wait $!
echo "$?" >.exit && mv .exit exit
