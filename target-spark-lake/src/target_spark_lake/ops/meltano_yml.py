"""Adds a pipeline's entry to a project's `meltano.yml`, and keeps everything else in it, including
comments.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.tokens import CommentToken

from singer_spark.core.config_secrets import is_secret_setting
from singer_spark.errors import ConfigurationError
from target_spark_lake.config.settings import PROPERTIES
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import TAP, TARGET

JSON = dict[str, Any]
Node = TypeVar("Node", CommentedMap, CommentedSeq)

BACKEND = "lake+"
_CAPABILITIES = {
    TAP: "about batch catalog discover schema-flattening state stream-maps structured-logging",
    TARGET: "about activate-version batch hard-delete schema-flattening soft-delete stream-maps "
    "structured-logging",
}
# Meltano passes on settings that it does not know, but the kind of these must be declared.
_KINDS = {
    TAP: {
        "password": "password",
        **dict.fromkeys(
            ("driver_jars", "schemas", "tables", "incremental_tables", "queries"), "array"
        ),
        **dict.fromkeys(("stream_options", "batch_config", "storage_options", "spark"), "object"),
    },
    TARGET: {
        name: kind
        for name, each in PROPERTIES.items()
        for kind in each["type"]
        if kind in ("array", "object")
    },
}
_PLAIN = (
    ("jdbc_url", "user"),
    ("bucket", "path", "pipeline", "format", "load_method", "compression"),
)
_SECRET = {
    TAP: ("jdbc_url", "password", "storage_options", "spark"),
    TARGET: tuple(name for name, each in PROPERTIES.items() if is_secret_setting(each)),
}
_NEW = """\
# What Meltano runs. Secrets come from the environment, or from the file .env beside this one.
default_environment: dev
send_anonymous_usage_stats: false
environments:
- name: dev
"""
# `${NAME}` is a variable for Meltano as for the configs; `$${NAME}` (plain text there) and `$NAME`
# must not become one.
_NO_VARIABLE = re.compile(r"\$(?=[A-Z])|(?<=\$)\$(?=\{\w+\})")


@dataclass(frozen=True)
class MeltanoEntry:
    """A pipeline's entry in `meltano.yml`.

    `executables` maps the programs' names to their commands.
    """

    pipeline: str
    tap_config: Mapping[str, Any]
    target_config: Mapping[str, Any]
    executables: Mapping[str, str]
    cron: str | None = None

    @property
    def name(self) -> str:
        """The pipeline's name in a form allowed for Meltano's plugins, jobs and schedules."""
        return re.sub(r"[^a-z0-9]+", "-", self.pipeline.lower()).strip("-") or self.pipeline

    def added_to(
        self, text: str | None, *, replace: bool = False, origin: str = "meltano.yml"
    ) -> tuple[str, list[str]]:
        """The file's content with this entry added, and notes for the user.

        `text` is None if there is no file yet.

        With `replace`, an existing entry of this pipeline is replaced; errors name the file by its
        `origin`.

        Raises:
            ConfigurationError: the file is not a Meltano project, or has such an entry.
        """
        yaml = _yaml(text or _NEW)
        project = _loaded(yaml, text or _NEW, origin)
        plugins = _child(project, "plugins", CommentedMap, origin)
        # What is at the end stays there, whatever is added before it.
        tails = [(node, _cut_tail(node)) for node in (project, plugins)]
        lists = {
            "extractors": _child(plugins, "extractors", CommentedSeq, origin),
            "loaders": _child(plugins, "loaders", CommentedSeq, origin),
            "jobs": _child(project, "jobs", CommentedSeq, origin),
        }
        if self.cron:
            lists["schedules"] = _child(project, "schedules", CommentedSeq, origin)
        there = [
            name
            for name, entries in lists.items()
            if _position(entries, self._name_in(name)) is not None
        ]
        owner = self._owner(lists["loaders"])
        if owner not in (None, self.pipeline):
            raise ConfigurationError(
                LakeCode.ALREADY_THERE,
                f"{origin} has {self._name_in('loaders')} for the pipeline {owner}, and "
                f"{self.pipeline} would be called the same: choose another name",
            )
        if there and not replace:
            raise ConfigurationError(
                LakeCode.ALREADY_THERE,
                f"{origin} has the pipeline {self.pipeline} already ({self._name_in(there[0])} in "
                f"{there[0]}): choose another name, or --force to rewrite its entry",
            )
        for name, program in (("extractors", TAP), ("loaders", TARGET)):
            if _position(lists[name], program) is None:
                _put(lists[name], self._program(program))
            config = self.tap_config if program == TAP else self.target_config
            at, escaped = self._name_in(name), _escaped(config)
            _put(lists[name], CommentedMap(name=at, inherit_from=program, config=escaped))
        task = f"{self._name_in('extractors')} {self._name_in('loaders')}"
        _put(lists["jobs"], CommentedMap(name=self.name, tasks=CommentedSeq([task])))
        if self.cron:
            _put(
                lists["schedules"], CommentedMap(name=self.name, interval=self.cron, job=self.name)
            )
        notes = self._share_state(project, origin)
        for node, tail in tails:
            _hang_tail(node, tail)
        written = io.StringIO()
        yaml.dump(project, written)
        return written.getvalue(), notes

    def _owner(self, loaders: CommentedSeq) -> str | None:
        """The pipeline of the loader with this one's name; None if there is no such loader, or it
        doesn't say.
        """
        at = _position(loaders, self._name_in("loaders"))
        found = None if at is None else loaders[at].get("config", {}).get("pipeline")
        return None if found is None else str(found)

    def _name_in(self, name: str) -> str:
        return {"extractors": f"{TAP}--{self.name}", "loaders": f"{TARGET}--{self.name}"}.get(
            name, self.name
        )

    def _program(self, program: str) -> CommentedMap:
        plain = _PLAIN[program == TARGET]
        settings = CommentedSeq(CommentedMap(name=name) for name in plain)
        settings += [CommentedMap(name=name, kind=kind) for name, kind in _KINDS[program].items()]
        for setting in settings:
            if setting["name"] in _SECRET[program]:
                setting["sensitive"] = True
            _flow(setting)
        return CommentedMap(
            name=program,
            namespace=program.replace("-", "_"),
            executable=self.executables[program],
            capabilities=_flow(CommentedSeq(_CAPABILITIES[program].split())),
            settings=settings,
        )

    def _share_state(self, project: CommentedMap, origin: str) -> list[str]:
        """Let Meltano keep its state where the pipe does, unless the project keeps it elsewhere."""
        bucket = str(self.target_config["bucket"])
        wanted = BACKEND + (bucket if "://" in bucket else f"file://{_under_project(bucket)}")
        backend = _child(project, "state_backend", CommentedMap, origin)
        present = backend.setdefault("uri", wanted)
        if present != wanted:
            return [
                f"{origin} keeps Meltano's state in {present}, and this pipeline's is in {bucket}: "
                "start it by the pipe or by Meltano, not by both"
            ]
        lake = _child(backend, "lake", CommentedMap, origin)
        if options := self.target_config.get("storage_options"):
            lake["storage_options"] = _escaped(options)
        pipelines = _child(lake, "pipelines", CommentedMap, origin)
        for environment in project.get("environments") or []:
            if isinstance(environment, dict):
                state_id = f"{environment.get('name')}:{TAP}--{self.name}-to-{TARGET}--{self.name}"
                suffix = environment.get("state_id_suffix")
                pipelines[f"{state_id}:{suffix}" if suffix else state_id] = self.pipeline
        return []


def _yaml(text: str) -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    yaml.explicit_start = text.startswith("---")
    # Lists are indented as in the file: below their key, or further in.
    if re.search(r"(?m)^( *)[^\s#-][^\n]*:[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*\1  +- ", text):
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _loaded(yaml: YAML, text: str, origin: str) -> CommentedMap:
    try:
        project = yaml.load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigurationError(
            LakeCode.BAD_MELTANO_YML, f"{origin}{where}: {problem}; correct it, and run this again"
        ) from error
    if project is None:
        return _loaded(yaml, _NEW, origin)
    if not isinstance(project, CommentedMap):
        raise ConfigurationError(
            LakeCode.BAD_MELTANO_YML,
            f"{origin} is not a Meltano project: it must be a mapping with `plugins`",
        )
    return project


def _child(parent: CommentedMap, key: str, kind: type[Node], origin: str) -> Node:
    if not parent.get(key):
        # It may be `[]`, and additions to that would be written between its brackets.
        parent[key] = kind()
    if not isinstance(parent[key], kind):
        raise ConfigurationError(
            LakeCode.BAD_MELTANO_YML,
            f"{origin}: {key} must be {'a list' if kind is CommentedSeq else 'a mapping'}",
        )
    found: Node = parent[key]
    return found


def _position(entries: CommentedSeq, name: str) -> int | None:
    found = (
        n
        for n, entry in enumerate(entries)
        if isinstance(entry, Mapping) and entry.get("name") == name
    )
    return next(found, None)


def _put(entries: CommentedSeq, entry: CommentedMap) -> None:
    """Replace the entry of this name, or append it; a comment after it belongs to what follows, and
    stays there.
    """
    position = _position(entries, entry["name"])
    if position is None:
        tail = _cut_tail(entries)
        entries.append(entry)
    else:
        tail = _cut_tail(entries[position])
        entries[position] = entry
    _hang_tail(entry, tail)


def _cut_tail(node: Any) -> str | None:
    """Remove and return the blank lines and comments after a node's last line, but not a comment on
    that line.
    """
    holder, key, slot = _last_leaf(node)
    comments = None if holder is None else holder.ca.items.get(key)
    token = comments[slot] if comments and len(comments) > slot else None
    if token is None or isinstance(token, list):
        return None
    own, _, tail = token.value.partition("\n")
    token.value = own + "\n"
    return tail or None


def _hang_tail(node: Any, tail: str | None) -> None:
    holder, key, slot = _last_leaf(node)
    if tail is None or holder is None:
        return
    comments: list[Any] = [None, None, None, None]
    comments[slot] = CommentToken("\n" + tail, CommentMark(0), None)
    holder.ca.items[key] = comments


def _last_leaf(node: Any) -> tuple[Any, Any, int]:
    """The map or list with a node's last line, the key or index there, and ruamel's slot for the
    comment after it.
    """
    holder, index, slot = None, None, 0
    while (
        isinstance(node, CommentedMap | CommentedSeq)
        and node
        and not (holder is not None and node.fa.flow_style())
    ):
        holder, slot = node, 2 if isinstance(node, CommentedMap) else 0
        index = next(reversed(node)) if slot else len(node) - 1
        node = node[index]
    return holder, index, slot


def _flow(node: Any) -> Any:
    node.fa.set_flow_style()
    return node


def _escaped(value: Any) -> Any:
    """A value escaped so that Meltano reads it unchanged."""
    if isinstance(value, Mapping):
        return CommentedMap((name, _escaped(each)) for name, each in value.items())
    if isinstance(value, list):
        return CommentedSeq(map(_escaped, value))
    return _NO_VARIABLE.sub(r"\\$", value) if isinstance(value, str) else value


def _under_project(folder: str) -> str:
    absolute = Path(folder).expanduser()
    if absolute.is_absolute():
        return str(absolute)
    return f"$MELTANO_PROJECT_ROOT/{folder.removeprefix('./')}"
