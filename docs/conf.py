"""How Sphinx builds these pages: `make docs`, into build/docs. Nothing is fetched."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import ringbuf

project = "ringbuf"
author = "The ringbuf authors"
copyright = "The ringbuf authors"  # as Sphinx calls it
release = version = ringbuf.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "plain_docstrings"]
exclude_patterns = ["_ext"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
smartquotes = False  # messages are to be found by their text

html_theme = "furo"
html_title = f"ringbuf {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False
html_copy_source = False

copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

default_role = "code"  # `this` in a docstring
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
# Types of others, and what ours are called inside: there are no pages about them here.
nitpick_ignore_regex = [("py:.*", r"(?!ringbuf\.[A-Z]).*")]
