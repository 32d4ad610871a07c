"""The stable codes of errors."""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Every way in which Bessemer says no. A code never changes its meaning."""

    # the request
    REQUEST_INVALID = "request-invalid"
    NOT_FOUND = "not-found"
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
    # the model
    MODEL_NOT_RECOGNIZED = "model-not-recognized"
    MODEL_DAMAGED = "model-damaged"
    MODEL_UNSAFE_ARCHIVE = "model-unsafe-archive"
    MODEL_LOAD_FAILED = "model-load-failed"
    MODEL_LEAF_UNAVAILABLE = "model-leaf-unavailable"
    MODEL_SIGNATURE_UNSUPPORTED = "model-signature-unsupported"
    MODEL_TENSORS_UNSUPPORTED = "model-tensors-unsupported"
    MODEL_STATEFUL = "model-stateful"
    MODEL_RAISED = "model-raised"
    INPUTS_MISSING = "inputs-missing"
    INPUTS_MISMATCH = "inputs-mismatch"
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
    REWRITE_UNKNOWN = "rewrite-unknown"
    TUNE_FAILED = "tune-failed"
    BUILD_FAILED = "build-failed"
    FUNCTION_TOO_SLOW = "function-too-slow"
    TARGET_NOT_RUNNABLE = "target-not-runnable"
    VERIFY_MISMATCH = "verify-mismatch"
    VERIFY_CRASHED = "verify-crashed"
    BENCHMARK_FAILED = "benchmark-failed"
    PACKAGE_FAILED = "package-failed"
    # the confinement
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
    CANCELLED = "cancelled"


MODEL_DEFECTS = frozenset(code for code in ErrorCode if code.value.startswith("model-"))
"""What is wrong with a model's own bytes stays wrong; a limit or a lost worker may not come again."""
