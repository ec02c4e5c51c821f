#!/usr/bin/env bash
# All that CI checks, one step after the other; the last line counts: `N passed, N failed`.
#
#   scripts/test.sh [STEP...]      all steps, or only these
#
# A step that fails does not stop the others. Each writes target/test-logs/STEP.log; what failed is
# shown. A step counts as many checks as it reports, or as one. A step that hangs is ended after
# STEP_LIMIT seconds, with what its processes were doing in its log.
set -uo pipefail
cd "$(dirname "$0")/.."

export CARGO_TERM_COLOR=never
# Built once and thrown away: what only a second build would use takes gigabytes.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0
logs=target/test-logs
mkdir -p "$logs"
rm -f "$logs"/*.log
# The foreign Parquet reader, if install-needs.sh had to fetch one.
[ -x target/venv/bin/python3 ] && export PATH="$PWD/target/venv/bin:$PATH"

STEP_LIMIT=${STEP_LIMIT:-1200}
only=("$@")
passed=0
failed=0
# The steps that failed, each with what failed in it.
trouble=()

# sum PATTERN FILE: adds up the numbers that the one group of PATTERN (sed -E) captures.
sum() {
    sed -nE "s/$1/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'
}

# What every process of a session is doing: for a step that hangs.
doing() {
    echo "still running after $STEP_LIMIT s:"
    ps -s "$1" -L -o pid,tid,stat,pcpu,time,wchan:20,args | cut -c1-200
}

# limited COMMAND...: runs a command or function in a session of its own, for at most STEP_LIMIT.
limited() {
    local pid end=$((SECONDS + STEP_LIMIT))
    # setsid runs programs only, so functions go through a shell.
    setsid bash -c '"$@"' step "$@" &
    pid=$!
    # The session does not hear of Ctrl-C.
    trap 'kill -KILL -- -'"$pid"' 2>/dev/null; exit 130' INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        if [ "$SECONDS" -ge "$end" ]; then
            doing "$pid"
            pkill -KILL -s "$pid" || kill -KILL -- "-$pid"
        fi
        sleep 0.2
    done
    wait "$pid"
}

# What went wrong stands far above the end of a long log. Tests that pass print panics, too, so of
# the tests only what stands under "failures:" counts.
what_failed() {
    awk '/^failures:$/ { on = 1 } /^test result: / { on = 0 } on' "$1" | head -n 150
    grep -nE -A8 'FAILED$|^error|^DIFFERS |^(run|record|pid|exact|report) [a-z0-9_]+ [0-9]+ E' "$1" | head -n 60
    echo ...
    tail -n 30 "$1"
}

# step NAME COMMAND...: runs it and counts.
step() {
    local name=$1 log=$logs/$1.log start=$SECONDS status good bad
    shift
    if [ ${#only[@]} -gt 0 ] && [[ " ${only[*]} " != *" $name "* ]]; then
        return
    fi
    limited "$@" >"$log" 2>&1
    status=$?
    # cargo test, then node's test runner and the fuzz targets, then cargo xtask answers, conformance and inject.
    good=$(($(sum '^test result: .* ([0-9]+) passed;.*' "$log") + $(sum '^[^ ]+ pass ([0-9]+)$' "$log") +
        $(sum '^answers: ([0-9]+) passed,.*' "$log") + $(sum '^conformance: ([0-9]+) passed,.*' "$log") +
        $(sum '^inject: ([0-9]+) passed,.*' "$log")))
    bad=$(($(sum '^test result: .*; ([0-9]+) failed;.*' "$log") + $(sum '^[^ ]+ fail ([0-9]+)$' "$log") +
        $(sum '^answers: .*, ([0-9]+) failed$' "$log") + $(sum '^conformance: .*, ([0-9]+) failed$' "$log") +
        $(sum '^inject: .*, ([0-9]+) failed$' "$log")))
    if [ "$status" -eq 0 ] && [ "$good" -eq 0 ]; then
        good=1
    elif [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    if [ "$status" -eq 0 ]; then
        printf 'ok      %-10s %4d s  %d passed\n' "$name" $((SECONDS - start)) "$good"
    else
        printf 'FAILED  %-10s %4d s  %d passed, %d failed\n' \
            "$name" $((SECONDS - start)) "$good" "$bad"
        what_failed "$log" | sed 's/^/        | /'
        trouble+=("$name: $(grep -E -- ' --- FAILED$|^missed: |  FAILED$|^DIFFERS ' "$log" || tail -n 1 "$log")")
    fi
}

# skip NAME REASON: a step that this machine cannot run.
skip() {
    if [ ${#only[@]} -gt 0 ] && [[ " ${only[*]} " != *" $1 "* ]]; then
        return
    fi
    printf 'skipped %-10s %s\n' "$1" "$2"
}

has() { command -v "$1" >/dev/null 2>&1; }

# loom's models, of the crates that are linked.
every_order() {
    env RUSTFLAGS='--cfg loom' cargo test --release --locked --target-dir target/loom "$@"
}

browser() (
    cd tests/browser && npm ci --no-audit --no-fund && npm test
)

# The demo must end well and leave a report that names its finding.
demo() {
    local report=target/demo-report.html
    # Built anew, as where nothing else was built before.
    rm -f "$report" fixtures/build/demo
    make --no-print-directory demo DEMO_REPORT="$report" &&
        grep -q 'False sharing of' "$report"
}

# What `make install` installs, elsewhere, finds its plugin and traces a program with it.
installed() {
    local place status=1
    place=$(mktemp -d)
    make --no-print-directory install DESTDIR="$place" PREFIX=/usr &&
        "$place/usr/bin/linewise" doctor --json >"$place/doctor.json"
    if ! has "qemu-$(uname -m)"; then
        echo "skipped: no qemu-user, so nothing is traced"
        status=0
    elif grep -A1 '"name": "exact"' "$place/doctor.json" | grep -q '"ready"' &&
        "$place/usr/bin/linewise" record --source exact --quiet -o "$place/made" -- /bin/true; then
        status=0
    fi
    [ $status -eq 0 ] && for file in man/man1/linewise-run.1 bash-completion/completions/linewise; do
        [ -s "$place/usr/share/$file" ] || status=1
    done
    # Programs in C, built against the libraries as installed there.
    if [ $status -eq 0 ] && has pkg-config; then
        export PKG_CONFIG_PATH=$place/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$place
        # shellcheck disable=SC2046 # words on purpose
        cc -o "$place/fetch_add" crates/delegate-c/examples/fetch_add.c \
            $(pkg-config --cflags --libs linewise-delegate) &&
            LD_LIBRARY_PATH=$place/usr/lib "$place/fetch_add" || status=1
        # shellcheck disable=SC2046 # as above
        cc -o "$place/visit" crates/fibres-c/examples/visit.c \
            $(pkg-config --cflags --libs linewise-fibres) &&
            LD_LIBRARY_PATH=$place/usr/lib "$place/visit" || status=1
    fi
    rm -rf "$place"
    return $status
}

# Nothing lost, nothing used after its end: the runtime's calls under valgrind, one after the other.
leaks() {
    local runner='valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --fair-sched=yes'
    export LINEWISE_STRESS_CALLS=60000
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$runner
    cargo test --package linewise-delegate --locked --test calls --test stress --test executors -- --test-threads 1
}

# Memory that is used after its end, stacks included: valgrind knows blocks of the heap only, and runs one
# thread at a time.
addresses() {
    export RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0
    local where=(--target "$(uname -m)-unknown-linux-gnu" --target-dir target/addresses) status=0
    # The sanitizer is told of each switch of stacks: else it takes what a fibre's stack was before for a fault.
    cargo +nightly test --package linewise-delegate --features linewise-fibres/sanitizer --locked --tests \
        --no-fail-fast "${where[@]}" || status=1
    # Not the tests of whole processes, which are about faults, limits of memory and valgrind: it has all of these to itself.
    cargo +nightly test --package linewise-fibres --features sanitizer --locked --lib --test runtime \
        --test io --test sync --no-fail-fast "${where[@]}" -- --skip the_limit_of_mappings_is_told || status=1
    return $status
}

export -f every_order addresses browser demo has installed leaks

step fmt cargo fmt --all --check -- --color never
step clippy cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step licences cargo xtask licences
if has cargo-deny; then
    step deny cargo deny --locked check licenses bans sources
fi
step build make --no-print-directory build
step install installed
step fixtures make --no-print-directory -C fixtures/programs
# Apart, so that the limit of a step is about tests that hang, not about a slow machine.
step compile cargo test --workspace --locked --quiet --no-run
# --show-output, so that a test that skips is heard saying why.
step tests cargo test --workspace --no-fail-fast --locked --quiet -- --show-output
# Every order of execution of the runtime's protocols.
step models every_order --package linewise-delegate --package linewise-fibres --lib models
step loom every_order --package linewise-delegate --test loom
if has valgrind; then
    step leaks leaks
else
    skip leaks "valgrind is missing"
fi
if cargo +nightly --version >/dev/null 2>&1; then
    step addresses addresses
else
    skip addresses "no nightly compiler, which the address sanitizer needs"
fi
step tidy cargo xtask tidy
step accuracy target/release/linewise bench sharing --gate
step reuse target/release/linewise bench reuse --gate
step answers cargo xtask answers --runs 1 --seconds 2
step repairs cargo xtask repairs --pairs 1 --seconds 1.4
step structures cargo xtask structures --runs 1 --seconds 1.2
step structures cargo xtask structures --source exact --runs 1
step advice cargo xtask advice --quick --pairs 3 --seconds 0.5
step conformance cargo xtask conformance --core
if has strace; then
    step inject cargo xtask inject --core
else
    skip inject "strace is missing"
fi
if has "qemu-$(uname -m)"; then
    step typed cargo xtask typed --seconds 2
    step misses cargo xtask misses
else
    skip typed "no qemu-user"
    skip misses "no qemu-user"
fi
if has chromium && has npm; then
    step browser browser
else
    skip browser "chromium or npm is missing"
fi
step demo demo
if has c++; then
    step fuzz scripts/fuzz.sh "${FUZZ_SECONDS:-20}"
else
    skip fuzz "no C++ compiler"
fi

said=$(grep -hiE '^skip(ped)?:' "$logs"/*.log 2>/dev/null | sort -u)
[ -z "$said" ] || printf '\nskipped inside the steps:\n%s\n' "$said"
[ ${#trouble[@]} -eq 0 ] || printf '\nfailed:\n%s\n' "$(printf '%s\n' "${trouble[@]}")"
printf '\nlogs: %s\n%d passed, %d failed\n' "$logs" "$passed" "$failed"
[ "$failed" -eq 0 ]
