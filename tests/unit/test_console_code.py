"""Tokens, differences and windows of the compiler's texts: pure functions over untrusted lines."""

import gc
import random
import weakref

import pytest

from app.console.code_diff import Budget, changes, word_marks
from app.console.code_text import MAX_FUNCTIONS, Fate, RowKind, Text, compare, lives, matching
from app.console.code_tokens import MAX_LINE_CHARACTERS, Language, Token, marked_up, tokens, visible
from app.console.compiler_reading import TextCache, compared_texts


def module(**functions: str) -> Text:
    """A module in TVMScript of functions with a body each."""
    parts = (
        f"    @T.prim_func(private=True)\n    def {name}(x: T.Buffer((4,))):\n        {body}\n"
        for name, body in functions.items()
    )
    return Text("# imports\n\n@I.ir_module\nclass Module:\n" + "\n".join(parts))


SCRIPT, LLVM, ASSEMBLY = Language


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        (SCRIPT, "    def add(x):  # why", {"keyword": "def ", "definition": "add", "comment": "# why"}),
        (SCRIPT, 'T.Buffer((4,), "float32")', {"type": "T.Buffer", "number": "4", "string": '"float32"'}),
        (SCRIPT, "R.call_tir(cls.fused_add, (x,))", {"builtin": "R.call_tir", "global": "fused_add"}),
        (SCRIPT, "for i in T.serial(8):", {"keyword": "for", "builtin": "T.serial", "number": "8"}),
        (LLVM, "  %3 = fmul <4 x float> %1, %2", {"local": "%3", "keyword": "fmul", "type": "float"}),
        (LLVM, "for_body_i: ; preds = %a", {"label": "for_body_i", "comment": "; preds = %a"}),
        (LLVM, "call void @add_compute_(ptr %x)", {"global": "@add_compute_", "type": "void"}),
        (ASSEMBLY, "\tvfmadd231ps\t(%rdi), %zmm1, %zmm0", {"keyword": "vfmadd231ps", "local": "%rdi"}),
        (ASSEMBLY, "\tfmla\tv0.4s, v1.4s, v2.s[0]", {"keyword": "fmla", "local": "v0.4s"}),
        (ASSEMBLY, ".LBB0_1:", {"label": ".LBB0_1"}),
        (ASSEMBLY, "\t.p2align\t4", {"builtin": ".p2align", "number": "4"}),
    ],
)  # fmt: skip
def test_a_line_has_the_tokens_of_its_language(
    language: Language, line: str, expected: dict[str, str]
) -> None:
    found = tokens(line, language)
    assert "".join(token.text for token in found) == line
    first: dict[str, str] = {}
    for kind, text in found:
        first.setdefault(kind, text)
    assert {kind: first.get(kind) for kind in expected} == expected


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</code></td></tr></table><svg/onload=alert(1)>",
    "cls.<b>x</b> # &lt;i&gt; <!-- ",
    "'unclosed \" string \\",
    '@"<script>" %"<img>" c"\\00"',
    "\x00\x07\u202eevil\u2066\ud800",
    "T." * 400,
)


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("line", HOSTILE)
def test_no_line_becomes_markup(language: Language, line: str) -> None:
    text = visible(line)
    html = str(marked_up(text, language, [(0, 3), (5, 9)], lambda name: f"/f/{name}\"'<"))
    for ours in ("<mark>", "</mark>", "</span>", "</a>"):
        html = html.replace(ours, "")
    assert "<" not in html.replace('<span class="t-', "").replace('<a class="t-', "")
    assert "\u202e" not in html
    assert "\x00" not in html


def test_a_long_line_is_cut_and_says_so() -> None:
    assert visible("x" * (MAX_LINE_CHARACTERS + 1234)).endswith(" … 1,234 more characters")


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("unit", ["(", '"', "\\", "a.", "%", "1e", "# ", "@", "<x ", '\\"', "'\\"])
def test_tokens_of_hostile_lines_are_linear(language: Language, unit: str) -> None:
    line = visible(unit * 100_000)
    assert "".join(token.text for token in tokens(line, language)) == line


def test_a_string_without_an_end_is_one_token() -> None:
    line = '"' + r"\"a" * 500 + "\\"
    assert tokens(line, Language.SCRIPT) == [Token("string", line)]


def test_marks_and_tokens_may_cross() -> None:
    html = marked_up("x = T.int64(16)", Language.SCRIPT, [(4, 14)])
    assert str(html) == (
        'x = <span class="t-type"><mark>T.int64</mark></span><mark>(</mark>'
        '<span class="t-number"><mark>16</mark></span>)'
    )


def applied(before: list[str], after: list[str]) -> list[str]:
    """The text after, made from the text before and its changes."""
    result, line = list[str](), 0
    for change in changes(before, after, Budget()):
        result += before[line : change.start]
        result += after[change.new_start : change.new_end]
        line = change.end
    return result + before[line:]


@pytest.mark.parametrize("seed", range(40))
def test_changes_turn_one_text_into_the_other(seed: int) -> None:
    source = random.Random(seed)
    letters = "abcdefghijklmnop"[: source.choice((2, 5, 16))]
    before = [source.choice(letters) for _ in range(source.randrange(60))]
    after = [each for each in before if source.random() < 0.8]
    for _ in range(source.randrange(10)):
        after.insert(source.randrange(len(after) + 1), source.choice(letters))
    assert applied(before, after) == after
    assert changes(before, before, Budget()) == ()


