"""The page docs/how-to/admin.md: its code runs, and it names every permission."""

import re
from pathlib import Path

from django.contrib.auth.models import Permission

from rsmq_django.core import Queue

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "admin.md").read_text("utf-8")


def test_its_code_runs(mail: Queue, dead: Queue):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})  # noqa: S102 - our own documentation


def test_it_names_permissions_that_exist():
    named = set(re.findall(r"`rsmq\.(\w+)`", PAGE))

    existing = set(Permission.objects.filter(content_type__app_label="rsmq").values_list("codename", flat=True))
    assert named and named <= existing
