#!/usr/bin/env bash
# Runs the fuzz targets, two at a time, each for a while; a crash is left in fuzz/artifacts.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]      60 s, all targets
#
# A stable compiler does: what cargo-fuzz asks of a nightly one, the address sanitizer, safe code does not need. The
# passes that count which code an input reaches are LLVM's, and in every compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
host=$(rustc -vV | sed -n 's/^host: //p')
flags='--cfg fuzzing -Ccodegen-units=16 -Cpasses=sancov-module'
for pass in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$pass"
done
# With --target the flags are not those of build scripts.
RUSTFLAGS=$flags cargo build --release --locked --manifest-path fuzz/Cargo.toml --target "$host" --target-dir target/fuzz

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' fuzz/Cargo.toml)
fi
[ -d fuzz/corpus ] || fuzz/seed.sh

one() {
    local target=$1 log=target/fuzz/$1.log status=0
    mkdir -p "fuzz/artifacts/$target" "fuzz/corpus/$target"
    "target/fuzz/$host/release/$target" "fuzz/corpus/$target" -artifact_prefix="fuzz/artifacts/$target/" \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        sed -n "s/^stat::number_of_executed_units: */$target inputs /p" "$log"
        echo "$target pass 1"
    else
        echo "error: $target failed:"
        grep -vE '^#[0-9]+\s+(NEW|REDUCE|pulse)' "$log" | tail -n 40
        return 1
    fi
}
export -f one
export seconds host
printf '%s\n' "${targets[@]}" | xargs -P 2 -I TARGET bash -c 'one TARGET'
