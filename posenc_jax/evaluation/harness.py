"""Tasks of lm-evaluation-harness on a run, with any extension that fits it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from lm_eval import evaluator, utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.tasks import TaskManager
from tqdm import tqdm

import models
from posenc_jax.config import Evaluation
from posenc_jax.data import tokenizer
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import losses
from posenc_jax.evaluation.methods import extended_encoding
from posenc_jax.runs.subject import load_subject
from posenc_jax.runtime import devices
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.hub import connected

SHORTEST = 32  # rows are padded to this, or to its double, and so on
RESAMPLES = 1_000  # of a standard error without a formula


class RunLM(TemplateLM):
    """A model and its encoding, read in rows of a few lengths that are padded on the right.

    A context that does not fit `max_length` loses its first tokens and is counted in `cut`. What a
    model was trained to find at the beginning of a row is put there.
    """

    def __init__(
        self,
        model: models.Model,
        encoding: Encoding,
        encoder: tokenizer.Bytes | tokenizer.Learned | tokenizer.Unavailable,
        max_length: int,
        facts: Mapping[str, Any] | None = None,  # about the run, for the results
        tokens_per_call: int = Evaluation.tokens_per_call,
        prefix: int | None = None,  # a token of the vocabulary before every text
    ):
        super().__init__()
        self.prefix = prefix
        self.mesh = devices.make_mesh()
        placed = jax.device_put((model, encoding), devices.replicated(self.mesh))
        self.model, self.encoding = placed
        self.encoder, self.max_length, self.facts = encoder, max_length, facts or {}
        self.tokens_per_call, self.cut, self.generations = tokens_per_call, 0, 0
        # Where positions depend on the length of the row, all rows have the same.
        self.shortest = SHORTEST if encoding.consecutive() else max_length

    @property
    def end_token_id(self) -> int | None:
        return tokenizer.end_of_text(self.encoder)

    @property
    def eot_token_id(self) -> int:
        """The token before a text: the model's own, the end of another one, or a new line."""
        if self.prefix is not None:
            return self.prefix
        end = self.end_token_id
        return self._encode("\n")[-1] if end is None else end

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs
    ) -> list[int]:
        """Tokens of a text, after the first token that the model was trained with, if there is
        one; where that is a trained vector, the model replaces the token."""
        first = [] if add_special_tokens is False else self._first
        return first + self._encode(string)

    @property
    def _first(self) -> list[int]:
        """The token that begins every row, if any."""
        begins = self.model.config.bos or self.prefix is not None
        return [self.prefix_token_id] if begins else []

    def _encode(self, string: str) -> list[int]:
        return self.encoder.encode(string, "a request").tolist() if string else []

    def get_model_info(self) -> dict[str, Any]:
        """Facts that lm-evaluation-harness adds to its results."""
        return dict(self.facts) | {"max_length": self.max_length, "contexts_cut": self.cut}

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs
    ) -> list[tuple[float, bool]]:
        return self._score([(context, answer) for _, context, answer in requests])

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        by_text = [self._windows(request.args[0]) for request in requests]
        scores = iter(self._score([window for windows in by_text for window in windows]))
        return [sum(next(scores)[0] for _ in windows) for windows in by_text]

    def _windows(self, text: str) -> list[tuple[list[int], list[int]]]:
        """Context and targets of the windows that together score every token of a text once."""
        tokens = self.tok_encode(text, add_special_tokens=False)
        first = self._first
        windows = utils.get_rolling_token_windows(
            tokens, self.prefix_token_id, self.max_length - len(first), context_len=1
        )
        found = [utils.make_disjoint_window(window) for window in windows]
        return found[:1] + [(first + context, targets) for context, targets in found[1:]]

    def _score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """Log-likelihood of each continuation of a context, and whether it is the greedy one."""
        longest = max((len(continuation) for _, continuation in pairs), default=0)
        if longest > self.max_length:
            raise ConfigError(
                f"a continuation of {longest} tokens does not fit a maximum length of "
                f"{self.max_length}; give a longer one"
            )
        # The last token of a row is a target only.
        rows = self._cut([context + continuation for context, continuation in pairs], 1)
        scores = [(0.0, True)] * len(pairs)
        for batch, length in self._batches([len(row) - 1 for row in rows], self.max_length):
            tokens = self._padded([rows[i] for i in batch], length + 1)
            outputs = losses.losses_of(self.model, self.encoding, tokens, length, self.mesh)
            for i, nats, chosen in zip(batch, *jax.device_get(outputs), strict=True):
                end = len(rows[i]) - 1
                targets = slice(end - len(pairs[i][1]), end)
                total = float(nats[targets].sum(dtype=np.float64))
                scores[i] = -total, bool(np.array_equal(chosen[targets], pairs[i][1]))
        return scores

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        texts = [""] * len(requests)
        alike: dict[str, list[int]] = {}  # requests with the same options
        arguments: list[Any] = [request.args for request in requests]  # a context and options
        for i, (_, options) in enumerate(arguments):
            alike.setdefault(json.dumps(options, sort_keys=True), []).append(i)
        for options, group in alike.items():
            contexts = [arguments[i][0] for i in group]
            for i, text in zip(group, self._continue(contexts, json.loads(options)), strict=True):
                texts[i] = text
        return texts

    def _continue(self, contexts: list[str], options: dict[str, Any]) -> list[str]:
        """Generate after each context, up to the end of the text or a stop sequence."""
        given: Any = normalize_gen_kwargs(options)
        tokens, until = given["max_gen_toks"], given["until"]
        if tokens >= self.max_length:
            raise ConfigError(
                f"a task generates {tokens} tokens, which leaves no room for its context in a "
                f"maximum length of {self.max_length}; give a longer one"
            )
        prompts = [self.tok_encode(context) or [self.prefix_token_id] for context in contexts]
        prompts = self._cut(prompts, -tokens)
        # Longer stop sequences are found in the text.
        stop = [ids[0] for ids in map(self._encode, until) if len(ids) == 1]
        stop += [] if self.end_token_id is None else [self.end_token_id]
        temperature = given.get("temperature", 1.0 if given["do_sample"] else 0.0)
        drawn = {name: given.get(name) for name in ("top_k", "top_p")} if temperature else {}
        texts = [""] * len(contexts)
        lengths = [len(prompt) for prompt in prompts]
        for batch, length in self._batches(lengths, self.max_length - tokens):
            self.generations += 1
            generated = models.generate(
                self.model,
                self.encoding,
                self._padded([prompts[i] for i in batch], length),
                lengths=np.array([lengths[i] for i in batch]),
                tokens=tokens,
                mesh=self.mesh,
                temperature=temperature,
                key=jax.random.key(self.generations),
                stop=stop or None,
                **drawn,
            )
            for i, row in zip(batch, np.asarray(generated), strict=True):
                texts[i] = postprocess_generated_text(self._decode(row), until, None)
        return texts

    def _decode(self, row: np.ndarray) -> str:
        ends = np.flatnonzero(row == self.end_token_id)
        return self.encoder.decode(row[: ends[0]] if len(ends) else row)

    def _cut(self, rows: list[list[int]], spare: int) -> list[list[int]]:
        """The last tokens of each row, up to `spare` more than the maximum length."""
        most = self.max_length + spare
        self.cut += sum(len(row) > most for row in rows)
        first = self._first
        room = most - len(first)
        return [first + row[len(row) - room :] if len(row) > most else row for row in rows]

    def _batches(self, lengths: list[int], longest: int) -> Iterator[tuple[np.ndarray, int]]:
        """Rows to read at once and the length to pad them to; a row may be read twice."""
        padded = np.array([self._padded_length(length, longest) for length in lengths])
        with tqdm(total=len(lengths), desc="requests") as bar:
            for length in map(int, np.unique(padded)):
                members = np.flatnonzero(padded == length)
                rows = losses.rows_per_call(
                    len(members), length, self.mesh.size, self.tokens_per_call
                )
                for first in range(0, len(members), rows):
                    batch = np.arange(first, first + rows)
                    yield members[batch % len(members)], length  # one shape for all calls
                    bar.update(min(rows, len(members) - first))

    def _padded_length(self, length: int, longest: int) -> int:
        doubled = self.shortest << max(0, -(-length // self.shortest) - 1).bit_length()
        return min(doubled, longest)

    def _padded(self, rows: list[list[int]], length: int) -> jax.Array:  # [N, length]
        tokens = np.zeros((len(rows), length), np.int32)
        for filled, row in zip(tokens, rows, strict=True):
            filled[: len(row)] = row
        return jax.device_put(tokens, devices.by_rows(self.mesh))


def load(
    run: Path, extension: str = "none", max_length: int | None = None, step: int | None = None
) -> RunLM:
    """A run with one extension; without a scale it gets the maximum length over L."""
    subject = load_subject(run, step)
    encoding, max_length = extended_encoding(subject, extension, max_length)
    facts = {"run": subject.name, "step": subject.step, "extension": extension}
    options = {"facts": facts, "prefix": subject.prefix}
    return RunLM(subject.parts.model, encoding, subject.tokenizer, max_length, **options)


def run_tasks(
    model: RunLM,
    tasks: Sequence[str],
    *,
    limit: int | None = None,
    include: Path | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Results of lm-evaluation-harness on its tasks, or on those of a folder of YAML files."""
    manager = TaskManager(
        include_path=include, include_defaults=include is None, metadata=dict(metadata or {})
    )
    unknown = [task for task in tasks if not manager.match_tasks([task])]
    if unknown:
        place = "lm-evaluation-harness" if include is None else include
        raise ConfigError(f"{place} has no task {', '.join(unknown)}")
    # The pool of processes that resamples otherwise would fork the threads of jax.
    os.environ["DISABLE_MULTIPROC"] = "1"
    with connected(f"cannot load the data of {', '.join(tasks)}", ConnectionError):
        results = evaluator.simple_evaluate(
            model=model,
            tasks=list(tasks),
            task_manager=manager,
            limit=limit,
            bootstrap_iters=RESAMPLES,
            log_samples=False,
        )
    assert results is not None  # of the first process, which is the only one
    return dict(results)


def table(results: dict[str, Any]) -> str:
    """The tables of tasks and of groups, as lm-evaluation-harness prints them."""
    columns = [name for name in ("results", "groups") if results.get(name)]
    return "\n".join(utils.make_table(results, name) for name in columns)


def as_json(results: dict[str, Any]) -> str:
    return json.dumps(results, indent=2, default=utils.handle_non_serializable)
