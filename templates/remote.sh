# shellcheck shell=bash
# What hpclaunch runs on the host of `submit --host`: one of these functions, which are sent with each call.
# Exit code 255 is ssh's own, for a lost connection, so that no command may end with it.

# Run a command in a folder, or in the home folder.
at() { # FOLDER COMMAND...
    cd "${1:-.}" || return
    "${@:2}" && return
    code=$?
    return $((code == 255 ? 254 : code))
}

# Run a command in a folder one time, however often this is called with the same number; give the answer that it gave.
# It is started apart from the connection, whose end it does not notice.
once() { # FOLDER NUMBER COMMAND... <INPUT
    cd "$1/.hpclaunch" || return
    [ -e "in$2" ] || { cat >"in$2.$$" && mv "in$2.$$" "in$2"; } || return
    # shellcheck disable=SC2016
    setsid sh -c 'number=$1 && shift && mkdir "lock$number" 2>/dev/null || exit
        (cd .. && "$@") <"in$number" >"out$number" 2>"err$number"
        echo $? >"code$number.new" && mv "code$number.new" "code$number"' sh "$2" "${@:3}" </dev/null >/dev/null 2>&1 &
    for _ in $(seq 300); do
        if [ -e "code$2" ]; then
            cat "out$2" && cat "err$2" >&2
            code=$(cat "code$2")
            return $((code == 255 ? 254 : code))
        fi
        sleep 0.2
    done
    echo "${*:3:1} was started, and has not answered yet" >&2
    return 255
}

# Print the folder of all runs, whose default is in SCRATCH or the home folder, and where its links lead.
root() { # [FOLDER]
    eval "folder=\"${1:-\${SCRATCH:-\$HOME\}/hpclaunch}\""
    folder=${folder/#\~\//$HOME/}
    [[ $folder == /* ]] || folder=$HOME/$folder
    echo "$folder" && realpath -m "$folder"
}

# Make the folder of a run; print `uploaded` if its files are there, else the newest folder of the project besides.
prepare() { # FOLDER
    mkdir -p "$1/.hpclaunch" && cd "$1" || return
    [ ! -e .hpclaunch/uploaded ] || { echo uploaded; return; }
    name=${1##*/}
    project=${name%-*-*-*}
    for other in ../"$project"-[0-9]*-[0-9]*-*; do
        [ ! -e "$other/.hpclaunch/uploaded" ] || newest=$other
    done
    echo "$newest"
}

# Print size and path of each file that is newer than the upload and fits a pattern by its path, its name, or a folder.
results() { # FOLDER [PATTERN...]
    cd "$1" && shift || return
    [ $# -gt 0 ] || set -- '*'
    # node.sh and rank.sh hold the job's environment.
    find . -path ./.hpclaunch -prune -o ! -type d -cnewer .hpclaunch/uploaded ! -name node.sh ! -name rank.sh -printf '%s %P\0' |
        while read -rd '' size path; do
            for pattern in "${@%/}"; do
                # shellcheck disable=SC2254
                case $path in
                    $pattern | $pattern/* | */$pattern | */$pattern/*) printf '%s %s\0' "$size" "$path" && break ;;
                esac
            done
        done
}
