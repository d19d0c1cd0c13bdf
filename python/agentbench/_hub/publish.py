"""``push``: a run as a data set. Written to a folder, scanned, sent; each step works on what the one before left."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench import _host
from agentbench._core import ConfigError, Run

from . import columns
from . import salt as salts
from .extra import needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from .detectors import Detectors
    from .gate import Finding
    from .salt import Salt
    from .send import Sent
    from .tables import Written

SHARD_MB = 500
MESSAGE = "Run directory published by agentbench"
REPO = re.compile(r"(?!.*(?:--|\.\.))\w(?:[\w.-]{0,94}\w)?/\w(?:[\w.-]{0,94}\w)?", re.ASCII)
_LICENSES = (
    "apache-2.0 mit cc0-1.0 cc-by-4.0 cc-by-sa-4.0 cc-by-nc-4.0 cc-by-nc-sa-4.0 cc-by-nc-nd-4.0 cc-by-nd-4.0 cc-by-3.0 "
    "cc-by-sa-3.0 odc-by odbl pddl cdla-permissive-1.0 cdla-permissive-2.0 cdla-sharing-1.0 bsd bsd-2-clause "
    "bsd-3-clause gpl-3.0 lgpl-3.0 agpl-3.0 mpl-2.0 c-uda unlicense wtfpl openrail other unknown"
)
LICENSES = tuple(_LICENSES.split())
"""Licences by the hub's own ids."""
HOME = re.compile(r"(?:[/\\]+home|[/\\]+Users)[/\\]+([^\s/\\\"'`:;,<>|*?$%(){}\[\]&#!]+)")


@dataclass(frozen=True)
class Push:
    """What came of a push.

    Attributes
    ----------
    folder
        Where the files lie; None where they were written to a scratch folder and sent.
    files, n_bytes
        Names of the files, and their size together.
    rows
        Rows by table.
    findings
        What the gate found and nobody allowed. Where there is one, nothing was sent.
    allowed
        Findings that ``allow`` named.
    sample
        The first rows of each table, as they were written.
    sent
        The commit; None where nothing was sent.
    salt_file, salt_is_new
        Where the salt lies, and whether it was drawn now.
    """

    __module__ = "agentbench"

    folder: Path | None
    files: list[str]
    n_bytes: int
    rows: dict[str, int]
    findings: list[Finding]
    allowed: list[Finding]
    sample: dict[str, list[dict[str, Any]]]
    sent: Sent | None
    salt_file: Path
    salt_is_new: bool


@dataclass(frozen=True)
class Settings:
    """What a push is asked for."""

    repo: str
    license_id: str
    level: str = columns.DEFAULT_LEVEL
    shift_times: bool = False
    public_names: frozenset[str] = frozenset()
    mask: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    shard_bytes: int = SHARD_MB << 20
    known: tuple[str, ...] = field(default=())

    def check(self) -> None:
        """Refuse what cannot be.

        Raises
        ------
        ConfigError
            With the setting and its remedy.
        """
        if not REPO.fullmatch(self.repo):
            raise ConfigError(f"repo {self.repo!r}: give it as OWNER/NAME, as the hub does")
        if self.level not in columns.LEVELS:
            raise ConfigError(f"level {self.level!r}: choose one of {', '.join(columns.LEVELS)}")
        if self.license_id not in LICENSES:
            raise ConfigError(
                f"license {self.license_id!r}: give the hub's id of one, as cc-by-4.0, odc-by, apache-2.0 or other"
            )
        if self.shard_bytes <= 0:
            raise ConfigError("shard_mb: give at least 1")


