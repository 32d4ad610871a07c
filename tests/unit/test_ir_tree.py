"""The tree of a function, read from TVMScript."""

import pytest

from bessemer.client.ir_tree import function_text, function_tree, tree_lines
from bessemer.errors import InvalidArgumentError


def test_a_form_feed_in_a_text_ends_no_line() -> None:
    text = 'x = "\f"\n\n@T.prim_func\ndef one(A: T.Buffer((4,), "float32")):\n    T.evaluate(0)\n'
    assert function_text(text, "one").startswith("@T.prim_func\ndef one(")


MODULE = """\
# from tvm.script import ir as I

@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def hidden(A: T.Buffer((T.int64(4),), "float32"), C: T.Buffer((T.int64(4),), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        B = T.sblock_alloc_buffer((T.int64(4),))
        for i in T.parallel(T.int64(4)):
            with T.sblock("B"):
                v_i = T.axis.spatial(T.int64(4), i)
                T.reads(A[v_i])
                T.writes(B[v_i])
                B[v_i] = A[v_i] + T.float32(1.0)
        for i, k in T.grid(T.int64(4), T.int64(2)):
            with T.sblock("C"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                T.where(i < T.int64(3))
                T.sblock_attr({"pragma": 1})
                with T.init():
                    C[v_i] = T.float32(-1.5e+38)
                C[v_i] = C[v_i] + B[v_i]

    @T.prim_func
    def exposed(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), c: T.handle):
        C = T.match_buffer(c, (4,))
        for i in range(4):
            B[i] = A[i]
            C[i] = B[i]
            T.evaluate(0)

    @R.function
    def main(x: R.Tensor(("n", 4), dtype="float32")) -> R.Tensor(("n", 4), dtype="float32"):
        n = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.hidden, (x,), out_ty=R.Tensor((n, 4), dtype="float32"))
            gv: R.Tensor((n, 4), dtype="float32") = lv
            R.output(gv)
        if cond:
            y = R.add(gv, gv)
        else:
            y = gv
        return y
"""

HIDDEN = """\
tensorir function hidden
  input parameter A: T.Buffer((4,), 'float32')
  output parameter C: T.Buffer((4,), 'float32')
  attributes {'tirx.noalias': True}
  allocated buffer B: (4,)
  parallel loop i in 4
    block B
      spatial iterator v_i in 4 = i
      reads A[v_i]
      writes B[v_i]
      B[v_i] = A[v_i] + 1.0
  serial loop i, k in 4, 2
    block C
      spatial iterator v_i = i
      reduce iterator v_k = k
      where i < 3
      annotations {'pragma': 1}
      init
        C[v_i] = -1.5e+38
      C[v_i] = C[v_i] + B[v_i]
"""
EXPOSED = """\
tensorir function exposed
  input parameter A: T.Buffer((4,), 'float32')
  exposed parameter B: T.Buffer((4,), 'float32')
  parameter c: T.handle
  matched buffer C: c, (4,)
  serial loop i in 4
    B[i] = A[i]
    C[i] = B[i]
    T.evaluate(0)
"""
MAIN = """\
relax function main -> R.Tensor(('n', 4), dtype='float32')
  parameter x: R.Tensor(('n', 4), dtype='float32')
  n = T.int64()
  dataflow
    lv: R.Tensor((n, 4), dtype='float32') = R.call_tir(cls.hidden, (x,))
    gv: R.Tensor((n, 4), dtype='float32') = lv
    outputs gv
  branch cond
    y = R.add(gv, gv)
  else
    y = gv
  result y
"""


@pytest.mark.parametrize(("name", "tree"), [("hidden", HIDDEN), ("exposed", EXPOSED), ("main", MAIN)])
def test_a_tree_shows_parameters_buffers_loops_blocks_and_bindings(name: str, tree: str) -> None:
    assert "\n".join(tree_lines(function_tree(MODULE, name))) + "\n" == tree


def test_one_function_is_printed_as_the_module_has_it() -> None:
    text = function_text(MODULE, "exposed")
    assert text.startswith("@T.prim_func\ndef exposed(")
    assert text.endswith("        T.evaluate(0)\n")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (MODULE, "hiden", "no function 'hiden'; did you mean 'hidden' or 'main'?"),
        (MODULE, "zzz", "no function 'zzz'; it has hidden, exposed, main"),
        ("", "main", "no function 'main'; it has none"),
        ("class Module:\n    def main(", "main", "cut, or not TVMScript"),
        ("x = " + "(" * 5000 + ")" * 5000, "main", "cut, or not TVMScript"),
        ("a\0b", "main", "cut, or not TVMScript"),
        ("def main():\n    x = " + "-" * 20_000 + "1", "main", "cut, or not TVMScript"),
        ("def main():\n    x = 1" + "+ 1" * 2500, "main", "nested too deeply"),
    ],
    ids=["near", "far", "empty", "cut", "parentheses", "null", "signs", "sums"],
)
def test_what_cannot_be_shown_is_refused(text: str, name: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message.replace("?", "\\?")):
        function_tree(text, name)
