"""The engine's prefix cache, emptied between instances where it offers that."""

from __future__ import annotations

import json

RESET_SECONDS = 30.0
REMEDY = "vLLM offers it when it is started with VLLM_SERVER_DEV_MODE=1"


def reset_refusal(upstream: str) -> str | None:
    """Empty the engine's prefix cache; return why it was not, None when it was."""
    import urllib.error  # noqa: PLC0415  every `import agentbench` would wait for it
    import urllib.request  # noqa: PLC0415  the same

    request = urllib.request.Request(f"{upstream.rstrip('/')}/reset_prefix_cache", data=b"", method="POST")  # noqa: S310 the user's engine
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=RESET_SECONDS) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        return f"it answers {error.code}"
    except OSError as error:
        return str(error)
    try:
        told = json.loads(body)
    except ValueError:
        return None
    refused = isinstance(told, dict) and told.get("success") is False
    return "it says that it did not" if refused else None