def push(
    run: Run | str | PathLike[str],
    *,
    repo: str,
    license: str,  # noqa: A002 the hub's word
    level: str = columns.DEFAULT_LEVEL,
    dry_run: str | PathLike[str] | None = None,
    public: bool = False,
    shift_times: bool = False,
    public_names: Iterable[str] = (),
    mask: Iterable[str] = (),
    allow: Iterable[str] = (),
    salt_file: str | PathLike[str] | None = None,
    shard_mb: int = SHARD_MB,
) -> Push:
    """Publish a run as a data set of the hub, or write what would be sent.

    Parameters
    ----------
    run
        The run, or its directory.
    repo
        ``OWNER/NAME`` of the data set; it is made where there is none.
    license
        The hub's id of a licence, as ``cc-by-4.0``.
    level
        What leaves: ``counts``, ``hashes``, ``text-redacted`` or ``text``; docs/publishing.md lists the columns.
    dry_run
        A folder, not there or empty, that gets exactly what would be sent; nothing is sent.
    public
        Whether everybody may see the data set; else only its owner.
    shift_times
        Whether each session's times are moved by an offset of its own, which keeps all gaps within it.
    public_names
        Names of tools, models and agents that may stay as they are beside the well-known ones.
    mask
        Words that must not leave: masked at ``text-redacted``, findings anywhere else.
    allow
        Findings of the gate that may leave, by id or by rule.
    salt_file
        The secret that pseudonyms follow from; None: ``~/.config/agentbench/salt``, drawn where there is none.
    shard_mb
        Size at which a table goes on in another file, in MiB.

    Returns
    -------
    Push
        With ``findings`` where the gate stopped it; then nothing was sent.

    Raises
    ------
    ConfigError
        When a setting is wrong, there is no token, or the data set is public and ``public`` is False.
    TraceError
        When the run cannot be read, or has nothing that leaves at this level.
    UpstreamError
        When the hub refuses or cannot be reached; the same call again goes on.
    ModuleNotFoundError
        When a library of the ``hub`` extra is missing.
    """
    settings = Settings(
        repo=repo,
        license_id=license,
        level=level,
        shift_times=shift_times,
        public_names=frozenset(public_names),
        mask=tuple(mask),
        allow=tuple(allow),
        shard_bytes=shard_mb << 20,
        known=(f"hf://datasets/{repo}", repo, repo.rpartition("/")[2]),
    )
    settings.check()
    for library in ("pyarrow", "yaml", "detect_secrets", *(() if dry_run is not None else ("huggingface_hub",))):
        needed(library)
    run = run if isinstance(run, Run) else Run.open(run)
    target = None if dry_run is None else Path(dry_run)
    outside = [Path(run.path), *([target] if target is not None else [])]
    salt, salt_path, salt_is_new = salts.load(None if salt_file is None else Path(salt_file), outside_of=outside)
    with tempfile.TemporaryDirectory(prefix="agentbench-push-") as scratch:
        folder = _fresh(target, Path(run.path)) if target is not None else Path(scratch)
        written = _write(run, folder, settings, salt)
        findings, allowed = _scan(folder, settings, salt)
        sent = None
        if target is None and not findings:
            from .send import send  # noqa: PLC0415 needs the hub's library

            sent = send(folder, repo, public=public, message=MESSAGE)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return Push(
            folder=target,
            files=[path.relative_to(folder).as_posix() for path in files],
            n_bytes=sum(path.stat().st_size for path in files),
            rows={table.table: table.rows for table in written},
            findings=findings,
            allowed=allowed,
            sample={table.table: _sample(table) for table in written},
            sent=sent,
            salt_file=salt_path,
            salt_is_new=salt_is_new,
        )


async def push_async(run: Run | str | PathLike[str], **settings: Any) -> Push:
    """`push` without blocking the event loop; takes the same arguments."""
    return await asyncio.to_thread(push, run, **settings)


