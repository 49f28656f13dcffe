"""docs/troubleshooting.md quotes messages; each is still in the sources, word for word, with `…` where they fill something in."""

import re

from pages import ROOT

PAGE = ROOT / "docs/troubleshooting.md"
SOURCES = [path for path in (ROOT / "src/ringbuf").rglob("*") if path.suffix in (".py", ".pyx")]
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)+)"')


def messages():
    """All text in the sources: neighbouring literals in one, and `…` for each {expression}."""
    found = []
    for path in SOURCES:
        end, source = None, path.read_text()
        for literal in LITERAL.finditer(source):
            text = re.sub(r"\{[^{}]*\}", "…", literal[1]).replace(r"\"", '"')
            if end is not None and source[end : literal.start()].strip() in ("", "f"):
                found[-1] += text
            else:
                found.append(text)
            end = literal.end()
    return found


def test_each_quoted_message_is_in_the_sources():
    said, quoted = messages(), re.findall(r"^`(.+)`\n: ", PAGE.read_text(), re.MULTILINE)
    assert len(quoted) > 50 and len(quoted) == len(set(quoted))
    gone = [text for text in quoted if not any(text in message for message in said)]
    assert not gone, f"nothing says this any more; mend or remove the entries: {gone}"
