"""``python build_libraries.py OUTPUT MODEL.pt2 …`` compiles models in this process and prints the date."""

import sys
from datetime import date
from pathlib import Path

from stage_samples import TARGET, make_context

from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from worker.candidates.server import fork_server
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.target import compile_target
from worker.compiler.values import Upload


def main(output: Path, models: list[Path]) -> None:
    target = compile_target(TARGET)
    with fork_server(output) as candidates:
        for model in models:
            folder = output / model.stem
            folder.mkdir()
            request = CompilationRequest(model="0" * 64, target="host", stop_after=Stage.BUILD)
            run_pipeline(Upload(model, request, target), make_context(folder, candidates))
    print(date.today())


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
