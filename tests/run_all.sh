#!/usr/bin/env bash
# Every check of the project, cheap ones first. Called by `./install.sh --test`, which makes the
# virtual environment; may be called alone afterwards: tests/run_all.sh .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV="${1:-.venv}"
PY="$VENV/bin/python"
# shellcheck source=../install.sh
source ./install.sh

stage() {
    printf '\n== [%4ds] %s\n' "$SECONDS" "$*"
}

# One arrow and one pyo3 in the tree: two of either do not share types.
check_single_versions() {
    local crate count
    for crate in arrow-array arrow-schema parquet pyo3; do
        count="$(cargo tree --features python --edges normal --prefix none --format '{p}' |
            sed 's/ (.*//' | grep -E "^$crate v" | sort -u | wc -l)"
        [ "$count" = 1 ] || fail "$count versions of $crate in the dependency tree, expected 1 (see: cargo tree -d)"
    done
}

stage "cargo fmt, one arrow and one pyo3, clippy with and without Python"
cargo fmt --check
check_single_versions
cargo clippy --quiet --all-targets -- -D warnings
cargo clippy --quiet --all-targets --features python -- -D warnings

stage "ruff"
"$PY" -m pip install --quiet "ruff>=0.14" "mypy>=1.18"
"$PY" -m ruff check .
"$PY" -m ruff format --check .

stage "Rust tests"
cargo test

stage "release wheel with the tests' extras"
build_and_install analysis,test

stage "mypy, stubtest"
"$PY" -m mypy python tests/python tests/real
"$PY" -m mypy.stubtest agentbench._core

stage "install.sh smoke test"
smoke_test

stage "Python tests"
"$PY" -m pytest tests/python

stage "documentation site, strict"
"$PY" -m mkdocs build --strict --quiet

stage "notebooks"
"$PY" -m pytest --nbmake --nbmake-timeout=300 --timeout=600 notebooks

stage "real parts: vLLM on the CPU, Claude Code, Codex"
tests/real/setup.sh .real
"$PY" -m pytest tests/real

stage "all passed"
