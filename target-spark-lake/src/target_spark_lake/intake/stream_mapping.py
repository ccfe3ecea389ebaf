"""singer-sdk's stream maps and flattening, applied record by record in Python if the user
configures them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import InvalidOperation
from fnmatch import fnmatch
from typing import Any

from singer_sdk.mapper import PluginMapper, RemoveRecordTransform

from singer_spark.core.exact_json import from_json, to_json
from singer_spark.core.messages import KEYS_OF, STREAM_ANNOTATIONS, keys_stream
from singer_spark.errors import ConfigurationError, ProtocolError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.singer_lines import RecordLines

JSON = dict[str, Any]


def wants_mapping(config: Mapping[str, Any]) -> bool:
    """Whether the config has stream maps or flattening."""
    return bool(config.get("stream_maps") or config.get("flattening_enabled"))


class StreamMapping:
    """Turns messages of a stream into messages of the streams that it is mapped to."""

    def __init__(self, mapper: PluginMapper) -> None:
        self._mapper = mapper
        self._keys: dict[str, list[str]] = {}

    def schema(self, message: JSON) -> Iterator[JSON]:
        """The SCHEMA messages that one SCHEMA message is mapped to."""
        stream, schema = message["stream"], message["schema"]
        if schema.get(KEYS_OF) in self._mapper.stream_maps:
            yield from self._keys_schema(message, schema[KEYS_OF])
            return
        self._mapper.register_raw_stream_schema(stream, schema, message.get("key_properties"))
        annotations = {name: schema[name] for name in STREAM_ANNOTATIONS if name in schema}
        for each in self._mapper.stream_maps[stream]:
            yield {
                **message,
                "stream": each.stream_alias,
                "schema": {**annotations, **each.transformed_schema},
                "key_properties": each.transformed_key_properties,
            }

    def knows(self, stream: str) -> bool:
        """Whether a SCHEMA of the stream came."""
        return stream in self._mapper.stream_maps or stream in self._keys

    def records(self, lines: RecordLines) -> Iterator[RecordLines]:
        """The RECORD lines that a group of lines is mapped to.

        Raises:
            ProtocolError: a line is malformed.
        """
        if lines.stream in self._keys:
            yield from (replace(lines, stream=stream) for stream in self._keys[lines.stream])
            return
        mapped: dict[str, list[bytes]] = {}
        for number, line in enumerate(lines.data.split(b"\n")[:-1], lines.first_line):
            message = _parsed(line, lines, number)
            for each in self._mapper.stream_maps[lines.stream]:
                record = each.transform(dict(message["record"]))
                if record is not None:
                    text = to_json({**message, "stream": each.stream_alias, "record": record})
                    mapped.setdefault(each.stream_alias, []).append(text.encode() + b"\n")
        for stream, each_lines in mapped.items():
            yield RecordLines(stream, b"".join(each_lines), len(each_lines), lines.first_line)

    def _keys_schema(self, message: JSON, keys_of: str) -> Iterator[JSON]:
        """Pass the present keys of a stream unchanged to each stream that it is mapped to.

        Raises:
            ConfigurationError: a map changes the keys of the stream's records.
        """
        for name, definition in self._mapper.stream_maps_dict.items():
            mapping: JSON = definition if isinstance(definition, dict) else {}
            changed = [
                key for key in message.get("key_properties") or () if mapping.get(key, key) != key
            ]
            if changed and fnmatch(keys_of, mapping.get("__source__", name)):
                raise ConfigurationError(
                    LakeCode.DELETES_UNSUITABLE,
                    f"stream {keys_of}: stream_maps change its key {', '.join(changed)}, so the "
                    "keys that the tap sends for detect_deletes would match no row; leave the key "
                    "as it is, or take detect_deletes out of the tap's config",
                )
        maps = [
            each
            for each in self._mapper.stream_maps[keys_of]
            if not isinstance(each, RemoveRecordTransform)
        ]
        self._keys[message["stream"]] = [keys_stream(each.stream_alias) for each in maps]
        for each in maps:
            schema = {**message["schema"], KEYS_OF: each.stream_alias}
            yield {**message, "stream": keys_stream(each.stream_alias), "schema": schema}

    def aliases(self, stream: str) -> list[str]:
        """The names of the streams that a stream is mapped to; none if no SCHEMA of it came."""
        return [each.stream_alias for each in self._mapper.stream_maps.get(stream, [])]

    def alias_to_come(self, stream: str) -> str:
        """The name that a stream will be mapped to, if no SCHEMA of it came yet."""
        mapped = self._mapper.stream_maps_dict.get(stream)
        alias = mapped.get("__alias__") if isinstance(mapped, Mapping) else None
        return alias if isinstance(alias, str) else stream

    def activations(self, message: JSON) -> Iterator[JSON]:
        """The ACTIVATE_VERSION messages that one is mapped to."""
        for each in self._mapper.stream_maps.get(message.get("stream", ""), []):
            yield {**message, "stream": each.stream_alias}


def _parsed(line: bytes, lines: RecordLines, number: int) -> JSON:
    location = f"{lines.file} line" if lines.file else "input line"
    try:
        message = from_json(line)
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise ProtocolError(
            LakeCode.INPUT_MALFORMED,
            f"stream {lines.stream}: {location} {number} is not JSON: {error}",
        ) from error
    if not isinstance(message, dict) or not isinstance(message.get("record"), dict):
        raise ProtocolError(
            LakeCode.INPUT_MALFORMED,
            f"stream {lines.stream}: {location} {number} has no record object",
        )
    return message
