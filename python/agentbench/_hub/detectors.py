"""What must not leave, as shapes in a text: own rules, the core's masks, and detect-secrets. Pure.

The same table serves twice: the gate looks for these shapes in what would be sent, and at level ``text-redacted`` they
are masked before. Names that nothing marks as such (a colleague's first name, a product's code name) have no shape;
the user names them with ``--mask``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from ipaddress import AddressValueError, IPv4Address
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agentbench._core import Masker

from .strings import pair, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MASK = re.compile(r"redacted-[a-z_]+-[0-9a-f]{10}")
"""What stands in place of what was masked, by this module and by the core."""

SHORT = 200
"""Characters up to which a field's value is looked at together with its name."""

WINDOW = 4096
OVERLAP = 512
KEPT_CHARACTERS = 512
"""Length of texts up to which it is kept what was found in them."""
KEYWORD = re.compile(r"key|pass|pwd|secret|contrase", re.IGNORECASE)
"""What stands in every name of a field that detect-secrets takes for a secret's."""
SECRET_CHARACTERS = 8
"""Length from which a secret that was found once is looked for everywhere: a shorter one may be a word."""

PSEUDONYM = re.compile(
    r"(?:run|session|thread|request|call|engine|model|agent|device|trajectory|trace)-[0-9a-f]{16}|tool-[0-9a-f]{10}"
    r"|mcp-[0-9a-f]{10}-[0-9a-f]{10}"
)
"""What stands in place of a name."""
WIRE_ID = re.compile(r"(?:toolu|srvtoolu|tooluse|call|chatcmpl|msg|resp|req|fc|ctc|rs)[_-][A-Za-z0-9-]{1,64}")
"""Ids that an API draws for its calls and replies: they open nothing and name nobody."""

COMMON = frozenset(
    {"root", "wheel", "user", "users", "staff", "nobody", "nogroup", "docker", "ubuntu", "debian", "admin"}
)
"""Owners of files that are nobody."""

_TOP_LEVEL = (
    "com|org|net|edu|gov|mil|int|io|ai|co|cloud|internal|intranet|local|localdomain|corp|lan|home|private|eu|de|uk|fr|nl|"
    "ch|es|us|ca|jp|cn|ru|br|au|kr|se|fi|dk|cz|be|pl|pt|ie|nz|biz|xyz|tech|dev|app|site|online|test|invalid|example|"
    "svc|cluster|tv|gg|sh"
)
_SEGMENT = r"[\w.@+~%#=-]"


@dataclass(frozen=True)
class Rule:
    """A shape. Its group ``what`` is the part that must not leave, where that is not the whole match."""

    name: str
    pattern: re.Pattern[str]
    in_text: bool = False
    """Whether it is looked for where texts leave as they are, too."""
    holds: Callable[[str], bool] = lambda _: True
    needs: tuple[str, ...] = ()
    """Texts of which one stands in every match: most texts have none, and need not be searched."""


def _address(text: str) -> IPv4Address | None:
    """Return an address that is some machine's: not this machine's own, nor that of none."""
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return None
    return None if address.is_loopback or address.is_unspecified else address


def _is_address(text: str) -> bool:
    return _address(text) is not None


def _is_private(text: str) -> bool:
    address = _address(text)
    return address is not None and address.is_private


