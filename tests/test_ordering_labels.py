"""Every atomic access of the C library says which order it has, why, and whom it pairs with.

    /* take:B acquire, pairs with commit:C: the payload is as it was committed */
    /* take:A relaxed: a hint; take:B looks again
     * take:C relaxed on failure: somebody else has it */

A label stands in a comment above its call. Of several labels in one comment the first belongs to the first call
that follows, the second to the second; "on failure" speaks of the compare-and-swap that the label before it speaks of.
What pairs says so on both sides; only a relaxed access may pair with nobody.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "src/ringbuf_c").rglob("*.[ch]"))

NAME = r"[a-z_]\w*:[A-Z]\w*"
ORDER = "relaxed|acquire|release|acq_rel|seq_cst"
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
LABEL = re.compile(rf"({NAME}) ({ORDER})\b( on failure)?(?:, pairs with ({NAME}(?:(?:, | and |, and ){NAME})*))?(: (?!\*/)\S)?")
CALL = re.compile(r"\b(atomic_\w+)\s*\(|\b__(?:atomic|sync)_\w+|^}", re.MULTILINE)
FENCES = ("atomic_thread_fence", "atomic_signal_fence")


class Label(NamedTuple):
    name: str
    order: str
    failure: bool
    partners: frozenset
    where: str


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def labels_of(comment, where):
    text = re.sub(r"\s*\n\s*\*?\s*", " ", comment)
    for name, order, failure, partners, reason in LABEL.findall(text):
        if not reason:
            yield f"{where}: {name} does not say why: '{name} {order}[, pairs with ...]: reason'"
        yield Label(name, order, bool(failure), frozenset(re.findall(NAME, partners)), where)


def arguments(code, start):
    """The text between the parenthesis that opens at `start` and the one that closes it."""
    depth = 0
    for end in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[end], 0)
        if not depth:
            break
    return code[start:end]


def check_file(name, text):
    """Yield each Label of a file, and a sentence for each thing that is wrong with it."""
    code = STRING.sub(blank, COMMENT.sub(blank, text))
    events = [(m.start(), m) for m in COMMENT.finditer(text)] + [(m.start(), m) for m in CALL.finditer(code)]
    waiting = []  # labels whose call is still to come
    for at, match in sorted(events, key=lambda event: event[0]):
        where = f"{name}:{text.count(chr(10), 0, at) + 1}"
        found = list(labels_of(match[0], where)) if match.re is COMMENT else []
        yield from found
        found = [label for label in found if isinstance(label, Label)]
        if waiting and (found or match[0] == "}"):
            yield from (f"{label.where}: no atomic call belongs to {label.name}" for label in waiting)
            waiting = []
        waiting += found
        if match.re is COMMENT or match[0] == "}":
            continue

        call = match[1]
        if call is None:
            yield f"{where}: {match[0]} is a compiler's own; use <stdatomic.h>"
        elif call == "atomic_init":  # has no order: nobody else can look yet
            del waiting[:1]
        elif not call.endswith("_explicit") and call not in FENCES:
            yield f"{where}: {call}() does not name its order; use {call}_explicit()"
        elif not waiting:
            yield f"{where}: {call}() stands under no label"
        else:
            orders = re.findall(rf"\bmemory_order_({ORDER})\b", arguments(code, match.end() - 1))
            label = waiting.pop(0)
            if label.order not in orders[:1]:
                yield f"{where}: {label.name} says {label.order}, the call says {', '.join(orders) or 'nothing'}"
            if waiting and waiting[0].failure:
                label = waiting.pop(0)
                if label.order not in orders[1:]:
                    yield f"{where}: {label.name} says {label.order} on failure, the call says {', '.join(orders)}"


def check(sources):
    """What is wrong with {file name: text}, as a list of sentences."""
    labels, wrong = {}, []
    for name, text in sources.items():
        for found in check_file(name, text):
            if not isinstance(found, Label):
                wrong.append(found)
            elif found.name in labels:
                wrong.append(f"{found.where}: {found.name} is at {labels[found.name].where} already")
            else:
                labels[found.name] = found
    for label in labels.values():
        if not label.partners and label.order != "relaxed":
            wrong.append(f"{label.where}: {label.name} is {label.order} but pairs with nobody")
        for partner in sorted(label.partners):
            if partner not in labels:
                wrong.append(f"{label.where}: {label.name} pairs with {partner}, which does not exist")
            elif label.name not in labels[partner].partners:
                wrong.append(f"{label.where}: {label.name} pairs with {partner}, which does not say so")
    return wrong


def test_every_atomic_access_is_labelled_and_every_pairing_is_mutual():
    wrong = check({path.name: path.read_text() for path in SOURCES})
    assert not wrong, "\n".join(wrong)


GOOD = """
static void put(struct box *box)
{
	/* put:A relaxed: only we write it */
	atomic_store_explicit(&box->hint, 1, memory_order_relaxed);
	/* put:B release, pairs with get:A and
	 * peek:A: the bytes are written before the flag */
	atomic_store_explicit(&box->full, true, memory_order_release);
}
static bool get(struct box *box)
{
	bool full = true;
	/* get:A acquire, pairs with put:B: the flag is read before the bytes.
	 * get:B relaxed on failure: nothing is read then.
	 * get:C relaxed: a count for people */
	if (!atomic_compare_exchange_strong_explicit(&box->full, &full, false,
						     memory_order_acquire, memory_order_relaxed))
		return false;
	atomic_fetch_add_explicit(&box->gets, 1, memory_order_relaxed);
	return true;
}
static bool peek(struct box *box)
{
	/* peek:A seq_cst, pairs with put:B: atomic_load() would do, says this comment */
	return atomic_load_explicit(&box->full, memory_order_seq_cst);
}
"""

MUTANTS = {
    "a label is missing": ("/* put:A relaxed: only we write it */", "/* only we write it */"),
    "a label has no reason": ("put:A relaxed: only we write it", "put:A relaxed"),
    "a partner is misspelt": ("pairs with put:B: the flag", "pairs with put:C: the flag"),
    "a partner does not know": ("get:A and\n\t * peek:A", "get:A"),
    "an acquire pairs with nobody": ("acquire, pairs with put:B: the flag", "acquire: the flag"),
    "the call is weaker than its label": ("true, memory_order_release", "true, memory_order_relaxed"),
    "a failed exchange has the order": ("_acquire, memory_order_relaxed", "_relaxed, memory_order_acquire"),
    "a failure has another order": ("get:B relaxed on", "get:B acquire on"),
    "an order is implicit": ("atomic_load_explicit(&box->full, memory_order_seq_cst)", "atomic_load(&box->full)"),
    "a builtin": ("atomic_load_explicit(&box->full, memory_order_seq_cst)", "__atomic_load_n(&box->full, 5)"),
    "a call without its own label": ("\n\t * get:C relaxed: a count for people", ""),
    "a label whose call is gone": ("\tatomic_fetch_add_explicit(&box->gets, 1, memory_order_relaxed);\n", ""),
    "a name is used twice": ("get:C relaxed", "put:A relaxed"),
}


def test_the_check_passes_good_code():
    assert check({"good.c": GOOD}) == []


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_check_notices(change):
    assert GOOD.count(change[0]) == 1
    assert check({"mutant.c": GOOD.replace(*change)})
