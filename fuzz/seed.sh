#!/usr/bin/env bash
# Fills fuzz/corpus with what the fuzz targets are to start from.
set -euo pipefail
cd "$(dirname "$0")"

mkdir -p corpus/perf_records corpus/recording corpus/resolve corpus/trace corpus/unwinding corpus/heap_rings corpus/tracer_rings

# A sample with registers, a fork, a switch and a mapping, in the format of samplers: sample_type, read_format, the mask of registers;
# then the header (type, misc, size) and words.
format='\xef\x31\x00\x00\x00\xff\x03\xff\x00\x00\x00\x00\x00'
record() {
    local name=$1
    shift
    printf '%b' "$format" "$@" >"corpus/perf_records/$name"
}
zeros() { for ((i = 0; i < $1; i++)); do printf '\\x00'; done; }
record sample '\x09\x00\x00\x00\x02\x00\x20\x01' "$(zeros 56)" '\x02\x00\x00\x00\x00\x00\x00\x00' \
    "$(zeros 16)" '\x02\x00\x00\x00\x00\x00\x00\x00' "$(zeros 192)"
record fork '\x07\x00\x00\x00\x00\x00\x40\x00' "$(zeros 56)"
record switch '\x0e\x00\x00\x00\x00\x20\x28\x00' "$(zeros 32)"
record map '\x01\x00\x00\x00\x02\x00\x60\x00' "$(zeros 32)" '/lib/libc.so' "$(zeros 44)"

