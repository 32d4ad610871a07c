"""The stable codes of errors."""

from bessemer.contract.base import GrowingEnum


class ErrorCode(GrowingEnum):
    """Every error that Bessemer reports. A code never changes its meaning."""

    # the caller
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    ORIGIN_REFUSED = "origin-refused"
    ORIGIN_MISSING = "origin-missing"
    HOST_REFUSED = "host-refused"
    QUOTA_EXCEEDED = "quota-exceeded"
    LOGINS_LIMITED = "logins-limited"
    # the request
    REQUEST_INVALID = "request-invalid"
    TARGET_UNSUPPORTED = "target-unsupported"
    NOT_FOUND = "not-found"
    ID_AMBIGUOUS = "id-ambiguous"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    HTTP_INVALID = "http-invalid"
    REQUEST_TOO_LARGE = "request-too-large"
    STATE_CONFLICT = "state-conflict"
    IDEMPOTENCY_CONFLICT = "idempotency-conflict"
    RANGE_NOT_SATISFIABLE = "range-not-satisfiable"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    # the upload
    DIGEST_MISMATCH = "digest-mismatch"
    MODEL_TOO_LARGE = "model-too-large"
    MODEL_EMPTY = "model-empty"
    UPLOAD_INCOMPLETE = "upload-incomplete"
    MODEL_MISSING = "model-missing"
    MODEL_IN_USE = "model-in-use"
    # the extension
    EXTENSION_MISSING = "extension-missing"
    EXTENSION_TOO_LARGE = "extension-too-large"
    EXTENSION_IN_USE = "extension-in-use"
    EXTENSION_INVALID = "extension-invalid"
    LIBRARY_FUNCTION_MISSING = "library-function-missing"
    # the model
    MODEL_NOT_RECOGNIZED = "model-not-recognized"
    MODEL_DAMAGED = "model-damaged"
    MODEL_UNSAFE_ARCHIVE = "model-unsafe-archive"
    MODEL_LOAD_FAILED = "model-load-failed"
    MODEL_MODULE_INVALID = "model-module-invalid"
    MODEL_LEAF_UNAVAILABLE = "model-leaf-unavailable"
    MODEL_OPERATOR_UNAVAILABLE = "model-operator-unavailable"
    MODEL_FORWARD_MISSING = "model-forward-missing"
    MODEL_SIGNATURE_UNSUPPORTED = "model-signature-unsupported"
    MODEL_TENSORS_UNSUPPORTED = "model-tensors-unsupported"
    MODEL_STATEFUL = "model-stateful"
    MODEL_RAISED = "model-raised"
    METHOD_MISSING = "method-missing"
    INPUTS_MISSING = "inputs-missing"
    CONSTANTS_MISSING = "constants-missing"
    INPUTS_MISMATCH = "inputs-mismatch"
    REFERENCE_MISSING = "reference-missing"
    # the invocation
    INPUTS_TOO_LARGE = "inputs-too-large"
    INPUTS_UNREADABLE = "inputs-unreadable"
    INVOCATION_FAILED = "invocation-failed"
    # the compilation
    CAPTURE_FAILED = "capture-failed"
    DYNAMIC_SHAPES_UNSUPPORTED = "dynamic-shapes-unsupported"
    OPERATOR_UNSUPPORTED = "operator-unsupported"
    TRANSLATE_FAILED = "translate-failed"
    KERNEL_UNKNOWN = "kernel-unknown"
    KERNEL_UNAVAILABLE = "kernel-unavailable"
    OPTIMIZE_FAILED = "optimize-failed"
    SPACE_UNKNOWN = "space-unknown"
    FUNCTION_UNKNOWN = "function-unknown"
    SPACE_FAILED = "space-failed"
    STRATEGY_UNKNOWN = "strategy-unknown"
    SCHEDULE_FAILED = "schedule-failed"
    RECORDS_INVALID = "records-invalid"
    REWRITE_UNKNOWN = "rewrite-unknown"
    TUNE_FAILED = "tune-failed"
    BUILD_FAILED = "build-failed"
    GPU_UNSUPPORTED = "gpu-unsupported"
    FUNCTION_TOO_SLOW = "function-too-slow"
    TARGET_NOT_RUNNABLE = "target-not-runnable"
    VERIFY_MISMATCH = "verify-mismatch"
    VERIFY_CRASHED = "verify-crashed"
    BENCHMARK_FAILED = "benchmark-failed"
    PACKAGE_FAILED = "package-failed"
    # the sandbox
    SANDBOX_INCOMPLETE = "sandbox-incomplete"
    LIMIT_MEMORY = "limit-memory"
    LIMIT_DISK = "limit-disk"
    LIMIT_INODES = "limit-inodes"
    LIMIT_OUTPUT = "limit-output"
    LIMIT_CPU = "limit-cpu"
    LIMIT_WALL_CLOCK = "limit-wall-clock"
    TIMEOUT = "timeout"
    CHILD_CRASHED = "child-crashed"
    CHILD_MISBEHAVED = "child-misbehaved"
    # the worker
    CHILD_KILLED = "child-killed"
    WORKER_DISK_FULL = "worker-disk-full"
    WORKER_LOST = "worker-lost"
    # the device
    DEVICE_UNAVAILABLE = "device-unavailable"
    DEVICE_LOST = "device-lost"
    # the user
    CANCELLED = "cancelled"


REQUEST_DEFECTS = frozenset(
    {
        ErrorCode.REQUEST_INVALID,
        ErrorCode.TARGET_UNSUPPORTED,
        ErrorCode.INPUTS_MISSING,
        ErrorCode.INPUTS_MISMATCH,
        ErrorCode.CONSTANTS_MISSING,
        ErrorCode.METHOD_MISSING,
        ErrorCode.KERNEL_UNKNOWN,
        ErrorCode.SPACE_UNKNOWN,
        ErrorCode.FUNCTION_UNKNOWN,
        ErrorCode.STRATEGY_UNKNOWN,
        ErrorCode.REWRITE_UNKNOWN,
    }
)
"""Defects of the request. The service finds some at submission, and others when the compilation runs."""

MODEL_DEFECTS = frozenset(code for code in ErrorCode if code.value.startswith("model-"))
"""Defects of the model itself, which another inspection would find again."""
