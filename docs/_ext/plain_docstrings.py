"""Docstrings as they are written here, for Sphinx: `name: text` at the beginning of a line explains a parameter or an attribute.

Such a line becomes an entry of a definition list, and what is indented below it belongs to it. All else is left as it is.
Signatures of methods written in Cython lose their `self`. What `ringbuf` calls its own is found in the files where it
stands.
"""

import re
import sys

from sphinx.pycode import ModuleAnalyzer

ENTRY = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): (.+)")


def setup(app):
    app.connect("builder-inited", _find_attributes)
    app.connect("autodoc-process-docstring", _mark_entries)
    app.connect("autodoc-process-signature", _without_self)
    return {"parallel_read_safe": True}


def _find_attributes(app):
    """Have texts below attributes found in `ringbuf`, which is what the classes name as their module."""
    whole = ModuleAnalyzer.for_module("ringbuf")
    whole.analyze()
    for name, module in sorted(sys.modules.items()):
        if name.startswith("ringbuf.") and (getattr(module, "__file__", None) or "").endswith(".py"):
            part = ModuleAnalyzer.for_module(name)
            part.analyze()
            whole.attr_docs.update(part.attr_docs)
            whole.tagorder.update(part.tagorder)


def _mark_entries(app, what, name, obj, options, lines):
    marked, inside = [], False
    for line in lines:
        found = ENTRY.match(line)
        ends = inside and line and not line.startswith(" ")
        if (found and not inside) or (ends and not found):
            marked.append("")
        if found:
            marked += [", ".join(f"``{entry}``" for entry in found[1].split(", ")), f"    {found[2]}"]
        else:
            marked.append(line)
        inside = bool(found) or (inside and not ends)
    lines[:] = marked


def _without_self(app, what, name, obj, options, signature, returns):
    if what == "method" and signature and signature.startswith("(self"):
        return "(" + signature.removeprefix("(self").removeprefix(", "), returns
    return None
