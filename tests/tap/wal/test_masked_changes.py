"""Masks hold for changes of the log too: inserts, updates, new keys, deletes, values that the log
leaves out.
"""

from __future__ import annotations

import hmac
import json
from pathlib import Path

from servers.postgresql import PostgreSQL
from tap.dying import Pipe
from tap.opened import filled, login

TABLE = """
CREATE TABLE people (id bigint PRIMARY KEY, name text, born date, card varchar(20), note text,
  plain integer);
ALTER TABLE people ALTER COLUMN note SET STORAGE EXTERNAL;
INSERT INTO people VALUES (555105551, 'Ada Planted', '1815-12-10', '4111222233334444',
  repeat('planted ', 1000), 1)
"""
MASKS = {"id": "hash", "name": "redact", "born": "null", "card": "last4", "note": "hash"}
PLANTED = (
    "555105551",
    "555205552",
    "555305553",
    "Planted",
    "1815-12-10",
    "1906-12-09",
    "41112222",
    "55556666",
    "planted",
)


def hashed(text: str) -> str:
    """What HMAC-SHA-256 makes of a text."""
    return hmac.digest(b"salt", text.encode(), "sha256").hex()


def test_logged_changes_show_no_masked_value(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with filled(postgresql, TABLE) as (database, connection):
        options = {"public-people": {"replication_method": "LOG_BASED", "mask": MASKS}}
        settings = {
            "schemas": ["public"],
            "stream_options": options,
            "mask_key": "salt",
            "log_publication": "p",
        }
        pipe = Pipe(tmp_path, login(database, log_slot=database.name, **settings))
        first = pipe.run()
        pipe.save(first.final)
        connection.execute(
            "INSERT INTO people VALUES (555205552, 'Grace Planted', '1906-12-09', "
            "'5555666677778888', 'planted', 2);UPDATE people SET plain = 3 WHERE id = "
            "555105551;UPDATE people SET id = 555305553 WHERE id = 555105551;DELETE FROM people "
            "WHERE id = 555205552"
        )
        later = pipe.run()
        connection.execute("SELECT pg_drop_replication_slot(%s)", (database.name,))
    text = json.dumps([first.messages, later.messages])
    assert [each for each in PLANTED if each in text] == []
    (copied,) = [each["record"] for each in first.messages if each["type"] == "RECORD"]
    changes = [each["record"] for each in later.messages if each["type"] == "RECORD"]
    note = hashed("planted " * 1000)
    ada = {
        "id": hashed("555105551"),
        "name": "***",
        "born": None,
        "card": "4444",
        "note": note,
        "plain": 1,
    }
    assert {name: copied[name] for name in ada} == ada
    shown = [
        (each["id"], each.get("name"), each.get("card"), each.get("note"), each.get("plain"))
        for each in changes
    ]
    assert shown[:2] == [
        (hashed("555205552"), "***", "8888", hashed("planted"), 2),
        (hashed("555105551"), "***", "4444", None, 3),
    ]
    assert json.loads(changes[1]["_sdc_unchanged"]) == ["note"]
    assert [(each["id"], each["_sdc_deleted_at"] is not None) for each in changes[2:]] == [
        (hashed("555105551"), True),
        (hashed("555305553"), False),
        (hashed("555205552"), True),
    ]
    assert changes[3]["note"] == note and changes[3]["card"] == "4444"