def entropy(text: str) -> float:
    """Return the Shannon entropy of a text's characters, in bits a character."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())


def is_random(text: str) -> bool:
    """Return whether a word looks drawn rather than written: a key, a token, a digest, an id."""
    if any(known.fullmatch(text) for known in (MASK, PSEUDONYM, WIRE_ID)):
        return False
    if not any(c.isdigit() for c in text) or not any(c.isalpha() for c in text):
        return False
    if re.fullmatch(r"(?:0x)?[0-9a-fA-F-]{32,}", text):
        return entropy(text) > 3.0  # noqa: PLR2004 sixteen letters have 4 bits at most
    # A path, a name in snake case or a slug is words between marks; what is drawn has digits amid its letters.
    return entropy(text) > 4.0 and any(is_mixed(part) for part in re.split(r"[-_/+=]", text))  # noqa: PLR2004


def is_mixed(word: str) -> bool:
    """Return whether letters and digits take turns in a word."""
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in word]
    return len(word) >= 8 and sum(a != b for a, b in pairwise(kinds)) >= 4  # noqa: PLR2004


# Every repetition is bounded, or begins at the start of a word only: texts hold images of a million letters.
RULES = (
    Rule("url", re.compile(r"\b[a-z][a-z0-9+.-]{1,14}://[^\s\"'<>\\`{}|^]+", re.IGNORECASE), needs=("://",)),
    Rule(
        "repository", re.compile(r"(?<![\w.-])[\w.-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}:[\w.~/-]+"), needs=("@",)
    ),
    Rule(
        "email",
        re.compile(r"(?<![\w.%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b"),
        in_text=True,
        holds=lambda text: not text.startswith("git@"),
        needs=("@",),
    ),
    Rule(
        "person",
        re.compile(
            r"(?i:\b(?:author|commit(?:ter)?|signed-off-by|co-authored-by|reviewed-by|tagger)):?\s{1,8}"
            r"(?P<what>[^\s<>:][^<>\n:]{1,60}?)\s{1,4}<(?=[^<>\s]{1,100}@|redacted-)"
        ),
        holds=lambda text: len(text) > 1,
        needs=("<",),
    ),
    # The owner and the group in a listing of files.
    Rule(
        "owner",
        re.compile(
            r"(?<![\w-])[bcdlps-](?:[r-][w-][xsStT-]){3}[.+@]?\s{1,8}\d{1,6}\s{1,8}(?P<what>(?!redacted-)\S{1,40}\s{1,8}\S{1,40})(?=\s)"
        ),
        holds=lambda text: not set(text.split()) <= COMMON,
        needs=("r-", "rw", "--"),
    ),
    Rule("mcp", re.compile(r"\bmcp__[\w-]+"), needs=("mcp__",)),
    Rule(
        "home_path",
        re.compile(
            r"(?<![\w.-])(?:[A-Za-z]:)?[/\\]{1,4}(?:home|Users)[/\\]{1,4}(?!redacted-)[^\s/\\\"'`:;,<>|*?$%(){}\[\]&#!]{1,64}"
        ),
        in_text=True,
        needs=("home", "Users"),
    ),
    Rule("path", re.compile(rf"(?<![\w.\\/<*-])~?(?:/{_SEGMENT}{{1,100}}){{2,40}}/?"), needs=("/",)),
    Rule(
        "path",
        re.compile(
            rf"(?<![\w.\\/-])(?:[A-Za-z]:\\{{1,4}}|\\\\{{1,4}})(?:{_SEGMENT}{{1,100}}\\{{1,4}}){{0,40}}{_SEGMENT}+"
        ),
        needs=("\\",),
    ),
    Rule("path", re.compile(rf"(?<![\w.\\/-])~/{_SEGMENT}+"), needs=("/",)),
    Rule("path", re.compile(rf"(?<![\w\\/<.-])/{_SEGMENT}{{0,100}}\w\.[A-Za-z]\w{{0,7}}\b"), needs=("/",)),
    Rule(
        "path",
        re.compile(
            r"(?<![\w\\/.@+-])(?:\.{1,2}/){0,8}(?:[\w@+-][\w.@+-]{0,100}/){1,40}[\w@+-][\w.@+-]{0,100}\.[A-Za-z]\w{0,7}\b"
        ),
        needs=("/",),
    ),
    Rule(
        "private_address",
        re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]{0,8}\d)"),
        in_text=True,
        holds=_is_private,
        needs=(".",),
    ),
    Rule("address", re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]{0,8}\d)"), holds=_is_address, needs=(".",)),
    Rule(
        "address",
        re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}(?::|[0-9a-fA-F]{1,4})(?::?[0-9a-fA-F]{1,4}){0,8}(?![\w:])"),
        needs=(":",),
    ),
    Rule(
        "host",
        re.compile(
            rf"(?<![\w.-])(?:[A-Za-z0-9](?:[\w-]{{0,61}}[A-Za-z0-9])?\.){{1,8}}(?:{_TOP_LEVEL})(?![\w-])(?!\.\w)"
        ),
        needs=(".",),
    ),
    Rule(
        "uuid",
        re.compile(r"(?<![0-9a-fA-F-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9a-fA-F-])"),
        needs=("-",),
    ),
    Rule("random", re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_=-]{20,}(?![\w+/=-])"), in_text=True, holds=is_random),
)

NAMES_OF_CORE = {"email": "email", "key": "key", "user": "user", "host": "machine", "account": "account"}

_PLUGINS = (
    "artifactory.ArtifactoryDetector",
    "aws.AWSKeyDetector",
    "azure_storage_key.AzureStorageKeyDetector",
    "basic_auth.BasicAuthDetector",
    "cloudant.CloudantDetector",
    "discord.DiscordBotTokenDetector",
    "github_token.GitHubTokenDetector",
    "gitlab_token.GitLabTokenDetector",
    "ibm_cloud_iam.IbmCloudIamDetector",
    "ibm_cos_hmac.IbmCosHmacDetector",
    "jwt.JwtTokenDetector",
    "keyword.KeywordDetector",
    "mailchimp.MailchimpDetector",
    "npm.NpmDetector",
    "openai.OpenAIDetector",
    "private_key.PrivateKeyDetector",
    "pypi_token.PypiTokenDetector",
    "sendgrid.SendGridDetector",
    "slack.SlackDetector",
    "softlayer.SoftlayerDetector",
    "square_oauth.SquareOAuthDetector",
    "stripe.StripeDetector",
    "telegram_token.TelegramBotTokenDetector",
    "twilio.TwilioKeyDetector",
)


@cache
def _plugins() -> tuple[Sequence[Any], Sequence[Any]]:
    """Return detect-secrets' detectors, those of fields' names apart.

    They are called one by one: its own scan heeds comments that let a secret pass.
    """
    paths = [path.rsplit(".", 1) for path in _PLUGINS]
    plugins = [getattr(import_module(f"detect_secrets.plugins.{module}"), name)() for module, name in paths]
    keywords = [plugin for plugin in plugins if type(plugin).__name__ == "KeywordDetector"]
    return [plugin for plugin in plugins if plugin not in keywords], keywords


def secrets_in(text: str) -> Iterable[tuple[str, int, int]]:
    """Yield what detect-secrets finds in a text, as (rule, start, end)."""
    return _secrets_in_short(text) if len(text) <= KEPT_CHARACTERS else _secrets_in(text)


@lru_cache(maxsize=1 << 16)
def _secrets_in_short(text: str) -> tuple[tuple[str, int, int], ...]:
    """Return the same as a tuple that is kept: names and values of fields come again and again."""
    return tuple(_secrets_in(text))


def _secrets_in(text: str) -> Iterator[tuple[str, int, int]]:
    plain, keywords = _plugins()
    for start in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
        # Its search is not linear in a text's length.
        yield from _found_by(plain, text[start : start + WINDOW], start)
    at = 0
    # A field and its value stand in one line; most lines have no such field.
    for line in text.splitlines(keepends=True) if KEYWORD.search(text) else ():
        if KEYWORD.search(line):
            for start in range(0, max(len(line) - OVERLAP, 1), WINDOW - OVERLAP):
                yield from _found_by(keywords, line[start : start + WINDOW], at + start)
        at += len(line)


def _found_by(plugins: Sequence[Any], text: str, at: int) -> Iterator[tuple[str, int, int]]:
    for plugin in plugins:
        for found in plugin.analyze_string(text):
            value = next((part for part in found if part), "") if isinstance(found, tuple) else found
            if value and not _is_masked(value):
                name = re.sub(r"[^a-z]+", "_", plugin.secret_type.lower()).strip("_")
                for place in re.finditer(re.escape(value), text):
                    yield f"secret_{name}", at + place.start(), at + place.end()


def found_secrets(text: str) -> Iterator[tuple[str, str]]:
    """Yield the secrets that detect-secrets finds in a text or by the names of its fields, as (rule, secret)."""
    for field, part in readable(text):
        places = secrets_in(pair(field, part)) if field and len(part) <= SHORT else ()
        if any(True for _ in places) and len(part) >= SECRET_CHARACTERS:
            yield "secret_field", part
        for name, start, end in secrets_in(part):
            if end - start >= SECRET_CHARACTERS:
                yield name, part[start:end]


def _is_masked(value: str) -> bool:
    """Return whether nothing but masks and signs is left of a value."""
    return not re.search(r"[A-Za-z0-9]", MASK.sub("", value))


class Detectors:
    """All that is looked for, with the names of this machine and those the user gave.

    Parameters
    ----------
    users, hosts
        Names of users and machines, found as words of their own.
    words
        Words of the user's that must not leave, in any spelling of case.
    """

    def __init__(self, users: Sequence[str] = (), hosts: Sequence[str] = (), words: Sequence[str] = ()) -> None:
        self.core = Masker(bytes(16), users=list(users), hosts=list(hosts))
        longest_first = sorted({word for word in words if word}, key=len, reverse=True)
        joined = "|".join(re.escape(word) for word in longest_first)
        self.words = re.compile(joined, re.IGNORECASE) if joined else None

        self._found_in_short = lru_cache(maxsize=1 << 16)(lambda text, in_text: tuple(self._found(text, in_text)))

    def find(self, text: str, *, in_text: bool = False) -> Iterable[tuple[str, int, int]]:
        """Yield what must not leave, as (rule, start, end), in no order and perhaps overlapping.

        ``in_text``: only what must not stand in a text that leaves as it is.
        """
        if len(text) > KEPT_CHARACTERS:
            return self._found(text, in_text)
        known: tuple[tuple[str, int, int], ...] = self._found_in_short(text, in_text)
        return known

    def _found(self, text: str, in_text: bool) -> Iterator[tuple[str, int, int]]:  # noqa: FBT001
        if self.words is not None:
            for match in self.words.finditer(text):
                yield "named", *match.span()
        for kind, start, end in self.core.find(text):
            yield NAMES_OF_CORE[kind], start, end
        for rule in RULES:
            if (in_text and not rule.in_text) or (rule.needs and not any(part in text for part in rule.needs)):
                continue
            for match in rule.pattern.finditer(text):
                start, end = _behind_escape(text, *match.span("what" if rule.pattern.groupindex else 0))
                if rule.holds(text[start:end]) and not _is_masked(text[start:end]):
                    yield rule.name, start, end
        yield from secrets_in(text)


def _behind_escape(text: str, start: int, end: int) -> tuple[int, int]:
    r"""Return a place without the letter of an escape (``\n``) that it begins with."""
    if start and text[start - 1] == "\\" and text[start] in "ntrbf":
        return start + 1, end
    return start, end


def merged(found: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return places in order, those that overlap as one by the name of the first."""
    places: list[tuple[str, int, int]] = []
    for name, start, end in sorted(found, key=lambda place: (place[1], -place[2])):
        if places and start < places[-1][2]:
            first, begin, until = places[-1]
            places[-1] = (first, begin, max(until, end))
        elif end > start:
            places.append((name, start, end))
    return places
