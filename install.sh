#!/usr/bin/env bash
# Builds agentbench and installs it into .venv beside this file; with --test also sets up everything
# that the tests need and runs them all. Safe to run again: what is already there is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

MINIMUM_PYTHON="3.11"
VENV=".venv"

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 2; }

usage() {
    cat <<'USAGE'
usage: ./install.sh [--test]

  (nothing)   build a release wheel, install it into .venv, run a smoke test
  --test      the same, then set up all that the tests need and run every test

environment: PYTHON names the interpreter (default: the first of python3, python3.13,
             python3.12, python3.11 that is 3.11 or later)
USAGE
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if "$candidate" -c "import sys; sys.exit(sys.version_info < (3, 11))" >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python $MINIMUM_PYTHON or later found; install one, or name it: PYTHON=/path/to/python3 ./install.sh"
}

check_tools() {
    command -v cargo >/dev/null 2>&1 ||
        fail "cargo is missing; install Rust 1.88 or later (rustup.rs tells how), then run this again"
    command -v cc >/dev/null 2>&1 ||
        fail "a C compiler is missing (cc); on Debian and Ubuntu: apt-get install build-essential"
    python="$(find_python)"
    "$python" -c "import venv, ensurepip" >/dev/null 2>&1 ||
        fail "$python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"
}

make_venv() {
    if [ ! -x "$VENV/bin/python" ]; then
        say "making $VENV with $("$python" --version)"
        "$python" -m venv "$VENV"
    fi
    "$VENV/bin/python" -m pip install --quiet "maturin>=1.16,<2"
}

# The wheel is built once into dist/ and installed with the extras in $1.
build_and_install() {
    say "building the release wheel (a first build takes minutes, later ones seconds)"
    rm -f dist/*.whl
    "$VENV/bin/maturin" build --release --quiet --out dist --interpreter "$VENV/bin/python"
    local wheel
    wheel="$(ls dist/*.whl)"
    say "installing $(basename "$wheel")[$1]"
    "$VENV/bin/python" -m pip install --quiet "$wheel[$1]"
    # The version stays the same from build to build, so pip must be told to take the new one.
    "$VENV/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheel"
}

smoke_test() {
    say "smoke test"
    "$VENV/bin/python" -m agentbench --version
    local out
    out="$(mktemp -d)"
    "$VENV/bin/python" -m agentbench replay --trajectories 2 --agents 2 --out "$out/run" >"$out/table.txt" 2>"$out/log.txt" || {
        cat "$out/log.txt" "$out/table.txt" >&2
        fail "the smoke test failed; its output is above"
    }
    [ -f "$out/run/summary.json" ] || fail "the smoke test wrote no summary.json"
    rm -rf "$out"
    say "ready: try  $VENV/bin/python -m agentbench replay"
}

main() {
    local test=no
    case "${1:-}" in
        "") ;;
        --test) test=yes ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    check_tools
    make_venv
    if [ "$test" = yes ]; then
        exec tests/run_all.sh "$VENV"
    fi
    build_and_install all
    smoke_test
}

# tests/run_all.sh reads this file for its functions.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    main "$@"
fi
