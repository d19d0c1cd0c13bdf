"""``python -m agentbench`` and the ``agentbench`` command."""

from agentbench._cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
