"""The pages that people read, and the blocks of code in them.

A block of `python` is a program of its own; a block of `text` right below it is what it prints, with `...` for what differs
from run to run. In a block of `console`, `$ ` begins a command and the lines below are its output. A block of `sh` is commands
without output. A block of `diff` is two programs that print the same. These comments are no part of the page:

    <!-- invisible-code-block: python     goes before the next block of python
    ... -->
    <!-- skip: next "reason" -->          the next block does not run, for that reason
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

from sybil import Document
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, FencedCodeBlockLexer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROSE = {"text", "json"}  # languages of blocks that nobody runs


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    code: str
    output: str
    """What the page says that it prints."""
    skipped: str
    """Why it does not run."""

    @property
    def name(self):
        return f"{self.page.relative_to(ROOT).with_suffix('')}:{self.line}"


def blocks(page):
    """All blocks of code of a page that are there to be run."""
    document = Document(page.read_text(), str(page))
    lexers = FencedCodeBlockLexer(".*"), DirectiveInHTMLCommentLexer("skip|invisible-code-block")
    parts = sorted((part for lexer in lexers for part in lexer(document)), key=lambda part: part.start)
    found, before, reason = [], "", ""
    for part, below in zip(parts, [*parts[1:], None]):
        line = document.text.count("\n", 0, part.start) + 1
        if part.lexemes.get("directive") == "skip":
            action, _, why = part.lexemes["arguments"].partition(" ")
            assert action == "next" and why, f"{page}:{line}: it should be `skip: next \"reason\"`"
            reason = ast.literal_eval(why)
        elif "directive" in part.lexemes:
            before = str(part.lexemes["source"])
        elif part.lexemes["language"] not in PROSE and not part.lexemes["language"].startswith("{"):
            output = ""
            if below is not None and below.lexemes.get("language") == "text":
                if not document.text[part.end : below.start].strip():
                    output = str(below.lexemes["source"])
            found.append(Block(page, line, part.lexemes["language"], before + str(part.lexemes["source"]), output, reason))
            before = reason = ""
    return found


def before_and_after(code):
    """The two programs of a block of diff."""
    return ["".join(line[1:] or "\n" for line in code.splitlines(keepends=True) if line[0] != gone) for gone in "+-"]


def commands(code):
    """The commands of a block of console, each with the lines below it."""
    found = []
    for line in code.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line.removeprefix("$ ").rstrip(), []))
        else:
            found[-1][1].append(line)
    return [(command, "".join(output)) for command, output in found]


def without_numbers(text):
    """What stays the same from run to run."""
    return re.sub(r"\d+(?:[.,]\d+)*", "0", text)
