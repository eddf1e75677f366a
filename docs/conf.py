"""Sphinx makes the site of the docs with this: `make docs`."""

import rsmq_django
from tools.docs_site import as_restructured_text, with_readable_defaults

project = "rsmq_django"
author = "the rsmq_django maintainers"
version = release = rsmq_django.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["llms.txt"]
html_theme = "furo"
html_title = f"rsmq_django {release}"
html_copy_source = True
myst_heading_anchors = 4
# Docstrings write code between single backticks, as Markdown does.
default_role = "literal"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
# Types of other projects and of our own parts that are not public: no page of this site explains them.
nitpick_ignore_regex = [("py:.*", ".*")]


def setup(app):
    """Connect what prepares docstrings and signatures."""

    def prepare(app, what, name, thing, options, lines):
        lines[:] = as_restructured_text(lines)

    def shorten(*words):
        *_, signature, returned = words
        return with_readable_defaults(signature), returned

    app.connect("autodoc-process-docstring", prepare)
    app.connect("autodoc-process-signature", shorten)
