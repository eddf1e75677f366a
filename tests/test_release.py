"""What `make release-check TAG=...` refuses before it builds anything, and what it reads of the demo's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import release

CHANGES = "# Changelog\n\n## [Unreleased]\n{unreleased}\n## [{version}] - 2026-11-24\n\nThe first release.\n"


@pytest.mark.parametrize(
    ("tag", "version", "unreleased", "refusal"),
    [
        ("v0.1.0", "0.1.0", "", None),
        ("v0.2.0", "0.1.0", "", "the tag is v0.2.0, but __version__ is 0.1.0"),
        ("v0.1.0", "0.0.9", "", "CHANGELOG.md has no heading '## \\[0.1.0\\] - <date>'"),
        ("v0.1.0", "0.1.0", "\n### Fixed\n\n- A line.\n", "has changes under 'Unreleased'.*move them to v0.1.0"),
    ],
)
def test_a_tag_has_the_version_and_all_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str, version: str, unreleased: str, refusal: str | None
):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "rsmq_django").mkdir()
    (tmp_path / "rsmq_django" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES.format(unreleased=unreleased, version=version))

    if refusal is None:
        release.check_tag(tag)
        return
    with pytest.raises(release.Refused, match=refusal):
        release.check_tag(tag)


def test_trial_of_the_demo_shows_how_many_messages_were_settled():
    counted = "1,200 messages settled in 10.0 s: 120 per second, replay included."

    assert release.read_demo(f"2013-02-08: 930 flights\n\n{counted}\nHow counted: ...\n") == counted


def test_demo_without_a_summary_is_refused_with_what_it_printed():
    with pytest.raises(release.Refused, match="without a summary:\nStopped, with everything that was started"):
        release.read_demo("Stopped, with everything that was started.\n")