def test_the_functions_of_two_texts_share_the_limit_of_work() -> None:
    source = random.Random(1)
    before, after = (
        module(**{f"f{number}": "\n".join(source.choices("abcdef", k=290)) for number in range(100)})
        for _ in range(2)
    )
    found = compare(before, after)
    assert len(found.functions) == 100
    assert found.functions[0].added < 200
    assert found.functions[-1].added > 250  # counts as replaced


def test_of_very_many_functions_the_first_are_found() -> None:
    text = Text("".join(f"    def f{number}(x)\n" for number in range(MAX_FUNCTIONS + 9)))
    assert len(text.functions) == MAX_FUNCTIONS


def test_comparing_texts_without_common_lines_ends_early() -> None:
    before = [f"line {number % 97}" for number in range(100_000)]
    after = [f"line {(number * 7) % 89}" for number in range(100_000)]
    assert applied(before, after) == after


@pytest.mark.parametrize(
    ("before", "after", "marks"),
    [
        ("for i in T.grid(16):", "for i in T.grid(32):", ([(16, 18)], [(16, 18)])),
        ("x = a + b", "x = a + b + c", ([], [(9, 13)])),
        ("alpha", "completely different", ([], [])),
    ],
)
def test_words_that_differ_are_marked(before: str, after: str, marks: object) -> None:
    assert word_marks(before, after) == marks


def test_functions_are_found_with_their_lines() -> None:
    text = module(add="pass", mul="pass")
    assert list(text.functions) == ["add", "mul"]
    add = text.functions["add"]
    assert text.lines[add.start].strip() == "@T.prim_func(private=True)"
    assert add.lines == 3
    assert add.is_kernel


def test_a_comparison_shows_functions_that_differ_only() -> None:
    before = module(add="a = 1", gone="g = 1", old="body", same="pass")
    after = module(add="a = 2", fresh="n = 1", new="body", same="pass")
    comparison = compare(before, after)
    assert {(change.name, change.fate, change.old_name) for change in comparison.functions} == {
        ("add", Fate.CHANGED, ""),
        ("gone", Fate.REMOVED, ""),
        ("fresh", Fate.ADDED, ""),
        ("new", Fate.RENAMED, "old"),
    }
    assert comparison.unchanged == 1
    for change in comparison.functions:
        row = comparison.rows[change.row]
        assert row.kind is RowKind.FUNCTION
        assert comparison.functions[row.size] is change


def test_equal_lines_far_from_a_change_are_folded() -> None:
    body = "\n        ".join(f"a{number} = {number}" for number in range(100))
    comparison = compare(module(add=body), module(add=body.replace("a50 = 50", "a50 = 0")))
    folds = [row.size for row in comparison.rows if row.kind is RowKind.FOLD]
    shown = [row for row in comparison.rows if row.kind is RowKind.SAME]
    assert len(folds) == 2
    assert len(shown) == 6
    assert sum(folds) + len(shown) + 1 == 102


def test_a_window_of_a_large_text_needs_its_lines_only() -> None:
    text = Text("".join(f"line {number}\n" for number in range(400_000)))
    assert text.window(399_998, 400) == ["line 399998", "line 399999"]
    assert text.window(400_001, 10) == []


def test_a_form_feed_or_a_separator_ends_no_line() -> None:
    assert Text("a\x0cb\u2028c\nd").lines == ["a\x0cb\u2028c", "d"]


def test_a_function_lives_from_its_first_step_to_its_last() -> None:
    steps = [module(a="x"), module(a="y", b="z"), module(b="z")]
    found = lives([step.functions for step in steps])
    assert found["a"] == (0, 1, (1,))
    assert found["b"] == (1, 2, ())


def test_a_search_stops_at_its_limit() -> None:
    text = Text("Abc\n" * 50)
    assert matching(text, "aBC", 3) == [0, 1, 2]


def test_a_text_that_is_no_module_has_no_functions() -> None:
    assert Text("").functions == {}
    assert compare(Text("a\n"), Text("b\n")).rows == []


def test_texts_are_held_up_to_a_limit_those_read_last_first() -> None:
    cache, read = TextCache(max_characters=8), []

    def get(name: str, size: int = 3) -> None:
        cache.get((name, 0, size), lambda: read.append(name) or b"x" * size)

    for name in ("a", "b", "a", "c", "a", "b"):
        get(name)
    assert read == ["a", "b", "c", "b"]
    get("large", 9)
    get("a")
    assert read[-2:] == ["large", "a"]


def test_the_texts_of_two_comparisons_are_held() -> None:
    texts = [Text(f"{number}\n") for number in range(4)]
    held = [weakref.ref(text) for text in texts]
    first = compared_texts(texts[0], texts[1])
    assert compared_texts(texts[0], texts[1]) is first
    for _ in range(2):
        compared_texts(texts[2], texts[3])
        compared_texts(texts[3], texts[2])
    del texts, first
    gc.collect()
    assert [text() is None for text in held] == [True, True, False, False]
