"""The parts of settings that have a form of their own: specs of `incremental_tables`, the SQL of
`queries`, `batch_config` and `ssh_tunnel`.

A spec is `schema.table:column:type[:i|e][@start][!append|upsert]`. `batch_config` is singer-sdk's,
as far as Spark's executors support it. `ssh_tunnel` has the same names as in MeltanoLabs' taps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from singer_spark.core.bookmark import KeyType, KeyValue
from singer_spark.engine.spark_settings import is_local
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.state.run_log import BATCHES
from tap_spark_jdbc.dialects import dialect_of

GRAMMAR = "schema.table:column:type[:i|e][@start][!append|upsert]"
_SIGNS = '.:@!"'
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_BARE = re.compile(rf"[^{_SIGNS}]+")
_LOAD_METHODS = {"append": "append-only", "upsert": "upsert"}
# SQL's tokens, as far as they are needed to find words and the end of a statement. Transact-SQL has
# names in brackets.
_TOKENS = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]'\"]*\]|(?P<tag>\$\w*\$).*?(?P=tag)"
    r"|(?P<word>[\w@#$]+)|(?P<opens>\()|(?P<closes>\))|(?P<end>;)|(?P<blank>\s+)|.",
    re.DOTALL,
)
# The codecs that each format's readers support; the first is the default.
CODECS = {"parquet": ("zstd", "snappy", "gzip", "lz4", "none"), "jsonl": ("gzip", "none")}


@dataclass(frozen=True)
class IncrementalSpec:
    """One parsed spec, with names and start value as written.

    With `:e` it is not `included`: the table is exported whole.
    """

    schema: str | None
    table: str
    column: str
    key_type: KeyType
    included: bool = True
    start: str | None = None
    load_method: str | None = None

    @classmethod
    def parse(cls, text: str) -> IncrementalSpec:
        """Parse a spec; an error shows at which character it goes wrong, and what was expected
        there.
        """
        return _Parser(text).spec()


class _Parser:
    """Parses a spec from left to right; `position` is the current character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def spec(self) -> IncrementalSpec:
        first = self.name("a table")
        schema, table = (first, self.name("a table")) if self.take(".") else (None, first)
        if self.sees("."):
            raise self.error(
                "a name has at most schema and table; put a name that holds a dot in double quotes"
            )
        self.want(":", "the replication key's column")
        column = self.name("a column")
        self.want(":", "the key's type")
        key_type = self.key_type()
        included = self.included() if self.take(":") else True
        start = self.start(key_type) if self.take("@") else None
        load_method = self.load_method() if self.take("!") else None
        if self.position < len(self.text):
            raise self.error("nothing more was expected here")
        return IncrementalSpec(schema, table, column, key_type, included, start, load_method)

    def name(self, what: str) -> str:
        begin = self.position
        if quoted := _QUOTED.match(self.text, begin):
            self.position = quoted.end()
            if not quoted[1]:
                raise self.error(f"the name of {what} is empty", begin)
            return quoted[1].replace('""', '"')
        if self.sees('"'):
            raise self.error("this double quote is never closed")
        bare = _BARE.match(self.text, begin)
        if not bare or not bare[0].strip():
            raise self.error(f"the name of {what} was expected here")
        self.position = bare.end()
        return bare[0].strip()

    def key_type(self) -> KeyType:
        begin = self.position
        bare = _BARE.match(self.text, begin)
        self.position = bare.end() if bare else begin
        try:
            return KeyType.of(bare[0] if bare else "")
        except ValueError as error:
            raise self.error(str(error), begin) from error

    def included(self) -> bool:
        begin = self.position
        bare = _BARE.match(self.text, begin)
        word = bare[0].strip().lower() if bare else ""
        if word not in ("i", "e"):
            raise self.error("i (incremental) or e (exported whole) was expected here", begin)
        self.position = begin + len(bare[0] if bare else "")
        return word == "i"

    def start(self, key_type: KeyType) -> str:
        begin = self.position
        if quoted := _QUOTED.match(self.text, begin):
            self.position, raw = quoted.end(), quoted[1].replace('""', '"')
        else:
            # A start value may contain colons and exclamation marks: it ends where the rest is a
            # load method.
            end = re.search(r"(?i)!\s*(append|upsert)\s*$|!\s*[a-z-]*\s*$|$", self.text[begin:])
            self.position = begin + (end.start() if end else 0)
            raw = self.text[begin : self.position].strip()
        if not raw:
            raise self.error("a start value was expected here", begin)
        try:
            KeyValue.parse(raw, key_type, aware=key_type.is_moment)
        except ValueError as error:
            raise self.error(f"the start value {error}", begin) from error
        return raw

    def load_method(self) -> str:
        begin = self.position
        word = self.text[begin:].strip().lower()
        if word not in _LOAD_METHODS:
            raise self.error("append or upsert was expected here")
        self.position = len(self.text)
        return _LOAD_METHODS[word]

    def sees(self, sign: str) -> bool:
        return self.text.startswith(sign, self.position)

    def take(self, sign: str) -> bool:
        """Skip the sign, and blanks before it, if it comes next."""
        while self.position < len(self.text) and self.text[self.position] == " ":
            self.position += 1
        found = self.sees(sign)
        self.position += len(sign) if found else 0
        return found

    def want(self, sign: str, before: str) -> None:
        if not self.take(sign):
            raise self.error(f"{sign!r} and {before} were expected here")

    def error(self, problem: str, position: int | None = None) -> ConfigurationError:
        at = self.position if position is None else position
        return ConfigurationError(
            RunCode.BAD_SETTING,
            f"spec {self.text!r} goes wrong at character {at + 1} "
            f"({self.text[:at]}-->{self.text[at:]}): {problem}; a spec is {GRAMMAR}",
        )


