"""Settings of a project with django-jazzmin."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as OURS

INSTALLED_APPS = ["jazzmin", *OURS]
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
