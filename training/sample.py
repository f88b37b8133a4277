"""Text from a trained language model, at once or in parts that go on from a saved place."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from data.byte_pairs import END_OF_TEXT
from data.errors import DataError
from data.prepared import open_tokenizer, smoke_tokenizer
from data.tokens import TextStream, Tokens
from data.windows import Packing, choice
from models.build import Backbone
from models.sampling import Drawing, Mode, Sampler, SamplingError
from training.errors import ConfigError, NonFiniteError
from training.loading import opened
from training.loop import load_data
from training.places import load_place, save_place
from training.rng import Stream, stream_key
from training.state import Program
from training.weights import config_sha256, read_saved, sha256_of
from training.workdir import read_config, refuse_other_data

BETWEEN = f"\n{END_OF_TEXT}\n"
"""How an end-of-text that ends nothing is shown, as in the files of stories."""


class Trained(NamedTuple):
    """One seed of a trained language model. origin: what its saved places belong to, in plain values."""

    program: Program
    params: Any
    tokens: Tokens
    origin: dict[str, Any]

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.program.task.classes

    @property
    def separated_by(self) -> int | None:
        """The token that ends a text, None if nothing does."""
        packing = choice(self.program.config.data.request, "packing", Packing)
        return self.tokens.end_of_text if packing is Packing.SEPARATED else None

    def first_tokens(self) -> np.ndarray:
        """In place of a prompt: the end of the text before, or of the line before."""
        end = self.separated_by
        return self.tokens.encode("\n") if end is None else np.array([end])


def open_trained(workdir: Path, data_dir: Path, which: str, train_seed: int | None) -> tuple[Trained, str]:
    """A seed of a run (None: its first) at a checkpoint ("best": its own, "last", or a step), and a line about it.

    Raises ConfigError if there is no such run, seed or checkpoint, or it is no language model; DataError if the data,
    with which the vocabulary comes, are missing or damaged.
    """
    config, record = read_config(workdir)
    if config.model.backbone is not Backbone.LANGUAGE:
        raise ConfigError(f"{workdir} holds a model of {config.data.task} and no language model: nothing to sample")
    saved = read_saved(workdir, which, "--checkpoint")
    data = load_data(config, data_dir)
    refuse_other_data(workdir, record, data.content_sha256)
    request = config.data.request
    tokens = smoke_tokenizer(request) if config.data.smoke else open_tokenizer(request, data_dir)
    if len(tokens.token_bytes) != data.spec.classes:
        raise DataError(f"{request.task}: a vocabulary of {len(tokens.token_bytes)} for {data.spec.classes} ids")
    run = opened(saved, train_seed, data_dir)
    origin = {
        "layer": config.model.layer,
        "config": config_sha256(saved.record),
        "seed": run.seed,
        "step": run.step,
        "parameters": sha256_of(*(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(run.params))),
    }
    line = f"{config.model.layer}, seed {run.seed}, {which} checkpoint, step {max(run.step, 0)}"
    return Trained(run.program, run.params, tokens, origin), "; ".join([line, *filter(None, [run.note])])


@dataclass(frozen=True)
class Asked:
    """What is to be drawn.

    length: tokens. seed: of the draws; None: 0, or what the saved place goes on with. state_in, state_out: files of
    places.
    """

    drawing: Drawing
    prompt: str = ""
    length: int = 500
    mode: Mode = Mode.CARRY
    seed: int | None = None
    state_in: Path | None = None
    state_out: Path | None = None


def sample(trained: Trained, asked: Asked) -> Iterator[str]:
    """The prompt, and then the text of each token as soon as it is drawn; at the end the place is saved.

    A text that is saved and gone on with is, joined, the text drawn at once. Raises ConfigError and DataError for what
    does not fit the model, its vocabulary or its cache, or a place that is damaged or belongs to another model;
    NonFiniteError where the logits become NaN or infinite.
    """
    try:
        yield from _sample(trained, asked)
    except SamplingError as error:
        raise ConfigError(str(error)) from error
    except FloatingPointError as error:
        raise NonFiniteError(f"{error}; --mode={Mode.WINDOW} never carries more than a training window") from error


def _sample(trained: Trained, asked: Asked) -> Iterator[str]:
    if asked.state_out is not None and not asked.state_out.parent.is_dir():
        raise ConfigError(f"--state_out={asked.state_out}: there is no folder {asked.state_out.parent}")
    if asked.state_out is not None and asked.state_out.is_dir():
        raise ConfigError(f"--state_out={asked.state_out} is a folder: name a file")
    try:
        said = asked.prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"--prompt is no text in UTF-8: {error.reason} at character {error.start}") from error
    sampler, prompt = _sampler(trained, asked), trained.tokens.encode(asked.prompt)
    key = stream_key(asked.seed or 0, Stream.SAMPLE)
    if asked.state_in is None:
        place, pending = sampler.start(prompt if len(prompt) else trained.first_tokens(), key), b""
    else:
        place, pending = load_place(asked.state_in, trained.origin, sampler.fresh_state, trained.vocabulary_size)
        if asked.seed is not None:
            place = place._replace(key=key)
        if len(prompt):
            place = sampler.read(prompt, place)
    tokens, text = sampler.go_on(place, asked.length), TextStream(pending)
    yield text(said)
    for token, after in tokens:
        place = after
        shown = token == sampler.end_of_text and asked.mode is Mode.RESET
        yield text(BETWEEN.encode() if shown else trained.tokens.bytes_of(np.array([token])))
    if asked.state_out is not None:
        save_place(asked.state_out, trained.origin, place, text.pending)


def _sampler(trained: Trained, asked: Asked) -> Sampler:
    program = trained.program
    return Sampler(
        program.graphdef,
        trained.params,
        program.task.length,
        asked.drawing,
        asked.mode,
        capacity=getattr(program.config.model.layer_config(), "max_length", None),
        end_of_text=trained.separated_by,
    )
