"""Configs in JSON and YAML, and the `.env` beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from singer_spark.core.config_file import read_config, read_variables, usual_config
from singer_spark.errors import ConfigurationError, redact


def test_yaml_has_comments_and_json_types(tmp_path: Path) -> None:
    """A bare `no`, `12:30` or date is a string, as in YAML 1.2."""
    (tmp_path / "tap.yml").write_text(
        "# the shop\n"
        "jdbc_url: jdbc:sqlite:shop.db  # a file\n"
        "tables: [no, 12:30, 2024-01-31, 0x1F, 1_0, 'true']\n"
        "numbers: [1, -2, 1.5, 1e3, .5]\n"
        "others: [true, False, ~, null, ]\n"
        "empty:\n"
        "base: &base {a: 1}\n"
        "more: {<<: *base, b: 2}\n"
    )
    assert read_config(tmp_path / "tap.yml", "--config") == {
        "jdbc_url": "jdbc:sqlite:shop.db",
        "tables": ["no", "12:30", "2024-01-31", "0x1F", "1_0", "true"],
        "numbers": [1, -2, 1.5, 1000.0, 0.5],
        "others": [True, False, None, None],
        "empty": None,
        "base": {"a": 1},
        "more": {"a": 1, "b": 2},
    }


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.json", '{"a": }', ", line 1, column 7: Expecting value"),
        ("x.yaml", "a: 1\n\tb: 2\n", ", line 2, column 1: found character "),
        ("x.yml", "a: [1\nb: 2\n", ", line 2, column 2: "),
        ("x.yml", "- a\n", ": it must hold a YAML mapping"),
        ("x.json", "[]", ": it must hold a JSON object"),
        ("x.json", "\xff", ": it must hold"),
        (
            "x.yml",
            "!!python/object:os.system {}\n",
            ", line 1, column 1: could not determine a constructor",
        ),
    ],
)
def test_malformed_config_is_named_with_position(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    (tmp_path / name).write_text(content if content != "\xff" else "3")
    with pytest.raises(ConfigurationError) as raised:
        read_config(tmp_path / name, "--config")
    assert str(raised.value).startswith(f"RUN-002 --config {tmp_path / name}{problem}")


def test_env_variables_are_set_unless_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of `.env` are set unless they already are, and are never shown."""
    monkeypatch.setenv("SHOP_HOST", "real")
    for name in ("SHOP_PASSWORD", "SHOP_LINK", "SHOP_EMPTY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / ".env").write_text(
        "# secrets\nexport SHOP_PASSWORD='planted ${HOME} "
        "#1'\nSHOP_HOST=file\nSHOP_LINK=a${HOME}b\nSHOP_EMPTY\n"
    )
    read_variables(tmp_path)
    assert os.environ["SHOP_PASSWORD"] == "planted ${HOME} #1"
    assert (os.environ["SHOP_HOST"], os.environ["SHOP_LINK"]) == ("real", "a${HOME}b")
    assert "SHOP_EMPTY" not in os.environ
    assert "planted" not in redact("it is planted ${HOME} #1")


def test_two_configs_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert usual_config("tap") == "tap.json"
    Path("tap.yaml").touch()
    assert usual_config("tap") == "tap.yaml"
    Path("tap.json").touch()
    with pytest.raises(ConfigurationError, match=r"RUN-003 .*tap\.yaml.*--tap-config"):
        usual_config("tap")
