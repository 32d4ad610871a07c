"""Splits lines of TVMScript, LLVM IR and assembly into tokens, and marks them up. Pure functions.

Each line is split alone, so that a window on a large text needs no other lines. A string without a closing
quote extends to the end of its line: a search for the end from every quote would take quadratic time.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from markupsafe import Markup, escape

MAX_LINE_CHARACTERS = 2000
"""Longer lines, such as tables of constants, are cut."""


class Language(StrEnum):
    """What a text is written in."""

    SCRIPT = "script"
    LLVM = "llvm"
    ASSEMBLY = "assembly"


class Token(NamedTuple):
    """A part of a line. ``kind`` is one of ``KINDS``, or empty for plain text."""

    kind: str
    text: str


KINDS = frozenset(
    {"comment", "string", "number", "keyword", "builtin", "type", "global", "local", "label", "definition"}
)

Mark = tuple[int, int]
"""The first character of a marked part, and the one after its last."""

Linker = Callable[[str], str | None]
"""The address that the name of a function leads to; None for a name that leads nowhere."""

_SCRIPT = re.compile(
    r"""(?P<comment>\#.*)
    |(?P<string>"(?:[^"\\]|\\.)*+(?:"|\\?$)|'(?:[^'\\]|\\.)*+(?:'|\\?$))
    |(?P<type>\b(?:T|R|I)\.(?:Buffer|Tensor|Tuple|Shape|Prim|Object|handle|ptr|void|bool|u?int\d+|float\d\w*|bfloat16)\b)
    |(?P<builtin>@?\b(?:T|R|I)\.[A-Za-z_][\w.]*)
    |(?P<called>\bcls\.\w+)
    |(?P<defined>\b(?:def|class)\s+\w+)
    |(?P<keyword>\b(?:and|as|assert|elif|else|False|for|from|if|import|in|is|lambda|None|not|or|pass|return|True|while|with)\b)
    |(?P<number>\b(?:0x[0-9a-fA-F]+|\d[\d_]*(?:\.\d*)?(?:e[+-]?\d+)?)\b)
    |(?P<plain>\w+|\s+|.)""",
    re.VERBOSE,
)
_LLVM = re.compile(
    r"""(?P<comment>;.*)
    |(?P<label>^[\w.$-]+(?=:))
    |(?P<string>c?"(?:[^"\\]|\\.)*+(?:"|\\?$))
    |(?P<called>@(?:[\w.$-]+|"[^"]*"))
    |(?P<local>%(?:[\w.$-]+|"[^"]*"))
    |(?P<builtin>![\w.]*|\#\d+)
    |(?P<type>\b(?:i\d+|half|bfloat|float|double|fp128|ptr|void|label|metadata|token|vscale)\b)
    |(?P<number>\b0x[0-9a-fA-F]+\b|-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)
    |(?P<word>[A-Za-z_][\w.]*)
    |(?P<plain>\s+|.)""",
    re.VERBOSE,
)
_ASSEMBLY = re.compile(
    r"""(?P<comment>(?:\#(?![\d-])|//|;).*)
    |(?P<label>^[\w.$@]+(?=:))
    |(?P<string>"(?:[^"\\]|\\.)*+(?:"|\\?$))
    |(?P<builtin>(?<![\w%])\.[A-Za-z_][\w.]*)
    |(?P<local>%[a-z]\w*|\b(?:[xwvqdsbhzp]\d{1,2}(?:\.\w+)?|sp|lr|fp|ra|wzr|xzr|zero|[at]\d|f[ast]\d{1,2})\b)
    |(?P<number>[$\#]?-?\b(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?)\b)
    |(?P<word>[A-Za-z_][\w.$@]*)
    |(?P<plain>\s+|.)""",
    re.VERBOSE,
)
_OPERATIONS = re.compile(
    r"""f(?:add|sub|mul|div|rem|neg|cmp|ptrunc|pext|ptoui|ptosi)|[us]itofp|u?s?(?:add|sub|mul|div|rem|min|max)
    |[al]?shr|shl|and|x?or|icmp|load|store|alloca|getelementptr|inbounds|nuw|nsw|exact|disjoint|nneg|phi|select
    |br|switch|ret|unreachable|call|tail|musttail|invoke|fence|zext|sext|trunc|bitcast|inttoptr|ptrtoint
    |addrspacecast|extractelement|insertelement|shufflevector|extractvalue|insertvalue|freeze|define|declare
    |internal|private|dso_local|hidden|local_unnamed_addr|unnamed_addr|constant|global|align|to|x|target|triple
    |datalayout|source_filename|attributes|splat|zeroinitializer|undef|poison|null|true|false|weak|linkonce_odr
    |noalias|nocapture|readonly|writeonly|noundef|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|o[egl][qte]|u[egl][qte]
    |sgt|slt|sge|sle|eq|ne|volatile|atomicrmw|cmpxchg""",
    re.VERBOSE,
)
_PATTERNS = {Language.SCRIPT: _SCRIPT, Language.LLVM: _LLVM, Language.ASSEMBLY: _ASSEMBLY}


def tokens(line: str, language: Language) -> list[Token]:
    """Split a line into tokens, which concatenate to the line."""
    found: list[Token] = []
    has_mnemonic = False
    for match in _PATTERNS[language].finditer(line):
        kind, text = match.lastgroup or "", match[0]
        if kind == "defined":
            name = re.search(r"\w+$", text)
            at = name.start() if name else len(text)
            found += [Token("keyword", text[:at]), Token("definition", text[at:])]
        elif kind == "called" and text.startswith("cls."):
            found += [Token("", "cls."), Token("global", text[4:])]
        elif kind == "called":
            found.append(Token("global", text))
        elif kind == "word" and language is Language.ASSEMBLY:
            found.append(Token("" if has_mnemonic else "keyword", text))
            has_mnemonic = True
        elif kind == "word":
            found.append(Token("keyword" if _OPERATIONS.fullmatch(text) else "", text))
        elif kind == "builtin" and language is Language.ASSEMBLY:
            found.append(Token("builtin", text))
            has_mnemonic = True
        else:
            found.append(Token(kind if kind in KINDS else "", text))
    return found


def visible(line: str) -> str:
    """A line without its end. Characters that are invisible, or change the text's direction, are replaced."""
    line = line.rstrip("\r\n")
    if len(line) > MAX_LINE_CHARACTERS:
        left = len(line) - MAX_LINE_CHARACTERS
        line = f"{line[:MAX_LINE_CHARACTERS]} … {left:,} more characters"
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() or letter == "\t" else "\ufffd" for letter in line)


def marked_up(
    line: str, language: Language, marks: Sequence[Mark] = (), link: Linker | None = None
) -> Markup:
    """A visible line as HTML: every text is escaped, and only our own elements are added.

    Args:
        line: the line, as ``visible`` returns it.
        language: what it is written in.
        marks: the parts that a diff marks, in order.
        link: where the names of functions lead.
    """
    pieces: list[str] = []
    start = 0
    for kind, text in _joined(tokens(line, language)):
        piece = "".join(_with_marks(text, start, marks)) if marks else escape(text)
        address = link(text.lstrip("@").strip('"')) if link and kind == "global" else None
        if address is not None:
            pieces.append(f'<a class="t-{kind}" href="{escape(address)}">{piece}</a>')
        else:
            pieces.append(f'<span class="t-{kind}">{piece}</span>' if kind else piece)
        start += len(text)
    return Markup("".join(pieces))


def _joined(found: Sequence[Token]) -> Iterator[Token]:
    """The tokens, with adjacent plain ones merged."""
    plain = ""
    for token in found:
        if token.kind:
            if plain:
                yield Token("", plain)
            plain = ""
            yield token
        else:
            plain += token.text
    if plain:
        yield Token("", plain)


def _with_marks(text: str, start: int, marks: Sequence[Mark]) -> Iterator[str]:
    """A text as HTML, with the parts that a diff marks."""
    at, end = start, start + len(text)
    for first, last in marks:
        first, last = max(first, at), min(last, end)
        if first >= last:
            continue
        yield escape(text[at - start : first - start])
        yield f"<mark>{escape(text[first - start : last - start])}</mark>"
        at = last
    yield escape(text[at - start :])
