"""NVIDIA GPUs as targets: what is refused at once, what is queued, and what the fleet says of them."""

from typing import Any

import httpx
import pytest
from app_samples import IMAGE, request, worker

from app.service import Service
from bessemer.contract.capability import Capability, Gpu
from bessemer.contract.dynamic import DynamicAxis, DynamicDimension, DynamicShapes
from bessemer.contract.model import Inspection, ModelFormat, Signature
from bessemer.contract.target import GPU_ARCHITECTURES
from tests.inspections import inspected

PLAIN = Capability(architecture="x86_64")
COMPILES = Capability(architecture="x86_64", gpu_architectures=GPU_ARCHITECTURES)
H100 = Gpu(name="NVIDIA H100 80GB HBM3", arch="sm_90", memory_bytes=80 << 30, driver="580.95.05", cuda="13.0")
HAS_GPU = COMPILES.model_copy(update={"gpus": (H100,)})
GPU = {"kind": "cuda", "arch": "sm_90"}
DYNAMIC = Inspection(
    format=ModelFormat.PT2,
    signature=Signature(
        inputs=(IMAGE,),
        input_names=("x",),
        parameters=10,
        dynamic=DynamicShapes(
            dimensions=(DynamicDimension(name="x_0", minimum=1, maximum=64),),
            inputs=(DynamicAxis(tensor="x", axis=0, dimension="x_0"),),
        ),
    ),
)
BATCH = {
    "inputs": [{"name": "x", "shape": ["batch", 784], "dtype": "float32"}],
    "dimensions": {"batch": {"minimum": 1, "maximum": 8}},
}


def register(front: Service, capability: Capability) -> None:
    front.store.workers.beat(worker().model_copy(update={"capability": capability}))


BAD: tuple[tuple[dict[str, Any], str, str, str], ...] = (
    ({"target": "h100"}, "request-invalid", "target", "did you mean 'cuda-sm_90'?"),
    ({"target": "cuda -arch=sm_90"}, "request-invalid", "target", "write 'cuda-sm_90'"),
    ({"target": "cuda-sm_70"}, "target-unsupported", "target", "older than sm_75"),
    ({"target": "sm_130"}, "target-unsupported", "target", "Write 'cuda'"),
    ({"target": "rocm"}, "target-unsupported", "target", "GPUs without CUDA"),
    ({"target": "vulkan"}, "target-unsupported", "target", "GPUs without CUDA"),
    ({"target": GPU | {"arch": "sm_70"}}, "target-unsupported", "target.arch", "older than sm_75"),
    ({"target": GPU | {"arch": "sm_130"}}, "target-unsupported", "target.arch", "Write 'cuda'"),
    ({"target": GPU | {"arch": "hopper"}}, "request-invalid", "target.arch", "did you mean 'sm_90'?"),
    ({"target": GPU | {"arch": "avx2"}}, "request-invalid", "target.arch", "choose one of sm_75"),
    ({"target": GPU | {"mcpu": "znver9"}}, "request-invalid", "target.mcpu", "did you mean 'znver5'?"),
    (
        {"target": GPU | {"triple": "x86_64-unknown-linux-musl"}},
        "request-invalid",
        "target.triple",
        "Linux with glibc",
    ),
    (
        {"target": GPU | {"triple": "aarch64-apple-macos11.0"}},
        "request-invalid",
        "target.triple",
        "write x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu",
    ),
    (
        {"target": GPU | {"triple": "x86_64-pc-windows-gnu"}},
        "request-invalid",
        "target.triple",
        "Linux with glibc",
    ),
    ({"target": GPU | {"cores": 4}}, "request-invalid", "target", "`cores` is for processors"),
    ({"target": GPU | {"features": ["+avx2"]}}, "request-invalid", "target", "`features` is for"),
    ({"target": {"preset": "cuda", "cores": 2}}, "request-invalid", "target", "`cores` is for"),
    ({"target": {"mcpu": "cuda"}}, "request-invalid", "target.mcpu", "name it as the target, 'cuda'"),
    ({"static_library": True}, "request-invalid", "static_library", "linked statically"),
    ({"kernels": {"linear": "openblas"}}, "request-invalid", "kernels", "are for processors"),
    ({"kernels": {"linear": "auto"}}, "request-invalid", "kernels", "are for processors"),
    ({"parameters": "separate"}, "request-invalid", "parameters", "set it to `bound`"),
    ({"benchmark": {"compare": True}}, "request-invalid", "benchmark.compare", "on the worker's processor"),
    (
        {"tune": {"trials": 8, "publish_early": True}},
        "request-invalid",
        "tune.publish_early",
        "on the worker's processor",
    ),
    (BATCH, "dynamic-shapes-unsupported", "dimensions", "fixed sizes: fix 'batch'"),
    (
        {"entries": {"one": {}, "many": BATCH}},
        "dynamic-shapes-unsupported",
        "entries.many.dimensions",
        "fix 'batch'",
    ),
    ({"target": ["host", "cuda"], "static_library": True}, "request-invalid", "static_library", "GPU"),
    ({"verification": "required"}, "target-not-runnable", "verification", "runs code for sm_90"),
    (
        {"verification": "required", "target": ["host", "cuda"]},
        "target-not-runnable",
        "verification",
        "`verification: none`",
    ),
)
"""What a request adds or changes, and the code, the field and a part of the message that answer it."""