def query_problems(jdbc_url: object, queries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Problems with configured queries that this kind of database would refuse as a table."""
    if not isinstance(jdbc_url, str) or not jdbc_url.startswith("jdbc:"):
        return []
    dialect = dialect_of(jdbc_url)
    problems = []
    for query in queries:
        name, words = query.get("name"), list(_outer_words(str(query.get("sql"))))
        if not dialect.takes_with and words[:1] == ["WITH"]:
            problems.append(
                f"queries: {name!r}: {dialect.name} takes no statement as a table that begins with "
                "WITH; make a view of it, and name that in `tables`"
            )
        elif not dialect.takes_order_by and _only_sorts(words):
            problems.append(
                f"queries: {name!r}: {dialect.name} takes no statement as a table that ends in "
                "ORDER BY without TOP or "
                "OFFSET; leave ORDER BY out, the tap sorts by itself where it needs to"
            )
    return problems


def bare(sql: str) -> str:
    """A statement without its final semicolon, and anything after it."""
    parts = list(_TOKENS.finditer(sql))
    while parts and (parts[-1]["comment"] or parts[-1]["blank"] or parts[-1]["end"]):
        if parts.pop()["end"]:
            return bare(sql[: parts[-1].end()] if parts else "")
    return sql.strip()


def _only_sorts(words: list[str]) -> bool:
    """Whether a statement ends in ORDER BY without a clause that uses the order (TOP, OFFSET …
    ROWS, FOR XML).
    """
    behind = next(
        (words[n + 2 :] for n in range(len(words)) if words[n : n + 2] == ["ORDER", "BY"]), None
    )
    if behind is None or "TOP" in words or "FOR" in behind:
        return False
    return not ("OFFSET" in behind and {"ROW", "ROWS"} & set(behind))


def _outer_words(sql: str) -> Iterator[str]:
    """The words of a statement outside of parentheses, names in quotes, strings and comments, in
    upper case.
    """
    depth = 0
    for token in _TOKENS.finditer(sql):
        depth += bool(token["opens"]) - bool(token["closes"])
        if token["word"] and depth == 0:
            yield token["word"].upper()


@dataclass(frozen=True)
class BatchSettings:
    """Format and location of batches: codec `none` for none.

    Each path below the root begins with the prefix.

    The root is None if it should be in the bucket of a target that has not been named yet.
    """

    format: Literal["parquet", "jsonl"]
    compression: str
    root: str | None = None
    prefix: str = ""

    @classmethod
    def of(cls, setting: Mapping[str, Any]) -> BatchSettings:
        """Parse the setting, which must have no problems."""
        encoding, storage = setting["encoding"], setting.get("storage") or {}
        kind = encoding["format"]
        codec = encoding.get("compression") or CODECS[kind][0]
        return cls(kind, codec, storage.get("root"), storage.get("prefix") or "")

    @property
    def encoding(self) -> dict[str, str]:
        """The encoding as in a BATCH message."""
        return {"format": self.format, "compression": self.compression}


def with_staging(config: dict[str, Any], target: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tap's config, completed from the target's: where batch files go, and with which storage
    options.
    """
    batches = config.get("batch_config")
    if target is None or not isinstance(batches, dict):
        return config
    storage = batches.get("storage") or {}
    if not isinstance(storage, dict) or storage.get("root"):
        return config
    root = f"{str(target['bucket']).rstrip('/')}/{BATCHES}"
    completed = {**config, "batch_config": {**batches, "storage": {**storage, "root": root}}}
    if not config.get("storage_options") and target.get("storage_options"):
        completed["storage_options"] = target["storage_options"]
    return completed


def batch_problems(setting: Any) -> list[str]:
    """Problems of the setting beyond its shape, which the config's schema checks."""
    encoding = setting.get("encoding") if isinstance(setting, Mapping) else None
    if not isinstance(encoding, Mapping):
        return []
    kind, codec = encoding.get("format"), encoding.get("compression")
    if not isinstance(kind, str) or kind not in CODECS or codec is None or codec in CODECS[kind]:
        return []
    return [
        f"batch_config.encoding.compression: {kind} takes {', '.join(CODECS[kind])}, not {codec!r}"
    ]


@dataclass(frozen=True)
class SshSettings:
    """The SSH host through which the database is reached.

    Keys and host keys are given as text or as a path.

    Attributes:
        enable: False: as if the setting were missing.
        bind_address: This machine's address at which a cluster's executors find the tunnel.
    """

    host: str
    username: str
    port: int = 22
    enable: bool = True
    private_key: str | None = field(default=None, repr=False)
    private_key_path: str | None = None
    private_key_password: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    host_key: str | None = None
    known_hosts_path: str | None = None
    bind_address: str | None = None


def ssh_problems(url: object, ssh: Mapping[str, Any], spark: Mapping[str, Any]) -> list[str]:
    """Problems of a tunnel to this database."""
    if not ssh or ssh.get("enable") is False:
        return []
    problems = []
    if not any(ssh.get(name) for name in ("private_key", "private_key_path", "password")):
        problems.append("ssh_tunnel: needs private_key, private_key_path or password")
    for one, other in (("private_key", "private_key_path"), ("host_key", "known_hosts_path")):
        if ssh.get(one) and ssh.get(other):
            problems.append(f"ssh_tunnel: {one} and {other} say the same thing; give one of them")
    elsewhere = spark.get("remote") or not is_local(spark.get("master"))
    if elsewhere and not ssh.get("bind_address"):
        problems.append(
            "ssh_tunnel.bind_address: executors elsewhere reach the database through this machine; "
            "give its address, as they know it"
        )
    if isinstance(url, str) and url.startswith(("jdbc:sqlite:", "jdbc:duckdb:")):
        problems.append("ssh_tunnel: the database of jdbc_url is a file of this machine")
    return problems