def _fresh(folder: Path, run: Path) -> Path:
    """Return a folder that holds nothing but what is written now."""
    if folder.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{folder}: lies in the run; give a folder elsewhere")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: not an empty folder; give one that is not there yet, or empty it")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(run: Run, folder: Path, settings: Settings, salt: Salt) -> list[Written]:
    """Write the whole data set into a folder."""
    import json  # noqa: PLC0415

    from . import card, tables  # noqa: PLC0415 need pyarrow

    rules = _rules(run, settings, salt)
    data = folder / "data"
    data.mkdir()
    made = (
        tables.write(run, table, data, level=settings.level, rules=rules, shard_bytes=settings.shard_bytes)
        for table in columns.TABLES
    )
    written = [table for table in made if table is not None]
    if not written:
        shutil.rmtree(data)
        raise ConfigError(f"{run.path}: nothing to publish; every table is empty")
    manifest = card.published_manifest(
        run.manifest, written, level=settings.level, rules=rules, shift_times=settings.shift_times
    )
    (folder / card.RUN_FILE).write_text(json.dumps(manifest, indent=2) + "\n")
    text = card.card(manifest, written, repo=settings.repo, license_id=settings.license_id, level=settings.level)
    (folder / "README.md").write_text(text)
    return written


def _rules(run: Run, settings: Settings, salt: Salt) -> Any:
    from .masks import TextMasks  # noqa: PLC0415 needs pyarrow
    from .rules import Rules  # noqa: PLC0415

    plain = Rules(salt, public=settings.public_names, shift_times=settings.shift_times)
    if settings.level != "text-redacted":
        return plain
    names, users = _names(run, plain)
    masks = TextMasks(salt, _detectors(settings, users), names)
    return Rules(salt, public=settings.public_names, shift_times=settings.shift_times, masks=masks)


def _detectors(settings: Settings, users: Sequence[str] = ()) -> Detectors:
    from .detectors import Detectors  # noqa: PLC0415

    own, hosts = _host.names()
    return Detectors([*own, *users], hosts, settings.mask)


def _names(run: Run, rules: Any) -> tuple[dict[str, str], list[str]]:
    """Return what the run holds that is to be replaced wherever it stands, and users of home folders in its texts.

    Names have their pseudonyms; a secret that its field's name gives away once has its mask everywhere.
    """
    import pyarrow as pa  # noqa: PLC0415 of the extra

    from agentbench._export import TABLES  # noqa: PLC0415

    from .detectors import found_secrets  # noqa: PLC0415
    from .masks import mask  # noqa: PLC0415
    from .tables import table_of  # noqa: PLC0415

    functions = {"tool": rules.tool, "model": rules.model, "agent": rules.agent}
    names: dict[str, str] = {str(run.manifest["run_id"]): rules.salt.name("run", str(run.manifest["run_id"]))}
    users: set[str] = set()
    for table in TABLES:
        leaving = dict(columns.leaving(table, "text-redacted"))
        for batch in pa.RecordBatchReader.from_stream(table_of(run, table)):
            for column, rule in leaving.items():
                kind, _, argument = rule.partition(":")
                if kind not in {"name", "tool", "model", "agent", "masked"}:
                    continue
                for value in batch.column(column).dictionary_encode().dictionary.to_pylist():
                    if kind == "masked":
                        users.update(HOME.findall(value))
                        names |= {secret: mask(rules.salt, name, secret) for name, secret in found_secrets(value)}
                    elif kind == "name":
                        names[value] = rules.salt.name(argument, value)
                    elif functions[kind](value) != value:
                        names[value] = functions[kind](value)
    names.pop("", None)
    return names, sorted(users)


def _scan(folder: Path, settings: Settings, salt: Salt) -> tuple[list[Finding], list[Finding]]:
    from .gate import Gate, checked  # noqa: PLC0415 needs pyarrow

    gate = Gate(salt, _detectors(settings), level=settings.level, public=settings.public_names, known=settings.known)
    return checked(gate.scan(folder), settings.allow)


def _sample(table: Written, rows: int = 2) -> list[dict[str, Any]]:
    """Return the first rows of a table from its file."""
    parquet: Any = needed("pyarrow.parquet")
    batch = next(parquet.ParquetFile(table.files[0]).iter_batches(batch_size=rows), None)
    return [] if batch is None else batch.to_pylist()[:rows]
