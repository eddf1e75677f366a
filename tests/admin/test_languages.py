"""The pages use the language of the project: every text can be translated, and has a German translation."""

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client as Browser
from django.utils.translation import override

import rsmq_django
from rsmq_django.core import Queue
from rsmq_django.pipeline.apps import PipelineConfig
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import text_of, told

PACKAGE = Path(rsmq_django.__file__).parent
LOCALES = PACKAGE / "locale"
#: The functions that look a text up, under the names that our modules give them.
LOOKUPS = {"_", "gettext", "gettext_lazy", "ngettext"}
PLACES = re.compile(r"%\(\w+\)[a-z]|%[a-z]")


def catalogue(language: str) -> dict[Any, str]:
    with (LOCALES / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
        return gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]


def texts_of_code() -> Iterator[str]:
    """Return the first text of each lookup in the modules of the admin."""
    for room in ("admin", "live", "models", "."):
        for path in (PACKAGE / room).glob("*.py" if room == "." else "**/*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOKUPS:
                    if isinstance(node.args[0], ast.Constant):
                        yield str(node.args[0].value)


def texts_of_templates() -> Iterator[str]:
    for path in (PACKAGE / "templates").rglob("*.html"):
        if path.parent.name == "history":  # the pipeline's own
            continue
        content = path.read_text()
        yield from re.findall(r'{% translate "((?:[^"]|"(?! %}))+)" %}', content)
        for text in re.findall(r"{% blocktranslate[^%]*%}(.*?){% endblocktranslate %}", content, re.DOTALL):
            yield re.sub(r"{{ (\w+) }}", r"%(\1)s", text.partition("{% plural %}")[0])


@pytest.fixture
def german(settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"


def test_every_text_of_the_admin_is_translated():
    known = {key[0] if isinstance(key, tuple) else key for key in catalogue("de")}

    missing = {*texts_of_code(), *texts_of_templates()} - known

    assert not missing, "run `make messages`, fill in what is new in django.po, and run it again"


def test_translations_keep_the_places_for_values():
    for key, text in catalogue("de").items():
        original = key[0] if isinstance(key, tuple) else key
        if original:
            assert set(PLACES.findall(text)) <= set(PLACES.findall(original)), original
            assert text, original


def test_the_compiled_catalogue_is_the_written_one():
    source = (LOCALES / "de/LC_MESSAGES/django.po").read_text()
    written = {ast.literal_eval(text) for text in re.findall(r'^msgstr(?:\[\d\])? (".+")$', source, re.MULTILINE)}

    assert written == {text for text in catalogue("de").values() if "Content-Type" not in text}
    assert "fuzzy" not in source


@pytest.mark.usefixtures("german")
def test_the_list_of_queues_speaks_german(browser: Browser, mail: Queue, dead: Queue):
    text = text_of(browser.get(QUEUES))

    for word in (
        "Nachrichten pro Minute",
        "Bereit",
        "In Bearbeitung",
        "Älteste Bereite",
        "1 Stunde",
        "automatisch aktualisieren",
    ):
        assert word.lower() in text.lower(), word
    assert "Delayed" not in text and "in flight" not in text


@pytest.mark.usefixtures("german")
def test_questions_have_a_german_singular_and_the_history_a_german_name(browser: Browser, mail: Queue):
    mail.send(b"x")

    assert "Das entfernt 1 Nachricht der Queue mail" in text_of(browser.get(f"{QUEUES}mail/purge/"))
    with override("de"):
        assert str(PipelineConfig.verbose_name) == "RSMQ-Verlauf"


@pytest.mark.usefixtures("german")
def test_actions_and_their_outcomes_speak_german(browser: Browser, mail: Queue):
    message = mail.send(b"x", delay_s=60)
    page = browser.get(f"{MESSAGES}mail_2F{message}/change/")
    assert "Jetzt ausführen" in page.content.decode() and "kann empfangen werden in" in text_of(page)

    done = browser.post(
        f"{MESSAGES}mail_2F{message}/operate/", {"action": "run_now", "seen": f"0 mail/{message}"}, follow=True
    )

    assert told(done) == ["Jetzt ausführen · mail: 1 von 1 erledigt"]
