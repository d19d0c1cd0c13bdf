"""The command line as the manifest keeps it: with secrets masked."""

from __future__ import annotations

import re
import sys

MASK = "***"
SECRET_NAME = re.compile(
    r"key|token(?!izer|s)|secret|passw|pwd|\bsig(nature)?\b|credential|authorization|cookie", re.IGNORECASE
)
SECRET_VALUE = re.compile(r"\b(sk|hf|ghp|gho|xox[bp])[-_][A-Za-z0-9_-]{8,}")
ASSIGNMENT = re.compile(r"^(?P<name>-{0,2}[\w.-]+)(?P<mark>=)(?P<value>.+)$", re.DOTALL)
USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
QUERY = re.compile(r"(?<=[?&])(?P<name>[\w.-]+)=[^&\s]*")
BEARER = re.compile(r"(?i)\b(bearer|basic)\s+\S+")


def masked_argv(arguments: list[str] | None = None) -> list[str]:
    """Return the command line of this process, or the one given, with secrets masked.

    Masked are values of options and variables whose name speaks of a key, token, secret, password,
    signature, credential, authorization or cookie; values with the form of a known kind of key; credentials and
    such query parameters in URLs.
    """
    masked: list[str] = []
    hide_next = False
    for argument in ["agentbench", *sys.argv[1:]] if arguments is None else arguments:
        is_option = argument.startswith("-")
        masked.append(MASK if hide_next and not is_option else _mask(argument))
        hide_next = is_option and "=" not in argument and SECRET_NAME.search(argument) is not None
    return masked


def _mask(argument: str) -> str:
    assignment = ASSIGNMENT.match(argument)
    if assignment and SECRET_NAME.search(assignment["name"]):
        return f"{assignment['name']}={MASK}"
    text = USER_INFO.sub(f"{MASK}@", argument)
    text = QUERY.sub(lambda part: f"{part['name']}={MASK}" if SECRET_NAME.search(part["name"]) else part[0], text)
    text = BEARER.sub(lambda part: f"{part[1]} {MASK}", text)
    name, colon, _ = text.partition(":")
    if colon and "//" not in text and " " not in name and SECRET_NAME.search(name):
        return f"{name}: {MASK}"
    return SECRET_VALUE.sub(MASK, text)