async def test_a_bad_request_for_a_gpu_is_refused_before_it_is_queued(
    front: Service, api: httpx.AsyncClient, model: str
) -> None:
    register(front, COMPILES)
    for fields, code, field, part in BAD:
        body = request(**{"target": GPU, "verification": "none", **fields})
        response = await api.post("/v1/compilations", json=body)
        problem = response.json()
        assert (response.status_code, problem["code"]) == (422, code), fields
        assert [error["field"] for error in problem["errors"]] == [field], fields
        assert part in problem["errors"][0]["message"], fields
    assert (await api.get("/v1/compilations")).json()["items"] == []


@pytest.mark.parametrize(
    ("given", "status"),
    [({}, 422), ({"inputs": [{"name": "x", "shape": [2, 784], "dtype": "float32"}]}, 202)],
    ids=["its own sizes", "given sizes"],
)
async def test_a_file_with_dynamic_sizes_needs_given_ones(
    front: Service, api: httpx.AsyncClient, model: str, given: dict[str, Any], status: int
) -> None:
    register(front, COMPILES)
    inspected(front.store, model, DYNAMIC)
    response = await api.post("/v1/compilations", json=request(target=GPU, verification="none", **given))
    assert response.status_code == status
    if status == 422:
        problem = response.json()
        assert problem["code"] == "dynamic-shapes-unsupported"
        assert problem["errors"][0]["field"] == "inputs"
        assert "fix 'x_0'" in problem["detail"]


@pytest.mark.parametrize(
    ("capability", "verification"),
    [(None, "required"), (HAS_GPU, "required"), (COMPILES, "none"), (PLAIN, "none")],
    ids=["no worker", "a GPU", "compilers", "neither, unverified"],
)
async def test_a_gpu_is_queued_where_its_verification_is_possible_or_not_asked_for(
    front: Service,
    api: httpx.AsyncClient,
    model: str,
    capability: Capability | None,
    verification: str,
) -> None:
    if capability is not None:
        register(front, capability)
    for target in (GPU, "cuda-sm_90", "cuda", {"kind": "cuda"}, ["host", "cuda", GPU]):
        response = await api.post("/v1/compilations", json=request(target=target, verification=verification))
        assert response.status_code == 202, target


@pytest.mark.parametrize(
    ("capability", "waiting_for"),
    [
        (COMPILES, None),
        (PLAIN, "a worker with the CUDA compilers (the extra `cuda`): w1 (znver4) lacks the CUDA compilers"),
    ],
    ids=["compilers", "none"],
)
async def test_a_queued_gpu_says_what_it_waits_for(
    front: Service, api: httpx.AsyncClient, model: str, capability: Capability, waiting_for: str | None
) -> None:
    register(front, capability)
    job = (await api.post("/v1/compilations", json=request(target=GPU, verification="none"))).json()
    found = job["queue"]["waiting_for"]
    assert found is None if waiting_for is None else waiting_for in found
    assert job["queue"]["workers"] == (1 if waiting_for is None else 0)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (PLAIN, {"cuda-sm_80": "none none none", "cuda-sm_90": "none none none", "cuda": "none none none"}),
        (
            COMPILES,
            {"cuda-sm_80": "native none none", "cuda-sm_90": "native none none", "cuda": "native none none"},
        ),
        (
            HAS_GPU,
            {
                "cuda-sm_80": "native none none",
                "cuda-sm_90": "native native native",
                "cuda": "native native native",
            },
        ),
    ],
    ids=["no compilers", "compilers", "a GPU"],
)
async def test_targets_say_where_gpus_are_built_and_verified(
    front: Service, api: httpx.AsyncClient, capability: Capability, expected: dict[str, str]
) -> None:
    register(front, capability)
    items = {item["name"]: item for item in (await api.get("/v1/targets")).json()["items"]}
    assert {f"cuda-{gpu}" for gpu in GPU_ARCHITECTURES} <= items.keys()
    assert items["cuda-sm_90"]["gpus"] == ["sm_90"]
    for name, words in expected.items():
        fleet = items[name]["fleet"]
        assert f"{fleet['build']} {fleet['verify']} {fleet['measure']}" == words


async def test_workers_show_their_gpus(front: Service, api: httpx.AsyncClient) -> None:
    register(front, HAS_GPU)
    (found,) = (await api.get("/v1/workers")).json()["items"]
    assert found["capability"]["gpus"] == [H100.model_dump()]


async def test_compilations_are_found_by_a_gpus_name(api: httpx.AsyncClient, model: str) -> None:
    for target in ("host", "cuda-sm_90", GPU | {"arch": "sm_80"}, "cuda"):
        await api.post("/v1/compilations", json=request(target=target, verification="none"))
    for name in ("cuda-sm_90", "cuda-sm_80", "cuda"):
        (found,) = (await api.get(f"/v1/compilations?target={name}")).json()["items"]
        assert found["state"] == "queued"
