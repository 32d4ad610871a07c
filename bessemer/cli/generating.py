"""``bessemer generate``: let a decoder write tokens, to check a bundle of a language model."""

import json as json_module
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bessemer.cli.output import JsonOption, print_lines, reporting, results
from bessemer.cli.running import bundle_runner, unpacked_bundle
from bessemer.contract.decoder import tokens_taken
from bessemer.errors import InvalidArgumentError

if TYPE_CHECKING:
    from bessemer.bundle.run import Entry, Model, Session, Spec

MAX_TOKEN_DIGITS = 20
"""The number of digits of the largest 64-bit number."""

_MARK = 12345


@dataclass(frozen=True)
class Generated:
    """The tokens that a decoder wrote, and how fast it was.

    Attributes:
        prompt: the tokens that were given.
        tokens: the tokens that it wrote.
        prompt_seconds: the time to read the prompt.
        seconds: the time to write the tokens after the first.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    prompt_seconds: float
    seconds: float

    @property
    def prompt_tokens_per_second(self) -> float:
        """The speed of reading."""
        return len(self.prompt) / self.prompt_seconds

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of writing; None for a single token."""
        return (len(self.tokens) - 1) / self.seconds if len(self.tokens) > 1 else None

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **asdict(self),
            "prompt_tokens_per_second": self.prompt_tokens_per_second,
            "tokens_per_second": self.tokens_per_second,
        }

    def lines(self) -> Iterator[str]:
        """The lines of text."""
        yield f"tokens   {','.join(map(str, self.tokens))}"
        yield f"prompt   {len(self.prompt)} tokens, {self.prompt_tokens_per_second:.1f} tokens per second"
        if self.tokens_per_second is not None:
            yield f"decode   {len(self.tokens)} tokens, {self.tokens_per_second:.1f} tokens per second"


def generate(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", exists=True, help="A bundle's directory, or a bundle.tar.zst.")
    ],
    tokens: Annotated[str, typer.Option(metavar="1,2,3", help="The prompt, as token ids.")],
    steps: Annotated[int, typer.Option(min=1, help="Number of tokens to generate.")] = 64,
    json: JsonOption = False,
) -> None:
    """Continue a prompt with a decoder by greedy decoding, and print tokens per second.

    The bundle needs an entry point that takes one token, alone or with its position, and keeps its cache as
    state. Entry points that take more tokens read the prompt in chunks of that many.
    """
    with reporting(), unpacked_bundle(bundle) as folder, bundle_runner() as runner:
        found = write(runner.load(folder), read_tokens(tokens), steps)
        if json:
            sys.stdout.write(json_module.dumps(found.document(), indent=2) + "\n")
        else:
            print_lines(results, *found.lines())


def read_tokens(text: str) -> tuple[int, ...]:
    """Parse ``1,2,3``. Raises ``InvalidArgumentError``."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InvalidArgumentError(f"--tokens {text} is not a list of token numbers such as 1,2,3")
    longest = max(len(part.strip()) for part in parts)
    if longest > MAX_TOKEN_DIGITS:
        raise InvalidArgumentError(f"--tokens has a number of {longest} digits: that is too many for a token")
    return tuple(map(int, parts))


def write(model: "Model", prompt: Sequence[int], steps: int) -> Generated:
    """Read a prompt and write ``steps`` tokens, greedily.

    Raises:
        InvalidArgumentError: the model has no entry point that takes one token, its cache is too short, or
            a token does not fit its dtype.
    """
    session, entries = model.session(), token_entries(model)
    check_tokens(entries.values(), prompt)
    _check_length(model, entries[1], len(prompt), steps)
    began = time.perf_counter()
    at = 0
    while at < len(prompt):
        count = next(length for length in entries if length <= len(prompt) - at)
        token = _run(session, entries[count], prompt[at : at + count], at)
        at += count
    read = time.perf_counter()
    written = [token]
    for position in range(len(prompt), len(prompt) + steps - 1):
        written.append(_run(session, entries[1], written[-1:], position))
    return Generated(tuple(prompt), tuple(written), read - began, time.perf_counter() - read)


def check_tokens(entries: Iterable["Entry"], prompt: Sequence[int]) -> None:
    """Refuse tokens that the narrowest dtype of the entry points cannot hold.

    Raises:
        InvalidArgumentError: there are such tokens.
    """
    import numpy as np

    dtype = min((_without_seed(entry)[0].dtype for entry in entries), key=lambda name: np.iinfo(name).max)
    if max(prompt) > np.iinfo(dtype).max:
        raise InvalidArgumentError(f"token {max(prompt)} does not fit the decoder's {dtype}")


def _check_length(model: "Model", entry: "Entry", prompt: int, steps: int) -> None:
    """Refuse more tokens than the cache holds."""
    read = prompt + steps - 1  # the last token that is written is not read
    if _keeps(model, entry, read - 1):
        return
    length = bisect_left(range(read), True, key=lambda position: not _keeps(model, entry, position))
    most = length - prompt + 1
    advice = f"so --steps can be at most {most}" if most > 0 else f"too few for a prompt of {prompt}"
    raise InvalidArgumentError(f"the decoder's cache holds {length} tokens, {advice}")


def _keeps(model: "Model", entry: "Entry", position: int) -> bool:
    """Whether a run at a position writes to the cache: the library ignores writes beyond the cache's end.

    The cache is first filled with a number that no token writes, because a padding token may write the zeros
    that the cache begins with. A decoder that takes no position cannot be checked, so it counts as writing.
    """
    import numpy as np

    session = model.session()
    names = [spec.name for spec in entry.states if "float" in spec.dtype]
    if not names or len(_without_seed(entry)) == 1:
        return True
    before = {name: np.full_like(session.state[name], _MARK) for name in names}
    session.state = before
    _run(session, entry, [0], position)
    after = session.state
    return any((after[name] != before[name]).any() for name in names)


def token_entries(model: "Model") -> dict[int, "Entry"]:
    """The entry points that take tokens, by their number of tokens, the longest first.

    Raises:
        InvalidArgumentError: none takes one token.
    """
    lengths = ((tokens_taken(_without_seed(entry)), entry) for entry in model.entries.values())
    found = {length: entry for length, entry in lengths if length is not None}
    if 1 not in found:
        takes = "; ".join(
            f"{entry.name}: {', '.join(map(str, entry.inputs))}" for entry in model.entries.values()
        )
        raise InvalidArgumentError(f"no entry point takes one token, alone or with its position ({takes})")
    return dict(sorted(found.items(), reverse=True))


def _without_seed(entry: "Entry") -> list["Spec"]:
    """The entry point's inputs except the seed of its random numbers, which each run draws."""
    return [spec for spec in entry.inputs if spec.name != entry.seed]


def _run(session: "Session", entry: "Entry", tokens: Sequence[int], position: int) -> int:
    """Run an entry point, and return the most likely next token."""
    import numpy as np

    values = (tokens, range(position, position + len(tokens)))
    inputs = {
        spec.name: np.array(value, spec.dtype).reshape(spec.shape)
        for spec, value in zip(_without_seed(entry), values, strict=False)
    }
    outputs = session.run(inputs, entry.name)
    logits = outputs[entry.outputs[0].name]
    return int(logits.reshape(-1, logits.shape[-1])[-1].argmax())
