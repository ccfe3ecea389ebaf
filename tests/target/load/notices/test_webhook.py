"""A receiver that does not take a notice is one warning, and nothing comes of it for the run."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest

from servers.serving import self_signed
from servers.webhook import ENDLESS, SECRET, SILENT, Webhook, listening
from target.load.notices.notified_runs import ALL, LINES, fail, journals, succeed
from target.loading import Lake
from target_spark_lake.load import notices

pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (500, "its answer is 500"),
        (302, "its answer is 302, a redirect that is not followed"),
        (SILENT, "no complete response within 5 s"),
        (ENDLESS, "its response has no end"),
    ],
)
def test_bad_answer_is_one_warning(
    lake: Lake,
    hook: Webhook,
    answer: int | str,
    said: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bad answer is one warning and changes nothing."""
    if answer == SILENT:
        monkeypatch.setattr(notices, "SECONDS", 0.3)
        said = "no complete response within 0 s"
    hook.answer, hook.location = answer, hook.url
    warned_of(lake, hook.url, said, caplog)
    assert hook.paths == [f"/services/{SECRET}"] * 2


def warned_of(lake: Lake, url: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """A good run and a bad one are what they are without a receiver, but for one warning each."""
    settings = {"notify": [{"url": url, "on": ALL}]}
    place = "/".join(url.split("/")[:3])
    with caplog.at_level(logging.WARNING):
        succeed(lake, **settings)
        good = [each.getMessage() for each in caplog.records]
        caplog.clear()
        fail(lake, **settings)
        bad = [each.getMessage() for each in caplog.records]
    assert good == [f"notify: {place} was not notified that a run succeeded: {said}"]
    assert bad == [f"notify: {place} was not notified that a run failed: {said}"]
    assert (lake.rows("s", "id"), lake.state()) == ([(1,), (2,)], {"x": 1})
    assert [each["outcome"] for each in journals(lake)] == ["succeeded", "failed"]
    assert SECRET not in json.dumps(journals(lake))


def test_unreachable_receiver_is_one_warning(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """An unreachable receiver is one warning and changes nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # Bound, but nobody listens.
        url = f"http://127.0.0.1:{free.getsockname()[1]}/{SECRET}"
        warned_of(lake, url, "Connection refused", caplog)


def test_unknown_host_is_one_warning(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        succeed(lake, notify=[{"url": f"https://hooks.invalid/{SECRET}", "on": ALL}])
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("notify: https://hooks.invalid was not notified that a run succeeded: ")
    assert SECRET not in line


def test_untrusted_certificate_sends_nothing(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An untrusted certificate is one warning, and nothing is sent."""
    with listening(self_signed(tmp_path / "certificate")) as hook, caplog.at_level(logging.WARNING):
        succeed(lake, notify=[{"url": hook.url, "on": ALL}])
        assert hook.paths == []
    (line,) = [each.getMessage() for each in caplog.records]
    assert "certificate verify failed" in line


def test_redirect_is_followed_within_its_scheme(
    lake: Lake, hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    """A redirect is followed with the content, but never to another scheme."""
    settings = {"notify": [{"url": hook.url, "on": ALL}]}
    hook.answer, hook.location = 307, f"{hook.root}/elsewhere"
    succeed(lake, **settings)
    assert hook.paths == [f"/services/{SECRET}", "/elsewhere"]
    assert hook.outcomes() == [("succeeded", f"test: {LINES}")]
    hook.answer, hook.location = 307, hook.root.replace("http:", "https:") + "/elsewhere"
    with caplog.at_level(logging.WARNING):
        succeed(lake, **settings)
    assert len(hook.notices) == 1
    assert "its answer is 307, a redirect that is not followed" in caplog.text


def test_environment_proxy_is_used(
    lake: Lake, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", hook.root)
    succeed(lake, notify=[{"url": "http://hooks.invalid/x", "on": ALL}])
    assert hook.paths == ["http://hooks.invalid/x"]
