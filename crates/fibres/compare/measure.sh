#!/bin/sh
# Measures the example servers on fibres, tokio and threads in turns; each line is one run.
# measure.sh ROUNDS CPUS LOAD-CPU|- SERVER [LOAD-OPTION...] [-- SERVER-OPTION...]
# KINDS: fibres tokio threads, or some of them; BEFORE: a command that is run before each run.
# As: measure.sh 5 0,1 - kv --connections 50
set -eu
here=$(cd "$(dirname "$0")" && pwd)
examples=${EXAMPLES:-$here/../../../target/release/examples}
compare=${COMPARE:-$here/target/release}
rounds=$1 cpus=$2 load_cpu=$3 server=$4
shift 4
load="--kind $server"
while [ $# -gt 0 ] && [ "$1" != -- ]; do load="$load $1"; shift; done
[ $# -gt 0 ] && shift
[ "$load_cpu" = - ] || load="$load --cpu $load_cpu"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
head -c 4096 /dev/zero >"$root/4k"
head -c 65536 /dev/zero >"$root/64k"
[ "$server" = kv ] || set -- --root "$root" "$@"
for round in $(seq "$rounds"); do
    for kind in ${KINDS:-fibres tokio threads}; do
        ${BEFORE:-:}
        : >"$root/log"
        if [ "$kind" = fibres ]; then
            "$examples/${server}_server" --cpus "$cpus" "$@" >"$root/log" &
        else
            "$compare/$server" --kind "$kind" --cpus "$cpus" "$@" >"$root/log" &
        fi
        pid=$!
        while ! grep -q listening "$root/log"; do sleep 0.05; done
        address=$(sed 's/.* on //' "$root/log")
        # shellcheck disable=SC2086
        echo "$server $kind $round: $("$compare/load" --target "$address" $load)"
        kill "$pid"
        wait "$pid" 2>/dev/null || true
    done
done
