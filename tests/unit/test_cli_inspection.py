"""What ``bessemer inspect`` prints of a signature."""

from collections.abc import Mapping

import pytest
from report_samples import minimal_report

from bessemer.cli.compiling import signature_lines
from bessemer.cli.models import model_lines
from bessemer.contract.base import now
from bessemer.contract.dynamic import DataDimension, DynamicAxis, DynamicShapes
from bessemer.contract.model import ConstantSpec, Inspection, Model, ModelFormat, ModelState, Signature
from bessemer.contract.report import EntryReport
from bessemer.contract.request import Entry
from bessemer.contract.structure import (
    ArgumentStructure,
    CallStructure,
    Container,
    ContainerKind,
    TensorLeaf,
)
from bessemer.contract.tensor import DType, TensorSpec

X = TensorSpec(name="x", shape=(1, 4))
IMAGE = TensorSpec(name="images.0", shape=(3, 8))
IMAGES = Container(container=ContainerKind.LIST, items=(TensorLeaf(tensor="images.0"),))

PRINTED: Mapping[str, tuple[Signature, list[str]]] = {
    "a tensor": (
        Signature(
            inputs=(X,),
            input_names=("x",),
            parameters=0,
            call=CallStructure(
                arguments=(ArgumentStructure(name="x", structure=TensorLeaf(tensor="x")),),
                returns=TensorLeaf(tensor="output"),
            ),
        ),
        ["input       x=1x4:float32"],
    ),
    "a list": (
        Signature(
            inputs=(IMAGE,),
            input_names=("images.0",),
            parameters=0,
            call=CallStructure(arguments=(ArgumentStructure(name="images", structure=IMAGES),)),
        ),
        ["input       images.0=3x8:float32", "call        (images: [images.0])"],
    ),
    "containers that a request fills": (
        Signature(
            input_names=("images", "masks"),
            constants=(ConstantSpec(name="sizes", type="List[int]", required=True),),
            parameters=0,
            call=CallStructure(
                arguments=(
                    ArgumentStructure(name="images", type="List[Tensor]"),
                    ArgumentStructure(name="masks", type="Optional[Dict[str, Tensor]]"),
                    ArgumentStructure(name="sizes", type="List[int]"),
                )
            ),
        ),
        [
            "constant    sizes (List[int]: pass --constant sizes.0=VALUE)",
            "input       images (List[Tensor]: pass --input images.0=SHAPE)",
            "input       masks (Optional[Dict[str, Tensor]]: pass --input masks.KEY=SHAPE)",
        ],
    ),
}


@pytest.mark.parametrize(("signature", "lines"), PRINTED.values(), ids=PRINTED)
def test_an_inspection_prints_how_to_name_inputs(signature: Signature, lines: list[str]) -> None:
    model = Model(
        digest="0" * 64,
        size_bytes=1,
        state=ModelState.READY,
        inspection=Inspection(format=ModelFormat.TORCHSCRIPT, signature=signature),
        created_at=now(),
    )
    assert list(model_lines(model))[4:] == lines


def test_a_check_shows_what_each_entry_point_takes_keeps_and_returns() -> None:
    boxes, seed = TensorSpec(name="boxes", shape=(7, 4)), TensorSpec(name="seed", shape=(), dtype=DType.INT64)
    hidden = TensorSpec(name="state.hidden", shape=(1, 8))
    report = minimal_report()
    report = report.model_copy(
        update={
            "inputs": (X, seed),
            "seed": "seed",
            "outputs": (boxes,),
            "dynamic": DynamicShapes(
                outputs=(DynamicAxis(tensor="boxes", axis=0, dimension="boxes_0"),),
                of_data=(DataDimension(name="boxes_0", maximum=300),),
            ),
        }
    )
    first = [
        "input       x=1x4:float32",
        "input       seed=scalar:int64, the seed of its random numbers",
        "output      boxes=[boxes_0]x4:float32",
        "dynamic     boxes_0 up to 300, which depends on data",
    ]
    assert list(signature_lines(report)) == first
    step = EntryReport(name="step", inputs=(X,), outputs=(X,), state=(hidden,), comparisons=())
    request = report.request.model_copy(update={"entries": {"find": Entry(), "step": Entry()}})
    both = report.model_copy(update={"request": request, "entries": (step,)})
    assert list(signature_lines(both)) == [
        "entry       find",
        *first,
        "entry       step",
        "input       x=1x4:float32",
        "state       state.hidden=1x8:float32",
        "output      x=1x4:float32",
    ]
