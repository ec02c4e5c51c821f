#!/bin/sh
# Installs what `make demo`, `make test` or `make conformance` needs and this machine lacks.
#
#   scripts/install-needs.sh demo|test|conformance
#
# Tools that are there are left alone, whatever their origin. Missing ones come from apt-get when we
# are root or sudo asks no password; otherwise this says what to install. A missing tool that is
# required fails; one that is optional makes the tests that want it say that they skip.
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
packages=
missing_required=
missing_optional=

has() { command -v "$1" >/dev/null 2>&1; }

# need TOOL PACKAGE: required.
need() {
    has "$1" && return
    packages="$packages $2"
    missing_required="$missing_required $1"
}

# want TOOL PACKAGE: optional.
want() {
    has "$1" && return
    packages="$packages $2"
    missing_optional="$missing_optional $1"
}

# want_library FILE PACKAGE: optional.
want_library() {
    # gcc prints the name alone where there is no such file.
    has gcc && [ "$(gcc -print-file-name="$1")" != "$1" ] && return
    packages="$packages $2"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

can_install() {
    has apt-get || return 1
    [ "$(id -u)" = 0 ] && return 0
    has sudo && sudo -n true 2>/dev/null
}

# Whose programs must be under linewise what they are without it, and what they are looked at with.
conformance() {
    want go golang-go
    want python3 python3
    want javac default-jdk-headless
    want "qemu-$(uname -m)" qemu-user
    want setarch util-linux
    want ctags universal-ctags
    want strace strace
    want gdb gdb
    want busybox busybox-static
    want_library libjemalloc.so.2 libjemalloc2
    want_library libtcmalloc_minimal.so.4 libtcmalloc-minimal4
    want_library libmimalloc.so.2 libmimalloc2.0
    [ -e /usr/include/boost/context/fiber.hpp ] || packages="$packages libboost-context-dev"
}

case "${1-}" in
    demo)
        need gcc gcc
        ;;
    test)
        need gcc gcc
        need g++ g++
        want go golang-go
        want llvm-dwp llvm
        want dwz dwz
        want chromium chromium
        want node nodejs
        want npm npm
        want python3 python3
        # The exact source; its test for another architecture wants the cross compiler as well.
        want "qemu-$(uname -m)" qemu-user
        want valgrind valgrind
        want pkg-config pkg-config
        want cbindgen cbindgen
        want aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
        # Allocators with C++ operators of their own, which the tests of the heap recorder load.
        want_library libjemalloc.so.2 libjemalloc2
        want_library libtcmalloc_minimal.so.4 libtcmalloc-minimal4
        want_library libmimalloc.so.2 libmimalloc2.0
        [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || packages="$packages libc6-dev-arm64-cross"
        conformance
        ;;
    conformance)
        need gcc gcc
        need g++ g++
        conformance
        ;;
    *)
        echo "usage: scripts/install-needs.sh demo|test|conformance" >&2
        exit 2
        ;;
esac

if ! has cargo; then
    echo "cargo is missing: install Rust 1.88 or newer from https://rustup.rs" >&2
    exit 1
fi

if [ -n "$packages" ]; then
    if can_install; then
        echo "installing:$packages"
        as_root apt-get update -qq || echo "apt-get update failed; trying with the old lists" >&2
        # One at a time: a package that this distribution lacks must not keep the others out.
        for package in $packages; do
            as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
                echo "could not install $package" >&2
        done
    else
        echo "not installed:$packages" >&2
        echo "no apt-get, or no right to use it: install them with your package manager" >&2
    fi
fi

for tool in $missing_required; do
    has "$tool" || { echo "$tool is required and missing" >&2; failed=1; }
done
for tool in $missing_optional; do
    has "$tool" || echo "$tool is missing: the tests that want it will say that they skip" >&2
done
[ -z "${failed-}" ] || exit 1

# python_needs MODULE PACKAGE: what Python has only from its own registry. In target/, so that nothing outside the tree is
# touched.
python_needs() {
    has python3 && ! python3 -c "import $1" 2>/dev/null || return
    venv=$root/target/venv
    "$venv/bin/python3" -c "import $1" 2>/dev/null && return
    if ! python3 -m venv "$venv" >/dev/null 2>&1 && can_install; then
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
        python3 -m venv "$venv" >/dev/null 2>&1
    fi
    "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check "$2" ||
        echo "$2 cannot be installed: the test that wants it will say that it skips" >&2
}

case "$1" in
    test)
        # Foreign readers of Parquet, to prove that recordings open without us.
        python_needs pyarrow pyarrow
        python_needs duckdb duckdb
        python_needs greenlet greenlet
        ;;
    conformance) python_needs greenlet greenlet ;;
esac
exit 0