# Each table of each recorded version, behind the byte that chooses its name.
for run in ../fixtures/recordings/*.linewise; do
    version=$(basename "$run" .linewise)
    { printf '\x00'; cat "$run/run.json"; } >"corpus/recording/$version-run"
    # In the order of the reader's list; one that has moved is refused, which is an input as well.
    number=0
    for table in samples watches traps threads switches maps stacks objects fields frames latencies losses \
        reuse reuse_pairs caches transfers reuse_watches reuse_traps typed_accesses type_members; do
        if [ -e "$run/$table.parquet" ]; then
            { printf "\\x$(printf %02x $((number * 4 + 1)))"; cat "$run/$table.parquet"; } \
                >"corpus/recording/$version-$table"
        fi
        number=$((number + 1))
    done
done

program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
cat >"$program/program.c" <<'C'
struct node { struct node *next; union { long a; char b[8]; } value; } nodes[4];
static inline __attribute__((always_inline)) long add(long a) { return nodes[1].value.a += a; }
__attribute__((noinline)) long worker(long a) { static long calls; return add(a) + ++calls; }
int main(void) { return (int)worker(1); }
C
for version in 4 5; do
    gcc -gdwarf-$version -O1 -nostartfiles -nostdlib -static -e main -o "corpus/resolve/dwarf$version" "$program/program.c"
done
gcc -O1 -nostartfiles -nostdlib -static -e main -o corpus/resolve/symbols "$program/program.c"

# The same as the collector sees them, and one that brings an allocator, with and without the linker's table.
cp corpus/resolve/* corpus/unwinding/
cat >"$program/allocator.c" <<'C'
#include <stddef.h>
static char heap[4096];
void *malloc(size_t size) { static size_t used; used += size; return heap + used % 4096; }
void free(void *block) { heap[0] = (char)(long)block; }
int main(void) { free(malloc(8)); return 0; }
C
gcc -O1 -shared -fPIC -nostdlib -o corpus/unwinding/allocator "$program/allocator.c"
gcc -O1 -nostartfiles -nostdlib -static -fno-builtin -e main -Wl,--no-eh-frame-hdr \
    -o corpus/unwinding/no-table "$program/allocator.c"

# Steps of the heap recorder's target: a block of 48 bytes that is freed, with its stack; words over a ring; a round.
block='\x00\x00\x01\x00\x18\x00\x10\x00\x00\x00\x00\x00\x00\x30\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00'
free='\x00\x02\x02\x00\x08\x00\x10\x00\x00\x00\x00\x00\x00'
stack='\x00\x04\x00\x01\x10\x05\x00\x00\x00\x00\x00\x00\x00\x00\x10\x40\x00\x00\x00\x00\x00'
over='\x01\x00\x10\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff'
ring='\x02\x07\x00\x00\x00'
round='\x03\x00\x10\x00\x00'
printf '%b' "$stack$block$round$free$round" >corpus/heap_rings/block
printf '%b' "$block$ring$free$over$round$block" >corpus/heap_rings/over

# Steps of an exact run's target: rings of a process and two threads are opened, an instruction is defined, the threads
# make and use another, store to one line, take it from each other, allocate; then a round.
word() { for ((i = 0; i < 8; i++)); do printf '\\x%02x' $(($1 >> (8 * i) & 255)); done; }
step() { # kind, three bytes, words
    printf '\\x%02x\\x%02x\\x%02x\\x%02x\\x%02x' "$1" "$2" "$3" "$4" $((8 * ($# - 4)))
    for value in "${@:5}"; do word "$value"; done
}
opened="$(step 0 0 1 0)$(step 0 1 0 0)$(step 0 2 8 0)"
block=$(step 4 0 1 0 0 0x401000 0x0000000000c18948 0x0300000000000000 $((0x401003 | 1 << 48)) 0xc1ff48 0x0300000000000000)
map=$(step 4 0 2 0 1 0x400000 0x402000 0 1 4 0x6578652f)
started="$(step 2 1 1 1 7 8)$(step 2 1 1 5 0x7000 1)$(step 2 2 1 1 7 9)"
stores() { # ring
    step 2 "$1" 0 0 $((0x5000 << 16 | 7)) $((0x5008 << 16 | 6)) $((0x5008 << 16 | 1 << 4 | 6)) $((0x5008 << 16 | 1 << 4 | 7))
}
taken=$(step 2 1 1 10 2 0x6000 1 $((4 | 8 << 32)) $((5 | 1 << 36)) $((7 | 2 << 36)))
heap="$(step 3 1 0 0 5 77 0x401000 0x401800)$(step 3 1 0 0 1 1 0x5000 64 77)$(step 3 1 0 0 3 1 0x5000)$(step 3 1 0 0 4 1 0x5000 4096)"
calls="$(step 2 1 1 3 202 1)$(step 2 1 1 6 0x7000 0)$(step 2 2 1 7 0x7000 1)$(step 2 1 1 4 202 0)$(step 2 2 1 2 0 0)"
round=$(step 7 0 0 0)
last=$(step 7 0 0 1)
over="$(step 5 1 0 0 -1)$(step 6 0 0 0 $((2 | 1 << 32)) 0)$(step 6 0 0 1 $((1 << 48)) 4 $((5 | 1 << 36)))"
run="$opened$block$map$started$(stores 1)$(stores 2)$taken$(stores 1)$heap$calls$round$(stores 2)$last"
# Everything measured in turn.
for switches in 00 01 02 04 08 10 20 3e; do
    printf '%b' "\\x$switches$run" >"corpus/tracer_rings/run-$switches"
done
printf '%b' "\\x04$opened$block$started$(stores 1)$over$(stores 2)$round$over$last" >corpus/tracer_rings/over

# Blocks of a kept trace: two accesses, an event, the tables, the end; then a file that is none.
accesses='\x01\x02\x21\x00' # kind 1, two items, 33 bytes: five columns behind their lengths
accesses+='\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x02\x03\x00\x00\x00\x80\x40\x10'
accesses+='\x04\x00\x00\x00\x88\x01\x81\x01\x02\x00\x00\x00\x05\x01'
event='\x02\x01\x05\x00\x00\x01\x07\x08\x09'
tables='\x03\x01\x1e\x00\x01\x07\x08\x01\x05\x06\x10\x00\x01\x80\x20\x07\x01\x03\x48\x8b\x07'
tables+='\x01\x07\x01\x80\x20\x80\x40\x40\x01\x03/li'
end='\x04\x00\x01\x00\x01'
for seed in accesses event tables end; do
    printf '\x01%b' "${!seed}" >"corpus/trace/$seed"
done
printf '\x01%b' "$accesses$event$tables$end" >corpus/trace/all
printf '\x00LWTRACE2\x01\x02' >corpus/trace/cut
