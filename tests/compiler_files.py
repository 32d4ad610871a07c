"""What a job keeps of the compiler, as files that a test may fill with anything."""

import json

import zstandard

from bessemer.contract.code import CODE_INDEX, CODE_TEXTS
from bessemer.contract.ir import IR_INDEX, IR_TEXTS

XSS = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
COUNTS = dict.fromkeys(
    ("functions", "kernels", "operators", "calls", "blocks", "loops", "constants", "constant_bytes"), 1
)
NOTHING = {"offset": 0, "packed_bytes": 0, "text_bytes": 0}


def module(body: str) -> str:
    """A module in TVMScript with one function."""
    return (
        "@I.ir_module\nclass Module:\n    @T.prim_func(private=True)\n"
        f"    def add(x: T.Buffer((4,))):\n        {body}\n"
    )


def packed(texts: list[str]) -> tuple[bytes, list[dict[str, int]]]:
    """The texts as one file of frames, and where each is."""
    data, places = b"", list[dict[str, int]]()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        frame = zstandard.compress(encoded)
        places.append({"offset": len(data), "packed_bytes": len(frame), "text_bytes": len(encoded)})
        data += frame
    return data, places


def kept(
    texts: list[str], name: str = "FuseTIR", place: str = "net.py", blocks: str = ""
) -> dict[str, bytes]:
    """The files of a job with a step for each text, and with one function, whose LLVM IR has ``blocks``."""
    data, places = packed(texts)
    steps = [
        {"step": number, "stage": "optimize", "phase": name[:100], "name": name, "seconds": 0.1}
        | {"changed": True, "counts": COUNTS, "text": where, "diff": NOTHING}
        for number, where in enumerate(places)
    ]
    code, (llvm, assembly) = packed([f"define i32 @add() ; {place}\n{blocks}", f"add: # {place}\n"])
    operator = {"operator": place, "module_path": place, "file": place, "line": 7}
    listing = {
        "functions": [
            {"name": "add", "operators": [0], "llvm_ir": llvm, "assembly": assembly},
            {"name": place, "operators": [], "llvm_ir": NOTHING, "assembly": NOTHING},
        ],
        "calls": [
            {"function": "add", "inputs": [], "operators": [0]},
            {"function": place, "inputs": [0, 1], "operators": []},
        ],
        "operators": [{"name": place, "place": operator, "value": place}],
    }
    return {
        IR_INDEX: json.dumps({"items": steps}).encode(),
        IR_TEXTS: data,
        CODE_INDEX: json.dumps(listing).encode(),
        CODE_TEXTS: code,
    }
