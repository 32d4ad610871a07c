"""What each code of an error says: status, title, what to do, and whether a retry can help."""

from typing import NamedTuple

from bessemer.contract.error_codes import ErrorCode


class ErrorText(NamedTuple):
    """What is the same for every occurrence of a code."""

    status: int
    title: str
    advice: str
    retryable: bool = False


ERRORS: dict[ErrorCode, ErrorText] = {
    ErrorCode.REQUEST_INVALID: ErrorText(
        422, "The request is not valid", "Correct the fields that are listed under `errors`."
    ),
    ErrorCode.TARGET_UNSUPPORTED: ErrorText(
        422,
        "Bessemer does not compile for this target",
        "Choose an x86-64 processor, or `host`: `bessemer targets` or `GET /v1/targets` lists the names.",
    ),
    ErrorCode.NOT_FOUND: ErrorText(404, "There is no such thing", "Check the address and the identifier."),
    ErrorCode.ID_AMBIGUOUS: ErrorText(
        409, "The shortened id is ambiguous", "Give more characters of the id."
    ),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorText(
        405, "The address does not take that method", "See the `Allow` header and `/docs`."
    ),
    ErrorCode.HTTP_INVALID: ErrorText(
        400, "What was sent is no HTTP request", "Check the client, and any proxy between it and the server."
    ),
    ErrorCode.REQUEST_TOO_LARGE: ErrorText(
        413, "The request's body is too large", "Send a smaller document; models go to `/v1/models`."
    ),
    ErrorCode.STATE_CONFLICT: ErrorText(
        409, "The state that it is in does not allow that", "Read its document first."
    ),
    ErrorCode.IDEMPOTENCY_CONFLICT: ErrorText(
        409,
        "The idempotency key was used for another request",
        "Use a new `Idempotency-Key` for a new request.",
    ),
    ErrorCode.RANGE_NOT_SATISFIABLE: ErrorText(
        416, "The range lies outside the artifact", "Ask for a range below the size in `Content-Range`."
    ),
    ErrorCode.INTERNAL: ErrorText(
        500, "Bessemer failed", "This is a defect of Bessemer: please report it with the log.", True
    ),
    ErrorCode.UNAVAILABLE: ErrorText(
        503, "The database or the artifact store cannot be reached", "Try again in a moment.", True
    ),
    ErrorCode.DIGEST_MISMATCH: ErrorText(
        422, "The upload is not what its digest says", "Hash the file again and upload it again.", True
    ),
    ErrorCode.MODEL_TOO_LARGE: ErrorText(
        413, "The model is larger than this server accepts", "Ask the operator for a higher limit."
    ),
    ErrorCode.MODEL_EMPTY: ErrorText(422, "The upload is empty", "Send the model's bytes as the body."),
    ErrorCode.UPLOAD_INCOMPLETE: ErrorText(
        400, "The upload ended early", "Upload the model again; nothing was kept.", True
    ),
    ErrorCode.MODEL_MISSING: ErrorText(
        422, "The model was never uploaded", "Upload it with `PUT /v1/models/{digest}` first."
    ),
    ErrorCode.MODEL_IN_USE: ErrorText(
        409,
        "Compilations that have not ended need the model",
        "Cancel them, or wait for their end; then delete it.",
    ),
    ErrorCode.MODEL_NOT_RECOGNIZED: ErrorText(
        422,
        "The upload is no model that Bessemer knows",
        "Upload the file of `torch.export.save`, `torch.jit.save`, or `torch.save` of an FX GraphModule.",
    ),
    ErrorCode.MODEL_DAMAGED: ErrorText(
        422, "The archive is damaged", "Save the model again and compare the digests."
    ),
    ErrorCode.MODEL_UNSAFE_ARCHIVE: ErrorText(
        422,
        "The archive is built to harm its reader",
        "Save the model with torch's own functions; archives that expand hugely are refused.",
    ),
    ErrorCode.MODEL_LOAD_FAILED: ErrorText(
        422,
        "torch could not load the model",
        "Save it again on the CPU, with the torch version that the worker names, and without classes of "
        "packages that the worker does not have.",
    ),
    ErrorCode.MODEL_LEAF_UNAVAILABLE: ErrorText(
        422,
        "The FX graph calls modules whose classes are not here",
        "Export the model with `torch.export.export` and `torch.export.save` instead.",
    ),
    ErrorCode.MODEL_FORWARD_MISSING: ErrorText(
        422,
        "The script module has no method `forward`",
        "Bessemer compiles `forward`: script a module whose `forward` calls the method that you want.",
    ),
    ErrorCode.MODEL_SIGNATURE_UNSUPPORTED: ErrorText(
        422,
        "The model takes or returns what no library can",
        "Take and return tensors, at least one; make numbers and texts constants of the model.",
    ),
    ErrorCode.MODEL_TENSORS_UNSUPPORTED: ErrorText(
        422,
        "The model has tensors of a kind that is not compiled",
        "Use dense tensors with elements, of float16 to float64, bfloat16, int8 to int64, uint8 or bool; "
        "complex numbers as `torch.view_as_real` gives them. In place of a quantized model, compile the "
        "float model that it was made from.",
    ),
    ErrorCode.MODEL_STATEFUL: ErrorText(
        422,
        "The model is stateful or nondeterministic",
        "Call `eval()` before you save the model. Make state and random numbers inputs of `forward`, return "
        "the new state as an output, and clone an input before you write into it.",
    ),
    ErrorCode.MODEL_RAISED: ErrorText(
        422, "The model raised an error when it ran", "Run it in torch on inputs of these shapes and dtypes."
    ),
    ErrorCode.INPUTS_MISSING: ErrorText(
        422, "The model's inputs are not known", "Name every input: `--input NAME=1x3x224x224:float32`."
    ),
    ErrorCode.INPUTS_MISMATCH: ErrorText(
        422,
        "The inputs do not fit the model",
        "Compare them with the model's signature (`bessemer inspect`).",
    ),
    ErrorCode.INPUTS_TOO_LARGE: ErrorText(
        413, "The inputs are larger than this server accepts", "Ask the operator for a higher limit."
    ),
    ErrorCode.INPUTS_UNREADABLE: ErrorText(
        422,
        "The inputs are no file of arrays",
        "Send one `.npz` file of `numpy.savez`, or one `.safetensors` file, as the body.",
    ),
    ErrorCode.INVOCATION_FAILED: ErrorText(
        422, "The library failed on these inputs", "Run the bundle's `run.py` on the same inputs."
    ),
    ErrorCode.CAPTURE_FAILED: ErrorText(
        422,
        "The model could not be turned into an exported program",
        "Export it yourself with `torch.export.export`; its message names the line that stands in the way. "
        "What a tensor's value decides is left to `torch.where` or `torch.cond`.",
    ),
    ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED: ErrorText(
        422,
        "The compiler cannot leave this model's sizes open",
        "Correct what the detail names, or fix the sizes: `--input NAME=1x3x224x224:float32`.",
    ),
    ErrorCode.OPERATOR_UNSUPPORTED: ErrorText(
        422,
        "The compiler lacks operators of this model",
        "Rewrite the places that are listed, or add a rule (docs/translation.md).",
    ),
    ErrorCode.TRANSLATE_FAILED: ErrorText(
        422,
        "The exported program could not be translated to Relax",
        "Rewrite the place that is named, or add a rule for its operator (docs/translation.md).",
    ),
    ErrorCode.KERNEL_UNKNOWN: ErrorText(
        422,
        "The request names a kernel that no library has",
        "Take one of those that are named, `auto` or `none`.",
    ),
    ErrorCode.KERNEL_UNAVAILABLE: ErrorText(
        422,
        "A kernel cannot be linked on this worker",
        "Run `make setup` where the worker runs, or leave the operator out of `kernels`.",
    ),
    ErrorCode.OPTIMIZE_FAILED: ErrorText(
        422, "A pass failed on this model", "Report the pass that is named, with the model if you can."
    ),
    ErrorCode.SPACE_UNKNOWN: ErrorText(
        422,
        "`tune.spaces` names a search space that this worker lacks",
        "Choose one of those that are listed, or install a package that has it (docs/spaces.md).",
    ),
    ErrorCode.FUNCTION_UNKNOWN: ErrorText(
        422,
        "`tune.spaces` names a function that the model lacks",
        "Choose among those that are listed; patterns such as `fused_linear*` fit several.",
    ),
    ErrorCode.SPACE_FAILED: ErrorText(
        422,
        "A search space gave no schedule that runs",
        "See what it raised; it may not fit the function, or not the target (docs/spaces.md).",
    ),
    ErrorCode.REWRITE_UNKNOWN: ErrorText(
        422,
        "The request names a rewrite that this worker does not have",
        "Name one of those that are listed, or install the package that adds it beside the worker "
        "(docs/rewriting.md).",
    ),
    ErrorCode.TUNE_FAILED: ErrorText(422, "The search failed", "Compile with `tune.trials` = 0."),
    ErrorCode.BUILD_FAILED: ErrorText(
        422, "No machine code could be made", "Check the target's mcpu, triple and features."
    ),
    ErrorCode.FUNCTION_TOO_SLOW: ErrorText(
        422,
        "One function of the model takes too long to compile",
        "Rewrite the operators that `places` lists, for instance as several smaller ones; or allow the job "
        "more time with `timeout_seconds`, up to the worker's BESSEMER_LIMIT_WALL_SECONDS. Please report it.",
    ),
    ErrorCode.TARGET_NOT_RUNNABLE: ErrorText(
        422,
        "The worker's processor cannot run code for this target, so it cannot be verified",
        "Choose a target that the worker supports, or add a worker that has such a processor.",
    ),
    ErrorCode.VERIFY_MISMATCH: ErrorText(
        422,
        "The compiled library does not compute what the model computes",
        "See the worst element; widen `verify.relative` or `verify.absolute` only if that is good enough.",
    ),
    ErrorCode.VERIFY_CRASHED: ErrorText(
        422, "The compiled library crashed on the reference inputs", "Report it with the model if you can."
    ),
    ErrorCode.BENCHMARK_FAILED: ErrorText(
        422, "The measurement failed", "Try again; report it if it stays.", True
    ),
    ErrorCode.PACKAGE_FAILED: ErrorText(500, "The bundle could not be written", "Try again.", True),
    ErrorCode.SANDBOX_INCOMPLETE: ErrorText(
        503,
        "A required layer of the confinement does not hold on this worker",
        "See `docs/settings.md`, BESSEMER_SANDBOX, and the layers in `/readyz`.",
    ),
    ErrorCode.LIMIT_MEMORY: ErrorText(
        422,
        "The job used more memory than it may",
        "Shrink the model or its inputs, or raise BESSEMER_LIMIT_MEMORY_BYTES.",
    ),
    ErrorCode.LIMIT_DISK: ErrorText(
        422, "The job wrote more to disk than it may", "Shrink the model or raise BESSEMER_LIMIT_DISK_BYTES."
    ),
    ErrorCode.LIMIT_INODES: ErrorText(
        422, "The job made more files than it may", "Raise BESSEMER_LIMIT_INODES if the model is honest."
    ),
    ErrorCode.LIMIT_OUTPUT: ErrorText(
        422,
        "The job printed more than it may",
        "Remove prints from the model, or raise BESSEMER_LIMIT_OUTPUT_BYTES.",
    ),
    ErrorCode.LIMIT_CPU: ErrorText(
        422, "The job used more processor time than it may", "Raise BESSEMER_LIMIT_CPU_SECONDS."
    ),
    ErrorCode.LIMIT_WALL_CLOCK: ErrorText(
        422,
        "The job ran longer than this worker allows",
        "Reduce the work of the stage in `stage`, or raise BESSEMER_LIMIT_WALL_SECONDS on the worker.",
    ),
    ErrorCode.TIMEOUT: ErrorText(
        422,
        "The job ran longer than its request allows",
        "Check that the model ends in torch; reduce the work of the stage in `stage`, or allow more time "
        "with `timeout_seconds`.",
    ),
    ErrorCode.CHILD_CRASHED: ErrorText(
        422,
        "The job's process died",
        "Run the model in torch first: a model can crash torch by itself. If it does not, report the signal, "
        "the frames and the log.",
    ),
    ErrorCode.CHILD_MISBEHAVED: ErrorText(
        422, "The job's process did what no job does", "The model may be hostile; the job was ended."
    ),
    ErrorCode.CHILD_KILLED: ErrorText(
        503,
        "The job's processes were killed from outside, on every attempt",
        "The worker's machine or container may be short of memory: see its log; then submit the job again.",
        True,
    ),
    ErrorCode.WORKER_DISK_FULL: ErrorText(
        503,
        "The worker's disk was full, on every attempt",
        "Free space where BESSEMER_WORK_DIR lies, then submit the job again.",
        True,
    ),
    ErrorCode.WORKER_LOST: ErrorText(
        503,
        "The worker was lost while the job ran, on every attempt",
        "See the log of the workers that are named: the job may be what ended them. Then submit it again.",
        True,
    ),
    ErrorCode.CANCELLED: ErrorText(409, "The compilation was cancelled", "Submit it again if you need it."),
}
