"""The HTTP status, title, advice and retryability of each error code."""

from typing import NamedTuple

from bessemer.contract.error_codes import ErrorCode


class ErrorText(NamedTuple):
    """The part of a problem that is the same for every occurrence of its code."""

    status: int
    title: str
    advice: str
    retryable: bool = False


ERRORS: dict[ErrorCode, ErrorText] = {
    ErrorCode.UNAUTHENTICATED: ErrorText(
        401,
        "A valid API key is required",
        "Set `BESSEMER_API_KEY` to a valid key, or send `Authorization: Bearer KEY`. An administrator "
        "creates a key with `bessemer keys create`.",
    ),
    ErrorCode.FORBIDDEN: ErrorText(
        403,
        "The key does not allow this request",
        "Use a key with the required scope; an administrator creates one.",
    ),
    ErrorCode.ORIGIN_REFUSED: ErrorText(
        403,
        "A web page of another site sent this request",
        "Send it from a program, or add the page's origin to `BESSEMER_ALLOWED_ORIGINS`.",
    ),
    ErrorCode.ORIGIN_MISSING: ErrorText(
        403,
        "The request does not say which page sent it",
        "Send the key in the `Authorization` header instead of the console's cookie, or use a browser that "
        "sends `Origin`.",
    ),
    ErrorCode.HOST_REFUSED: ErrorText(
        421,
        "The server does not serve this host name",
        "Use the server's own name, or add the name to `BESSEMER_ALLOWED_HOSTS`.",
    ),
    ErrorCode.QUOTA_EXCEEDED: ErrorText(
        429,
        "The tenant's quota is exceeded",
        "Free what you no longer need, wait as long as `Retry-After` says, or ask an administrator for a "
        "larger quota.",
        True,
    ),
    ErrorCode.LOGINS_LIMITED: ErrorText(
        429,
        "This address sent too many requests without a valid key",
        "Correct the key, and wait as long as `Retry-After` says.",
        True,
    ),
    ErrorCode.REQUEST_INVALID: ErrorText(422, "The request is not valid", "Correct the named fields."),
    ErrorCode.TARGET_UNSUPPORTED: ErrorText(
        422,
        "Bessemer does not compile for this target",
        "Choose `host`, a processor of x86-64, Arm or RISC-V, or an NVIDIA GPU; `bessemer targets` and "
        "`GET /v1/targets` list the names.",
    ),
    ErrorCode.NOT_FOUND: ErrorText(404, "Not found", "Check the URL and the identifier."),
    ErrorCode.ID_AMBIGUOUS: ErrorText(
        409, "The shortened id is ambiguous", "Give more characters of the id."
    ),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorText(
        405, "Method not allowed for this URL", "Use a method listed in the `Allow` header; see `/docs`."
    ),
    ErrorCode.HTTP_INVALID: ErrorText(
        400, "Malformed HTTP request", "Check the client and any proxy between it and the server."
    ),
    ErrorCode.REQUEST_TOO_LARGE: ErrorText(
        413, "The request body is too large", "Send a smaller document; upload models to `/v1/models`."
    ),
    ErrorCode.STATE_CONFLICT: ErrorText(
        409,
        "Not allowed in the current state",
        "Check the current `state` first, then choose an action that it allows.",
    ),
    ErrorCode.IDEMPOTENCY_CONFLICT: ErrorText(
        409,
        "The idempotency key belongs to a different request",
        "Use a new `Idempotency-Key` for a new request.",
    ),
    ErrorCode.RANGE_NOT_SATISFIABLE: ErrorText(
        416, "The range lies outside the artifact", "Request a range below the size in `Content-Range`."
    ),
    ErrorCode.INTERNAL: ErrorText(
        500, "Internal error", "This is a bug in Bessemer. Please report it with the log.", True
    ),
    ErrorCode.UNAVAILABLE: ErrorText(
        503, "The database or the artifact store is unreachable", "Try again in a moment.", True
    ),
    ErrorCode.DIGEST_MISMATCH: ErrorText(
        422, "The upload does not match its digest", "Hash the file again, then upload it again.", True
    ),
    ErrorCode.MODEL_TOO_LARGE: ErrorText(
        413, "The model is larger than this server accepts", "Ask the operator to raise the limit."
    ),
    ErrorCode.MODEL_EMPTY: ErrorText(
        422, "The upload is empty", "Save the model again, and check that the file is not empty."
    ),
    ErrorCode.UPLOAD_INCOMPLETE: ErrorText(
        400, "The upload ended early", "Upload the model again; the server kept nothing.", True
    ),
    ErrorCode.MODEL_MISSING: ErrorText(
        422, "The model was not uploaded", "Upload it with `PUT /v1/models/{digest}` first."
    ),
    ErrorCode.MODEL_IN_USE: ErrorText(
        409,
        "Unfinished compilations need this model",
        "Cancel them or wait until they end, then delete the model.",
    ),
    ErrorCode.EXTENSION_MISSING: ErrorText(
        422, "The extension was not uploaded", "Upload it with `PUT /v1/extensions/{digest}` first."
    ),
    ErrorCode.EXTENSION_TOO_LARGE: ErrorText(
        413,
        "The extension is larger than this server accepts",
        "Remove data from the file, or ask the operator to raise `BESSEMER_MAX_EXTENSION_BYTES`.",
    ),
    ErrorCode.EXTENSION_IN_USE: ErrorText(
        409,
        "Unfinished compilations need this extension",
        "Cancel them or wait until they end, then delete the extension.",
    ),
    ErrorCode.EXTENSION_INVALID: ErrorText(
        422,
        "The extension cannot be used",
        "Correct the file at the line that the message names, and upload it again. docs/extensions.md shows "
        "what a file can define.",
    ),
    ErrorCode.LIBRARY_FUNCTION_MISSING: ErrorText(
        422,
        "The model calls a function that the worker lacks",
        "Define the function in the `FUNCTIONS` of a Python file, and pass the file with `--extension`.",
    ),
    ErrorCode.MODEL_NOT_RECOGNIZED: ErrorText(
        422,
        "Unrecognized model format",
        "Upload a file written by `torch.export.save`, by `torch.jit.save`, or by `torch.save` of an FX "
        "GraphModule, or upload a TVM IRModule as a Python file or as JSON.",
    ),
    ErrorCode.MODEL_DAMAGED: ErrorText(
        422,
        "The model file is damaged",
        "Save the model again, and compare digests before and after the upload.",
    ),
    ErrorCode.MODEL_UNSAFE_ARCHIVE: ErrorText(
        422,
        "The model file is an unsafe archive",
        "Save the model with torch's own functions. Bessemer refuses archives with unsafe paths or extreme "
        "compression.",
    ),
    ErrorCode.MODEL_LOAD_FAILED: ErrorText(
        422,
        "torch could not load the model",
        "Save it again on the CPU, with the worker's version of torch and without classes from packages that "
        "the worker lacks.",
    ),
    ErrorCode.MODEL_MODULE_INVALID: ErrorText(
        422,
        "The IRModule cannot be read",
        "Correct the program where the message says. The worker parses it with TVM 0.27, whose dialect of "
        "TVMScript `Module.script()` prints (docs/usage.md).",
    ),
    ErrorCode.MODEL_LEAF_UNAVAILABLE: ErrorText(
        422,
        "The FX graph uses module classes that the worker lacks",
        "Export the model with `torch.export.export` and `torch.export.save` instead.",
    ),
    ErrorCode.MODEL_OPERATOR_UNAVAILABLE: ErrorText(
        422,
        "The model calls custom operators that the worker lacks",
        "Define them, each with a translation rule, in an extension: `--extension my_rules.py` "
        "(docs/translation.md).",
    ),
    ErrorCode.MODEL_FORWARD_MISSING: ErrorText(
        422,
        "The model has several methods, but no `forward`",
        "Name the methods to compile: `--entry NAME` for each, or `entries` in the request.",
    ),
    ErrorCode.METHOD_MISSING: ErrorText(
        422,
        "The model has no such method",
        "Name one of the methods that the message lists, as `--entry NAME=METHOD`.",
    ),
    ErrorCode.MODEL_SIGNATURE_UNSUPPORTED: ErrorText(
        422,
        "Unsupported model signature",
        "Take and return tensors, at least one of each; make numbers and strings constants of the model.",
    ),
    ErrorCode.MODEL_TENSORS_UNSUPPORTED: ErrorText(
        422,
        "The model has tensors of an unsupported kind",
        "Use dense, non-empty tensors of float16 to float64, bfloat16, complex64, complex128, int8 to int64, "
        "uint8 or bool. Quantize a model by export (`convert_pt2e`) or by torchao's `quantize_`, or compile "
        "the float model.",
    ),
    ErrorCode.MODEL_STATEFUL: ErrorText(
        422,
        "The model is stateful or nondeterministic",
        "Call `eval()` before you save the model. Keep state in tensors of fixed shape, draw random numbers "
        "with torch, and clone an input before you write into it.",
    ),
    ErrorCode.MODEL_RAISED: ErrorText(
        422,
        "The model raised an error when it ran",
        "Reproduce it in torch with inputs of these shapes and dtypes.",
    ),
    ErrorCode.INPUTS_MISSING: ErrorText(
        422,
        "The model file does not contain input shapes",
        "Name every input: `--input NAME=1x3x224x224:float32`.",
    ),
    ErrorCode.CONSTANTS_MISSING: ErrorText(
        422,
        "An argument that is not a tensor has no value",
        "Fix its value with `--constant NAME=VALUE`, or in the request's `constants`.",
    ),
    ErrorCode.INPUTS_MISMATCH: ErrorText(
        422,
        "The inputs do not match the model",
        "Compare them with the model's signature (`bessemer inspect`).",
    ),
    ErrorCode.REFERENCE_MISSING: ErrorText(
        422,
        "The reference of an IRModule is missing",
        "Name a function of the module's file, `arrays` or `lowering` in `verify.reference`; arrays need "
        "every input and output by its name.",
    ),
    ErrorCode.INPUTS_TOO_LARGE: ErrorText(
        413, "The inputs are larger than this server accepts", "Ask the operator to raise the limit."
    ),
    ErrorCode.INPUTS_UNREADABLE: ErrorText(
        422,
        "Inputs could not be read as arrays",
        "Send one `.npz` file from `numpy.savez`, or one `.safetensors` file, as the request body.",
    ),
    ErrorCode.INVOCATION_FAILED: ErrorText(
        422,
        "The library failed on these inputs",
        "Reproduce it with the bundle's `run.py` on the same inputs.",
    ),
    ErrorCode.CAPTURE_FAILED: ErrorText(
        422,
        "The model could not be exported",
        "Export it yourself with `torch.export.export`, whose message names the line that fails. Replace "
        "branches on tensor values with `torch.where` or `torch.cond`.",
    ),
    ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED: ErrorText(
        422,
        "The compiler cannot keep this model's sizes dynamic",
        "Do what the message says. Fix a size that cannot stay dynamic: `--input NAME=1x3x224x224:float32`.",
    ),
    ErrorCode.OPERATOR_UNSUPPORTED: ErrorText(
        422,
        "The compiler does not support all operators of this model",
        "Rewrite the listed places, or add a translation rule where one can help (docs/translation.md).",
    ),
    ErrorCode.TRANSLATE_FAILED: ErrorText(
        422,
        "The exported program could not be translated to Relax",
        "Rewrite the place that the message names, or add a rule for its operator (docs/translation.md).",
    ),
    ErrorCode.KERNEL_UNKNOWN: ErrorText(
        422, "Unknown kernel", "Choose one of the kernels that the message lists, or `auto` or `none`."
    ),
    ErrorCode.KERNEL_UNAVAILABLE: ErrorText(
        422,
        "The worker cannot link this kernel",
        "Run `make setup` on the worker's machine, or leave the operator out of `kernels`.",
    ),
    ErrorCode.OPTIMIZE_FAILED: ErrorText(
        422,
        "A compiler pass failed on this model",
        "Report the pass that the message names, with the model if you can.",
    ),
    ErrorCode.SPACE_UNKNOWN: ErrorText(
        422,
        "Unknown search space in `tune.spaces`",
        "Choose one of the spaces that the message lists, or install its package on the worker "
        "(docs/spaces.md).",
    ),
    ErrorCode.FUNCTION_UNKNOWN: ErrorText(
        422,
        "Unknown function in `tune.spaces` or `tune.schedules`",
        "Choose one of the functions that the message lists; a pattern such as `fused_linear*` matches "
        "several.",
    ),
    ErrorCode.SPACE_FAILED: ErrorText(
        422,
        "A search space produced no schedule that runs",
        "Read the space's error in the message. The space may not match the function or the target "
        "(docs/spaces.md).",
    ),
    ErrorCode.STRATEGY_UNKNOWN: ErrorText(
        422,
        "Unknown search strategy in `tune.strategy`",
        "Choose one of the strategies that the message lists, or send the extension that defines it "
        "(docs/extensions.md).",
    ),
    ErrorCode.SCHEDULE_FAILED: ErrorText(
        422,
        "A schedule from the request cannot be used",
        "Correct the file at the line that the message names. It lists the function's blocks and loops at "
        "that point (docs/spaces.md).",
    ),
    ErrorCode.RECORDS_INVALID: ErrorText(
        422,
        "The tuning records cannot be used",
        "Send the files of one search, `database_workload.json` and `database_tuning_record.json`, as a "
        "bundle has them in `records/`, and the extensions that `extensions.json` names beside them.",
    ),
    ErrorCode.REWRITE_UNKNOWN: ErrorText(
        422,
        "Unknown rewrite",
        "Choose one of the rewrites that the message lists, or install its package on the worker "
        "(docs/rewriting.md).",
    ),
    ErrorCode.TUNE_FAILED: ErrorText(422, "Tuning failed", "Compile without tuning: `tune.trials` = 0."),
    ErrorCode.BUILD_FAILED: ErrorText(
        422, "Code generation failed", "Check the target's `mcpu`, `triple` and `features`."
    ),
    ErrorCode.GPU_UNSUPPORTED: ErrorText(
        422,
        "The model needs a feature that GPU libraries do not support",
        "Compile for a processor, such as `host`, or remove what the message names from the model "
        "(docs/targets.md).",
    ),
    ErrorCode.FUNCTION_TOO_SLOW: ErrorText(
        422,
        "One function of the model takes too long to compile",
        "Split the listed operators into smaller ones, or raise `timeout_seconds`, up to the "
        "worker's BESSEMER_LIMIT_WALL_SECONDS. Please report the model.",
    ),
    ErrorCode.TARGET_NOT_RUNNABLE: ErrorText(
        422,
        "The worker cannot run this library, so it cannot verify it",
        "The message says why. If the sizes are the reason, fix them, without `dimensions`. Otherwise choose "
        "a target that a worker's own processor or GPU runs, add such a worker, or ask for "
        "`verification: none`.",
    ),
    ErrorCode.VERIFY_MISMATCH: ErrorText(
        422,
        "The compiled library's outputs differ from the model's",
        "Look at the worst element in the message. Raise `verify.relative` or `verify.absolute` only if that "
        "error is acceptable.",
    ),
    ErrorCode.VERIFY_CRASHED: ErrorText(
        422,
        "The compiled library crashed on the reference inputs",
        "If the message names functions of extensions, correct them. Otherwise, report the crash, with the "
        "model.",
    ),
    ErrorCode.BENCHMARK_FAILED: ErrorText(
        422, "The benchmark failed", "Try again, and report it if it fails again.", True
    ),
    ErrorCode.PACKAGE_FAILED: ErrorText(500, "The bundle could not be written", "Try again.", True),
    ErrorCode.SANDBOX_INCOMPLETE: ErrorText(
        503,
        "A required sandbox layer is not active on this worker",
        "Check the layers in `/readyz`, and BESSEMER_SANDBOX in docs/settings.md.",
    ),
    ErrorCode.LIMIT_MEMORY: ErrorText(
        422,
        "The job exceeded its memory limit",
        "Use a smaller model or smaller inputs, or raise BESSEMER_LIMIT_MEMORY_BYTES on the worker.",
    ),
    ErrorCode.LIMIT_DISK: ErrorText(
        422,
        "The job exceeded its disk limit",
        "Use a smaller model, or raise BESSEMER_LIMIT_DISK_BYTES on the worker.",
    ),
    ErrorCode.LIMIT_INODES: ErrorText(
        422,
        "The job exceeded its limit on files",
        "If you trust the model, raise BESSEMER_LIMIT_INODES on the worker.",
    ),
    ErrorCode.LIMIT_OUTPUT: ErrorText(
        422,
        "The job exceeded its output limit",
        "Remove prints from the model, or raise BESSEMER_LIMIT_OUTPUT_BYTES on the worker.",
    ),
    ErrorCode.LIMIT_CPU: ErrorText(
        422, "The job exceeded its CPU time limit", "Raise BESSEMER_LIMIT_CPU_SECONDS on the worker."
    ),
    ErrorCode.LIMIT_WALL_CLOCK: ErrorText(
        422,
        "The job exceeded the worker's time limit",
        "Reduce the work of the stage named in `stage`, or raise BESSEMER_LIMIT_WALL_SECONDS on the worker.",
    ),
    ErrorCode.TIMEOUT: ErrorText(
        422,
        "The job exceeded the request's time limit",
        "Check that the model finishes in torch. Reduce the work of the stage named in `stage`, or raise "
        "`timeout_seconds`.",
    ),
    ErrorCode.CHILD_CRASHED: ErrorText(
        422,
        "The job process crashed",
        "Run the model in torch first: some models crash torch itself. If this one does not, report the "
        "signal, the frames and the log.",
    ),
    ErrorCode.CHILD_MISBEHAVED: ErrorText(
        422, "The job process violated the worker protocol", "Do not trust this model: it may be hostile."
    ),
    ErrorCode.CHILD_KILLED: ErrorText(
        503,
        "The job's processes were killed from outside on every attempt",
        "The worker's machine or container may be short of memory. Check its log, then submit the job again.",
        True,
    ),
    ErrorCode.WORKER_DISK_FULL: ErrorText(
        503,
        "The worker's disk was full on every attempt",
        "Free disk space under BESSEMER_WORK_DIR, then submit the job again.",
        True,
    ),
    ErrorCode.WORKER_LOST: ErrorText(
        503,
        "The worker was lost on every attempt",
        "The job may have crashed the workers that the message names: check their logs, then submit it "
        "again.",
        True,
    ),
    ErrorCode.DEVICE_UNAVAILABLE: ErrorText(
        503,
        "No device for the target was live in time",
        "Start a device of this platform (`bessemer devices` lists the live ones), then submit the job "
        "again. BESSEMER_DEVICE_WAIT_SECONDS on the worker says how long a compilation waits.",
        True,
    ),
    ErrorCode.DEVICE_LOST: ErrorText(
        503,
        "The device was lost on every attempt",
        "The bundle may have crashed the devices that the message names: check them, then submit the job "
        "again.",
        True,
    ),
    ErrorCode.CANCELLED: ErrorText(409, "The compilation was cancelled", "Submit it again if you need it."),
}
